"""Timers across crashes: none lost, none twice, none early."""

import pytest
from tests.broker.timer_model import run_model


@pytest.mark.parametrize("seed", range(12))
def test_what_is_owed_comes_once_whatever_crashes(seed: int) -> None:
    run_model(seed, 400)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_what_is_owed_comes_once_over_many_more_lives(seed: int) -> None:
    run_model(seed, 1500)
