"""`roquette schema`: what commands print with --output json, as JSON schemas; `roquette generate`: files for other programs."""

import inspect
import json
from collections.abc import Generator
from importlib import import_module
from types import GenericAlias, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from roquette.admin.command import Flag, OperationPlan, OperationReport
from roquette.cli import COMMANDS, function_of
from roquette.cli.output import Output, show_value
from roquette.errors import ConfigError

_BY_HAND: Final = {
    "topic list": "admin.catalogue:TopicRow",
    "cluster": "admin.top:BrokerState",
    "doctor": "cli.doctor:FindingRow",
    "bench pub": "admin.bench:BenchRow",
    "bench sub": "admin.bench:BenchRow",
    "context ls": "cli.context:ContextRow",
}
"""The rows of commands whose functions do not return them."""


def rows_of(command: str) -> Any:
    """The Struct of a command's rows, of which its output is an array; None: that has another form."""
    if command in _BY_HAND:
        module, _, name = _BY_HAND[command].partition(":")
        return getattr(import_module(f"roquette.{module}"), name)
    found = inspect.signature(function_of(command)).return_annotation
    while get_origin(found) in (Generator, OperationReport, OperationPlan, Union, UnionType):
        found = get_args(found)[-1]  # of an operation the result, of that its value
    row = get_args(found)[0] if get_origin(found) is list else None
    return row if isinstance(row, type) and issubclass(row, msgspec.Struct) else None


def schema(words: Annotated[list[str] | None, Flag("COMMAND")] = None) -> None:
    """Print the JSON schema of a command's --output json, as of `topic list`; without a command, which have one."""
    command = " ".join(words or ())
    if row := command in COMMANDS and rows_of(command):
        show_value(msgspec.json.schema(GenericAlias(list, (row,))), Output.JSON)
        return
    there = [name for name in COMMANDS if rows_of(name)]
    if words:
        raise ConfigError(f"there is no schema of {command!r}; there are: {', '.join(there)}")
    print("\n".join(there))


def grafana() -> None:
    """Print a board for Grafana, as JSON to import or to provide as a file."""
    from roquette.base.metric_boards import grafana_board

    print(json.dumps(grafana_board(), indent=2))


def prometheus_rules(*, job: Annotated[str, Flag("--job")] = "rocketmq") -> None:
    """Print alerting rules for Prometheus, a file for its rule_files.

    Args:
        job: The name of the job that scrapes the servers.
    """
    from roquette.base.metric_boards import prometheus_rules

    print(json.dumps(prometheus_rules(job), indent=2))
