"""What every verb for people shares: where the name servers are, and one event loop per command."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from roquette.cli.output import Output

T = TypeVar("T")

NameServers = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrv",
        metavar='"NS1;NS2"',
        help="Name servers; default is $NAMESRV_ADDR, else 127.0.0.1:9876.",
        show_default=False,
    ),
]
OutputForm = Annotated[
    Output, typer.Option("-o", "--output", help="A table for people or JSON for programs.")
]

DEFAULT_NAME_SERVERS = "127.0.0.1:9876"


def name_servers(given: str | None) -> str:
    """What -n says, else the environment, else the default port on this machine."""
    return given or os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVERS


def with_session(given: str | None, work: "Callable[..., Awaitable[T]]") -> T:
    """Run `work(session)` with a client of its own."""
    from roquette.client.client import Client

    async def run() -> T:
        async with Client(name_servers(given), group="TOOLS_PRODUCER") as client:
            return await work(client.session)

    return asyncio.run(run())
