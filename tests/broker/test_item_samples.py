"""Counters are brought into their items in slices, and what is deleted meanwhile comes not back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from roquette.broker.floor.item_stats import Item, ItemStats
from roquette.broker.operation.consume_stats import StatsFeature
from roquette.message.record_layout import Draft

TOPICS, QUEUES = 300, 8
SLICE = 1_000  # steps between which the loop is free
HOST = bytes((10, 0, 0, 1, 0, 0, 42, 159))


async def busy_topics(case: Any) -> None:
    """Topics with messages in each queue, and a group that got some of each."""
    client = await case.client()
    await client.produce()
    core, now_ms = case.broker.core, case.broker.core.clock.now_ms()
    for number in range(TOPICS):
        name = f"T{number}"
        topic = core.tables.topics.ensure(name, queues=QUEUES, perm=6, now_ms=now_ms)
        for queue in range(QUEUES):
            core.store.append(Draft(name, queue, b"", b"x", now_ms, HOST), now_ms)
        topic.put_count += QUEUES
        topic.put_bytes += QUEUES
        core.stats.group_get(name, "g", 1, 100)
        core.stats.sent_back(name, "g")
        core.stats.acked(name, "g", 1)
    case.broker.end_turn()


async def between_slices(work: Awaitable[None], look: Callable[[], None]) -> None:
    """Call `look` whenever the loop is free, until the work is done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        look()
        await asyncio.sleep(0)
    await task


def test_no_slice_of_the_samples_touches_more_than_some_counters(
    run_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched = 0
    slices: list[int] = []

    def counting(of: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal touched
            touched += 1
            return of(*args, **kwargs)

        return counted

    def look() -> None:
        nonlocal touched
        slices.append(touched)
        touched = 0

    async def scenario(case: Any) -> None:
        await busy_topics(case)
        feature = case.broker.feature(StatsFeature)
        await between_slices(feature._sample_items(), look)
        look()
        assert sum(slices) > TOPICS * (2 + QUEUES + 4) * 2  # each is set, and sampled
        assert max(slices) <= 2 * SLICE + 10
        assert (
            case.broker.core.items.find("QUEUE_PUT_NUMS", f"T{TOPICS - 1}@{QUEUES - 1}") is not None
        )
        assert case.broker.core.items.find("GROUP_ACK_NUMS", f"T{TOPICS - 1}@g") is not None

    monkeypatch.setattr(ItemStats, "set_total", counting(ItemStats.set_total))
    monkeypatch.setattr(Item, "sample", counting(Item.sample))
    run_broker(scenario)


def test_what_is_deleted_between_two_slices_gets_no_counter_again(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        await busy_topics(case)
        client = await case.client()
        feature, stats = case.broker.feature(StatsFeature), case.broker.core.stats
        steps = feature._item_steps()
        for _ in range(20):
            next(steps)
        gone = [f"T{number}" for number in (0, 1, 2, TOPICS - 1)]
        for name in gone:
            assert (await client.call(215, {"topic": name})).code == 0
        for _ in steps:
            pass
        assert not [key for key, _ in stats.group_gets if key in gone]
        for name in gone:
            for kind in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"):
                assert case.broker.core.items.find(kind, name) is None
            assert case.broker.core.items.find("QUEUE_PUT_NUMS", f"{name}@0") is None
            for kind in ("GROUP_GET_NUMS", "SNDBCK_PUT_NUMS", "GROUP_ACK_NUMS"):
                assert case.broker.core.items.find(kind, f"{name}@g") is None
        assert case.broker.core.items.find("TOPIC_PUT_NUMS", "T5") is not None

    run_broker(scenario)


def test_counters_of_queues_leave_room_for_those_of_topics() -> None:
    stats = ItemStats(capacity=10)
    for number in range(20):
        stats.set_total("QUEUE_PUT_NUMS", f"T@{number}", 1)
    assert len(stats) == 5
    for number in range(4):
        stats.set_total("TOPIC_PUT_NUMS", f"T{number}", 1)
    assert stats.knows("TOPIC_PUT_NUMS", "T3")
    assert not stats.full
    stats.set_total("TOPIC_PUT_NUMS", "T4", 1)
    stats.set_total("TOPIC_PUT_NUMS", "T5", 1)
    assert stats.full
    assert not stats.knows("TOPIC_PUT_NUMS", "T5")
