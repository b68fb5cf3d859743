"""Where are the members of a group in their code? Threads of Java's clients, running handlers of ours."""

from typing import Final

import htpy as h

from roquette.admin.members import StacksRow, stacks
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.group import head

PATHS: Final = ("/groups/{group}/stacks",)
MOST: Final = 262_144
"""Characters of the page: each member has its share."""
SHOWN: Final = 200


async def show(ask: ViewAsk) -> View:
    group, client = ask.words["group"], ask.text("client") or None
    rows = await ask.cluster.look(("stacks", group, client), lambda: stacks(group, client=client))
    panels = [parts.panel(row.client, _text(row, MOST // len(rows))) for row in rows[:SHOWN]]
    left = parts.more(len(rows) - SHOWN, "more members are not shown.")
    command = ("client", "stacks", group, *(("--client", client) if client else ()))
    return View(f"{group}: stacks", "groups", [head(ask, group, "stacks"), panels, left], command)


def _text(row: StacksRow, most: int) -> h.Node:
    if row.error:
        return parts.empty("It does not tell", row.error)
    text = row.stacks.rstrip()
    if not text:
        return parts.empty("No handler is running")
    return [h.pre(tabindex="0")[text[:most]], parts.more(len(text) - most, "more characters")]
