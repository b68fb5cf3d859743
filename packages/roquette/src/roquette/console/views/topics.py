"""Which topics are there? A page of those that fit, with their queues and messages; facts are asked for a page only."""

from typing import Final

import htpy as h

from roquette.admin.catalogue import DEAD, OWN, RETRIES, SYSTEM, TopicRow, topic_rows
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.finding import topics_of

PATHS: Final = ("/topics",)
PAGE: Final = 50
KINDS: Final = {OWN: "Topics", RETRIES: "Retries", DEAD: "Dead letters", SYSTEM: "System"}


async def show(ask: ViewAsk) -> View:
    """The view."""
    words, kind = ask.text("q"), ask.text("kind") or OWN
    names = await topics_of(ask)
    found, _ = names.page(words, None, kind)
    pages = max(1, -(-len(found) // PAGE))
    page = ask.number("page", 1, pages, 1)
    shown = found[(page - 1) * PAGE : page * PAGE]
    rows = await ask.cluster.look(("rows", tuple(shown)), lambda: topic_rows(shown))
    of_all = len(names.kinds.get(kind, ()))
    chosen = "" if kind == OWN else kind
    body = [
        parts.heading("Topics", (ask.url("act", "topic-create"), "Create topic")),
        parts.tabs(
            kind,
            *(
                (key, ask.url("topics", kind="" if key == OWN else key, q=words), text)
                for key, text in KINDS.items()
            ),
        ),
        parts.search(
            ask.url("topics"),
            words,
            f"{parts.number(len(found))} of {parts.number(of_all)}",
            ("kind", chosen),
        ),
        parts.grid(
            ["Topic", "#Brokers", "#Queues r/w", "Perm", "#Messages", "Last message"],
            [_row(ask, row) for row in rows],
            caption="Topics",
            keyed=[f"t-{row.topic}" for row in rows],
            empty=parts.empty(f"No topic has “{words}” in its name")
            if words
            else parts.empty(
                "No topics yet",
                parts.code("roquette produce orders hello"),
                " makes one: a send to a new name creates it where autoCreateTopicEnable is on.",
            ),
        ),
        parts.pager(
            ask.here(page=page - 1) if page > 1 else "",
            ask.here(page=page + 1) if page < pages else "",
            f"{page} of {parts.number(pages)}",
        ),
    ]
    like = ("--like", words) if words else ()
    system = ("--system",) if kind != OWN else ()
    command = ("topic", "list", *like, "--limit", str(PAGE), *system)
    return View(title="Topics", place="topics", body=body, command=command, live_s=5)


def _row(ask: ViewAsk, row: TopicRow) -> tuple[h.Node, ...]:
    queues = f"{row.read_queues}/{row.write_queues}"
    if row.read_queues == row.write_queues:
        queues = parts.number(row.read_queues)
    return (
        h.a(href=ask.url("topics", row.topic))[row.topic],
        parts.number(row.brokers),
        queues,
        row.perm,
        parts.number(row.messages),
        h.span(".dim")[row.error] if row.error else parts.moment(row.last_ms, ago=True),
    )
