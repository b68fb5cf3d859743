"""What strikes a pipeline while it runs. Each function is one round: start it, strike it, see how it ends."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.pipelines.chaos.subjects import ArchiveInAStore, Subject
from tests.pipelines.processes import PipelineProcess, command, kill, wait_until

from roquette_spark.pipelines.kit.frame import Result

START_S = 200

DONE = (0, Result.BAD_MESSAGES)  # statuses of a run that did all there was


class Chaos:
    """Rounds of one pipeline.

    Attributes:
        struck: how often a strike has hit a process that was running.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.random = subject.random
        self.struck: Counter[str] = Counter()
        self._runs: list[PipelineProcess] = []
        self._jvms: list[int] = []
        self._said = 0

    def round(self, event: str) -> None:
        """More to do, and a run that is struck."""
        self.subject.grow()
        STRIKES[event](self)
        self.subject.plant_foreign()

    def finish(self) -> None:
        """A last run that nothing strikes; what was there before is done, and once."""
        self.subject.grow()
        last = self.start()
        assert last.wait(2 * START_S) in DONE, self.log(last)
        self.subject.plant_foreign()
        assert wait_until(lambda: not [pid for pid in self._jvms if command(pid) == "java"], 60)
        self.subject.check()
        self.subject.check_foreign()

    def start(self) -> PipelineProcess:
        log = self.subject.folder / f"log-{len(self._runs)}"
        process = PipelineProcess(self.subject.command(), log, self.subject.environ())
        self._runs.append(process)
        return process

    def start_and_wait(self) -> PipelineProcess:
        """A run that has begun to do something, and somewhere in it."""
        before = self.subject.marks()
        process = self.start()

        def begun() -> bool:
            now = self.subject.marks()
            moved = bool(process.workers()) if now is None else now > (before or 0)
            return process.ended() or moved

        assert wait_until(begun, START_S), self.log(process)
        time.sleep(self.random.uniform(0, 1.5))
        if (jvm := process.jvm()) is not None:
            self._jvms.append(jvm)
        return process

    def log(self, process: PipelineProcess) -> str:
        return process.log.read_text()[-4000:]

    def end(self, process: PipelineProcess, *statuses: int) -> None:
        """It ends by itself, with one of these statuses; an error is one line for people, alone."""
        found = process.wait(START_S)
        text = self.log(process)
        assert found in statuses, (found, text)
        assert "Traceback" not in text, text
        if found not in DONE:
            assert re.search(r"^error: .+$", text, re.MULTILINE), text
        process.kill_group()

    def stop(self) -> None:
        """All that still runs."""
        for process in self._runs:
            process.kill_group()


def driver(chaos: Chaos) -> None:
    """kill -9 of the command; now and then the JVM lives on for a moment beside the next run."""
    process = chaos.start_and_wait()
    chaos.struck["driver"] += kill(process.child.pid) and process.wait(10) == -signal.SIGKILL
    if chaos.random.random() < 0.5:
        process.kill_group()


def jvm(chaos: Chaos) -> None:
    """kill -9 of Spark's JVM."""
    process = chaos.start_and_wait()
    if kill(process.jvm()):
        chaos.struck["jvm"] += 1
    chaos.end(process, *DONE, 1)


def worker(chaos: Chaos) -> None:
    """kill -9 of a Python worker: its task is tried again, or the run fails."""
    process = chaos.start_and_wait()
    found = process.workers()
    if found and kill(chaos.random.choice(found)):
        chaos.struck["worker"] += 1
    chaos.end(process, *DONE, 1)


def group(chaos: Chaos) -> None:
    """SIGTERM to the command, its JVM and its workers at once: it ends well, at the next step."""
    process = chaos.start_and_wait()
    if not process.ended():
        os.killpg(process.child.pid, signal.SIGTERM)
        chaos.struck["group"] += 1
    status = process.wait(START_S)
    summary = json.loads((chaos.subject.folder / "report" / "summary.json").read_text())
    well = chaos.subject.stopped == 0 or not summary["stopped"]
    assert status in (DONE if well else (chaos.subject.stopped,)), chaos.log(process)
    assert summary["ok"] == (status in DONE)
    process.kill_group()


def broker(chaos: Chaos) -> None:
    """kill -9 of the broker, which comes back at another port."""
    process = chaos.start_and_wait()
    chaos.struck["broker"] += not process.ended()
    chaos.subject.place.restart_broker()
    chaos.end(process, *DONE, 1)


def disk(chaos: Chaos) -> None:
    """The disk under the destination is full from some moment on, and has room again before the next run."""
    ballast = chaos.subject.out / "ballast"
    process = chaos.start_and_wait()
    chaos.struck["disk"] += not process.ended()
    left = fill(ballast, chaos.random.choice((0, 4096, 40_000, 150_000)))
    text = "" if process.wait(START_S) in DONE else chaos.log(process)
    assert left or text, "it has written to a full disk"
    if text:
        assert re.search(r"^error: .*(No space left|disk is full)", text, re.MULTILINE), text
    chaos.end(process, *DONE, 1)
    ballast.unlink()


def store(chaos: Chaos) -> None:
    """The object store refuses each Nth call, or does it and loses the answer, for a whole run."""
    subject = chaos.subject
    assert isinstance(subject, ArchiveInAStore)
    subject.every = chaos.random.choice((3, 5, 7))
    process = chaos.start()
    chaos.end(process, *DONE, 1)
    subject.every = 0
    chaos.struck["store"] += subject.struck > 0


STRIKES: dict[str, Callable[[Chaos], None]] = {
    each.__name__: each for each in (driver, jvm, worker, group, broker, disk, store)
}


def fill(ballast: Path, leave: int) -> int:
    """Fill the disk but for so many bytes; how many are left."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    if leave:
        os.truncate(ballast, max(0, ballast.stat().st_size - leave))
    return leave


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "8m") -> Iterator[bool]:
    """A disk of its own at a folder; False where this machine lets nobody mount one."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)
