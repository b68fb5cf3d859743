"""`roquette pipeline NAME` and `roquette spark ...`: flags made from options classes, found when asked for."""

import dataclasses
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from roquette.base.files import OsFiles
from roquette.base.options import Option, options_of, split_addresses
from roquette.errors import ConfigError, RoquetteError
from roquette_spark.pipelines.kit.frame import (
    Pipeline,
    PipelineOptions,
    Plan,
    load_options,
    read_options_file,
)
from roquette_spark.values.errors import explain

# Which pipelines there are. Modules are imported when somebody asks for one of them.


# Name of the verb -> module that has PIPELINE.
MODULES: dict[str, str] = {
    "ingest": "roquette_spark.pipelines.ingest.pipeline",
    "archive": "roquette_spark.pipelines.archive.pipeline",
    "current-state": "roquette_spark.pipelines.state.pipeline",
    "replay": "roquette_spark.pipelines.replay.pipeline",
    "dlq": "roquette_spark.pipelines.dlq.pipeline",
    "traffic": "roquette_spark.pipelines.traffic.pipeline",
    "audit": "roquette_spark.pipelines.audit.pipeline",
}


def find_pipeline(name: str) -> Pipeline[Any]:
    """The pipeline of that name. Raises ConfigError when there is none."""
    module = MODULES.get(name)
    if module is None:
        raise ConfigError(f"there is no pipeline {name}; there are: {', '.join(MODULES)}")
    found = importlib.import_module(module).PIPELINE
    assert isinstance(found, Pipeline), module
    return found


HELP = (
    "Data pipelines over topics, on PySpark. Each can be stopped, or killed, and started again with the "
    "same command; each ends with a report."
)


class OutputForm(StrEnum):
    """The two forms of --output."""

    TABLE = "table"
    JSON = "json"


_CONFIG = typer.Option("-c", "--config", metavar="FILE", help="Options from a YAML or JSON file.")
_DRY_RUN = typer.Option("--dry-run", help="Say what would be read and written, and end.")
_OUTPUT = typer.Option("-o", "--output", help="How the result is printed.")


