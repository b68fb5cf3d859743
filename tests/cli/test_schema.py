"""What commands print is what their schemas say."""

import json
from typing import Any

import pytest
from tests.cli.conftest import Roquette

from roquette.errors import ConfigError

KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def check(value: Any, schema: dict[str, Any]) -> None:
    assert isinstance(value, KINDS[schema["type"]]), (value, schema)


@pytest.mark.parametrize(
    "command",
    ["topic list", "group list", "cluster", "doctor", "broker config get", "namesrv config get"],
)
def test_output_is_what_the_schema_says(roquette: Roquette, command: str) -> None:
    roquette("produce", "orders", "x")
    roquette("consume", "orders", "--group", "g", "--offset", "first", "-c", "1")
    schema = json.loads(roquette("schema", *command.split()).stdout)
    assert schema["type"] == "array"
    row = schema["$defs"][schema["items"]["$ref"].rpartition("/")[2]]
    more = ("--production",) if command == "doctor" else ()
    rows = json.loads(roquette(*command.split(), *more, "-o", "json").stdout)
    assert rows
    for each in rows:
        assert set(row.get("required", ())) <= set(each) <= set(row["properties"])
        for name, value in each.items():
            check(value, row["properties"][name])


def test_every_command_in_the_list_has_a_schema(roquette: Roquette) -> None:
    listed = roquette("schema").stdout.splitlines()
    assert len(listed) >= 10
    for command in listed:
        assert json.loads(roquette("schema", *command.split()).stdout)["type"] == "array"
        assert roquette(*command.split(), "--help").exit_code == 0
    for other in (
        "nothing",
        "user show",
        "client ls",
        "topic create",
    ):  # no such command, or no rows of one kind
        assert other not in listed
        assert isinstance(roquette("schema", *other.split()).exception, ConfigError)
