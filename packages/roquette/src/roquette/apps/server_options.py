"""Options that the verbs of several servers have."""

from typing import Annotated

import typer

ConfigFile = Annotated[
    str | None,
    typer.Option("-c", "--config", metavar="FILE", help="Apache's property file: key=value lines."),
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen", metavar="HOST:PORT", help="Bind address and port; port 0 takes a free one."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One setting under Apache's key; may be repeated."
    ),
]
