"""Which topics are there? A page of those that fit, with their queues and messages; facts are asked for a page only."""

from typing import Final

from roquette.admin.catalogue import DEAD, OWN, RETRIES, SYSTEM, TopicRow, topic_rows
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.finding import PAGE, names_page, topics_of

PATHS: Final = ("/topics",)
KINDS: Final = {OWN: "Topics", RETRIES: "Retries", DEAD: "Dead letters", SYSTEM: "System"}


async def show(ask: ViewAsk) -> View:
    page, words = names_page(ask, await topics_of(ask), KINDS), ask.text("q")
    rows = await ask.cluster.look(("rows", tuple(page.shown)), lambda: topic_rows(page.shown))
    example = parts.code("roquette produce orders hello")
    why = " makes one: a send to a new name creates it where autoCreateTopicEnable is on."
    none = parts.empty("No topics yet", example, why)
    table = parts.grid(
        "Topics",
        rows,
        {
            "Topic": lambda row: ask.link("topics", row.topic),
            "#Brokers": lambda row: row.brokers,
            "#Queues r/w": _queues,
            "Perm": lambda row: row.perm,
            "#Messages": lambda row: row.messages,
            "Last message": lambda row: parts.dim(row.error) or parts.moment(row.last_ms, ago=True),
        },
        parts.empty(f"No topic has “{words}” in its name") if words else none,
        lambda row: f"t-{row.topic}",
    )
    heading = parts.heading("Topics", (ask.url("act", "topic-create"), "Create topic"))
    command = ("topic", "list", "--limit", str(PAGE), *page.options)
    return View("Topics", "topics", [heading, page.above, table, page.below], command, 5)


def _queues(row: TopicRow) -> int | str:
    same = row.read_queues == row.write_queues
    return row.read_queues if same else f"{row.read_queues}/{row.write_queues}"
