"""Options of all verbs about a cluster: where its name servers are, how results are shown, and who is asked first."""

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
import typer

from roquette.admin.command import Flag
from roquette.cli.output import Output, say_error, show, show_value
from roquette.errors import ClientError, ConfigError

if TYPE_CHECKING:
    from roquette.admin.contexts import CommandTarget
    from roquette.client.calls import Operation
    from roquette.client.client import Client

T = TypeVar("T")

NameServers = Annotated[
    str | None,
    Flag(
        '-n --namesrv "NS1;NS2"',
        "Name servers; default is the context's, $NAMESRV_ADDR, else 127.0.0.1:9876.",
    ),
]
LoginFile = Annotated[
    str | None,
    Flag(
        "--login FILE",
        "Who you are at a closed cluster: accessKey=, secretKey= and tls.client.trustCertPath=; default is $ROQUETTE_LOGIN.",
    ),
]
ContextName = Annotated[
    str | None,
    Flag(
        "--context CONTEXT",
        "The cluster of this name ('roquette context'); default is $ROQUETTE_CONTEXT.",
    ),
]
OutputForm = Annotated[
    Output,
    Flag(
        "-o --output",
        "A table for people; one of the others for programs.",
        variable="ROQUETTE_OUTPUT",
    ),
]
Every = Annotated[float, Flag("--every SECONDS", "The pause of --watch.", 0.1)]
Yes = Annotated[bool, Flag("--yes", "Do not ask; required when there is no terminal.")]

WATCH: Final[dict[str, tuple[Any, object]]] = {
    "watch": (Annotated[bool, Flag("--watch", "Show it again and again, until Ctrl-C.")], False),
    "every": (Every, 2.0),
}
"""Flags of what changes nothing: their annotations and defaults."""

SHARED: Final[dict[str, tuple[Any, object]]] = {
    "namesrv": (NameServers, None),
    "login": (LoginFile, None),
    "context": (ContextName, None),
    "output": (OutputForm, Output.TABLE),
}
"""Flags of every command about a cluster."""

COMMAND: Final = re.compile("`(roquette (?!store |tls |context )[^`]+)`")  # of clusters
CLEAR: Final = "\x1b[H\x1b[2J"


def place_of(namesrv: str | None, login: str | None, context: str | None) -> "CommandTarget":
    """Resolve which cluster the options and the environment mean; raises ConfigError."""
    from roquette.admin.contexts import place_of

    return place_of(namesrv, login, context, os.environ)


def confirm(deed: str, yes: bool) -> None:
    """Go on when it is wanted: `--yes`, or a yes on the terminal.

    Raises:
        ConfigError: there is no terminal to ask on.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(f"{deed}: there is no terminal to ask on; say --yes to do it")
    typer.confirm(f"{deed}?", abort=True, err=True)


def client_of(
    name_servers: str, login: str | None, group: str | None = None, **settings: Any
) -> "Client":
    """A client for a verb, who is what the login file says; `settings` are ClientSettings. Raises ConfigError."""
    from roquette.admin.contexts import login_of
    from roquette.client.client import Client

    who = login_of(login, os.environ)
    if who.tls is not None:
        settings["tls"] = who.tls
    if group is not None:
        settings["group"] = group
    return Client(name_servers, **{"credentials": who.credentials, **settings})


class Cluster:
    """The cluster a verb is about, who asks it, and the form of its output. `expected`: brokers that are to be there."""

    def __init__(
        self,
        name_servers: str,
        output: Output,
        login: str | None = None,
        expected: Sequence[str] = (),
        words: str = "",
    ) -> None:
        self.name_servers = name_servers
        self.expected = expected
        self.output = output
        self._login = login
        self._words = words

    def typed(self, advice: str) -> str:
        """A text whose commands, in back quotes, are to go to this cluster: with the options that this one was given."""
        return COMMAND.sub(lambda found: f"`{found[1]}{self._words}`", advice)

    def client(self, group: str | None = None, **settings: Any) -> "Client":
        """A client of this cluster, with these ClientSettings; `async with` starts it."""
        return client_of(self.name_servers, self._login, group, **settings)

    @property
    def for_programs(self) -> bool:
        """True when the result is for programs: in one of the forms that are no table."""
        return self.output is not Output.TABLE

    def addresses(self) -> list[str]:
        """Of the name servers, each by itself. Raises ConfigError."""
        from roquette.client.config import parse_name_servers

        return parse_name_servers(self.name_servers)

    def run(self, operation: "Operation[T]") -> T:
        """Return or raise what an operation of the admin room finds, by a client of its own."""

        async def run() -> T:
            async with self.client("TOOLS_PRODUCER") as client:
                return await client.session.run(operation)

        import asyncio

        return asyncio.run(run())

    def show(self, rows: Sequence[msgspec.Struct], *, empty: str = "nothing found") -> None:
        """Print rows of one kind."""
        show(rows, self.output, empty=empty)

    def show_value(self, value: object) -> None:
        """Print one value for programs."""
        show_value(value, self.output)


def cluster_of(typed: Mapping[str, Any]) -> Cluster:
    """The cluster that the flags in SHARED mean; raises ConfigError."""
    place = place_of(typed["namesrv"], typed["login"], typed["context"])
    given = {"-n": typed["namesrv"], "--login": typed["login"], "--context": typed["context"]}
    again = "".join(f" {name} {shlex.quote(text)}" for name, text in given.items() if text)
    return Cluster(place.name_servers, typed["output"], place.login, place.brokers, again)


def follow(
    cluster: Cluster,
    look: "Callable[..., Operation[T]]",
    tell: Callable[[T, T], None],
    every: float,
    count: int,
    *,
    redraws: bool,
) -> None:
    """Tell of each look and the one before it, every so many seconds, `count` times (0: no end), until Ctrl-C."""
    from roquette.base.clock import SystemClock
    from roquette.base.executor import pause

    clock = SystemClock()
    looks: list[T] = []

    def again() -> None:
        looks.append(cluster.run(look(cluster.addresses(), clock)))
        if len(looks) > 1:
            tell(*looks)
            del looks[0]

    again()
    pause(int(every * 1000))
    again_and_again(again, cluster.output if redraws else Output.JSONL, every, count)


def again_and_again(
    look: Callable[[], None], output: Output, seconds: float, count: int = 0
) -> None:
    """Look until Ctrl-C, or so often; in a table's place the next one comes, on a terminal. What fails is said, and tried again."""
    import contextlib
    import io

    from roquette.base.executor import pause

    class Seen(io.StringIO):
        def isatty(self) -> bool:
            return redraws

    redraws = output is Output.TABLE and sys.stdout.isatty()
    done = 0
    while not count or done < count:
        if done:
            pause(int(seconds * 1000))
        done += 1
        seen = Seen()
        with (
            contextlib.redirect_stdout(seen),
            contextlib.redirect_stderr(seen if redraws else sys.stderr),  # else it is wiped away
            contextlib.suppress(typer.Exit),
        ):  # unhealthy, perhaps
            try:
                look()
            except ClientError as error:
                say_error(error)
        sys.stdout.write((CLEAR if redraws else "") + seen.getvalue())
        sys.stdout.flush()
