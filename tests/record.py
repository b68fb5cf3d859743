"""Records what each case took and how it ended, for the table of tools/run_tests.py; puts temporary directories into memory,
and empties those of cases that passed.

ROQUETTE_RECORD names the file: a line of JSON a case. With ROQUETTE_GO_ON=1 those that it says have passed are left out: a long
part that was ended goes on where it stopped.
"""

import gc
import json
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import pytest

RECORD = "ROQUETTE_RECORD"
IN_MEMORY = Path("/dev/shm")
# Of free memory that a file system has to have: stores, archives and spill files of two workers.
LEAST_FREE = 4 << 30


FOLDER = pytest.StashKey[Path]()


def memory_folder() -> Path | None:
    """Where temporary directories are in memory: a sync costs nothing there. None where no tmpfs of that size is.

    Programs that are built in one must be able to start, so none that is mounted noexec is taken.
    """
    if not os.access(IN_MEMORY, os.W_OK):
        return None
    state = os.statvfs(IN_MEMORY)
    if state.f_bavail * state.f_frsize < LEAST_FREE or state.f_flag & os.ST_NOEXEC:
        return None
    folder = IN_MEMORY / f"roquette-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def use_memory() -> None:
    """Have temporary directories there. TMPDIR wins if it is set."""
    if "TMPDIR" not in os.environ and (folder := memory_folder()):
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Remember the directory of a case that passes."""
    result = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if isinstance(folder, Path):
        item.stash[FOLDER] = folder
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Empty it when all fixtures have ended: pytest's own policy does so while servers still write there."""
    result = yield
    if folder := item.stash.get(FOLDER, None):
        shutil.rmtree(folder, ignore_errors=True)
    return result


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


class Recorder:
    """Writes the lines of one worker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcome = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Called around a case with its fixtures."""
        self._outcome = "passed"
        cpu, began = cpu_seconds(), time.monotonic()
        result = yield
        line = {
            "case": item.nodeid,
            "outcome": self._outcome,
            "cpu_s": round(cpu_seconds() - cpu, 3),
            "wall_s": round(time.monotonic() - began, 3),
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called after setup, call and teardown."""
        if report.failed or (report.skipped and self._outcome == "passed"):
            self._outcome = report.outcome


def passed_before(path: Path) -> set[str]:
    """The cases that the record says have passed."""
    if not path.exists():
        return set()
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return {line["case"] for line in lines if line["outcome"] == "passed"}


def pytest_configure(config: pytest.Config) -> None:
    """Called in the process that collects and in each worker."""
    runs_cases = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if RECORD in os.environ and runs_cases:
        config.pluginmanager.register(Recorder(Path(os.environ[RECORD])), "roquette-record")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has passed before, if that is asked for."""
    if os.environ.get("ROQUETTE_GO_ON") != "1":
        return
    done = passed_before(Path(os.environ[RECORD]))
    left = [item for item in items if item.nodeid not in done]
    if len(left) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
        items[:] = left


def pytest_collection_finish() -> None:
    """The garbage collector need not look again and again at 12,000 cases and their modules: a tenth of the unit tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


use_memory()
