"""`roquette schema`: what commands print with --output json, as JSON schemas."""

from importlib import import_module
from types import GenericAlias
from typing import Annotated, Any, Final

import typer

from roquette.errors import ConfigError

_ROWS: Final = {
    "topic list": "roquette.admin.catalogue:TopicRow",
    "group list": "roquette.admin.catalogue:GroupRow",
    "group lag": "roquette.admin.groups:LagRow",
    "group seek": "roquette.admin.seek:SeekRow",
    "cluster": "roquette.admin.top:BrokerState",
    "doctor": "roquette.cli.doctor:FindingRow",
    "broker config get": "roquette.admin.settings:SettingRow",
    "namesrv config get": "roquette.admin.settings:SettingRow",
    "namesrv diff": "roquette.admin.disagreement:DifferenceRow",
    "bench pub": "roquette.cli.bench_meter:BenchRow",
    "bench sub": "roquette.cli.bench_meter:BenchRow",
    "context ls": "roquette.cli.context:ContextRow",
}
"""The Struct of each command's rows; its output is an array of them."""


def schema_of(command: str) -> dict[str, Any]:
    """The JSON schema of a command's output; raises ConfigError when it has none."""
    import msgspec

    if command not in _ROWS:
        raise ConfigError(f"there is no schema of {command!r}; there are: {', '.join(_ROWS)}")
    module, _, name = _ROWS[command].partition(":")
    row = getattr(import_module(module), name)
    return msgspec.json.schema(GenericAlias(list, (row,)))


def schema_command(
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND")] = None,
) -> None:
    """Print the JSON schema of a command's --output json, as of `topic list`; without a command, which have one."""
    from roquette.cli.output import Output, show_value

    if not words:
        print("\n".join(_ROWS))
        return
    show_value(schema_of(" ".join(words)), Output.JSON)
