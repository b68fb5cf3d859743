"""What died, and may it go again? Groups that have dead letters; of one, its letters, chosen and sent again."""

import json
from typing import Final

import htpy as h
from htpy import Node

from roquette.admin.catalogue import DEAD, topic_rows
from roquette.admin.newest import NewestPage
from roquette.admin.stored import fields_of
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.finding import topics_of
from roquette.console.views.messages import dead_of, message_list, newest_page, page_of
from roquette.errors import RouteNotFound
from roquette.message.names import DLQ_PREFIX

PATHS: Final = ("/dead", "/dead/{group}")
FILES: Final = {"/dead/{group}/letters.jsonl": "export"}
PAGE: Final = 50
MOST_EXPORTED: Final = 2_000


async def show(ask: ViewAsk) -> View:
    if "group" in ask.words:
        return await _letters(ask, ask.words["group"])
    names, words = await topics_of(ask), ask.text("q")
    found, more = names.page(words, PAGE, DEAD)
    rows = await ask.cluster.look(("rows", tuple(found)), lambda: topic_rows(found))
    count = f"{parts.counted(len(names.kinds.get(DEAD, ())), 'group')} had some"
    why = "A message dies when its group has refused it 16 times, or as it says."
    table = parts.grid(
        "Groups with dead letters",
        rows,
        {
            "Group": lambda row: ask.link("dead", row.topic.removeprefix(DLQ_PREFIX)),
            "#Letters": lambda row: row.messages,
            "The last one": lambda row: parts.moment(row.last_ms, ago=True),
            "": lambda row: parts.dim(row.error),
        },
        parts.empty("No group has dead letters", why),
    )
    search = parts.search(ask.url("dead"), words, count)
    left = parts.more(more, "more groups: search for one")
    body = [parts.heading("Dead letters"), search, table, left]
    return View("Dead letters", "dead", body, ("dlq", "ls"), 5)


async def _letters(ask: ViewAsk, group: str) -> View:
    topic = dead_of(group)
    acts: list[tuple[str, str]] = []
    try:
        page = await newest_page(ask, topic, PAGE)
        acts = [
            (ask.url("dead", group, "letters.jsonl"), "Export"),
            (ask.url("act", "dlq-purge", group=group), "Delete all"),
        ]
        none = parts.empty("No letters here")
        content = page_of(ask, page, _choice(ask, group, page) if page.messages else none)
    except RouteNotFound:
        content = parts.empty(f"Group {group} has no dead letters")
    above = parts.crumbs((ask.url("dead"), "Dead letters"))
    body = [above, parts.heading(group, *acts), content]
    return View(f"{group}: dead letters", "dead", body, ("dlq", "ls", group))


def _choice(ask: ViewAsk, group: str, page: NewestPage) -> Node:
    """Letters with boxes, and where those that are chosen go."""
    where, title = "where each was sent first", "Send the chosen again to"
    send = h.div(".deed")[
        parts.entry("to", title, placeholder=where),
        h.button(type="submit")["Send the chosen again: the plan"],
        parts.dim("Every group of the topic gets them; they stay among the dead letters."),
    ]
    return h.form(action=ask.url("act", "dlq-resend"))[
        h.input(type="hidden", name="group", value=group),
        message_list(ask, dead_of(group), page.messages, boxes=True),
        None if ask.read_only else send,
    ]


async def export(ask: ViewAsk) -> tuple[str, bytes]:
    """The letters as JSON lines; the first line says whether it is all of them."""
    group = ask.words["group"]
    page = await newest_page(ask, dead_of(group), MOST_EXPORTED)
    part = f"a part: the newest {len(page.messages)}" if page.more or page.errors else "whole"
    head = {"group": group, "letters": len(page.messages), "is": part, "not looked at": page.errors}
    lines = [head, *map(fields_of, page.messages)]
    text = "".join(json.dumps(each) + "\n" for each in lines)
    return f"{group}-dead-letters.jsonl", text.encode()
