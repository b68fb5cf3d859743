"""How do I send one? A message from a form, and the command that sends the same."""

from datetime import UTC, datetime
from typing import Any, Final

import htpy as h
from htpy import Node

from roquette.admin.command import changes_of
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.topic import head
from roquette.errors import ConfigError, MessageIllegal, RoquetteError
from roquette.message.message import Message

PATHS: Final = ("/topics/{topic}/produce",)
_FIELDS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("tag", "Tag", {}),
    ("keys", "Keys", {"placeholder": "with blanks between"}),
    ("shard_key", "Ordering key", {}),
    ("properties", "Properties", {"placeholder": "name=value name=value"}),
    ("delay", "Delay in seconds", {"type": "number", "min": "0"}),
)


async def show(ask: ViewAsk, form: dict[str, str] | None = None, done: Node = None) -> View:
    """The form; what was typed stays, so that the next one is sent as easily."""
    topic, typed = ask.words["topic"], form or {}
    fields = (parts.entry(n, text, typed.get(n, ""), **more) for n, text, more in _FIELDS)
    content = h.form(".act-form", method="post", action=ask.url("topics", topic, "produce"))[
        h.label["Body", h.textarea(name="body", rows="8", required=True)[typed.get("body", "")]],
        h.div(".fields")[fields],
        h.button(".go", type="submit")["Send"],
    ]
    shown = parts.empty("This console is read-only") if ask.read_only else content
    command = ("produce", topic, typed.get("body", "hello"))
    return View(f"{topic}: produce", "topics", [head(ask, topic, "produce"), done, shown], command)


async def act(ask: ViewAsk, form: dict[str, str], address: str) -> View:
    """Send it."""
    topic, typed = ask.words["topic"], {name: text.strip() for name, text in form.items()}
    try:
        with ask.noting(address, f"produce {topic}"):
            receipt = await ask.cluster.client.send(
                _message(ask, topic, form.get("body", ""), typed)
            )
    except RoquetteError as error:
        return await show(ask, form, parts.note("bad", "Not sent", str(error)))
    at = f"{receipt.queue.broker_name}:{receipt.queue.queue_id} at {receipt.queue_offset}"
    seen = h.a(href=ask.url("messages", receipt.message_id, topic=topic))["What became of it"]
    return await show(ask, form, parts.note("ok", f"Sent to {at}", seen))


def _message(ask: ViewAsk, topic: str, body: str, typed: dict[str, str]) -> Message:
    """Raises ConfigError for what cannot be one."""
    try:
        seconds = float(typed.get("delay") or 0)
        at = datetime.fromtimestamp(ask.now_ms / 1000 + seconds, UTC) if seconds else None
        return Message(
            topic,
            body.replace("\r\n", "\n").encode(),
            tag=typed.get("tag") or None,
            keys=tuple(typed.get("keys", "").split()),
            properties=changes_of(typed.get("properties", "").split()),
            shard_key=typed.get("shard_key") or None,
            deliver_at=at,
        )
    except (MessageIllegal, ValueError, OverflowError) as error:
        raise ConfigError(str(error)) from None
