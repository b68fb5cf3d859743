"""The units that the guide gives people to copy: what they start exists, and they are well formed."""

import configparser
import shlex
from pathlib import Path

import pytest
from tools.commands_page import ROOT_COMMAND, below

UNITS = sorted((Path(__file__).parents[1] / "examples/systemd").glob("*.service"))


def read(path: Path) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    return unit


def test_there_is_one_for_each_kind_of_process() -> None:
    assert [path.stem for path in UNITS] == [
        "roquette-archive",
        "roquette-broker",
        "roquette-namesrv",
    ]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_a_command_that_exists(path: Path) -> None:
    unit = read(path)

    assert {"Unit", "Service", "Install"} == set(unit.sections())
    assert unit["Service"]["Restart"] in ("always", "on-failure")
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/bin/roquette")
    command = ROOT_COMMAND
    while words and words[0] in below(command):
        command = below(command)[words.pop(0)]
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    given = {word for word in words if word.startswith("-")}
    assert given <= options
    assert given
