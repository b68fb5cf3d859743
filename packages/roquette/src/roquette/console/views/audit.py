"""Who did what here?"""

from typing import Final

from roquette.console import parts
from roquette.console.ask import View, ViewAsk

PATHS: Final = ("/audit",)


async def show(ask: ViewAsk) -> View:
    table = parts.grid(
        "Audit",
        [line for line in reversed(ask.deeds.audit.lines) if line.cluster == ask.cluster.name],
        {
            "When": lambda line: parts.moment(line.at_ms),
            "Who": lambda line: line.who,
            "From": lambda line: parts.code(line.address),
            "Command": lambda line: parts.code(line.command),
            "Result": lambda line: (
                parts.dot("bad", line.result) if line.result.startswith("failed") else line.result
            ),
            "The way back": lambda line: line.back and parts.code(line.back),
        },
        parts.empty("Nobody has changed anything here", "since the console began."),
    )
    return View("Audit", "audit", [parts.heading("Audit"), table], live_s=5)
