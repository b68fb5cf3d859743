"""Commands made of functions: flags from the signature and the docstring, and what is declared by `admin.command`.

An operation (or a coroutine function) of the admin room is a command as it is. What the command line writes by hand gets
its flags in the same way; it prints what it has to say, and takes a Cluster when it is about one.
"""

import asyncio
import inspect
import itertools
from collections.abc import Callable, Generator, Mapping
from typing import Annotated, Any, Final, get_args, get_origin

import typer
from typer.models import ParameterInfo

from roquette.admin.command import (
    GIVEN,
    SECTIONS,
    Flag,
    OperationPlan,
    OperationReport,
    Printed,
    command,
    declared,
    flag_of,
    helps_of,
)
from roquette.cli.connect import (
    SHARED,
    WATCH,
    Cluster,
    Yes,
    again_and_again,
    cluster_of,
    confirm,
)
from roquette.cli.exit_codes import FAILED, UNHEALTHY
from roquette.cli.output import Output, say, show_value
from roquette.errors import ClientError

_OPTION: Final = inspect.Parameter.KEYWORD_ONLY


def command_of(function: Callable[..., Any]) -> Callable[..., None]:
    """Return what typer takes: a function of flags alone, which calls this one and shows what comes of it."""
    text, helps = SECTIONS.split(inspect.getdoc(function) or "")[0], helps_of(function)
    says, parameters = declared(function), inspect.signature(function).parameters
    where = [name for name, each in parameters.items() if each.annotation is Cluster]
    own = [name for name in parameters if name not in (*where, *GIVEN)]
    reads = {name: make for name in own if (make := flag_of(parameters[name].annotation).reads)}
    flags = [_typed(parameters[name], helps.get(name, "")) for name in own]
    more = {} if says is None else _declared(says)
    if where or says is not None:
        more |= SHARED
    flags += [
        _typed(inspect.Parameter(name, _OPTION, default=value, annotation=kind))
        for name, (kind, value) in more.items()
    ]

    def run(**typed: Any) -> None:
        values = {name: typed[name] for name in own}
        for name, make in reads.items():
            values[name] = values[name] if values[name] is None else make(values[name])
        if says is None and not where:
            function(**values)
            return
        cluster = cluster_of(typed)

        def work() -> None:
            if where:
                function(**{where[0]: cluster}, **values)
            else:
                _carry_out(cluster, function, values, typed)

        if typed.get("watch"):
            again_and_again(work, cluster.output, typed["every"])
        else:
            work()

    run.__doc__ = text
    run.__annotations__ = {each.name: each.annotation for each in flags}
    run.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    return run


def _declared(says: command) -> dict[str, tuple[Any, object]]:
    found: dict[str, tuple[Any, object]] = {}
    if says.asks or says.confirmed:
        found["yes"] = Yes, False
    if says.dry_run:
        found["dry_run"] = Annotated[bool, Flag("", says.dry_run)], False
    return found | (WATCH if says.watched else {})


def _typed(parameter: inspect.Parameter, help_text: str = "") -> inspect.Parameter:
    """A parameter as typer reads it."""
    name, kind, flag = parameter.name, parameter.annotation, flag_of(parameter.annotation)
    more_of_it = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    if kind is typer.Context or any(isinstance(each, ParameterInfo) for each in more_of_it):
        return parameter.replace(kind=_OPTION)  # typer's own
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if flag.reads is not None:
        kind = list[str] if flag.many else str
        kind = kind if parameter.default is inspect.Parameter.empty else kind | None
    words = flag.form.split(" ")
    names = list(itertools.takewhile(lambda word: word.startswith("-"), words))
    is_text = not {int, float, bool}.intersection((kind, *get_args(kind))) and kind is not Output
    more: dict[str, Any] = {
        "metavar": " ".join(words[len(names) :])
        or (name.upper() if is_text and not names else None),
        "help": flag.help or help_text or None,
        "min": flag.least,
        "max": flag.most,
    }
    if names or parameter.kind is _OPTION:
        names = names or [f"--{name.replace('_', '-')}"]
        info = typer.Option(*names, envvar=flag.variable, **more)
    else:
        info = typer.Argument(**more)
    return inspect.Parameter(
        name, _OPTION, default=parameter.default, annotation=Annotated[kind, info]
    )


def _carry_out(
    cluster: Cluster, function: Callable[..., Any], values: dict[str, Any], typed: Mapping[str, Any]
) -> None:
    """Ask, call, and show, as it is declared; a Plan is shown first, and done."""
    says, yes = declared(function) or command(), typed.get("yes", False)
    if says.asks:
        asks = says.asks.format(**values) if isinstance(says.asks, str) else says.asks(**values)
        confirm(asks, yes)
    result = _result(cluster, function, values)
    if isinstance(result, OperationPlan):
        shows, dry_run = result.shows, typed.get("dry_run", False)
        for note in result.notes:
            say(note)
        if isinstance(shows, Generator):
            shows = cluster.run(shows) if dry_run else None
        if shows is not None and (dry_run or not (yes or cluster.for_programs)):
            show_report(cluster, shows)
        if dry_run:
            return
        if result.asks:
            confirm(result.asks, yes)
        result = _run(cluster, result.does)
    show_report(cluster, says.shows(result, **values) if says.shows else result, says.empty)


def _result(cluster: Cluster, function: Callable[..., Any], values: dict[str, Any]) -> Any:
    """Return what a function finds with these flags and what is given to it."""
    from roquette.base import clock

    wants = inspect.signature(function).parameters
    given: dict[str, Any] = {"clock": clock.SystemClock(), "tell": say}
    if "name_servers" in wants:
        given["name_servers"] = cluster.addresses()

    async def work(client: Any) -> Any:
        found = given | {"mq": client, "run": client.session.run}
        return await function(**values, **{name: found[name] for name in wants if name in found})

    if inspect.iscoroutinefunction(function):
        return _run(cluster, work)
    result = function(**values, **{name: given[name] for name in wants if name in given})
    return _run(cluster, result) if isinstance(result, Generator) else result


def _run(cluster: Cluster, work: Any) -> Any:
    """Return what an operation finds, or what is awaited with a client."""
    if isinstance(work, Generator):
        return cluster.run(work)

    async def run() -> Any:
        async with cluster.client("TOOLS_PRODUCER") as client:
            return await work(client)

    return asyncio.run(run())


def show_report(cluster: Cluster, result: Any, empty: str = "nothing found") -> None:
    """Show rows, or a Report; its end is the exit code.

    Raises:
        ClientError, typer.Exit: something was not done, was not found, or is not as it should be.
    """
    report = result if isinstance(result, OperationReport) else OperationReport(result)
    empty = report.empty or empty
    if report.lines and cluster.output not in (Output.YAML, Output.CSV):
        show_value(report.value, Output.JSONL)
    elif report.shown is not None and not cluster.for_programs:
        for part in report.shown:
            if isinstance(part, Printed):
                print(part)
            elif isinstance(part, str):
                say(part)
            else:
                cluster.show(part, empty=empty)
    elif isinstance(report.value, list):
        cluster.show(report.value, empty=empty)
    elif report.value is not None:
        cluster.show_value(report.value)
    for note in report.notes:
        say(note)
    if report.failed:
        raise ClientError(report.failed)
    if not report.done:
        raise typer.Exit(FAILED)
    if not report.healthy:
        raise typer.Exit(UNHEALTHY)
