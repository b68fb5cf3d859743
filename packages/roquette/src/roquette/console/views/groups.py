"""Who reads, and who is behind? A page of groups with their members and lag."""

from typing import Final

import htpy as h

from roquette.admin.catalogue import OWN, SYSTEM, GroupRow, group_rows
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.finding import groups_of
from roquette.console.views.overview import Behind, behind_in

PATHS: Final = ("/groups",)
PAGE: Final = 50
KINDS: Final = {OWN: "Groups", SYSTEM: "System"}


async def show(ask: ViewAsk) -> View:
    """The view."""
    words, kind, order = ask.text("q"), ask.text("kind") or OWN, ask.text("order")
    names = await groups_of(ask)
    found, _ = names.page(words, None, kind)
    looked = ask.cluster.examined()
    behind: dict[str, Behind] = {}
    for row in behind_in(looked.value.facts) if looked else []:
        behind.setdefault(row.group, row)
    if order == "behind":
        found.sort(key=lambda name: -behind[name].lag if name in behind else 0)
    pages = max(1, -(-len(found) // PAGE))
    page = ask.number("page", 1, pages, 1)
    shown = found[(page - 1) * PAGE : page * PAGE]
    rows = await ask.cluster.look(("groups", tuple(shown)), lambda: group_rows(shown, names))
    of_all = len(names.kinds.get(kind, ()))
    body = [
        parts.heading("Groups"),
        parts.tabs(
            kind,
            *(
                (key, ask.url("groups", kind="" if key == OWN else key, q=words), text)
                for key, text in KINDS.items()
            ),
        ),
        parts.search(
            ask.url("groups"),
            words,
            [
                f"{parts.number(len(found))} of {parts.number(of_all)}, ",
                h.a(href=ask.here(order="", page=""))["by name"]
                if order
                else h.a(href=ask.here(order="behind", page=""))["the furthest behind first"],
            ],
            ("kind", "" if kind == OWN else kind),
            ("order", order),
        ),
        parts.grid(
            ["Group", "#Members", "Model", "#Topics", "#Lag", "#Behind", ""],
            [_row(ask, row, behind.get(row.group)) for row in rows],
            caption="Groups",
            keyed=[f"g-{row.group}" for row in rows],
            empty=parts.empty(f"No group has “{words}” in its name")
            if words
            else parts.empty(
                "No groups yet",
                parts.code("roquette consume orders --group billing"),
                " makes one: a group appears when its first consumer starts.",
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
    command = ("group", "list", *like, *system)
    return View(title="Groups", place="groups", body=body, command=command, live_s=5)


def _row(ask: ViewAsk, row: GroupRow, behind: Behind | None) -> tuple[h.Node, ...]:
    state = "ok" if row.members > 0 else "off"
    return (
        h.a(href=ask.url("groups", row.group))[row.group],
        parts.dot(state, parts.number(row.members)),
        row.model.lower(),
        parts.number(row.topics),
        parts.number(row.lag),
        parts.span(behind.waits_ms) if behind else "",
        h.span(".dim")[row.error] if row.error else None,
    )
