"""The Nth call to the system fails, for every N: nothing acknowledged is lost, a failed sync is never tried again."""

import contextlib
import errno
import os

import pytest
from tests.store.crash_check import Check
from tests.store.crash_workload import ROOT, Owed, Workload

from roquette.errors import StoreError
from roquette.testing.crash_states import Choice, CrashStates
from roquette.testing.faulty_files import FaultyFiles
from roquette.testing.recorded_files import Mark, RecordedFiles

CALLS = ("open", "allocate", "pwrite", "sync", "sync_dir", "rename", "remove", "pread", "truncate")
ERRORS = (errno.EIO, errno.ENOSPC)
OPERATIONS = 120


class Failing(Workload):
    """A workload that goes on when a call is refused, until the store has failed."""

    def step(self) -> None:
        with contextlib.suppress(StoreError, OSError):
            super().step()
        if self.store.failure is not None or self.files.sync_error is not None:
            self.operations = 1 << 30  # as the broker: it ends


def calls_of(operations: int) -> dict[str, int]:
    """How often each call comes in a whole run."""
    run = Failing(9)
    run.run(operations)
    return {call: run.files.calls.get(call, 0) for call in CALLS}


def sweep(call: str, nth: int, error: int) -> None:
    """One run with one failure; then the process ends, or the power goes."""
    files = RecordedFiles(directories=[ROOT])
    files.fail(call, nth, error)
    try:
        run = Failing(9, files)
    except (StoreError, OSError):
        return  # the store could not be opened: refused in words, nothing was promised
    try:
        run.run(OPERATIONS)
    except (StoreError, OSError):  # a kill's new start, or a stop, ran into it
        run.settle()
    if error == errno.EIO and call in ("sync", "sync_dir"):
        assert files.sync_error is not None
        assert files.calls[call] == nth, "a failed sync was tried again"
    files.work_again()
    owed = Owed()
    device = CrashStates(files, ROOT)
    while (entry := device.step()) is not None:
        if isinstance(entry, Mark):
            owed.note(entry.value)
    for choice in (Choice.ALL, Choice.NOTHING, Choice.SECTORS):
        state = device.state(choice, run.random)
        life = run.lives[owed.life]
        Check(
            FaultyFiles.holding(state.files, state.directories), run.config, life, owed, run.random
        ).run(thorough=choice is Choice.ALL)


@pytest.mark.parametrize("call", CALLS)
def test_the_nth_call_fails(call: str) -> None:
    count = calls_of(OPERATIONS)[call]
    step = max(1, count // 12)
    for number, nth in enumerate(range(1, count + 1, step)):
        sweep(call, nth, ERRORS[number % 2])


@pytest.mark.long
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", CALLS)
def test_every_call_fails_once(call: str, error: int) -> None:
    count = calls_of(OPERATIONS)[call]
    for nth in range(1, count + 1):
        sweep(call, nth, error)
    print(f"{call} {os.strerror(error)}: {count} runs")
