"""Settings of a pipeline's session: ours for a soon start on this machine, and the user's in place of them."""

import logging
import os
import subprocess
import sys
import zipfile
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JNetworkError

from roquette_spark.pipelines.archive.options import ArchiveOptions
from roquette_spark.pipelines.archive.pipeline import PIPELINE as ARCHIVE
from roquette_spark.pipelines.kit import running as session
from roquette_spark.pipelines.kit.running import JVM_OPTIONS, local_tuning, open_session, threads_to
from roquette_spark.pipelines.traffic.pipeline import PIPELINE as TRAFFIC

OPTIONS = JVM_OPTIONS[0]
C1 = "-XX:TieredStopAtLevel=1"
JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


class Builder:
    """Spark's, as far as `open_session` uses it; keeps what it is given."""

    def __init__(self) -> None:
        self.conf: dict[str, str] = {}

    def appName(self, name: str) -> "Builder":
        return self

    def master(self, master: str) -> "Builder":
        return self

    def config(self, name: str, value: str) -> "Builder":
        self.conf[name] = value
        return self

    def getOrCreate(self) -> Any:
        return MagicMock()


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    """What the next session is built with; no Spark starts, and no word of this machine's environment counts."""
    found = Builder()
    spark = MagicMock(builder=found)
    spark.getActiveSession.return_value = None
    monkeypatch.setattr("pyspark.sql.SparkSession", spark)
    monkeypatch.setattr(session, "spark_environment", lambda environ: {})
    for name in (*JAVA, "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    return found


def opened(builder: Builder, folder: Path, *settings: str, master: str = "local[2]") -> Any:
    open_session("a", master, settings, str(folder / "spark.log"), jvm_plans_only=True)
    return builder.conf


def test_a_session_of_ours_on_this_machine(builder: Builder, tmp_path: Path) -> None:
    conf = opened(builder, tmp_path)
    assert conf[OPTIONS].split() == ["-XX:+UseSerialGC", C1]
    assert conf["spark.ui.enabled"] == "false"


def test_the_users_settings_win(builder: Builder, tmp_path: Path) -> None:
    conf = opened(builder, tmp_path, f"{OPTIONS}=-XX:+UseG1GC", "spark.ui.enabled=true")
    assert conf[OPTIONS] == "-XX:+UseG1GC"
    assert conf["spark.ui.enabled"] == "true"


def test_options_that_the_user_prepends_are_alone(builder: Builder, tmp_path: Path) -> None:
    conf = opened(builder, tmp_path, f"{JVM_OPTIONS[1]}=-XX:+UseZGC")
    assert OPTIONS not in conf  # two collectors, and Java does not start


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_the_users_file_wins(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    folder = tmp_path if variable == "SPARK_CONF_DIR" else tmp_path / "conf"
    folder.mkdir(exist_ok=True)
    text = f"# {JVM_OPTIONS[1]} no\n{OPTIONS}  -XX:+UseG1GC\n  spark.ui.enabled=true\n"
    (folder / "spark-defaults.conf").write_text(text)
    monkeypatch.setenv(variable, str(tmp_path))
    assert not {OPTIONS, "spark.ui.enabled"} & opened(builder, tmp_path).keys()


def test_a_comment_in_the_users_file_chooses_nothing(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"# {OPTIONS} -XX:+UseG1GC\nspark.other 1\n")
    found = local_tuning({}, {"SPARK_CONF_DIR": str(tmp_path)}, jvm_plans_only=False)
    assert found == local_tuning({}, {}, jvm_plans_only=False)


@pytest.mark.parametrize(
    "environ",
    [
        *({name: "-XX:+UseG1GC"} for name in JAVA),
        {"PYSPARK_SUBMIT_ARGS": "--driver-java-options -XX:+UseG1GC pyspark-shell"},
        {"PYSPARK_SUBMIT_ARGS": f"--conf {OPTIONS}=-XX:+UseG1GC pyspark-shell"},
    ],
)
def test_the_users_variables_win(environ: dict[str, str]) -> None:
    found = local_tuning({}, environ, jvm_plans_only=True)
    assert found == {"spark.ui.enabled": "false"}


def test_a_cluster_gets_no_options_of_ours(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_package_for_others", lambda: tmp_path)
    monkeypatch.setattr(session, "ship_package", lambda session, package: None)
    conf = opened(builder, tmp_path, master="spark://127.0.0.1:7077")
    assert not {OPTIONS, "spark.ui.enabled"} & conf.keys()


@pytest.mark.parametrize(
    ("master", "ours"), [("local[2]", True), ("spark://127.0.0.1:7077", False)]
)
def test_a_cluster_brings_its_own_modules(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, ours: bool
) -> None:
    monkeypatch.setattr(session, "spark_environment", lambda environ: {"SPARK_HOME": "/links"})
    monkeypatch.setattr(session, "_package_for_others", lambda: tmp_path)
    monkeypatch.setattr(session, "ship_package", lambda session, package: None)
    monkeypatch.setenv("SPARK_HOME", "what is there is restored")
    monkeypatch.delenv("SPARK_HOME")
    opened(builder, tmp_path, master=master)
    assert (os.environ.get("SPARK_HOME") == "/links") is ours


def test_the_slow_compiler_stays_where_rows_pass_through_the_jvm() -> None:
    assert C1 not in local_tuning({}, {}, jvm_plans_only=TRAFFIC.jvm_plans_only)[OPTIONS]
    assert C1 in local_tuning({}, {}, jvm_plans_only=ARCHIVE.jvm_plans_only)[OPTIONS]


def test_threads_of_pyspark_have_nothing_to_say_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root, log = logging.getLogger(), tmp_path / "spark.log"
    server: Any = SimpleNamespace(handle_error=None)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=server))
    monkeypatch.setattr(root, "handlers", [])

    handler = threads_to(str(log), spark)
    try:
        raise EOFError("the JVM is gone")
    except EOFError:
        server.handle_error(None, ("127.0.0.1", 1))
    logging.getLogger("py4j.clientserver").error("no answer")

    assert handler is not None and root.handlers == [handler]
    assert threads_to(str(log), spark) is None, "the handlers of an application are its own"
    handler.close()
    assert "EOFError: the JVM is gone" in log.read_text() and "no answer" in log.read_text()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "gone", [ConnectionRefusedError("no JVM"), Py4JNetworkError("no answer"), None]
)
def test_threads_that_outlive_a_killed_jvm_have_nothing_to_say_on_the_terminal(
    gone: Exception | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    root, log = logging.getLogger(), tmp_path / "spark.log"

    def stop() -> None:
        if gone is not None:
            raise gone

    spark: Any = SimpleNamespace(sparkContext=None, stop=stop)
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(session, "open_session", lambda *_, **__: spark)
    run = session._Session(ARCHIVE, ArchiveOptions(namesrv="n", topics=("t",), to="lake"), str(log))
    run.open()
    run.close()
    if gone is None:
        assert not root.handlers
        return
    try:
        raise AttributeError("its context is gone")
    except AttributeError:
        logging.exception("Exception while sending command.")
        logging.getLogger("py4j.clientserver").exception("the Python Proxy")

    assert log.read_text().count("its context is gone") == 4
    assert capfd.readouterr() == ("", "")


def test_executors_are_sent_both_packages(tmp_path: Path) -> None:
    """What a worker imports that has nothing of ours installed; in a zip no folder is a package by itself."""
    package = session.package_zip(tmp_path)
    with zipfile.ZipFile(package) as archive:
        names = {PurePath(name) for name in archive.namelist()}
    imported = [name for name in names if "declarative" not in name.parts]  # a project for users
    assert [str(n.parent) for n in imported if n.parent / "__init__.py" not in names] == []
    code = f"import sys; sys.path[:] = [{str(package)!r}, *sys.path[1:]]; import roquette_spark, roquette.base.options"
    bare = {"PATH": os.environ["PATH"]}

    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=bare, capture_output=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, b"")
