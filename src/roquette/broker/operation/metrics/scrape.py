"""All metrics of a broker, as the text that Prometheus reads, in slices. What is shown is counted already; no record is read."""

from collections.abc import Callable, Iterator
from typing import Final

from roquette.base import metric_families as m
from roquette.base.exposition import Exposition, Family, Sample, labels
from roquette.base.task_metrics import task_families
from roquette.broker.core import BrokerCore
from roquette.broker.operation.item_stats import (
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    ItemStats,
)
from roquette.broker.operation.metrics.rows import GroupRow, Rows, TopicRow
from roquette.message.names import DLQ_PREFIX, RETRY_PREFIX

Samples = Iterator[Sample | None]
_RATE_S: Final = 60


class Scrape:
    """One answer to /metrics.

    Args:
        rows: not collected yet.
        loop_lag_s: the longest wait for the loop, lately.
    """

    def __init__(self, core: BrokerCore, items: ItemStats, rows: Rows, loop_lag_s: float) -> None:
        config = core.live.current
        self._core = core
        self._items = items
        self._rows = rows
        self._loop_lag_s = loop_lag_s
        node = f"{core.name}-{core.identity.broker_id}"
        old = {"cluster": config.broker_cluster_name, "broker": core.name}
        new = {"cluster": config.broker_cluster_name, "node_type": "broker", "node_id": node}
        self._old, self._new = labels(old), labels(new)
        self._out = Exposition(config.metrics_max_series)

    def pieces(self) -> Iterator[bytes]:
        """The text; the loop may run between two of them."""
        for _ in self._rows.collect():
            yield b""
        for family, samples in self._families():
            yield from self._out.family(family, samples)
        sync = self._core.log_sync
        yield self._out.summary(m.FSYNC, self._new, sync.sync_ms / 1000, sync.syncs)
        tasks = self._core.shell.tasks.health()
        for family, task_samples in task_families(tasks, self._new):
            yield from self._out.family(family, task_samples)
        all_of_them = Exposition(1 + len(m.FAMILIES))
        yield from all_of_them.family(m.SERIES_DROPPED, self._dropped())

    def _families(self) -> Iterator[tuple[Family, Samples]]:
        yield from self._of_broker()
        yield from self._of_clients()
        yield from self._of_topics()
        yield from self._of_groups()
        yield from self._of_gets()

    def _dropped(self) -> Samples:
        dropped = dict(self._out.dropped)
        rows = self._rows
        for names, count in ((_TOPICS, rows.dropped_topics), (_GROUPS, rows.dropped_groups)):
            for family in names if count else ():
                dropped[family.name] = dropped.get(family.name, 0) + count
        yield f'{self._new},metric=""', sum(dropped.values())
        for name, count in sorted(dropped.items()):
            yield f'{self._new},metric="{name}"', count

    def _of_broker(self) -> Iterator[tuple[Family, Samples]]:
        core, old, new = self._core, self._old, self._new
        stats, store, tables = core.stats, core.store, core.tables

        def one(text: str, value: float) -> Samples:
            yield text, value

        log_disk, root_disk = store.disk.ratios
        yield m.BROKER_TPS, one(old, stats.put_messages.rate(_RATE_S))
        yield m.BROKER_QPS, one(old, stats.get_messages.rate(_RATE_S))
        yield m.PERMISSION, one(new, core.live.current.broker_permission)
        yield m.TOPIC_NUMBER, one(new, len(tables.topics.all()))
        yield m.GROUP_NUMBER, one(new, len(tables.groups.all()))
        yield m.STORAGE_SIZE, one(new, store.max_physical_offset - store.min_physical_offset)
        behind = max(0, store.max_physical_offset - store.synced_offset)
        yield m.FLUSH_BEHIND, one(new, behind)
        yield m.SENDS_FAILED, one(new, stats.put_failed.total)
        yield m.REFUSING, one(new, float(store.send_refusal is not None))
        yield (
            m.DISK_USED,
            iter([(f'{new},disk="log"', log_disk), (f'{new},disk="root"', root_disk)]),
        )
        yield m.LOOP_LAG, one(new, self._loop_lag_s)
        yield m.BACKWARD_REFUSED, one(new, tables.backward_commits.refused)
        yield m.BACKWARD_ACCEPTED, one(new, tables.backward_commits.accepted)
        yield m.DUPLICATES, one(new, tables.duplicates.duplicates)
        yield (
            m.WATERMARK,
            iter([(f'{new},processor="{name}"', size) for name, size, _, _ in core.shell.lanes()]),
        )
        shown = core.shell.runtime_info(core.clock.now_ms())
        for family, key in (
            (m.REPLICAS, "replicas"),
            (m.REPLICAS_IN_STEP, "replicasInStep"),
            (m.REPLICA_LAG, "replicaLagBytes"),
        ):
            if key in shown:
                yield family, one(new, int(shown[key]))

    def _of_clients(self) -> Iterator[tuple[Family, Samples]]:
        tables, old, new = self._core.tables, self._old, self._new
        groups = tables.consumers.groups()
        conflicts = sum(len(group.signatures) > 1 for group in groups)
        yield m.CONFLICTS, iter([(new, conflicts)])
        yield m.PRODUCERS, iter([(new, len(tables.producers))])
        yield (
            m.CONSUMERS,
            (
                (f"{new},{labels({'consumer_group': group.name})}", len(group.channels))
                for group in groups
            ),
        )
        yield (
            m.GROUP_COUNT,
            ((f"{old},{labels({'group': group.name})}", len(group.channels)) for group in groups),
        )

    def _of_topics(self) -> Iterator[tuple[Family, Samples]]:
        old, new, rows, items = self._old, self._new, self._rows.topics, self._items
        busy = [row for row in rows if row.topic.put_count]

        def shown(text: str, chosen: list[TopicRow], value: Callable[[TopicRow], float]) -> Samples:
            for row in chosen:
                yield f'{text},topic="{row.text}"', value(row)

        def counted(value: Callable[[TopicRow], float]) -> Samples:
            for row in busy:
                yield f'{new},topic="{row.text}",is_system="{row.system}"', value(row)

        yield m.PRODUCER_OFFSET, shown(old, [row for row in rows if row.end], _end)
        yield (
            m.PRODUCER_TPS,
            shown(old, busy, lambda row: items.tps(TOPIC_PUT_NUMS, row.topic.name)),
        )
        yield (
            m.PRODUCER_SIZE,
            shown(old, busy, lambda row: items.tps(TOPIC_PUT_SIZE, row.topic.name)),
        )
        yield m.MESSAGES_IN, counted(lambda row: row.topic.put_count)
        yield m.BYTES_IN, counted(lambda row: row.topic.put_bytes)
        yield m.DLQ_OFFSET, self._dead_letters()
        yield m.KAFKA_TOPIC_OFFSET, self._queue_ends()

    def _dead_letters(self) -> Samples:
        for row in self._rows.topics:
            if row.topic.name.startswith(DLQ_PREFIX):
                group = labels({"group": row.topic.name.removeprefix(DLQ_PREFIX)})
                yield f"{self._old},{group}", row.end

    def _queue_ends(self) -> Samples:
        for row in self._rows.topics:
            for queue, end in row.ends:
                yield f'{self._old},topic="{row.text}",partition="{queue}"', end

    def _of_groups(self) -> Iterator[tuple[Family, Samples]]:
        old, new, rows = self._old, self._new, self._rows.groups

        def exporter(value: Callable[[GroupRow], float | None]) -> Samples:
            for row in rows:
                shown = value(row)
                if shown is not None:
                    yield f'{old},topic="{row.topic_text}",group="{row.group_text}"', shown

        def otel(value: Callable[[GroupRow], float | None]) -> Samples:
            for row in rows:
                shown = value(row)
                if shown is not None:
                    yield f"{new},{_otel(row)}", shown

        yield m.CONSUMER_OFFSET, exporter(lambda row: row.committed)
        yield m.ACCUMULATION, exporter(_lag)
        yield m.GROUP_DIFF, self._diffs()
        yield m.LATENCY, exporter(lambda row: row.latency_ms)
        yield m.LAG, otel(_lag)
        yield m.LAG_LATENCY, otel(lambda row: row.latency_ms)
        yield m.INFLIGHT, otel(lambda row: row.inflight)
        yield m.READY, otel(lambda row: max(0, row.lag - row.inflight))
        yield m.KAFKA_LAG, self._kafka(_lag, 2)
        yield m.KAFKA_GROUP_OFFSET, self._kafka(lambda row: row.committed, 1)

    def _kafka(self, of_all: Callable[[GroupRow], float], of_queue: int) -> Samples:
        """Of each queue where the rows have them, else of the topic: sums over partitions come out alike."""
        for row in self._rows.groups:
            text = f'{self._old},consumergroup="{row.group_text}",topic="{row.topic_text}"'
            if not row.queues:
                yield text, of_all(row)
            for queue in row.queues:
                yield f'{text},partition="{queue[0]}"', queue[of_queue]

    def _diffs(self) -> Samples:
        consumers = self._core.tables.consumers
        for row in self._rows.groups:
            online = consumers.find(row.group)
            members = 0 if online is None else len(online.channels)
            model = 0 if online is None or not online.broadcasting else 1
            yield (
                f'{self._old},topic="{row.topic_text}",group="{row.group_text}",'
                f'countOfOnlineConsumers="{members}",msgModel="{model}"',
                row.lag,
            )

    def _of_gets(self) -> Iterator[tuple[Family, Samples]]:
        old, new, items = self._old, self._new, self._items
        pairs = list(self._core.stats.group_gets.items())

        def rates(kind: str) -> Samples:
            for (topic, group), _ in pairs:
                rate = items.tps(kind, f"{topic}@{group}")
                yield f"{old},{labels({'topic': topic, 'group': group})}", rate

        def counted(size: bool) -> Samples:
            for (topic, group), gets in pairs:
                retry = "true" if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else "false"
                text = labels({"topic": topic, "consumer_group": group, "is_retry": retry})
                yield f"{new},{text}", gets.size if size else gets.count

        yield m.CONSUMER_TPS, rates(GROUP_GET_NUMS)
        yield m.CONSUMER_SIZE, rates(GROUP_GET_SIZE)
        yield m.MESSAGES_OUT, counted(False)
        yield m.BYTES_OUT, counted(True)
        yield (
            m.SEND_BACKS,
            (
                (f"{new},{labels({'topic': topic, 'consumer_group': group})}", count)
                for (topic, group), count in list(self._core.stats.send_backs.items())
            ),
        )


_TOPICS: Final = m.PRODUCER_OFFSET, m.PRODUCER_TPS, m.PRODUCER_SIZE, m.MESSAGES_IN, m.BYTES_IN
_GROUPS: Final = m.CONSUMER_OFFSET, m.ACCUMULATION, m.GROUP_DIFF, m.LAG, m.KAFKA_LAG


def _end(row: TopicRow) -> float:
    return row.end


def _lag(row: GroupRow) -> float:
    return row.lag


def _otel(row: GroupRow) -> str:
    return (
        f'topic="{row.topic_text}",consumer_group="{row.group_text}",is_retry="{row.retry}",'
        f'is_system="{row.system}"'
    )
