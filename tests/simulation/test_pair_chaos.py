"""A classic pair in trouble: one seed; `python -m tests.simulation.pair_chaos N` runs many."""

import pytest
from tests.simulation.pair_chaos import PEERS, PairChaos, main

from roquette_testing.cluster import simulate

pytestmark = pytest.mark.simulation


def test_what_was_acknowledged_is_on_the_master_or_told_to_be_on_the_slave() -> None:
    world = PairChaos()
    simulate(world, 10)
    assert world.drawn["on the slave alone"] > 0


@pytest.mark.parametrize(("peer", "seed"), [(PEERS[1], 10), (PEERS[2], 2)])
def test_the_same_with_a_peer_of_apaches(peer: str, seed: int) -> None:
    world = PairChaos(peer)
    simulate(world, seed)
    assert world.drawn["on the slave alone"] > 0


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_a_thousand_seeds(first: int) -> None:
    assert main(100, first) == 0
