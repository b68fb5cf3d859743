"""What died, and may it go again? Groups that have dead letters; of one, its letters, chosen and sent again."""

import json
from typing import Final

import htpy as h
from htpy import Node

from roquette.admin.catalogue import DEAD, topic_rows
from roquette.admin.stored import fields_of
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.finding import topics_of
from roquette.console.views.messages import dead_of, ends_of, message_list, newest_page
from roquette.errors import RouteNotFound
from roquette.message.names import DLQ_PREFIX

PATHS: Final = ("/dead", "/dead/{group}")
FILES: Final = {"/dead/{group}/letters.jsonl": "export"}
PAGE: Final = 50
MOST_EXPORTED: Final = 2_000


async def show(ask: ViewAsk) -> View:
    """The view."""
    if "group" in ask.words:
        return await _letters(ask, ask.words["group"])
    names = await topics_of(ask)
    words = ask.text("q")
    found, more = names.page(words, PAGE, DEAD)
    rows = await ask.cluster.look(("rows", tuple(found)), lambda: topic_rows(found))
    body = [
        parts.heading("Dead letters"),
        parts.search(
            ask.url("dead"),
            words,
            f"{parts.number(len(names.kinds.get(DEAD, ())))} groups had some",
        ),
        parts.grid(
            ["Group", "#Letters", "The last one", ""],
            [
                (
                    h.a(href=ask.url("dead", row.topic.removeprefix(DLQ_PREFIX)))[
                        row.topic.removeprefix(DLQ_PREFIX)
                    ],
                    parts.number(row.messages),
                    parts.moment(row.last_ms, ago=True),
                    h.span(".dim")[row.error] if row.error else None,
                )
                for row in rows
            ],
            caption="Groups with dead letters",
            empty=parts.empty(
                "No group has dead letters",
                "A message dies when its group has refused it 16 times, or as it says.",
            ),
        ),
        h.p(".note")[f"{more} more groups: search for one"] if more else None,
    ]
    return View(title="Dead letters", place="dead", body=body, command=("dlq", "ls"), live_s=5)


async def _letters(ask: ViewAsk, group: str) -> View:
    topic = dead_of(group)
    content: Node
    acts: list[tuple[str, str]] = []
    try:
        page = await newest_page(ask, topic, PAGE)
        acts = [
            (ask.url("dead", group, "letters.jsonl"), "Export"),
            (ask.url("act", "dlq-purge", group=group), "Delete all"),
        ]
        content = [
            (parts.note("warn", f"not looked at: {each}") for each in page.errors),
            h.form(action=ask.url("act", "dlq-resend"))[
                h.input(type="hidden", name="group", value=group),
                message_list(ask, topic, page.messages, boxes=True),
                h.div(".deed")[
                    parts.entry(
                        "to",
                        "Send the chosen again to",
                        "",
                        placeholder="where each was sent first",
                    ),
                    h.button(type="submit")["Send the chosen again: the plan"],
                    h.span(".dim")[
                        "Every group of the topic gets them; they stay among the dead letters."
                    ],
                ]
                if not ask.read_only
                else None,
            ]
            if page.messages
            else parts.empty("No letters here"),
            parts.pager(*ends_of(ask, page), "newest first"),
        ]
    except RouteNotFound:
        content = parts.empty(f"Group {group} has no dead letters")
    body = [
        parts.crumbs((ask.url("dead"), "Dead letters")),
        parts.heading(group, *acts),
        content,
    ]
    return View(
        title=f"{group}: dead letters", place="dead", body=body, command=("dlq", "ls", group)
    )


async def export(ask: ViewAsk) -> tuple[str, bytes]:
    """The letters as JSON lines; the first line says whether it is all of them."""
    group = ask.words["group"]
    page = await newest_page(ask, dead_of(group), MOST_EXPORTED)
    part = f"a part: the newest {len(page.messages)}" if page.more or page.errors else "whole"
    lines = [
        {"group": group, "letters": len(page.messages), "is": part, "not looked at": page.errors}
    ]
    lines += [fields_of(each) for each in page.messages]
    return f"{group}-dead-letters.jsonl", "".join(
        json.dumps(each) + "\n" for each in lines
    ).encode()
