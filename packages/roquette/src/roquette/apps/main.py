"""The `roquette` command: server verbs here, verbs for people from the cli room."""

import os
import sys
from typing import Annotated, Any, TextIO

import typer

from roquette import __version__
from roquette.apps.server_options import Listen, Settings
from roquette.base.config import Sources
from roquette.base.form import form
from roquette.base.log_settings import begin_log
from roquette.base.options import key_values
from roquette.cli import VERBS, Adder, LateVerbs, there
from roquette.cli.exit_codes import FAILED
from roquette.errors import ConfigError, RoquetteError


def _add_pipelines(app: typer.Typer) -> None:
    """`pipeline` and `spark`, which come with the package roquette-spark."""
    try:
        from roquette_spark.pipelines.command import register
    except ModuleNotFoundError as missing:
        if missing.name != "roquette_spark":
            raise
        words = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
        for name in ("pipeline", "spark"):
            app.command(name, context_settings=words)(_ask_for_spark)
    else:
        register(app)


def _add_console(app: typer.Typer) -> None:
    from roquette.apps.console import register

    register(app)


def _ask_for_spark() -> None:
    """Data pipelines over topics, on PySpark: not installed."""
    raise ConfigError(
        "this command is of the package roquette-spark: pip install 'roquette[spark]'"
    )


class Root(LateVerbs):
    """`roquette` itself."""

    late: dict[str, Adder] = {
        **VERBS,
        "namesrv": there("namesrv", "roquette.apps.namesrv_verb"),
        "broker": there("broker", "roquette.apps.broker_verb"),
        "up": there("up", "roquette.apps.up"),
        "console": _add_console,
        "pipeline": _add_pipelines,
        "spark": _add_pipelines,
    }


app = typer.Typer(
    name="roquette",
    cls=Root,
    help="Apache RocketMQ in Python: name server, broker, and tools for topics, messages and groups.",
    epilog="Every option has a variable, of the command's words and its name: ROQUETTE_TOPIC_LIST_SYSTEM=true.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"auto_envvar_prefix": "ROQUETTE"},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"roquette {__version__} ({form()})")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            allow_from_autoenv=False,
            help="Show the version, and whether the compiled form runs.",
        ),
    ] = False,
) -> None:
    """Apache RocketMQ in Python: name server, broker, and tools for topics, messages and groups."""


@app.command()
def proxy(
    config: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--config",
            metavar="FILE",
            help="Apache's rmq-proxy.json, or a property file: key=value lines.",
        ),
    ] = None,
    namesrv_addr: Annotated[
        str | None,
        typer.Option("-n", "--namesrv", metavar='"NS1;NS2"', help="Name servers of the brokers."),
    ] = None,
    listen: Listen = None,
    settings: Settings = None,
) -> None:
    """Run a proxy for gRPC clients in front of brokers, ours or Apache's (Apache's default port is 8081)."""
    from roquette.apps.proxy import proxy_main

    raise typer.Exit(
        proxy_main(config, namesrv_addr, listen, key_values(settings, "--set"), dict(os.environ))
    )


@app.command()
def dev(
    namesrv_port: Annotated[
        int,
        typer.Option(
            "--namesrv-port", metavar="P", help="Port of the name server; 0 takes a free one."
        ),
    ] = 9876,
    broker_port: Annotated[
        int,
        typer.Option("--broker-port", metavar="P", help="Port of the broker; 0 takes a free one."),
    ] = 10911,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            "--grpc-port",
            metavar="P",
            help="A further port of the broker, where Apache's proxy has gRPC; 0 opens none. [default: 8081, or 0 with --broker-port 0]",
        ),
    ] = None,
    remoting_port: Annotated[
        int | None,
        typer.Option(
            "--remoting-port",
            metavar="P",
            help="Another one, where Apache's proxy has remoting. [default: 8080, or 0 with --broker-port 0]",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="DIR", help="Keep the store here; default is a temporary one."
        ),
    ] = None,
    console_port: Annotated[
        int | None,
        typer.Option(
            "--console-port",
            metavar="P",
            help="The web console, which is whoever started this; 0 opens none. [default: 8082, or 0 with --broker-port 0]",
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="With TLS, users and rules; prints commands to try, as one who may little and as one who may all.",
        ),
    ] = False,
    settings: Settings = None,
) -> None:
    """Run a name server and a broker in one process, for development: loopback only, small files."""
    from roquette.apps.dev import dev_main

    raise typer.Exit(
        dev_main(
            namesrv_port,
            broker_port,
            store,
            key_values(settings, "--set"),
            dict(os.environ),
            secure=secure,
            grpc_port=(8081 if broker_port else 0) if grpc_port is None else grpc_port,
            remoting_port=(8080 if broker_port else 0) if remoting_port is None else remoting_port,
            console_port=(8082 if broker_port else 0) if console_port is None else console_port,
        )
    )


