"""Options of what waits until nothing is lost by a change: `broker drain`, `topic resize`."""

from typing import Annotated

import typer

Settle = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0, help="What clients need to hear of other routes (Java: 30)."
    ),
]
Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="Of --wait; then what is left is shown.")
]
IgnoredGroups = Annotated[
    list[str] | None,
    typer.Option(metavar="GROUP", help="A group that nobody runs any more; may be repeated."),
]
