"""Metrics of a broker: rows of topics and groups that a scrape collects in slices, and the pages that show them."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from roquette.base import metric_families as m
from roquette.base.lifecycle import Tasks
from roquette.base.metric_families import (
    KIND,
    Exposition,
    Family,
    MetricTable,
    Sample,
    escaped,
    labels,
)
from roquette.base.server_metrics import LoopLag, ServerFigures, server_families, why_unhealthy
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import ABOUT, Beat, Feature, paced
from roquette.broker.floor.item_stats import (
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    ItemStats,
)
from roquette.broker.floor.tables.topics import Topic
from roquette.message.message import unread
from roquette.message.names import DLQ_PREFIX, RETRY_PREFIX, TOOLS_CONSUMER_GROUP
from roquette.remoting import pem
from roquette.remoting.http_pages import HttpPages, StreamedPage
from roquette.store.message_store import MessageStore

if TYPE_CHECKING:
    from roquette.remoting.http1 import HttpListener

# Rows that a scrape is made of: one row a topic, and one a group of a topic. Collected in slices.


# The age of what a group takes, without a look at the log: from the ends that topics had at earlier times. Pure.


KEPT: Final = 32  # times of a topic; when there are more, every second one goes, and later ones are further apart
TOPICS: Final = 10_000  # that are watched


class LagTimes:
    """Ends of topics (all queues added up) at times of the past, steady ms."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[list[int], list[int]]] = {}  # topic -> ends, times; both grow

    def __len__(self) -> int:
        return len(self._ends)

    def note(self, topic: str, end: int, now_ms: int) -> None:
        """A topic ends here now."""
        known = self._ends.get(topic)
        if known is None:
            if len(self._ends) < TOPICS:
                self._ends[topic] = ([end], [now_ms])
            return
        ends, times = known
        if end < ends[-1]:  # its queues were made again
            self._ends[topic] = ([end], [now_ms])
        if end <= ends[-1]:
            return
        ends.append(end)
        times.append(now_ms)
        if len(ends) > KEPT:
            del ends[1:-1:2]
            del times[1:-1:2]

    def behind_ms(self, topic: str, consumed: int, end: int, now_ms: int) -> int | None:
        """For how long, about, what follows the first `consumed` messages has been there; 0 when there is none.

        Less than it really is by at most the distance of two looks that are kept. None: nothing is known of the topic.
        """
        if consumed >= end:
            return 0
        known = self._ends.get(topic)
        if known is None:
            return None
        ends, times = known
        at = bisect_right(ends, consumed)  # the first look that saw it
        return 0 if at == len(ends) else max(0, now_ms - times[at])

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        self._ends.pop(topic, None)


AT_ONCE: Final = 500  # queues of one slice


Popped = Callable[[int, int], Iterator[tuple[str, int, bool]]]


def queues_of(store: MessageStore, topic: Topic) -> list[int]:
    """Ids of a topic's queues, those among them that it had once: their sums only grow."""
    return sorted({*range(topic.queue_limit), *store.queues_of(topic.name)})


class TopicSample(NamedTuple):
    """A topic. `text` is its name as a label has it; `ends` where its queues end, `end` all of them added up."""

    topic: Topic
    text: str
    system: str
    end: int
    ends: list[tuple[int, int]]


class GroupSample(NamedTuple):
    """A group of a topic: offsets and lags of all queues added up.

    Attributes:
        inflight: messages that members have, pulled or popped. passed: those of them that are behind the offset, popped.
        latency_ms: None: nothing is known.
        queues: queue id, committed offset, lag; empty unless asked for.
    """

    topic: str
    group: str
    topic_text: str
    group_text: str
    retry: str
    system: str
    committed: int
    lag: int
    inflight: int
    passed: int
    latency_ms: int | None
    queues: list[tuple[int, int, int]]