@app.command()
def run(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the App is.")],
    namesrv_addr: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namesrv",
            metavar='"NS1;NS2"',
            help="Name servers instead of the App's own; if it has none, $NAMESRV_ADDR.",
        ),
    ] = None,
    drain: Annotated[
        float | None,
        typer.Option(
            "--drain",
            metavar="SECONDS",
            min=0.0,
            help="How long handlers at work may go on after SIGTERM, instead of the App's own time.",
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            max=1000,
            help="Processes; one that ends is started again.",
        ),
    ] = 1,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="Start anew when a Python file of this folder changes."),
    ] = False,
    health: Annotated[
        str,
        typer.Option(
            "--health",
            metavar="[HOST:]PORT",
            help="Serve /healthz and /readyz there: ready are all workers that have joined, while a server can be reached.",
        ),
    ] = "",
) -> None:
    """Run an application's consumers until SIGTERM; exit status 1 when handlers had to be ended at work."""
    from roquette.apps.run import health_address, run_main

    where, environ = health_address(health) if health else "", dict(os.environ)
    if workers == 1 and not reload:
        raise typer.Exit(run_main(target, namesrv_addr, drain, where, environ))
    from roquette.apps.run import keep_workers

    raise typer.Exit(keep_workers(target, namesrv_addr, drain, where, workers, reload, environ))


# Click's base of all errors in a command line; typer brings a Click of its own in some versions.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run a command line: an error is one line on stderr; the exit code is 1 for one of ours or of the system's
    (a full disk, a path that is no directory), 2 for a wrong command line."""
    if sys.stdout is None:  # the caller has closed it: there is nowhere to show a result
        sys.stdout = _nowhere()
    try:
        # What goes wrong the verbs tell themselves; servers begin their log anew.
        begin_log(Sources(file_text="logLevel=ERROR", environ=os.environ))
        _check_words(sys.argv[1:])
        status = app(standalone_mode=False, prog_name="roquette")
        sys.stdout.flush()
    except _UsageError as error:
        raise SystemExit(_tell_usage(error)) from None
    except typer.Abort:
        print("stopped", file=sys.stderr)
        raise SystemExit(FAILED) from None
    except RoquetteError as error:
        _tell(error)
        raise SystemExit(FAILED) from None
    except OSError as error:
        raise SystemExit(_tell_system(error)) from None
    raise SystemExit(status if isinstance(status, int) else 0)


def _check_words(words: list[str]) -> None:
    """Raise ConfigError for a word that is no UTF-8: names are. Bodies of messages are any bytes, and so are names of files."""
    if words[:1] == ["produce"]:
        return
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            if not os.path.exists(word):
                raise ConfigError(f"{os.fsencode(word)!r} is not UTF-8") from None


def _tell(words: object) -> None:
    from roquette.cli.output import say_error

    say_error(words)


def _nowhere() -> TextIO:
    from roquette.base.files import open_null

    return open_null()


def _tell_system(error: OSError) -> int:
    """Say what the system refused; a reader of our output that has gone (`| head`) needs no word."""
    if not isinstance(error, BrokenPipeError):
        where = f"{error.filename}: " if error.filename else ""
        _tell(f"{where}{error.strerror or error}")
    sys.stdout = _nowhere()  # what is still buffered cannot be written either, and says so at exit
    return FAILED


def _tell_usage(error: Any) -> int:
    """Say what is wrong with a command line, and where its options are explained; returns the exit code."""
    text = error.format_message()
    if "\n" in text:  # a command without any word: the text is its help
        error.show()
    else:
        command = error.ctx.command_path if error.ctx is not None else "roquette"
        _tell(f"{text.rstrip('.')}; see: {command} --help")
    return int(error.exit_code)
