"""What retention takes unread is counted once for each group, and said; what was gone at the start is not."""

import asyncio
import logging

import pytest

from roquette.broker.floor.disk_watch import Losses
from roquette.broker.floor.stats import BrokerStats
from roquette.broker.floor.tables.offsets import OffsetTable


class Ends:
    """The ends of queues; one queue of each topic."""

    def __init__(self, **ends: tuple[int, int]) -> None:
        self.ends = ends

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.ends[topic][0]

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.ends[topic][1]


def test_each_deletion_counts_what_a_group_had_not_read(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store, stats, offsets = Ends(T=(100, 1_000)), BrokerStats(0), OffsetTable(0)
        losses = Losses(store, offsets, stats)  # type: ignore[arg-type]
        for group, place in (("away", 40), ("slow", 150), ("done", 1_000), ("TOOLS_CONSUMER", 0)):
            offsets.commit(group, "T", 0, place)
        await losses.begin()
        assert stats.deleted_unread == {}, "60 were gone before the start"
        store.ends["T"] = (200, 1_000)
        counting = losses.count()
        await counting
        assert stats.deleted_unread == {("T", "away"): 100, ("T", "slow"): 50}
        offsets.commit("slow", "T", 0, 200)
        store.ends["T"] = (300, 1_000)
        await losses.count()
        await losses.count()  # nothing more is gone
        assert stats.deleted_unread == {("T", "away"): 200, ("T", "slow"): 150}
        offsets.commit("away", "T", 0, 300)
        store.ends["T"] = (310, 1_000)
        await losses.count()
        assert stats.deleted_unread == {("T", "away"): 210, ("T", "slow"): 160}
        stats.forget_group("away")
        stats.forget_topic("T")
        assert stats.deleted_unread == {}

    caplog.set_level(logging.WARNING)
    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "deleted before it was read topic=T group=away messages=100"
    assert len(said) == 6


def test_of_many_groups_the_worst_are_named(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store, stats, offsets = Ends(T=(0, 100)), BrokerStats(0), OffsetTable(0)
        losses = Losses(store, offsets, stats)  # type: ignore[arg-type]
        for number in range(50):
            offsets.commit(f"g{number}", "T", 0, number)
        store.ends["T"] = (60, 100)
        await losses.count()
        assert sum(stats.deleted_unread.values()) == sum(60 - number for number in range(50))

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records]
    assert "group=g0 messages=60" in said[0]
    assert said[20:] == ["deleted before it was read by 30 more groups"]
