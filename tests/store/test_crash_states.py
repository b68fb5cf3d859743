"""Power cuts at every write of a workload of everything the store does: what was promised is there."""

import os
from collections.abc import Iterator
from functools import cache

import pytest
from tests.store.crash_workload import Workload
from tests.store.explorer import CHOICES, Explorer

OPERATIONS = 2000
PARTS = 4
STATES = 5000


@cache
def workload(seed: int) -> Workload:
    """The journal of one seed, made once."""
    found = Workload(seed)
    found.run(OPERATIONS)
    return found


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    yield
    workload.cache_clear()


def test_the_workload_does_everything() -> None:
    done = workload(1)
    paths = set(done.files.snapshot()[0])

    assert done.operations == OPERATIONS
    assert len(done.lives) > 2  # killed
    assert sum(1 for path in paths if "/commitlog/" in path) > 3
    assert any(life.gone for life in done.lives)
    assert done.store.min_physical_offset > 0  # retention
    assert sum(1 for path in paths if "/index/" in path) > 1
    assert min(done.versions.values()) > 5
    for topic, queue_id in done.life.queues:
        assert queue_id in done.store.queues_of(topic) or topic in done.life.gone


def test_a_few_power_cuts() -> None:
    tally = Explorer(workload(1), 7, 60, (0, 5)).run()

    assert tally.states >= 59


@pytest.mark.promise(
    "The log", "what was acknowledged under SYNC_FLUSH survives a loss of power at any write"
)
@pytest.mark.crash
@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_acknowledged_survives_every_power_cut(part: int) -> None:
    explorer = Explorer(workload(1), 100 + part, STATES // PARTS, (part, PARTS))

    tally = explorer.run()

    assert tally.states >= STATES // PARTS - 1
    assert len(tally.choices) == len(CHOICES)
    assert tally.in_recovery > 50


@pytest.mark.long
@pytest.mark.timeout(36_000)
def test_every_boundary_and_two_hundred_thousand_states() -> None:
    """ROQUETTE_CRASH_SEEDS=2,3 and ROQUETTE_CRASH_STATES=50000 make it a piece of that."""
    seeds = os.environ.get("ROQUETTE_CRASH_SEEDS", "2,3,4,5")
    states = int(os.environ.get("ROQUETTE_CRASH_STATES", "50000"))
    for seed in (int(word) for word in seeds.split(",")):
        explorer = Explorer(workload(seed), seed, states)
        tally = explorer.run()
        print(f"seed {seed}: {tally}")
        assert tally.states >= states - 1
        workload.cache_clear()
