"""Who reads, and who is behind? A page of groups with their members and lag."""

from typing import Final

from roquette.admin.catalogue import OWN, SYSTEM, group_rows
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.finding import groups_of, names_page
from roquette.console.look import Behind

PATHS: Final = ("/groups",)
KINDS: Final = {OWN: "Groups", SYSTEM: "System"}


async def show(ask: ViewAsk) -> View:
    names, words, looked = await groups_of(ask), ask.text("q"), ask.cluster.examined()
    behind: dict[str, Behind] = {}
    for each in looked.value.behind if looked else []:
        behind.setdefault(each.group, each)
    nobody = Behind("", "", 0, -1)
    page = names_page(ask, names, KINDS, lambda name: behind.get(name, nobody).lag)
    rows = await ask.cluster.look(
        ("groups", tuple(page.shown)), lambda: group_rows(page.shown, names)
    )
    example = parts.code("roquette consume orders --group billing")
    why = " makes one: a group appears when its first consumer starts."
    none = parts.empty("No groups yet", example, why)

    def waits(group: str) -> str:
        return parts.span(behind[group].waits_ms) if group in behind else ""

    table = parts.grid(
        "Groups",
        rows,
        {
            "Group": lambda row: ask.link("groups", row.group),
            "#Members": lambda row: parts.online(row.members),
            "Model": lambda row: row.model.lower(),
            "#Topics": lambda row: row.topics,
            "#Lag": lambda row: row.lag,
            "#Behind": lambda row: waits(row.group),
            "": lambda row: parts.dim(row.error),
        },
        parts.empty(f"No group has “{words}” in its name") if words else none,
        lambda row: f"g-{row.group}",
    )
    body = [parts.heading("Groups"), page.above, table, page.below]
    return View("Groups", "groups", body, ("group", "list", *page.options), 5)
