"""Do the name servers say the same, and what changed when?"""

from typing import Final

import htpy as h

from roquette.admin.settings import differences
from roquette.console import parts
from roquette.console.ask import View, ViewAsk

PATHS: Final = ("/names",)
SHOWN: Final = 100


async def show(ask: ViewAsk) -> View:
    """The view."""
    cluster = ask.cluster
    servers = cluster.name_servers
    rows = await cluster.look("differences", lambda: differences(servers), 10.0)
    await cluster.brokers()
    events = list(cluster.changes.events)[-SHOWN:][::-1]
    subjects = {(row.kind, row.subject) for row in rows}
    said = f"{parts.counted(len(subjects), 'difference')}" if rows else "They say the same"
    body = [
        parts.heading("Name servers", (ask.url("act", "namesrv-config-set"), "Change a setting")),
        parts.note(
            "warn" if rows else "ok", said, f"{parts.counted(len(servers), 'name server')} asked"
        ),
        parts.panel(
            "What they say otherwise",
            parts.grid(
                ["About", "Name server", "Says"],
                [
                    (
                        f"{row.kind} {row.subject}",
                        parts.code(row.name_server),
                        parts.dot("bad", row.error) if row.error else row.says,
                    )
                    for row in rows
                ],
                caption="Differences",
            ),
        )
        if rows
        else None,
        parts.panel(
            "What changed when",
            parts.grid(
                ["When", "What", "Change", ""],
                [
                    (parts.moment(e.at_ms), e.subject, e.kind, h.span(".dim")[e.says])
                    for e in events
                ],
                caption="Changes",
                empty=parts.empty("Nothing has changed", "since the console began to look."),
            ),
            aside="the newest first",
        ),
    ]
    return View(
        title="Name servers", place="names", body=body, command=("namesrv", "diff"), live_s=5
    )
