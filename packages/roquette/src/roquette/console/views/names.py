"""Do the name servers say the same, and what changed when?"""

from typing import Final

from roquette.admin.settings import differences
from roquette.console import parts
from roquette.console.ask import View, ViewAsk

PATHS: Final = ("/names",)
SHOWN: Final = 100


async def show(ask: ViewAsk) -> View:
    cluster, servers = ask.cluster, ask.cluster.name_servers
    rows = await cluster.look("differences", lambda: differences(servers), 10.0)
    await cluster.brokers()
    count = parts.counted(len({(row.kind, row.subject) for row in rows}), "difference")
    asked = f"{parts.counted(len(servers), 'name server')} asked"
    otherwise = parts.grid(
        "Differences",
        rows,
        {
            "About": lambda row: f"{row.kind} {row.subject}",
            "Name server": lambda row: parts.code(row.name_server),
            "Says": lambda row: parts.dot("bad", row.error) if row.error else row.says,
        },
    )
    changed = parts.grid(
        "Changes",
        list(cluster.changes.events)[-SHOWN:][::-1],
        {
            "When": lambda event: parts.moment(event.at_ms),
            "What": lambda event: event.subject,
            "Change": lambda event: event.kind,
            "": lambda event: parts.dim(event.says),
        },
        parts.empty("Nothing has changed", "since the console began to look."),
    )
    body = [
        parts.heading("Name servers", (ask.url("act", "namesrv-config-set"), "Change a setting")),
        parts.note(*(("warn", count) if rows else ("ok", "They say the same")), asked),
        parts.panel("What they say otherwise", otherwise) if rows else None,
        parts.panel("What changed when", changed, aside="the newest first"),
    ]
    return View("Name servers", "names", body, ("namesrv", "diff"), 5)
