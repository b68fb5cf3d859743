"""A standalone Spark cluster on this machine: `spark-class` of the installed PySpark, a master and workers."""

import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from tests.pipelines.processes import SHORT_LIVED_JVM

from roquette_spark.local.jdk import spark_environment

START_S = 90


def bare_python(folder: Path) -> Path:
    """A Python that has this environment's libraries, but not Roquette: .pth files are not followed there."""
    script = folder / "python"
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    libraries = sysconfig.get_paths()["purelib"]
    script.write_text(
        "#!/bin/sh\n"
        f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{libraries}"\n'
        f'exec "{base}" "$@"\n'
    )
    script.chmod(0o755)
    return script


class Standalone:
    """The cluster's address and its processes."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        self._children: list[subprocess.Popen[bytes]] = []
        # What the servers know: nothing of this test's own environment.
        java = spark_environment(os.environ)["JAVA_HOME"]
        self._environ = {
            "JAVA_HOME": java,
            "PATH": os.environ.get("PATH", ""),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED_JVM,
        }
        ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._start("master", "org.apache.spark.deploy.master.Master", *ports)
        self.address = self._find("master", r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            name = f"worker-{number}"
            self._start(
                name,
                "org.apache.spark.deploy.worker.Worker",
                *ports,
                *("--cores", "1", "--memory", "1g", "--work-dir", str(folder / name)),
                self.address,
            )
        for number in range(workers):
            self._find(f"worker-{number}", r"Successfully (registered) with master")

    def _start(self, name: str, *words: str) -> None:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with (self.folder / f"{name}.log").open("wb") as log:
            child = subprocess.Popen(
                [str(program), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environ,
                start_new_session=True,
            )
        self._children.append(child)

    def _find(self, name: str, pattern: str) -> str:
        path = self.folder / f"{name}.log"
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            found = re.search(pattern, path.read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.1)
        raise AssertionError(f"{name} did not start: {path.read_text(errors='replace')[-2000:]}")

    def worker_pids(self) -> list[int]:
        """The workers' JVMs; executors are their children."""
        return [child.pid for child in self._children[1:]]

    def stop(self) -> None:
        """All of them, with their executors."""
        for child in reversed(self._children):
            child.terminate()
        for child in self._children:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Standalone]:
    """A cluster that is up."""
    cluster = Standalone(folder, workers)
    try:
        yield cluster
    finally:
        cluster.stop()