class Pipelines(TyperGroup):
    """The verbs of `roquette pipeline`; a pipeline's module is imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all pipelines, and `init`."""
        return [*MODULES, "init"]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of one pipeline, or `init`; None if there is none of that name."""
        if cmd_name == "init":
            from roquette_spark.pipelines.declarative_project import init

            return _command(cmd_name, None, init)
        if cmd_name not in MODULES:
            return None
        try:
            return command_of(find_pipeline(cmd_name))
        except ModuleNotFoundError as error:
            return _absent(cmd_name, error)


def register(app: typer.Typer) -> None:
    """Add `pipeline` and `spark` to the `roquette` command."""
    plain: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None}
    app.add_typer(typer.Typer(cls=Pipelines, help=HELP, **plain), name="pipeline")
    spark = typer.Typer(help="Look after Spark on this machine.", **plain)
    spark.callback()(_keep_the_verb)
    spark.command("doctor")(doctor)
    app.add_typer(spark, name="spark")


def _keep_the_verb() -> None:
    """Look after Spark on this machine."""


def doctor(
    namesrv: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namesrv",
            metavar='"NS1;NS2"',
            help="Name servers to ask; default is $NAMESRV_ADDR, else that check is left out.",
            show_default=False,
        ),
    ] = None,
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="A spark://HOST:PORT to try.")
    ] = "",
    output: Annotated[OutputForm, _OUTPUT] = OutputForm.TABLE,
) -> None:
    """Say what of Java, Python, versions and ports keeps Spark from running, and how to mend it.

    The exit status is 0 when nothing is bad, 1 otherwise.
    """
    from roquette_spark.local.doctor import BAD, MachineProbes, diagnose

    text = namesrv or os.environ.get("NAMESRV_ADDR") or ""
    servers = split_addresses(text)
    findings = diagnose(os.environ, MachineProbes(), name_servers=servers, master=master)
    bad = any(each.state == BAD for each in findings)
    if output is OutputForm.JSON:
        rows = [dataclasses.asdict(each) for each in findings]
        sys.stdout.write(json.dumps({"ok": not bad, "findings": rows}, indent=2) + "\n")
    else:
        for each in findings:
            line = f"{each.state:8} {each.check:15} {each.found}"
            sys.stdout.write(line + (f"\n{'':25}-> {each.mend}" if each.mend else "") + "\n")
        sys.stdout.write("Spark can run here.\n" if not bad else "Spark cannot run here yet.\n")
    raise typer.Exit(1 if bad else 0)


def _command(name: str, help: str | None, work: Callable[..., None], **settings: Any) -> Any:
    own = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    own.command(name=name, help=help, context_settings=settings)(work)
    found = typer.main.get_command(own)
    found.name = name
    return found


def _absent(name: str, error: ModuleNotFoundError) -> Any:
    """The command of a pipeline whose packages are missing: its help and its error say how to get them."""
    install = "pip install 'roquette[spark]'"

    def refuse() -> None:
        raise ConfigError(f"pipeline {name} needs PySpark and Arrow ({error}): {install}")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return _command(name, f"First: {install}", refuse, **anything)


def command_of(pipeline: Pipeline[Any]) -> Any:
    """A command with one flag for each option."""

    def work(
        *,
        config: Annotated[str | None, _CONFIG] = None,
        dry_run: Annotated[bool, _DRY_RUN] = False,
        output: Annotated[OutputForm, _OUTPUT] = OutputForm.TABLE,
        **flags: Any,
    ) -> None:
        raise typer.Exit(run_command(pipeline, flags, config, dry_run=dry_run, output=output))

    common = options_of(PipelineOptions)
    known = sorted(options_of(pipeline.options).values(), key=lambda option: option.name in common)
    *own, _ = inspect.signature(work).parameters.values()
    parameters = [*map(_parameter, known), *own]
    work.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    work.__annotations__ = {each.name: each.annotation for each in parameters}
    return _command(pipeline.name, pipeline.help, work)


def _parameter(option: Option) -> inspect.Parameter:
    """An option as typer knows it. None means that the flag was not given: the file or the default decides."""
    help = option.help
    if option.choices and option.type is not bool:
        help += f" One of: {', '.join(option.choices)}."
    if option.required:
        help += " Required."
    elif option.default not in (None, "", (), False):
        help += f" [{option.default}]"
    names, metavar = [option.flag], option.metavar
    hint: Any = list[str] if option.many else option.type
    if option.field == "namesrv":
        names.insert(0, "-n")
    if option.type is bool:
        names = [f"{option.flag}/--no-{option.flag.removeprefix('--')}"]
    else:
        metavar = metavar or {int: "N", float: "X"}.get(option.type, "TEXT")
    info = typer.Option(*names, help=help, metavar=metavar or None, show_default=False)
    return inspect.Parameter(
        option.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[hint | None, info],
    )


def run_command(
    pipeline: Pipeline[Any],
    flags: dict[str, Any],
    config: str | None,
    *,
    dry_run: bool,
    output: OutputForm,
) -> int:
    """One pipeline from the command line; returns the exit status: 0, 1 when a check failed, or what the result says.

    Raises:
        RoquetteError: it cannot go on; the text is one line.
    """
    file = {} if config is None else read_options_file(config, OsFiles())
    if flags.get("namesrv") is None and "namesrv" not in file:
        flags["namesrv"] = os.environ.get("NAMESRV_ADDR") or None
    options = load_options(pipeline.options, flags, file, where=pipeline.name)
    if dry_run:
        try:
            plan = pipeline.plan(options)
        except RoquetteError as error:
            raise ConfigError(explain(error)) from error
        _print_plan(pipeline.name, plan, output)
        return 0
    from roquette_spark.pipelines.kit.running import REPORT, free_directory, run_pipeline
    from roquette_spark.pipelines.kit.screen import Screen

    directory = options.report or free_directory(pipeline.name, OsFiles())
    with Screen() as screen:
        result = run_pipeline(pipeline, options, progress=screen, directory=directory)
    if output is OutputForm.JSON:
        sys.stdout.write(json.dumps(result.summary, indent=2, default=str) + "\n")
    elif result.last_line:
        sys.stdout.write(result.last_line + "\n")
    sys.stderr.write(f"report: {os.path.join(directory, REPORT)}\n")
    return result.status if result.ok else 1


def _print_plan(name: str, plan: Plan, output: OutputForm) -> None:
    parts = {"reads": plan.reads, "writes": plan.writes, "notes": plan.notes}
    if output is OutputForm.JSON:
        found = {"pipeline": name, **{part: list(each) for part, each in parts.items()}}
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    for part, texts in parts.items():
        for text in texts:
            sys.stdout.write(f"{part:7} {text}\n")
