"""Who did what here?"""

from typing import Final

from roquette.console import parts
from roquette.console.ask import View, ViewAsk

PATHS: Final = ("/audit",)


async def show(ask: ViewAsk) -> View:
    """The view."""
    lines = [line for line in reversed(ask.deeds.audit.lines) if line.cluster == ask.cluster.name]
    body = [
        parts.heading("Audit"),
        parts.grid(
            ["When", "Who", "From", "Command", "Result", "The way back"],
            [
                (
                    parts.moment(line.at_ms),
                    line.who,
                    parts.code(line.address),
                    parts.code(line.command),
                    parts.dot("bad", line.result)
                    if line.result.startswith("failed")
                    else line.result,
                    parts.code(line.back) if line.back else "",
                )
                for line in lines
            ],
            caption="Audit",
            empty=parts.empty("Nobody has changed anything here", "since the console began."),
        ),
    ]
    return View(title="Audit", place="audit", body=body, live_s=5)
