"""How do I send one? A message from a form, and the command that sends the same."""

from datetime import UTC, datetime
from typing import Final

import htpy as h
from htpy import Node

from roquette.admin.command import changes_of
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.topic import head
from roquette.errors import MessageIllegal, RoquetteError
from roquette.message.message import Message

PATHS: Final = ("/topics/{topic}/produce",)


async def show(ask: ViewAsk, form: dict[str, str] | None = None, done: Node = None) -> View:
    """The form; what was typed stays, so that the next one is sent as easily."""
    topic, typed = ask.words["topic"], form or {}
    content = h.form(".act-form", method="post", action=ask.url("topics", topic, "produce"))[
        h.label["Body", h.textarea(name="body", rows="8", required=True)[typed.get("body", "")]],
        h.div(".fields")[
            parts.entry("tag", "Tag", typed.get("tag", "")),
            parts.entry("keys", "Keys", typed.get("keys", ""), placeholder="with blanks between"),
            parts.entry("shard_key", "Ordering key", typed.get("shard_key", "")),
            parts.entry(
                "properties",
                "Properties",
                typed.get("properties", ""),
                placeholder="name=value name=value",
            ),
            parts.entry(
                "delay", "Delay in seconds", typed.get("delay", ""), type="number", min="0"
            ),
        ],
        h.button(".go", type="submit")["Send"],
    ]
    body = [
        head(ask, topic, ""),
        done,
        content if not ask.read_only else parts.empty("This console is read-only"),
    ]
    return View(
        title=f"{topic}: produce",
        place="topics",
        body=body,
        command=("produce", topic, typed.get("body", "hello")),
    )


async def act(ask: ViewAsk, form: dict[str, str], address: str) -> View:
    """Send it."""
    topic, audit = ask.words["topic"], ask.deeds.audit
    where = (ask.person, address, ask.cluster.name, f"produce {topic}")
    try:
        seconds = float(form.get("delay", "").strip() or 0)
        message = Message(
            topic,
            form.get("body", "").replace("\r\n", "\n").encode(),
            tag=form.get("tag", "").strip() or None,
            keys=tuple(form.get("keys", "").split()),
            properties=changes_of(form.get("properties", "").split()),
            shard_key=form.get("shard_key", "").strip() or None,
            deliver_at=datetime.fromtimestamp(ask.now_ms / 1000 + seconds, UTC)
            if seconds
            else None,
        )
        audit.note(*where, "begun")
        receipt = await ask.cluster.client.send(message)
    except (RoquetteError, MessageIllegal, ValueError) as error:
        audit.note(*where, f"failed: {error}")
        return await show(ask, form, parts.note("bad", "Not sent", str(error)))
    audit.note(*where, "done")
    ask.cluster.looks.forget()
    at = f"{receipt.queue.broker_name}:{receipt.queue.queue_id} at {receipt.queue_offset}"
    seen = h.a(href=ask.url("messages", receipt.message_id, topic=topic))["What became of it"]
    return await show(ask, form, parts.note("ok", f"Sent to {at}", seen))
