"""Power cuts and kills: what was acknowledged after a sync is there, offsets are never used twice."""

import pytest
from tests.store.crash_model import CrashModel


@pytest.mark.parametrize("block", range(10))
def test_synced_messages_survive_crashes_at_any_moment(block: int) -> None:
    for seed in range(block * 8, block * 8 + 8):
        try:
            CrashModel(seed).live(lives=4, steps=60)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_synced_messages_survive_many_more_crashes() -> None:
    for seed in range(10_000, 20_000):
        try:
            CrashModel(seed).live(lives=4, steps=60)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
