"""`roquette console`: a web page about clusters, in a process of its own, or as a guest on the loop of `roquette dev`."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Annotated, NamedTuple

import typer

from roquette.admin.contexts import VARIABLE, Login, contexts_of, login_of, place_of
from roquette.admin.who import is_open, prove
from roquette.apps import running
from roquette.base.clock import SystemClock
from roquette.base.files import open_append
from roquette.base.javatypes import whole_number
from roquette.cli.commands import command_of
from roquette.cli.connect import LoginFile, NameServers
from roquette.client.client import Client
from roquette.console.app import Console, ConsoleSettings
from roquette.console.views import all_views
from roquette.errors import ConfigError
from roquette.remoting.address import listening_socket
from roquette.wire.signature import Credentials

GROUP = "TOOLS_PRODUCER"


class ConsoleTarget(NamedTuple):
    """A cluster of the console: its name servers, and who whoever started it is there."""

    name_servers: str
    login: Login


def address_of(settings: ConsoleSettings) -> tuple[str, int]:
    """Where it listens. Raises ConfigError for what no console may do: be open beyond this machine."""
    host, _, port = settings.listen.rpartition(":")
    number = whole_number(port, 65_535)
    if not host or number < 0:
        raise ConfigError(f"--listen {settings.listen!r} is not of the form HOST:PORT")
    host = host.strip("[]")
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise ConfigError("--tls-cert and --tls-key go together")
    for network in settings.behind_proxy:
        try:
            ipaddress.ip_network(network)
        except ValueError:
            raise ConfigError(
                f"--behind-proxy {network!r} is no network, such as 10.0.0.0/8"
            ) from None
    if not _is_loopback(host):
        if not settings.sign_in:
            raise ConfigError(f"beyond this machine ({host}) the console needs --sign-in")
        if not settings.tls_cert and not settings.behind_proxy:
            raise ConfigError(
                f"beyond this machine ({host}) the console needs --tls-cert and --tls-key, or --behind-proxy CIDR"
            )
    return host, number


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@asynccontextmanager
async def opened(
    targets: Mapping[str, ConsoleTarget], settings: ConsoleSettings
) -> AsyncIterator[str]:
    """A console that serves until the block ends; gives its address.

    Raises:
        ConfigError: it cannot listen there, or its files cannot be written, or people cannot sign in at an open cluster.
    """

    def connect(context: str, credentials: Credentials | None) -> Client:
        target = targets[context]
        who = target.login.credentials if credentials is None else credentials
        more = {} if target.login.tls is None else {"tls": target.login.tls}
        return Client(target.name_servers, group=GROUP, credentials=who, **more)  # type: ignore[arg-type]

    host, port = address_of(settings)
    if settings.sign_in:
        for name in targets:
            if await is_open(lambda credentials, name=name: connect(name, credentials)):  # type: ignore[misc]
                raise ConfigError(f"{name} lets everybody in: --sign-in would prove nothing there")
    hosts = (*settings.hosts, host, f"[{host}]")
    settings = settings._replace(contexts=list(targets), hosts=hosts)
    with ExitStack() as held:
        try:
            sinks = [
                held.enter_context(open_append(path)) if path else None
                for path in (settings.audit_log, settings.history)
            ]
            listener = held.enter_context(listening_socket(host, port))
        except OSError as error:
            where = error.filename or settings.listen
            raise ConfigError(f"{where}: {error.strerror or error}") from None
        console = Console(settings, all_views(), connect, SystemClock(), prove, *sinks)
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if settings.tls_cert else "http"
        ending = asyncio.Event()
        serving = asyncio.ensure_future(console.serve([listener], ending))
        try:
            yield f"{scheme}://{shown}:{listener.getsockname()[1]}/"
        finally:
            ending.set()
            await serving


def targets_of(
    namesrv: str | None, contexts: Sequence[str], login: str | None, environ: Mapping[str, str]
) -> dict[str, ConsoleTarget]:
    """The clusters by name: those of the contexts that are named, or the one that commands without --context mean."""
    if not contexts:
        name = "" if namesrv else environ.get(VARIABLE) or contexts_of(environ).current
        places = {name or "cluster": place_of(namesrv, login, None, environ)}
    elif namesrv:
        raise ConfigError("give --namesrv or --context, not both")
    else:
        places = {name: place_of(None, login, name, environ) for name in contexts}
    return {
        name: ConsoleTarget(each.name_servers, login_of(each.login, environ))
        for name, each in places.items()
    }


def console_main(targets: Mapping[str, ConsoleTarget], settings: ConsoleSettings) -> int:
    """Run until SIGTERM; the exit code. Raises ConfigError."""
    address_of(settings)

    async def body(stop: asyncio.Event) -> int:
        async with opened(targets, settings) as address:
            print(f"ready console={address}", flush=True)
            await stop.wait()
        return 0

    return running.run(body)


def register(app: typer.Typer) -> None:
    """The verb."""

    @app.command("console")
    @command_of
    def console(
        namesrv: NameServers = None,
        context: Annotated[
            list[str] | None,
            typer.Option(
                "--context", metavar="CONTEXT", help="A cluster of this name; may be repeated."
            ),
        ] = None,
        login: LoginFile = None,
        listen: Annotated[
            str,
            typer.Option(
                "--listen", metavar="HOST:PORT", help="Where it answers; port 0 takes a free one."
            ),
        ] = ConsoleSettings().listen,
        host: Annotated[
            list[str] | None,
            typer.Option(
                "--host",
                metavar="NAME",
                help="A name under which browsers know it; may be repeated.",
            ),
        ] = None,
        read_only: Annotated[
            bool, typer.Option("--read-only", help="Nothing can be changed by it.")
        ] = False,
        sign_in: Annotated[
            bool,
            typer.Option(
                "--sign-in",
                help="People sign in as users of the cluster; else everybody is whoever started it.",
            ),
        ] = False,
        tls_cert: Annotated[
            str, typer.Option("--tls-cert", metavar="FILE", help="Its certificate, PEM.")
        ] = "",
        tls_key: Annotated[
            str, typer.Option("--tls-key", metavar="FILE", help="The certificate's key, PEM.")
        ] = "",
        behind_proxy: Annotated[
            list[str] | None,
            typer.Option(
                "--behind-proxy",
                metavar="CIDR",
                help="Believe X-Forwarded-* of these; may be repeated.",
            ),
        ] = None,
        audit_log: Annotated[
            str,
            typer.Option("--audit-log", metavar="FILE", help="Who did what, as JSON lines, too."),
        ] = "",
        history: Annotated[
            str,
            typer.Option(
                "--history", metavar="FILE", help="What changed when, as JSON lines, too."
            ),
        ] = "",
    ) -> None:
        """Serve a web page about clusters: see them, and act on them with a plan."""
        import os

        settings = ConsoleSettings(
            listen=listen,
            hosts=tuple(host or ()),
            read_only=read_only,
            sign_in=sign_in,
            tls_cert=tls_cert,
            tls_key=tls_key,
            behind_proxy=tuple(behind_proxy or ()),
            audit_log=audit_log,
            history=history,
        )
        raise typer.Exit(
            console_main(targets_of(namesrv, context or (), login, os.environ), settings)
        )
