"""Clocks set both ways and an exception into every task at every await: nothing is lost, nothing stands."""

import os
from functools import cache

import pytest
from tests.simulation.small_world import SmallWorld, Wound, all_wounds, run_seed

from roquette.base import lifecycle
from roquette.base.clock import LoopClock
from roquette_testing.cluster import simulate

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("ROQUETTE_SEEDS", "200"))
CHAOS_SEEDS = int(os.environ.get("ROQUETTE_CHAOS_SEEDS", "2000"))
FIRST = int(os.environ.get("ROQUETTE_CHAOS_FIRST", "1000"))
PIECES = 20


@cache
def wounds() -> list[Wound]:
    """Where exceptions may come."""
    return all_wounds()


def run_seeds(first: int, count: int) -> None:
    """Each seed by itself; what fails is told with its seed and wound."""
    thrown = 0
    for seed in range(first, first + count):
        try:
            world = run_seed(seed, wounds())
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        thrown += world.thrower.thrown
    assert thrown > count * 0.85, f"only {thrown} of {count} exceptions came"


def test_the_tasks_of_all_parts_are_among_those_that_are_hit() -> None:
    tasks = {name for (_, name), _ in wounds()}

    assert {"timer", "revive", "delay-levels", "transaction-checks", "offsets"} <= tasks
    assert {"consumer-g-worker-0", "heartbeats", "routes", "scan-brokers"} <= tasks
    assert len(wounds()) > 1_500


@pytest.mark.promise(
    "Time", "what was acknowledged is delivered while clocks are set and tasks fail"
)
@pytest.mark.parametrize("piece", range(PIECES))
def test_work_goes_on(piece: int) -> None:
    count = -(-SEEDS // PIECES)
    run_seeds(1 + piece * count, count)


def test_a_broker_that_measures_by_the_wall_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopClock, "steady_ms", LoopClock.now_ms)

    with pytest.raises(AssertionError, match="stuck"):
        run_seeds(1, 10)


def test_a_broker_whose_tasks_end_with_an_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_supervise", lambda health, work: work(health))

    with pytest.raises(AssertionError, match="stuck"):
        run_seeds(1, 30)


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("piece", range(PIECES))
def test_every_await(piece: int) -> None:
    """Each await of each task once, in the run they were counted in."""
    for wound in wounds()[piece::PIECES]:
        simulate(SmallWorld(wound), 0)


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("piece", range(PIECES))
def test_many_seeds(piece: int) -> None:
    """ROQUETTE_CHAOS_FIRST begins elsewhere, so that several processes share the work."""
    count = -(-CHAOS_SEEDS // PIECES)
    run_seeds(FIRST + piece * count, count)
