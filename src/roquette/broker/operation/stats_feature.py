"""The broker's counters: sampled on beats, and brought into the tables that operators see."""

from collections.abc import Iterable

from roquette.base.lifecycle import Tasks
from roquette.broker.core import BrokerCore
from roquette.broker.feature import Beat, Feature
from roquette.broker.operation.item_stats import (
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
    ItemStats,
)
from roquette.broker.tables.deletions import Deletions

SAMPLE_BEAT_S = 1.0
RATES_BEAT_S = 10.0
DURATIONS_BEAT_S = 60.0


class StatsFeature(Feature):
    """Samples counters.

    Attributes:
        items: counters by name and key, as VIEW_BROKER_STATS_DATA shows them.
    """

    def __init__(self, core: BrokerCore, deletions: Deletions) -> None:
        self.items = ItemStats()
        self._live = core.live
        self._clock = core.clock
        self._stats = core.stats
        self._topics = core.tables.topics
        self._store = core.store
        self._deletions = deletions
        self._bases: dict[tuple[str, int], int] | None = None  # ends of queues at the start
        self._seen: dict[str, int] = {}  # topic -> messages when it was looked at last

    def beats(self) -> list[Beat]:
        """Samples."""
        return [
            Beat("stats", SAMPLE_BEAT_S, self._sample),
            Beat("rates", RATES_BEAT_S, self._sample_items),
            Beat("durations", DURATIONS_BEAT_S, self._stats.turn_durations),
        ]

    async def start(self, tasks: Tasks) -> None:
        """The first sample of items."""
        self._sample_items()

    def _sample(self) -> None:
        self._stats.sample(self._clock.now_ms(), self._clock.steady_ms())

    def _queue_ends(self, topic: str) -> Iterable[tuple[int, int]]:
        store = self._store
        return [(queue, store.max_offset(topic, queue)) for queue in store.queues_of(topic)]

    def _sample_items(self) -> None:
        items, stats, topics = self.items, self._stats, self._topics.all()
        cluster = self._live.current.broker_cluster_name
        if self._bases is None:
            self._bases = {
                (topic.name, queue_id): end
                for topic in topics
                for queue_id, end in self._queue_ends(topic.name)
            }
        system_puts = 0
        for topic in topics:
            name, count = topic.name, topic.put_count
            if count == 0:
                continue
            if self._deletions.is_system(name):
                system_puts += count
            if self._seen.get(name) == count:
                continue
            self._seen[name] = count
            items.set_total(TOPIC_PUT_NUMS, name, count, count - topic.batched)
            items.set_total(TOPIC_PUT_SIZE, name, topic.put_bytes, count - topic.batched)
            for queue_id, end in self._queue_ends(name):
                put = end - self._bases.get((name, queue_id), 0)
                items.set_total(QUEUE_PUT_NUMS, f"{name}@{queue_id}", max(0, put), max(0, put))
        system_gets = 0
        for (name, group), gets in stats.group_gets.items():
            if self._deletions.is_system(name):
                system_gets += gets.count
            items.set_total(GROUP_GET_NUMS, f"{name}@{group}", gets.count, gets.times)
            items.set_total(GROUP_GET_SIZE, f"{name}@{group}", gets.size, gets.times)
        for (name, group), count in stats.send_backs.items():
            items.set_total(SNDBCK_PUT_NUMS, f"{name}@{group}", count, count)
        for one, of_all, counts in (
            (GROUP_ACK_NUMS, BROKER_ACK_NUMS, stats.acks),
            (GROUP_CK_NUMS, BROKER_CK_NUMS, stats.check_points),
        ):
            for (name, group), count in counts.items():
                items.set_total(one, f"{name}@{group}", count, count)
            items.set_total(of_all, cluster, sum(counts.values()))
        puts, got = stats.put_messages.total, stats.get_messages.total
        items.set_total(BROKER_PUT_NUMS, cluster, puts)
        items.set_total(BROKER_GET_NUMS, cluster, got)
        items.set_total(BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, cluster, puts - system_puts)
        items.set_total(BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC, cluster, got - system_gets)
        items.sample(self._clock.steady_ms())

    def forget_topic(self, topic: str) -> None:
        """A deleted topic's queues begin at 0 again."""
        self._seen.pop(topic, None)
        if self._bases is not None:
            self._bases = {key: end for key, end in self._bases.items() if key[0] != topic}
        self.items.forget_topic(topic)

    def forget_group(self, group: str, clean_offset: bool) -> None:
        """Its counters go."""
        self.items.forget_group(group)
