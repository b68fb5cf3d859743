"""A group of brokers in trouble: a handful of seeds; `python -m tests.simulation.group_chaos N` runs many."""

import pytest
from tests.simulation.group_chaos import run_seed

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("seed", range(1, 5))
def test_nothing_acknowledged_is_lost_whatever_happens(seed: int) -> None:
    world = run_seed(seed)
    assert world.answers > 50
