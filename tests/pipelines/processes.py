"""Pipelines as processes of their own, to be killed; and who their children are."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MAIN = [sys.executable, "-c", "from roquette.apps.main import main; main()"]
# A JVM of seconds: one compiler, one collector thread.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SHORT_LIFE = f"spark.driver.extraJavaOptions={SHORT_LIVED_JVM}"


class PipelineProcess:
    """`roquette pipeline WORDS` in a process group of its own; what it says goes to a file."""

    def __init__(self, words: list[str], log: Path, environ: dict[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as stream:
            self.child = subprocess.Popen(
                [*MAIN, "pipeline", *words],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environ or {})},
            )

    def ended(self) -> bool:
        return self.child.poll() is not None

    def wait(self, timeout: float) -> int:
        return self.child.wait(timeout)

    def jvm(self) -> int | None:
        """The driver's JVM."""
        return next((pid for pid in descendants(self.child.pid) if command(pid) == "java"), None)

    def workers(self) -> list[int]:
        """Python processes below the JVM."""
        jvm = self.jvm()
        return [] if jvm is None else [p for p in descendants(jvm) if "python" in command(p)]

    def kill_group(self) -> None:
        """Everything that it has started and that is still there."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


def kill(pid: int | None) -> bool:
    """SIGKILL; False when it is gone already."""
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def descendants(root: int) -> list[int]:
    """All processes below one, nearest first."""
    parents: dict[int, int] = dict(_parents())
    found, level = list[int](), [root]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found += level
    return found


def children(parent: int) -> list[int]:
    """The processes that one has started itself."""
    return [pid for pid, above in _parents() if above == parent]


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{name}/stat").read_text()
                yield int(name), int(text.rpartition(")")[2].split()[1])


def command(pid: int) -> str:
    """The name of its program."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def wait_until(condition: "object", seconds: float) -> bool:
    """Whether `condition()` became true in time."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
