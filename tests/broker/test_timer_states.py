"""The timer after every power cut: what was acknowledged is delivered once, not early, and not twice."""

import os
import random

import pytest
from tests.broker.timer_model import SLOTS, START_MS, TimerModel, small_config
from tests.crash_states import Choice, CrashStates

from roquette.errors import Refused
from roquette_testing.faulty_files import FaultyFiles
from roquette_testing.recorded_files import Mark, RecordedFiles

STEPS = 160
CHOICES = list(Choice)


class Life(TimerModel):
    """A timer on given files, with what is owed from before."""

    def __init__(self, seed: int, files: FaultyFiles, now_ms: int = START_MS) -> None:
        self.random = random.Random(seed)
        self.config = small_config()
        self.slots = SLOTS
        self.files = files
        self.now_ms = now_ms
        self.wanted: dict[bytes, int] = {}
        self.durable: set[bytes] = set()
        self.recalled: set[bytes] = set()
        self.pending_flush = None
        self.counter = 0
        self.open()


def recorded(seed: int) -> RecordedFiles:
    """The journal of one life without an end; each mark says what is owed."""
    files = RecordedFiles(directories=["/s"])
    model = Life(seed, files)
    rng = model.random
    for _ in range(STEPS):
        dice = rng.random()
        try:
            if dice < 0.45:
                model.send()
            elif dice < 0.50:
                model.recall()
            elif dice < 0.72:
                model.work()
            elif dice < 0.84:
                model.now_ms += rng.choice((30, 400, 1000, 2500, 9000))
            elif dice < 0.90:
                model.sync()
            else:
                model.flush()
        except Refused:
            continue
        owed = (dict(model.wanted), set(model.durable), set(model.recalled), model.now_ms)
        files.mark(owed)
    return files


def explore(seed: int, states: int) -> int:
    """Open so many states of one journal; returns how many differed."""
    files = recorded(seed)
    rng = random.Random(seed)
    changes = sum(1 for entry in files.journal if not isinstance(entry, Mark))
    chosen = {rng.randrange(changes) for _ in range(states)}
    device = CrashStates(files, "/s")
    owed: tuple[dict[bytes, int], set[bytes], set[bytes], int] = ({}, set(), set(), START_MS)
    marks = [entry.value for entry in files.journal if isinstance(entry, Mark)]
    number, passed, seen = -1, 0, set()
    while (entry := device.step()) is not None:
        if isinstance(entry, Mark):
            owed = entry.value
            passed += 1
            continue
        number += 1
        if number not in chosen:
            continue
        state = device.state(rng.choice(CHOICES), rng)
        if state.fingerprint() in seen:
            continue
        seen.add(state.fingerprint())
        # What was sent since the last mark may be there as well.
        wanted, _, recalled, now_ms = marks[min(passed, len(marks) - 1)]
        try:
            check(state.files, state.directories, wanted, owed[1], recalled, now_ms, seed)
        except AssertionError as error:
            words = f"seed {seed}, moment {device.moment}, {state.choice.name}: {error}"
            raise AssertionError(words) from error
    return len(seen)


def check(
    images: dict[str, bytes],
    directories: list[str],
    wanted: dict[bytes, int],
    durable: set[bytes],
    recalled: set[bytes],
    now_ms: int,
    seed: int,
) -> None:
    """Go on after the power cut until everything that is owed must have come."""
    model = Life(seed, FaultyFiles.holding(images, directories), now_ms)
    model.wanted, model.durable, model.recalled = dict(wanted), set(durable), set(recalled)
    model._forget(set(wanted))
    model.check()
    model.settle()


@pytest.mark.promise(
    "The log", "timer messages come once and not early after a loss of power at any write"
)
@pytest.mark.crash
@pytest.mark.parametrize("seed", range(6))
def test_timers_survive_power_cuts_at_any_write(seed: int) -> None:
    assert explore(seed, 100) > 50


@pytest.mark.long
@pytest.mark.timeout(36_000)
def test_timers_survive_many_more() -> None:
    count = int(os.environ.get("ROQUETTE_TIMER_STATES", "10000"))
    found = sum(explore(seed, 200) for seed in range(100, 100 + count // 150))
    print(f"{found} states")
