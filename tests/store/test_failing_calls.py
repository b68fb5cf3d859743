"""The Nth call to the system fails, for every N: nothing acknowledged is lost, a failed sync is never tried again."""

import contextlib
import errno
import os
import random
from functools import cache

import pytest
from tests.crash_states import Choice, CrashStates, DiskState
from tests.store.crash_check import Check
from tests.store.crash_workload import HOST, ROOT, Owed, Workload

from roquette.errors import StoreError
from roquette.store.message_store import MessageStore
from roquette_testing.faulty_files import FaultyFiles
from roquette_testing.recorded_files import Mark, RecordedFiles

CALLS = ("open", "allocate", "pwrite", "sync", "sync_dir", "rename", "remove", "pread", "truncate")
ERRORS = (errno.EIO, errno.ENOSPC)
OPERATIONS = 120
ALL_OPERATIONS = 600  # of the long form


class Failing(Workload):
    """A workload that goes on when a call is refused, until the store has failed."""

    def step(self) -> None:
        with contextlib.suppress(StoreError, OSError):
            super().step()
        if self.store.failure is not None or self.files.sync_error is not None:
            self.operations = 1 << 30  # as the broker: it ends

    def close(self) -> None:
        stopped = self.store
        try:
            super().close()
        except (StoreError, OSError):
            if self.files.sync_error is not None or self.store is not stopped:
                raise
            self.kill()  # a stop that fails is the process's end all the same


def calls_of(operations: int) -> dict[str, int]:
    """How often each call comes in a whole run."""
    run = Failing(9)
    run.run(operations)
    return {call: run.files.calls.get(call, 0) for call in CALLS}


def sweep(call: str, nth: int, error: int, operations: int = OPERATIONS) -> None:
    """One run with one failure; then the process ends, or the power goes."""
    files = RecordedFiles(directories=[ROOT])
    files.fail(call, nth, error)
    try:
        run = Failing(9, files)
    except (StoreError, OSError):
        return  # the store could not be opened: refused in words, nothing was promised
    try:
        run.run(operations)
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


def test_a_store_whose_stop_failed_takes_nothing_more() -> None:
    """The abort file is gone by then: what came later would be taken for whole at the next start."""
    run = Failing(9)
    run.message("A", 0)
    run.store.flush_all()  # what is left to sync at the stop is the root, without the file
    run.files.fail("sync_dir", 2, errno.ENOSPC)  # the first one is that of index.sums
    with pytest.raises(OSError, match="No space left"):
        run.store.close(run.now_ms)
    assert not run.files.exists(run.store.layout.abort)
    with pytest.raises(StoreError, match="closed"):
        run.message("A", 0)
    run.open()  # nobody holds its lock
    assert run.store.max_offset("A", 0) == 1


@pytest.mark.promise(
    "The log",
    "any open, allocation, write, sync, rename or read may fail; a failed sync ends the broker",
)
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
    count = calls_of(ALL_OPERATIONS)[call]
    for nth in range(1, count + 1):
        sweep(call, nth, error, ALL_OPERATIONS)
    print(f"{call} {os.strerror(error)}: {count} runs")


@cache
def crashed(choice: Choice) -> tuple[Failing, DiskState, Owed]:
    """What a power cut has left of a store."""
    run = Failing(11)
    run.run(150)
    device, owed = CrashStates(run.files, ROOT), Owed()
    while (entry := device.step()) is not None:
        if isinstance(entry, Mark):
            owed.note(entry.value)
    return run, device.state(choice, random.Random(1)), owed


@pytest.mark.promise(
    "The log",
    "any open, allocation, write, sync, rename or read may fail; a failed sync ends the broker",
)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("choice", [Choice.ALL, Choice.SECTORS])
def test_opening_after_a_crash_fails_at_any_call_and_can_be_tried_again(
    call: str, choice: Choice
) -> None:
    run, state, owed = crashed(choice)
    files = RecordedFiles(state.files, state.directories)
    MessageStore(run.config, files, HOST).open(run.now_ms)
    count = files.calls.get(call, 0)
    for number, nth in enumerate(range(1, count + 1, max(1, count // 6))):
        files = RecordedFiles(state.files, state.directories)
        files.fail(call, nth, ERRORS[number % 2])
        with contextlib.suppress(StoreError, OSError):
            MessageStore(run.config, files, HOST).open(run.now_ms)
        again = CrashStates(files, ROOT)
        while again.step() is not None:
            pass
        found = again.state(Choice.SECTORS, random.Random(nth))
        images = FaultyFiles.holding(found.files, found.directories)
        Check(images, run.config, run.lives[owed.life], owed, run.random).run(thorough=False)