class ScrapeRows:
    """The rows of one scrape; what comes while they are collected may be missed.

    Args:
        most: topics, and pairs of topic and group, that get a row; `dropped` counts the others.
        popped: what POP has handed out, see `PopState.held`.
    """

    def __init__(
        self,
        core: BrokerCore,
        is_system: Callable[[str], bool],
        times: LagTimes,
        most: int,
        popped: Popped,
    ) -> None:
        self._core = core
        self._is_system = is_system
        self._times = times
        self._most = most
        self._popped = popped
        # topic@group -> popped messages, and those behind the offset
        self._out: dict[str, tuple[int, int]] = {}
        self._each = core.live.current.metrics_per_queue
        self.topics: list[TopicSample] = []
        self.groups: list[GroupSample] = []
        self.dropped_topics = 0
        self._ends: dict[str, int] = {}  # of topics that have a row
        self._looked = 0  # queues, in this slice
        self.dropped_groups = 0

    def collect(self) -> Iterator[None]:
        """Each step is a slice."""
        for part in (self._collect_topics(), self._collect_popped(), self._collect_groups()):
            yield from part
            self._looked = 0
            yield

    def _collect_topics(self) -> Iterator[None]:
        store = self._core.store
        for topic in self._core.tables.topics.all():
            if len(self.topics) >= self._most:
                self.dropped_topics += 1
                continue
            end, ends, name = 0, [], topic.name
            for queue in queues_of(store, topic):
                last = store.max_offset(name, queue)
                end += last
                if self._each:
                    ends.append((queue, last))
                self._looked += 1
                if self._looked >= AT_ONCE:
                    self._looked = 0
                    yield
            system = "true" if self._is_system(name) else "false"
            self.topics.append(TopicSample(topic, escaped(name), system, end, ends))
            self._ends[name] = end

    def _collect_popped(self) -> Iterator[None]:
        clock = self._core.clock
        held = self._popped(clock.now_ms(), clock.steady_ms())
        for number, (key, count, passed) in enumerate(held, 1):
            known, behind = self._out.get(key, (0, 0))
            self._out[key] = known + count, behind + (count if passed else 0)
            if number % AT_ONCE == 0:
                yield

    def _collect_groups(self) -> Iterator[None]:
        keys = self._core.tables.offsets.keys()
        for key in keys:
            if len(self.groups) >= self._most:
                self.dropped_groups += 1
                continue
            topic, _, group = key.partition("@")
            if group == TOOLS_CONSUMER_GROUP:  # what tools note is nobody's progress
                continue
            if (found := self._core.tables.topics.find(topic)) is not None:
                self.groups.append((yield from self._group(found, group)))
            self._looked += 1

    def _group(self, topic: Topic, group: str) -> Generator[None, None, GroupSample]:
        store, offsets, name = self._core.store, self._core.tables.offsets, topic.name
        committed = lag = inflight = 0
        queues: list[tuple[int, int, int]] = []
        places = offsets.of_topic(group, name)
        for queue in queues_of(store, topic):
            place, last = places.get(queue), store.max_offset(name, queue)
            behind = unread(place, store.min_offset(name, queue), last)
            offset = place or 0
            pulled = min(last, offsets.query_pull(group, name, queue))
            committed += offset
            lag += behind
            inflight += 0 if place is None else max(0, pulled - place)
            if self._each:
                queues.append((queue, offset, behind))
            self._looked += 1
            if self._looked >= AT_ONCE:
                self._looked = 0
                yield
        popped, passed = self._out.get(f"{name}@{group}", (0, 0))
        end = self._ends.get(name, committed + lag)
        now_ms = self._core.clock.steady_ms()
        return GroupSample(
            topic=name,
            group=group,
            topic_text=escaped(name),
            group_text=escaped(group),
            retry="true" if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) else "false",
            system="true" if self._is_system(name) else "false",
            committed=committed,
            lag=lag,
            inflight=inflight + popped,
            passed=passed,
            latency_ms=self._times.behind_ms(name, end - lag, end, now_ms),
            queues=queues,
        )


# /metrics, /healthz and /readyz of a broker: on its ports for this machine, on a port of their own for others.


# All metrics of a broker, as the text that Prometheus reads, in slices. What is shown is counted already; no record is read.


T = TypeVar("T")
Samples = Iterator[Sample | None]
_RATE_S: Final = 60


