"""`roquette doctor` against a real `roquette dev`, and where nobody is."""

import json
import os

import pytest
from tests.cli.conftest import Roquette

from roquette.errors import ConnectError


def test_a_new_cluster_on_this_machine_is_healthy(roquette: Roquette) -> None:
    found = roquette("doctor")

    assert (found.exit_code, found.stdout) == (0, "")
    assert "1 broker, 1 name server, 0 groups online: 0 errors, 0 warnings, 0 notes" in found.stderr
    assert json.loads(roquette("doctor", "-o", "json").stdout) == []


def test_what_is_wrong_is_told_and_mended(roquette: Roquette) -> None:
    sick = roquette("doctor", "--production", "-o", "json")
    told = {row["code"]: row for row in json.loads(sick.stdout)}
    assert sick.exit_code == 10
    assert told["RQ-D024"]["severity"] == "warning"
    assert told["RQ-D024"]["fixable"] is True
    assert roquette("doctor", "--none-lost").exit_code == 10

    command = "`roquette broker config set autoCreateTopicEnable=false --broker "
    assert told["RQ-D024"]["fix"].startswith(command) and " -n " not in told["RQ-D024"]["fix"]
    where = os.environ["NAMESRV_ADDR"]
    named = roquette("doctor", "--production", "-n", where, "-o", "json")
    (fix,) = [row["fix"] for row in json.loads(named.stdout) if row["code"] == "RQ-D024"]
    assert fix.startswith(command) and f" -n {where}`, " in fix
    lines = roquette("doctor", "--production").stdout.splitlines()
    assert lines[0] == "RQ-D024  WARNING  broker broker-a"
    assert [line.split()[0] for line in lines[1:4]] == ["seen", "why", "fix"]

    refused = roquette("doctor", "--production", "--fix", stdin="y\n")
    assert refused.exit_code == 1
    mended = roquette("doctor", "--production", "--fix", "--yes")
    assert mended.exit_code == 0
    assert "will set autoCreateTopicEnable=false" in mended.stderr
    assert "to take it back: " in mended.stderr
    assert "done: set autoCreateTopicEnable=false" in mended.stderr
    assert roquette("doctor", "--production").exit_code == 0
    assert "nothing here" in roquette("doctor", "--production", "--fix").stderr


def test_what_cannot_be_mended_stays_unhealthy(roquette: Roquette) -> None:
    assert roquette("doctor", "--none-lost", "--fix", "--yes").exit_code == 10


def test_two_looks(roquette: Roquette) -> None:
    assert "the second one follows in 0.2 s" in roquette("doctor", "--for", "0.2").stderr


def test_no_name_server() -> None:
    with pytest.raises(ConnectError):
        raise Roquette()("doctor", "-n", "127.0.0.1:1").exception or AssertionError
