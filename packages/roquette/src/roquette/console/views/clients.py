"""Who is connected? Producers and members of groups, with language, version and address."""

from typing import Final

import htpy as h

from roquette.admin.catalogue import list_clients
from roquette.console import parts
from roquette.console.ask import View, ViewAsk

PATHS: Final = ("/clients",)
PAGE: Final = 50
MOST_ASKED: Final = 400
"""Requests for members: on many brokers fewer groups are asked."""
KINDS: Final = {"": "All", "producer": "Producers", "consumer": "Members of groups"}


async def show(ask: ViewAsk) -> View:
    """The view."""
    words, kind = ask.text("q"), ask.text("kind")
    masters = sum(1 for each in await ask.cluster.brokers() if each.broker_id == 0)
    limit = min(PAGE, max(1, MOST_ASKED // max(1, masters)))
    found = await ask.cluster.look(
        ("clients", words), lambda: list_clients(like=words, limit=limit, system=True), 5.0
    )
    rows = [row for row in found.rows if kind in ("", row.kind)]
    body = [
        parts.heading("Clients"),
        parts.tabs(kind, *((key, ask.here(kind=key), text) for key, text in KINDS.items())),
        parts.search(ask.url("clients"), words, "groups with this in their name", ("kind", kind)),
        parts.grid(
            ["Client", "Kind", "Group", "Address", "Language", "Version", "#Brokers"],
            [
                (
                    parts.code(row.client),
                    row.kind,
                    h.a(href=ask.url("groups", row.group))[row.group]
                    if row.kind == "consumer"
                    else row.group,
                    parts.code(row.address),
                    row.language.lower(),
                    row.version.replace("_", ".").lstrip("V"),
                    parts.number(row.brokers),
                )
                for row in rows
            ],
            caption="Clients",
            empty=parts.empty(
                "No client is connected",
                "Producers are seen from brokers of 5.x; one that is quiet for two minutes is forgotten.",
            ),
        ),
        h.p(".note")[f"{found.more} more groups are not asked: search for one."]
        if found.more
        else None,
    ]
    command = ("client", "ls", *(("--like", words) if words else ()), "--system")
    return View(title="Clients", place="clients", body=body, command=command, live_s=5)