class Scrape:
    """One answer to /metrics.

    Args:
        rows: not collected yet.
        figures: of the server, whatever it serves.
    """

    def __init__(
        self, core: BrokerCore, items: ItemStats, rows: ScrapeRows, figures: ServerFigures
    ) -> None:
        config = core.live.current
        self._core = core
        self._items = items
        self._rows = rows
        self._figures = figures
        node = f"{core.live.current.broker_name}-{core.identity.broker_id}"
        old = {"cluster": config.broker_cluster_name, "broker": core.live.current.broker_name}
        new = {"cluster": config.broker_cluster_name, "node_type": "broker", "node_id": node}
        self._old, self._new = labels(old), labels(new)
        # A sample for each metric that lacks some, besides the one of all, follows what is counted here.
        in_all = config.metrics_max_samples - len(m.FAMILIES) - 1
        self._out = Exposition(config.metrics_max_series, in_all)

    def pieces(self) -> Iterator[bytes]:
        """The text; the loop may run between two of them."""
        for _ in self._rows.collect():
            yield b""
        out, sync = self._out, self._core.log_sync
        for family, samples in self._of_broker():
            yield from out.family(family, samples)
        yield out.summary(m.FSYNC, self._new, sync.sync_ms / 1000, sync.syncs)
        for shown in self._core.shell.measures(self._core.clock.now_ms()):
            yield from out.table(shown._replace(samples=_within(self._new, shown)))
        for family, of_server in server_families(self._figures, self._new):
            yield from out.family(family, of_server)
        tables: dict[Family, MetricTable] = {}
        for table in self._tables():
            tables[table.family] = table
            yield b""
        for family in _TABLES:
            yield from out.table(tables[family])
        yield from Exposition().family(m.SERIES_DROPPED, self._dropped())

    def _tables(self) -> Iterator[MetricTable]:
        yield from self._of_members()
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
        yield m.REFUSING_ALONE, one(new, float(core.replicas.refusal is not None))
        yield (
            m.DISK_USED,
            iter([(f'{new},disk="log"', log_disk), (f'{new},disk="root"', root_disk)]),
        )
        disks = zip(("log", "root"), store.disk.disks[:1] + store.disk.disks[-1:])
        rooms = ((f'{new},disk="{at}"', disk.room(store.disk.config)) for at, disk in disks)
        yield m.DISK_ROOM, rooms
        yield m.BROKER_CONNECTIONS, one(new, len(core.shell.peers()))
        role = "replica" if core.identity.broker_id else "master"
        text = f"{new},{labels({'broker': core.live.current.broker_name})}"
        roles = [(f'{text},role="{r}"', float(r == role)) for r in ("master", "replica")]
        yield m.ROLE, iter(roles)
        yield m.WAITING_SENDS, one(new, core.log_sync.in_flight)
        yield m.WAITING_SENDS_MOST, one(new, core.live.current.max_waiting_send_bytes)
        yield m.BACKWARD_REFUSED, one(new, tables.backward_commits.refused)
        yield m.BACKWARD_ACCEPTED, one(new, tables.backward_commits.accepted)
        yield m.DUPLICATES, one(new, tables.duplicates.duplicates)
        yield (
            m.WATERMARK,
            iter([(f'{new},processor="{name}"', size) for name, size, _, _ in core.shell.lanes()]),
        )
        shown = core.shell.runtime_info(core.clock.now_ms())
        for family, key, unit in (
            (m.REPLICAS, "replicas", 1),
            (m.REPLICAS_IN_STEP, "replicasInStep", 1),
            (m.REPLICAS_EXPECTED, "replicasExpected", 1),
            (m.REPLICA_LAG, "replicaLagBytes", 1),
            (m.EPOCH, "groupLastEpoch", 1),
            (m.LEASE, "groupLeaseLeftMs", 1000),
        ):
            if key in shown:
                yield family, one(new, int(shown[key]) / unit)
        if "followsConnected" in shown:
            yield m.FOLLOWS, one(new, float(shown["followsConnected"] == "true"))
        if (kinds := shown.get("groupTroubleKinds")) is not None:
            told = kinds.split(",")
            yield (
                m.GROUP_TROUBLE,
                iter([(f'{new},kind="{k}"', float(k in told)) for k in m.TROUBLES]),
            )
        yield m.CONFLICTS, self._conflicts()
        yield m.PRODUCERS, one(new, len(tables.producers))

    def _conflicts(self) -> Samples:
        conflicts = 0
        for number, group in enumerate(self._core.tables.consumers.groups(), 1):
            conflicts += len(group.signatures) > 1
            if number % AT_ONCE == 0:
                yield None
        yield self._new, conflicts

    def _of_members(self) -> Iterator[MetricTable]:
        old, new, groups = self._old, self._new, self._core.tables.consumers.groups()

        def members(text: str, label: str) -> Iterator[Sample]:
            for group in groups:
                yield f"{text},{labels({label: group.name})}", len(group.channels)

        yield MetricTable(m.CONSUMERS, len(groups), members(new, "consumer_group"))
        yield MetricTable(m.GROUP_COUNT, len(groups), members(old, "group"))

    def _of_topics(self) -> Iterator[MetricTable]:
        old, new, rows = self._old, self._new, self._rows.topics
        ended, busy = [row for row in rows if row.end], [row for row in rows if row.topic.put_count]

        def counted(family: Family, value: Callable[[TopicSample], float]) -> MetricTable:
            return MetricTable(
                family,
                len(busy),
                ((f'{new},topic="{r.text}",is_system="{r.system}"', value(r)) for r in busy),
            )

        def shown(row: TopicSample) -> str:
            return f'{old},topic="{row.text}"'

        topics = [(row.topic.name, row) for row in busy]
        yield MetricTable(m.PRODUCER_OFFSET, len(ended), ((shown(row), row.end) for row in ended))
        yield self._rates(m.PRODUCER_TPS, TOPIC_PUT_NUMS, topics, shown)
        yield self._rates(m.PRODUCER_SIZE, TOPIC_PUT_SIZE, topics, shown)
        yield counted(m.MESSAGES_IN, lambda row: row.topic.put_count)
        yield counted(m.BYTES_IN, lambda row: row.topic.put_bytes)
        yield self._dead_letters()
        ends = ((f'{shown(row)},partition="{q}"', end) for row in rows for q, end in row.ends)
        yield MetricTable(m.KAFKA_TOPIC_OFFSET, sum(len(row.ends) for row in rows), ends)

    def _rates(
        self, family: Family, kind: str, things: list[tuple[str, T]], text: Callable[[T], str]
    ) -> MetricTable:
        """Of those things whose key, which comes before each, has a counter."""
        items = self._items
        known = [(key, thing) for key, thing in things if items.knows(kind, key)]
        if items.full:
            self._out.drop(family, len(things) - len(known))
        rates = ((text(thing), items.tps(kind, key)) for key, thing in known)
        return MetricTable(family, len(known), rates)

    def _dead_letters(self) -> MetricTable:
        dead = [row for row in self._rows.topics if row.topic.name.startswith(DLQ_PREFIX)]

        def text(row: TopicSample) -> str:
            return f"{self._old},{labels({'group': row.topic.name.removeprefix(DLQ_PREFIX)})}"

        return MetricTable(m.DLQ_OFFSET, len(dead), ((text(row), row.end) for row in dead))

    def _of_groups(self) -> Iterator[MetricTable]:
        old, new, rows = self._old, self._new, self._rows.groups
        aged = [row for row in rows if row.latency_ms is not None]

        def exporter(family: Family, value: Callable[[GroupSample], float]) -> MetricTable:
            return MetricTable(
                family, len(rows), ((_exporter(old, row), value(row)) for row in rows)
            )

        def otel(family: Family, value: Callable[[GroupSample], float]) -> MetricTable:
            return MetricTable(
                family, len(rows), ((f"{new},{_otel(row)}", value(row)) for row in rows)
            )

        yield exporter(m.CONSUMER_OFFSET, lambda row: row.committed)
        yield exporter(m.ACCUMULATION, _lag)
        yield MetricTable(m.GROUP_DIFF, len(rows), self._diffs())
        yield otel(m.LAG, lambda row: row.lag + row.passed)
        yield otel(m.INFLIGHT, lambda row: row.inflight)
        yield otel(m.READY, lambda row: max(0, row.lag + row.passed - row.inflight))
        ages = ((_exporter(old, row), row.latency_ms or 0) for row in aged)
        yield MetricTable(m.LATENCY, len(aged), ages)
        ages = ((f"{new},{_otel(row)}", row.latency_ms or 0) for row in aged)
        yield MetricTable(m.LAG_LATENCY, len(aged), ages)
        count = sum(len(row.queues) or 1 for row in rows)
        yield MetricTable(m.KAFKA_LAG, count, self._kafka(_lag, 2))
        yield MetricTable(m.KAFKA_GROUP_OFFSET, count, self._kafka(lambda row: row.committed, 1))

    def _kafka(self, of_all: Callable[[GroupSample], float], of_queue: int) -> Iterator[Sample]:
        """Of each queue where the rows have them, else of the topic: sums over partitions come out alike."""
        for row in self._rows.groups:
            text = f'{self._old},consumergroup="{row.group_text}",topic="{row.topic_text}"'
            if not row.queues:
                yield text, of_all(row)
            for queue in row.queues:
                yield f'{text},partition="{queue[0]}"', queue[of_queue]

    def _diffs(self) -> Iterator[Sample]:
        consumers = self._core.tables.consumers
        for row in self._rows.groups:
            online = consumers.find(row.group)
            members = 0 if online is None else len(online.channels)
            model = 0 if online is None or not online.broadcasting else 1
            text = _exporter(self._old, row)
            yield f'{text},countOfOnlineConsumers="{members}",msgModel="{model}"', row.lag

    def _of_gets(self) -> Iterator[MetricTable]:
        old, new, stats = self._old, self._new, self._core.stats
        pairs = list(stats.group_gets.items())
        backs = list(stats.send_backs.items())

        def shown(topic: str, group: str) -> str:
            return f"{old},{labels({'topic': topic, 'group': group})}"

        def text(topic: str, group: str) -> str:
            return f"{new},{labels({'topic': topic, 'consumer_group': group})}"

        def counted(size: bool) -> Iterator[Sample]:
            for (topic, group), gets in pairs:
                retry = "true" if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else "false"
                yield f'{text(topic, group)},is_retry="{retry}"', gets.size if size else gets.count

        things = [(f"{topic}@{group}", (topic, group)) for (topic, group), _ in pairs]
        yield self._rates(m.CONSUMER_TPS, GROUP_GET_NUMS, things, lambda pair: shown(*pair))
        yield self._rates(m.CONSUMER_SIZE, GROUP_GET_SIZE, things, lambda pair: shown(*pair))
        yield MetricTable(m.MESSAGES_OUT, len(pairs), counted(False))
        yield MetricTable(m.BYTES_OUT, len(pairs), counted(True))
        yield MetricTable(m.SEND_BACKS, len(backs), ((text(*pair), count) for pair, count in backs))
        lost = list(stats.deleted_unread.items())
        yield MetricTable(
            m.DELETED_UNREAD, len(lost), ((text(*pair), count) for pair, count in lost)
        )


