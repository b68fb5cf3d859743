"""No descriptors or no memory for a file, at every call that opens one: told as what it is, nothing lost, gone on with."""

import errno
import random

import pytest
from tests.crash_states import Choice, CrashStates
from tests.store.crash_check import Check
from tests.store.crash_workload import ROOT, Owed
from tests.store.test_failing_calls import Failing

from roquette.base.descriptors import SHORTAGE
from roquette.errors import StoreError, StoreFull
from roquette_testing.faulty_files import FaultyFiles
from roquette_testing.recorded_files import Mark, RecordedFiles

CALLS = ("open", "map", "open_to_sync", "allocate", "pread", "read", "list")
OPERATIONS = 300


class Short(Failing):
    """A workload that remembers what it was told."""

    refusals: list[Exception]

    def open(self) -> None:
        try:
            super().open()
        except OSError as error:  # refused as what it is, and tried again
            if error.errno not in SHORTAGE:
                raise
            self.files.kill()
            super().open()

    def step(self) -> None:
        try:
            super(Failing, self).step()
        except (StoreError, OSError) as error:
            self.refusals.append(error)
        assert self.store.failure is None, "a shortage is no failed sync"
        assert self.files.sync_error is None


def run_with(files: RecordedFiles, operations: int = OPERATIONS) -> Short:
    run = Short.__new__(Short)
    run.refusals = []
    run.__init__(9, files)  # type: ignore[misc]
    run.run(operations)
    return run


def check(run: Short, files: RecordedFiles) -> None:
    """Everything acknowledged is there, whatever the power leaves."""
    owed = Owed()
    device = CrashStates(files, ROOT)
    while (entry := device.step()) is not None:
        if isinstance(entry, Mark):
            owed.note(entry.value)
    for choice in (Choice.ALL, Choice.NOTHING):
        state = device.state(choice, random.Random(3))
        images = FaultyFiles.holding(state.files, state.directories)
        Check(images, run.config, run.lives[owed.life], owed, run.random).run(thorough=True)


@pytest.mark.promise(
    "Bounds", "EMFILE, ENFILE and ENOMEM are told as such, and nothing is given up for them"
)
@pytest.mark.parametrize("error", sorted(SHORTAGE), ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_for_which_there_is_nothing_left(call: str, error: int) -> None:
    calm = RecordedFiles(directories=[ROOT])
    run_with(calm)
    count = calm.calls.get(call, 0)
    assert count
    place = sorted(SHORTAGE).index(error)
    for nth in range(1 + place, count + 1, max(1, count // 4)):
        files = RecordedFiles(directories=[ROOT])
        files.fail(call, nth, error)
        run = run_with(files)
        for told in run.refusals:
            assert not isinstance(told, StoreFull)
            assert "disk" not in str(told)
        check(run, files)


@pytest.mark.parametrize("maps", [1, 2, 5])
def test_few_files_may_be_mapped(maps: int) -> None:
    files = RecordedFiles(directories=[ROOT])
    files.maps = maps
    run = run_with(files, 2 * OPERATIONS)
    assert run.refusals == []
    check(run, files)
