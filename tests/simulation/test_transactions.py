"""Transactions while producers and the broker are killed: none dropped, none committed twice."""

import pytest
from tests.simulation.transactions import Transactions

from roquette_testing.cluster import simulate

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("seed", range(1, 5))
def test_kills_drop_no_half_message_and_commit_none_twice(seed: int) -> None:
    simulate(Transactions(300), seed)


@pytest.mark.parametrize("seed", range(101, 105))
def test_power_losses_neither(seed: int) -> None:
    simulate(Transactions(300, power_loss=True), seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1005))
def test_ten_thousand_half_messages(seed: int) -> None:
    simulate(Transactions(10_000), seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1100, 1110))
def test_a_thousand_with_power_losses(seed: int) -> None:
    """Fewer: every cut leaves a copy of all files in the memory of the simulation."""
    simulate(Transactions(1_000, power_loss=True), seed)