# In this order they get what room there is: what alerts need, what people look at first, the same by other names.
_TABLES: Final = (
    m.DLQ_OFFSET,
    m.DELETED_UNREAD,
    m.SEND_BACKS,
    m.LAG,
    m.MESSAGES_IN,
    m.LAG_LATENCY,
    m.MESSAGES_OUT,
    m.CONSUMERS,
    m.PRODUCER_OFFSET,
    m.CONSUMER_OFFSET,
    m.PRODUCER_TPS,
    m.CONSUMER_TPS,
    m.LATENCY,
    m.BYTES_IN,
    m.BYTES_OUT,
    m.PRODUCER_SIZE,
    m.CONSUMER_SIZE,
    m.GROUP_COUNT,
    m.ACCUMULATION,
    m.GROUP_DIFF,
    m.INFLIGHT,
    m.READY,
    m.KAFKA_LAG,
    m.KAFKA_GROUP_OFFSET,
    m.KAFKA_TOPIC_OFFSET,
)
_TOPICS: Final = m.PRODUCER_OFFSET, m.PRODUCER_TPS, m.PRODUCER_SIZE, m.MESSAGES_IN, m.BYTES_IN
_GROUPS: Final = m.CONSUMER_OFFSET, m.ACCUMULATION, m.GROUP_DIFF, m.LAG, m.KAFKA_LAG


