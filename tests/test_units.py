"""The units that the guide gives people to copy: what they start exists, and they are well formed."""

import configparser
import shlex
from pathlib import Path

import click
import pytest
import yaml
from tools.commands_page import ROOT_COMMAND, below

EXAMPLES = Path(__file__).parents[1] / "examples"
UNITS = sorted((EXAMPLES / "systemd").glob("*.service"))


def read(path: Path) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    return unit


def test_there_is_one_for_each_kind_of_process() -> None:
    assert [path.stem for path in UNITS] == [
        "roquette-archive",
        "roquette-broker",
        "roquette-broker@",
        "roquette-namesrv",
    ]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_a_command_that_exists(path: Path) -> None:
    unit = read(path)

    assert {"Unit", "Service", "Install"} == set(unit.sections())
    assert unit["Service"]["Restart"] in ("always", "on-failure")
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert_accepted(program, words)


def assert_accepted(program: str, words: list[str]) -> None:
    """The words name a command and options that it has, and nothing else."""
    assert program.endswith("/bin/roquette")
    command = ROOT_COMMAND
    while words and words[0] in below(command):
        command = below(command)[words.pop(0)]
    given, rest, _ = command.make_parser(click.Context(command)).parse_args(list(words))
    assert given
    assert rest == []


def test_the_jobs_of_kubernetes_are_well_formed_and_start_a_command_that_exists() -> None:
    jobs = list(yaml.safe_load_all((EXAMPLES / "kubernetes/archive-job.yaml").read_text()))

    assert [job["kind"] for job in jobs] == ["Deployment", "CronJob"]
    for spec in (jobs[0]["spec"], jobs[1]["spec"]["jobTemplate"]["spec"]):
        pod = spec["template"]["spec"]
        [container] = pod["containers"]
        assert_accepted(*container["command"], container["args"])
        mounts = {each["name"] for each in container["volumeMounts"]}
        assert mounts == {each["name"] for each in pod["volumes"]}
    ports = {each["name"] for each in jobs[0]["spec"]["template"]["spec"]["containers"][0]["ports"]}
    probe = jobs[0]["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]
    assert probe["port"] in ports
