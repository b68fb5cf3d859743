"""Goes through the journal of a workload and opens what every power cut may leave behind."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tests.crash_states import Choice, CrashStates, DiskState
from tests.store.crash_check import Check
from tests.store.crash_workload import ROOT, Owed, Workload

from roquette.store.message_store import MessageStore
from roquette_testing.faulty_files import FaultyFiles
from roquette_testing.recorded_files import Mark, RecordedFiles

CHOICES = list(Choice)
THOROUGH = 4  # one state in so many is used, closed and opened again
SECOND = 40  # of one in so many the recovery is cut off, too
SECOND_STATES = 4


@dataclass(slots=True)
class Tally:
    """What was looked at."""

    boundaries: int = 0
    states: int = 0
    repeated: int = 0
    in_recovery: int = 0
    choices: Counter[str] = field(default_factory=Counter)


class Explorer:
    """One exploration of one workload.

    Args:
        states: how many different states to open, over all boundaries together.
        part: (which, of how many): look at one boundary in so many only.
    """

    def __init__(
        self, workload: Workload, seed: int, states: int, part: tuple[int, int] = (0, 1)
    ) -> None:
        self.workload = workload
        self.seed = seed
        self.random = random.Random(seed)
        self.part = part
        self.tally = Tally()
        self._seen: set[tuple[int, int, int]] = set()
        entries = [e for e in workload.files.journal if not isinstance(e, Mark)]
        mine = len(range(part[0], len(entries), part[1]))
        self._share = states / max(1, mine)

    def run(self) -> Tally:
        """Every boundary in order; raises AssertionError with the words to find it again."""
        for number, (owed, device) in enumerate(self.boundaries()):
            if number % self.part[1] != self.part[0]:
                continue
            self.tally.boundaries += 1
            wanted = int(self.tally.boundaries * self._share) - self.tally.states
            for _ in range(max(0, wanted) * 3):
                if self.tally.states >= int(self.tally.boundaries * self._share):
                    break
                self.one(owed, device)
        return self.tally

    def boundaries(self) -> Iterator[tuple[Owed, CrashStates]]:
        """The moment after each change of the file system."""
        device, owed = CrashStates(self.workload.files, ROOT), Owed()
        while (entry := device.step()) is not None:
            if isinstance(entry, Mark):
                owed.note(entry.value)
            else:
                yield owed, device

    def one(self, owed: Owed, device: CrashStates) -> None:
        """One state of one moment, unless it was seen before."""
        choice = CHOICES[(self.tally.states + self.tally.repeated) % len(CHOICES)]
        state = device.state(choice, self.random)
        key = (state.fingerprint(), owed.acked, owed.life)
        if key in self._seen:
            self.tally.repeated += 1
            return
        self._seen.add(key)
        self.tally.states += 1
        self.tally.choices[choice.name] += 1
        try:
            self.check(state, owed, thorough=self.tally.states % THOROUGH == 0)
            if self.tally.states % SECOND == 0:
                self.cut_recovery(state, owed)
        except Exception as error:
            raise AssertionError(
                f"seed {self.seed}, moment {device.moment}, {choice.name}: {error!r}"
            ) from error

    def check(self, state: DiskState, owed: Owed, *, thorough: bool) -> Check:
        """Open one state and look at it."""
        files = FaultyFiles.holding(state.files, state.directories)
        life = self.workload.lives[owed.life]
        check = Check(files, self.workload.config, life, owed, self.random)
        check.run(thorough=thorough)
        return check

    def cut_recovery(self, state: DiskState, owed: Owed) -> None:
        """The power goes again while the store is opened, or right after: then what was served must stay."""
        files = RecordedFiles(state.files, state.directories)
        store = MessageStore(self.workload.config, files, b"\x7f\0\0\x01\0\0\x2a\x9f")
        store.open(1_800_000_000_000)
        end = store.max_physical_offset
        changes = sum(1 for entry in files.journal if not isinstance(entry, Mark))
        chosen = {self.random.randrange(changes) for _ in range(SECOND_STATES)}
        device = CrashStates(files, ROOT)
        for number in range(changes):
            device.step()
            if number in chosen:
                self.check_again(device, owed)
        served = replace(owed, acked=end)
        self.check_again(device, served)

    def check_again(self, device: CrashStates, owed: Owed) -> None:
        """One state of a cut recovery."""
        self.tally.in_recovery += 1
        self.check(device.state(self.random.choice(CHOICES), self.random), owed, thorough=False)
