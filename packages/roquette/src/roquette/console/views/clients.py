"""Who is connected? Producers and members of groups, with language, version and address."""

from typing import Final

from roquette.admin.catalogue import list_clients
from roquette.console import parts
from roquette.console.ask import View, ViewAsk

PATHS: Final = ("/clients",)
PAGE: Final = 50
MOST_ASKED: Final = 400
"""Requests for members: on many brokers fewer groups are asked."""
KINDS: Final = {"": "All", "producer": "Producers", "consumer": "Members of groups"}


async def show(ask: ViewAsk) -> View:
    words, kind = ask.text("q"), ask.text("kind")
    masters = sum(1 for each in await ask.cluster.brokers() if each.broker_id == 0)
    limit = min(PAGE, max(1, MOST_ASKED // max(1, masters)))
    found = await ask.cluster.look(
        ("clients", words), lambda: list_clients(like=words, limit=limit, system=True), 5.0
    )
    rows = [row for row in found.rows if kind in ("", row.kind)]
    why = "Producers are seen from brokers of 5.x; one that is quiet for two minutes is forgotten."
    body = [
        parts.heading("Clients"),
        parts.tabs(kind, *((key, ask.here(kind=key), text) for key, text in KINDS.items())),
        parts.search(ask.url("clients"), words, "groups with this in their name", ("kind", kind)),
        parts.grid(
            "Clients",
            rows,
            {
                "Client": lambda row: parts.code(row.client),
                "Kind": lambda row: row.kind,
                "Group": lambda row: (
                    ask.link("groups", row.group) if row.kind == "consumer" else row.group
                ),
                "Address": lambda row: parts.code(row.address.lstrip("/")),
                "Language": lambda row: row.language.lower(),
                "Version": lambda row: parts.version(row.version),
                "#Brokers": lambda row: row.brokers,
            },
            parts.empty("No client is connected", why),
        ),
        parts.more(found.more, "more groups are not asked: search for one."),
    ]
    command = ("client", "ls", *(("--like", words) if words else ()), "--system")
    return View("Clients", "clients", body, command, 5)
