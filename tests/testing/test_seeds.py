"""An application's test under many seeds: the planted race is found, and the same seed is the same run."""

import pytest
from examples.order_service.test_shop import oversell

from roquette_testing import World, run_seed

MOST = 1_000


async def racing(world: World) -> None:
    await oversell(world, locked=False)


async def locked(world: World) -> None:
    await oversell(world, locked=True)


def failing_seed(first: int = 1) -> int:
    for seed in range(first, MOST + 1):
        try:
            run_seed(racing, seed)
        except AssertionError:
            return seed
    pytest.fail(f"no seed of {MOST} finds the race")


def test_the_race_is_found_and_replays_exactly() -> None:
    seed = failing_seed()
    words = []
    for _ in range(3):
        with pytest.raises(AssertionError, match="of two articles") as failed:
            run_seed(racing, seed)
        words.append(str(failed.value).splitlines()[0])
    assert len(set(words)) == 1
    assert run_seed(locked, seed) == run_seed(locked, seed)
    assert run_seed(locked, seed) != run_seed(locked, seed + 1)


def test_the_service_without_the_race_passes() -> None:
    for seed in range(1, 31):
        run_seed(locked, seed)
