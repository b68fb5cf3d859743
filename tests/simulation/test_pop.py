"""POP while consumers and the broker are killed: nothing is lost, nothing comes again before its time."""

import pytest
from tests.simulation.pop_chaos import OrderChaos, PopChaos

from roquette_testing.cluster import simulate

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("seed", [1, 2])
def test_kills_lose_nothing_and_repeat_nothing_early(seed: int) -> None:
    chaos = PopChaos(messages=1_000)
    simulate(chaos, seed)

    assert (chaos.broker_deaths, chaos.consumer_deaths > 10) == (4, True)
    assert chaos.deliveries > 1_000


def test_power_losses_neither_with_synchronous_flush() -> None:
    simulate(PopChaos(messages=500, power_loss=True), 3)


@pytest.mark.parametrize("seed", [1, 9])
def test_order_is_kept_through_kills(seed: int) -> None:
    """1: the first kill comes before the first file; 9: the file of offsets is younger than that of orderly pops."""
    simulate(OrderChaos(messages=400), seed)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(200, 220))
def test_order_under_many_seeds(seed: int) -> None:
    simulate(OrderChaos(messages=800, kills=8, power_loss=seed % 2 == 0), seed)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("power_loss", [False, True])
def test_a_hundred_thousand_messages(power_loss: bool) -> None:
    simulate(PopChaos(messages=100_000, kills=50, power_loss=power_loss), 7)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_seeds(seed: int) -> None:
    simulate(PopChaos(messages=1_500, kills=8, power_loss=seed % 2 == 0), seed)
