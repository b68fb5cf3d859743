"""The broker's counters: sampled on beats, and brought into the tables that operators see."""

from collections.abc import Callable, Generator, Iterable, Iterator

from roquette.base.lifecycle import Tasks
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature
from roquette.broker.floor.item_stats import (
    BROKER_ACK_NUMS,
    BROKER_CK_NUMS,
    BROKER_GET_NUMS,
    BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC,
    BROKER_PUT_NUMS,
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC,
    GROUP_ACK_NUMS,
    GROUP_CK_NUMS,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    QUEUE_PUT_NUMS,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
)
from roquette.broker.floor.steps import paced

SAMPLE_BEAT_S = 1.0
RATES_BEAT_S = 10.0
DURATIONS_BEAT_S = 60.0


class StatsFeature(Feature):
    """Samples counters."""

    def __init__(self, core: BrokerCore) -> None:
        self._items = core.items
        self._live = core.live
        self._clock = core.clock
        self._stats = core.stats
        self._topics = core.tables.topics
        self._store = core.store
        self._deletions = core.deletions
        self._bases: dict[str, dict[int, int]] = {}  # ends of queues at the start
        self._seen: dict[str, int] = {}  # topic -> messages when it was looked at last

    async def prepare(self) -> None:
        """Note where queues end before anything is put."""
        store = self._store
        async for topic in paced(store.topics()):
            self._bases[topic] = dict(self._queue_ends(topic))

    def beats(self) -> list[Beat]:
        """Samples."""
        return [
            Beat("stats", SAMPLE_BEAT_S, self._sample),
            Beat("rates", RATES_BEAT_S, self._sample_items),
            Beat("durations", DURATIONS_BEAT_S, self._stats.turn_durations),
        ]

    async def start(self, tasks: Tasks) -> None:
        """The first sample of items."""
        await self._sample_items()

    def _sample(self) -> None:
        self._stats.sample(self._clock.now_ms(), self._clock.steady_ms())

    def _queue_ends(self, topic: str) -> Iterable[tuple[int, int]]:
        store = self._store
        return [(queue, store.max_offset(topic, queue)) for queue in store.queues_of(topic)]

    async def _sample_items(self) -> None:
        async for _ in paced(self._item_steps()):
            pass

    def _item_steps(self) -> Iterator[None]:
        """Bring what is counted elsewhere into the items, and take their snapshots: one of them each step.

        What was deleted since the first step gets no item again.
        """
        items, stats = self._items, self._stats
        system_puts = yield from self._topic_steps()
        system_gets = 0
        for key, gets in list(stats.group_gets.items()):
            if stats.group_gets.get(key) is gets:
                name = f"{key[0]}@{key[1]}"
                system_gets += gets.count if self._deletions.is_system(key[0]) else 0
                items.set_total(GROUP_GET_NUMS, name, gets.count, gets.times)
                items.set_total(GROUP_GET_SIZE, name, gets.size, gets.times)
            yield
        yield from self._count_steps(SNDBCK_PUT_NUMS, lambda: stats.send_backs)
        yield from self._count_steps(GROUP_ACK_NUMS, lambda: stats.acks)
        yield from self._count_steps(GROUP_CK_NUMS, lambda: stats.check_points)
        cluster = self._live.current.broker_cluster_name
        items.set_total(BROKER_ACK_NUMS, cluster, sum(stats.acks.values()))
        items.set_total(BROKER_CK_NUMS, cluster, sum(stats.check_points.values()))
        puts, got = stats.put_messages.total, stats.get_messages.total
        items.set_total(BROKER_PUT_NUMS, cluster, puts)
        items.set_total(BROKER_GET_NUMS, cluster, got)
        items.set_total(BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, cluster, puts - system_puts)
        items.set_total(BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC, cluster, got - system_gets)
        yield from items.sample_steps(self._clock.steady_ms())

    def _topic_steps(self) -> Generator[None, None, int]:
        """Topics to which something was put; returns the messages of the system's."""
        items, system_puts = self._items, 0
        for topic in list(self._topics.all()):
            yield
            name, count = topic.name, topic.put_count
            if count == 0 or self._topics.find(name) is not topic:
                continue
            if self._deletions.is_system(name):
                system_puts += count
            if self._seen.get(name) == count:
                continue
            self._seen[name] = count
            items.set_total(TOPIC_PUT_NUMS, name, count, count - topic.batched)
            items.set_total(TOPIC_PUT_SIZE, name, topic.put_bytes, count - topic.batched)
            bases = self._bases.get(name, {})
            for queue_id, end in self._queue_ends(name):
                put = max(0, end - bases.get(queue_id, 0))
                items.set_total(QUEUE_PUT_NUMS, f"{name}@{queue_id}", put, put)
                yield
                if self._topics.find(name) is not topic:
                    break
        return system_puts

    def _count_steps(
        self, name: str, counts: Callable[[], dict[tuple[str, str], int]]
    ) -> Iterator[None]:
        for key in list(counts()):
            count = counts().get(key)
            if count is not None:
                self._items.set_total(name, f"{key[0]}@{key[1]}", count, count)
            yield

    def forget_topic(self, topic: str) -> None:
        """A deleted topic's queues begin at 0 again."""
        self._seen.pop(topic, None)
        self._bases.pop(topic, None)
        self._items.forget_topic(topic)

    def forget_group(self, group: str, clean_offset: bool) -> None:
        """Its counters go."""
        self._items.forget_group(group)