def _within(labels: str, table: MetricTable) -> Iterator[Sample]:
    return ((f"{labels},{text}" if text else labels, value) for text, value in table.samples)


def _lag(row: GroupSample) -> float:
    return row.lag


def _exporter(text: str, row: GroupSample) -> str:
    return f'{text},topic="{row.topic_text}",group="{row.group_text}"'


def _otel(row: GroupSample) -> str:
    return (
        f'topic="{row.topic_text}",consumer_group="{row.group_text}",is_retry="{row.retry}",'
        f'is_system="{row.system}"'
    )


LAG_BEAT_S: Final = 1.0
ENDS_BEAT_S: Final = 10.0


class MetricsFeature(Feature):
    """Shows what others count.

    Attributes:
        listener: the port of metricsListen, when there is one.
    """

    def __init__(self, core: BrokerCore, popped: Popped) -> None:
        self._core = core
        self._items = core.items
        self._is_system = core.deletions.is_system
        self._popped = popped
        self._times = LagTimes()
        self._loop_lag = LoopLag(LAG_BEAT_S)
        self._not_ready = "it starts"
        self._pages = HttpPages(
            about=ABOUT,
            anyone=True,
            shown=True,
            check_readiness=self._why_not_ready,
            check_health=self._why_unhealthy,
            streams={"/metrics": StreamedPage(kind=KIND, begin=self._scrape)},
        )
        self.listener: HttpListener | None = None

    def pages(self) -> HttpPages:
        """Return the pages that the broker's own ports get."""
        return self._pages

    def beats(self) -> list[Beat]:
        """Looks at the loop, and at where topics end."""
        ends = self._core.protection.ends
        return [
            Beat("loop-lag", LAG_BEAT_S, self._look_at_loop),
            Beat("topic-ends", ENDS_BEAT_S, self._look_at_ends),
            *([Beat("certificates", pem.ENDS_BEAT_S, ends.look)] if ends.files else []),
        ]

    async def prepare(self) -> None:
        """Open the port of its own. Raises ConfigError when it is taken."""
        await self._core.protection.ends.look()
        address = self._core.live.current.metrics_address()
        if address:
            from roquette.remoting.http1 import HttpListener  # few have a port of its own

            self.listener = HttpListener(self._pages)
            await self.listener.start(address)

    async def start(self, tasks: Tasks) -> None:
        """Requests are accepted."""
        self._not_ready = ""

    async def leave(self) -> None:
        """The broker is about to stop."""
        self._not_ready = "it stops"

    async def stop(self) -> None:
        """Close the port."""
        if self.listener is not None:
            await self.listener.close()

    def _why_unhealthy(self) -> str:
        return why_unhealthy(self._core.shell.tasks.health())

    def _why_not_ready(self) -> str:
        refusal = self._core.store.send_refusal or self._core.replicas.refusal
        words = f"it refuses messages: {refusal}" if refusal else ""
        return self._not_ready or words or self._core.shell.unready()

    def _look_at_loop(self) -> None:
        self._loop_lag.look(asyncio.get_running_loop().time())

    async def _look_at_ends(self) -> None:
        """Look where topics that groups read end now."""
        core = self._core
        keys = core.tables.offsets.keys()
        async for name in paced({key.partition("@")[0]: None for key in keys}):
            topic = core.tables.topics.find(name)
            if topic is not None:
                ids = queues_of(core.store, topic)
                ends = (core.store.max_offset(name, queue) for queue in ids)
                self._times.note(name, sum(ends), core.clock.steady_ms())

    def _scrape(self) -> Iterator[bytes]:
        core = self._core
        most = core.live.current.metrics_max_series
        rows = ScrapeRows(core, self._is_system, self._times, most, self._popped)
        kept = core.shell.kept()
        figures = ServerFigures(
            now_ms=core.clock.now_ms(),
            not_ready=self._pages.why_not_ready(),
            refused=core.shell.refusals(),
            ends=core.protection.ends.found,
            kept=(kept.total, kept.most),
            loop_lag_s=self._loop_lag.longest_s(),
            tasks=core.shell.tasks.health(),
        )
        return Scrape(core, self._items, rows, figures).pieces()

    def forget_topic(self, topic: str) -> None:
        """Its ends begin at 0 again."""
        self._times.forget(topic)
