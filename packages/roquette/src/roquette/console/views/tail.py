"""What comes to a topic now? Messages as they are stored, by tags or SQL92; no group is made or moved."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import htpy as h

from roquette.admin.newest import READER
from roquette.client.consumer_options import sql
from roquette.console.ask import View, ViewAsk
from roquette.console.views.messages import filter_fields, message_row, options_of, typed
from roquette.console.views.topic import head

PATHS: Final = ("/topics/{topic}/tail",)
STREAM: Final = "/topics/{topic}/stream"
GATHER_S: Final = 0.25
QUIET_S: Final = 5.0
AT_ONCE: Final = 20
MOST: Final = 2_000
"""Messages of one event; of more than AT_ONCE the newest are shown and the others counted."""


async def show(ask: ViewAsk) -> View:
    topic = ask.words["topic"]
    given = {"kind": ask.query.get("kind", ""), "filter": ask.text("filter", 500)}
    form = h.form(".filter", method="get", role="search")[
        filter_fields(ask),
        h.button(type="submit")["Apply"],
        h.button(".act", type="button", data_hold=True, aria_pressed="false")["Hold (h)"],
        h.span("#tailsum.dim", role="status")["waiting for messages"],
    ]
    label, events = "Messages, newest first", ask.url("topics", topic, "stream", **given)
    body = [
        head(ask, topic, "tail"),
        form,
        h.noscript[h.p["A tail needs JavaScript; the messages there are show without it."]],
        h.div("#tail.messages", data_stream=events, role="log", aria_label=label),
    ]
    return View(f"{topic}: tail", "topics", body, ("msg", "tail", topic, *options_of(ask)))


async def stream(ask: ViewAsk) -> AsyncIterator[str]:
    """Server-sent events: `rows` (markup) after how many came and were left out; comments keep the connection open."""
    topic, client, (tags, expression) = ask.words["topic"], ask.cluster.client, typed(ask)
    chosen: dict[str, Any] = {"filter": sql(expression)} if expression else {"tag": tags}
    reader = client.reader(group=READER, **chosen)
    try:
        queues = await client.queues(topic)
        await reader.assign(queues)
        for queue in queues:
            await reader.seek_to_end(queue)
        total = 0
        while True:
            found = await reader.poll(timeout=QUIET_S)
            if not found:
                yield ": still here\n\n"
                continue
            await asyncio.sleep(GATHER_S)  # so that queues' messages come in the order of times
            while len(found) < MOST and (more := await reader.poll(timeout=0)):
                found += more
            total += len(found)
            found.sort(key=lambda m: m.store_timestamp_ms)
            shown = found[-AT_ONCE:]
            rows = "".join(str(h.fragment[message_row(ask, topic, m)]) for m in reversed(shown))
            lines = "".join(f"data: {line}\n" for line in rows.split("\n"))
            yield f"event: rows\ndata: {total} {len(found) - len(shown)}\n{lines}\n"
    finally:
        await reader.close()
