"""What the verbs about a cluster share: where its name servers are, and how results are shown."""

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from roquette.cli.output import Output, show

if TYPE_CHECKING:
    from roquette.client.client import Client
    from roquette.client.operations import Operation

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
LoginFile = Annotated[
    str | None,
    typer.Option(
        "--login",
        metavar="FILE",
        help="Who you are at a closed cluster: accessKey=, secretKey= and tls.client.trustCertPath=; default is $ROQUETTE_LOGIN.",
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


def client_of(name_servers: str, login: str | None, group: str | None = None) -> "Client":
    """A client for a verb, who is what the login file says; raises ConfigError."""
    from roquette.admin.login import login_of
    from roquette.client.client import Client
    from roquette.client.config import ClientConfig

    who = login_of(login, os.environ)
    config = ClientConfig(name_servers=name_servers, tls=who.tls, credentials=who.credentials)
    return Client(config=config) if group is None else Client(config=config, group=group)


class Cluster:
    """The cluster a verb is about, who asks it, and the form of its output."""

    def __init__(self, name_servers: str, output: Output, login: str | None = None) -> None:
        self.name_servers = name_servers
        self.output = output
        self._login = login

    def client(self, group: str | None = None) -> "Client":
        """A client of this cluster; `async with` starts it."""
        return client_of(self.name_servers, self._login, group)

    @property
    def as_json(self) -> bool:
        """Whether the result is for programs."""
        return self.output is Output.JSON

    def addresses(self) -> list[str]:
        """Of the name servers, each by itself. Raises ConfigError."""
        from roquette.client.name_servers import parse_name_servers

        return parse_name_servers(self.name_servers)

    def run(self, operation: "Operation[T]") -> T:
        """What an operation of the admin room finds or raises, by a client of its own."""

        async def run() -> T:
            async with self.client("TOOLS_PRODUCER") as client:
                return await client.session.run(operation)

        return asyncio.run(run())

    def show(self, rows: Sequence[msgspec.Struct], *, empty: str = "nothing found") -> None:
        """Print rows of one kind."""
        show(rows, self.output, empty=empty)


def cluster_verb(verb: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is the Cluster; on the command line it has -n, --login and -o instead."""

    @functools.wraps(verb)
    def command(
        *words: Any,
        namesrv: str | None = None,
        login: str | None = None,
        output: Output = Output.TABLE,
        **options: Any,
    ) -> None:
        verb(Cluster(name_servers(namesrv), output, login), *words, **options)

    own = list(inspect.signature(verb).parameters.values())[1:]
    shared = [
        inspect.Parameter(
            "namesrv", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=NameServers
        ),
        inspect.Parameter(
            "login", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=LoginFile
        ),
        inspect.Parameter(
            "output", inspect.Parameter.KEYWORD_ONLY, default=Output.TABLE, annotation=OutputForm
        ),
    ]
    command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in [*own, *shared]}
    return command
