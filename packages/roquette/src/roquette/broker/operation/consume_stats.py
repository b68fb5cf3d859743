"""Progress of groups: per queue (208), all groups (317), in time (303); units of a queue (321); counters (315).

Apache: AdminBrokerProcessor.getConsumeStats and its neighbours; refusals carry their texts.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator

from roquette.base.lifecycle import Tasks
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, encode_rows, paced
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
from roquette.broker.floor.tables.topics import Topic
from roquette.errors import Refused
from roquette.message.message import MessageQueue
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, Task, row
from roquette.wire.bodies import (
    ConsumeQueueData,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.broker")

MAX_UNITS = 10_000  # of a queue, in one answer
MAX_ROWS = 150_000  # queues in one answer: more than a frame of 16 MiB holds


def check_rows(count: int, remedy: str) -> None:
    """Raise Refused when an answer would not fit a frame; Apache's broker builds it, and fails at its end."""
    if count > MAX_ROWS:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the answer is about {count} queues, {MAX_ROWS} are allowed: {remedy}",
        )


class ConsumeStatsProcessor(Feature):
    """Shows progress; changes nothing."""

    def __init__(self, core: BrokerCore) -> None:
        tables = core.tables
        self._store = core.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = tables.consumers
        self._items = core.items
        self._broker_name = core.live.current.broker_name
        self._address = str(core.address)

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        code, lane, nothing = RequestCode, Lane.ADMIN, Promise.NOTHING
        return [
            row(
                code.GET_CONSUME_STATS,
                self.consume_stats,
                GetConsumeStatsRequestHeader,
                lane,
                nothing,
            ),
            row(
                code.GET_BROKER_CONSUME_STATS,
                self.all_consume_stats,
                GetConsumeStatsInBrokerHeader,
                lane,
                nothing,
            ),
            row(
                code.QUERY_CONSUME_TIME_SPAN,
                self.time_span,
                QueryConsumeTimeSpanRequestHeader,
                lane,
                nothing,
            ),
            row(
                code.QUERY_CONSUME_QUEUE,
                self.consume_queue,
                QueryConsumeQueueRequestHeader,
                lane,
                nothing,
            ),
            row(
                code.VIEW_BROKER_STATS_DATA,
                self.stats_data,
                ViewBrokerStatsDataRequestHeader,
                lane,
                nothing,
            ),
        ]

    def consume_stats(
        self, ctx: RequestContext, header: GetConsumeStatsRequestHeader, body: bytes
    ) -> Task:
        """GET_CONSUME_STATS: per queue, how far the group is and how far it could be; at most MAX_ROWS of them.

        Unlike Apache's, also queues beyond the topic's number that still hold messages."""
        group = header.consumer_group
        listed = [name for name in (header.topic_list or "").split(";") if name]
        if listed:
            names = listed
        else:
            topic = (header.topic or "").strip()
            wanted = [topic] if topic else self._offsets.topics_of(group)
            names = [name for name in wanted if self._subscribed(group, name)]
        return Task(self._consume_stats(group, names), large=True)

    async def _consume_stats(self, group: str, names: list[str]) -> Reply:
        topics: list[Topic] = []
        gone: list[str] = []
        rows = 0
        async for name in paced(names):  # nothing is built of an answer that does not fit
            found = self._topics.find(name)
            if found is None:
                gone.append(name)
                continue
            rows += found.read_queues
            check_rows(rows, "ask for fewer topics")
            topics.append(found)
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        async for topic in paced(topics):
            await self._progress(group, topic.name, topic.read_queues, table, pulls=True)
            tps += self._items.tps(GROUP_GET_NUMS, f"{topic.name}@{group}")
        if gone:
            log.warning("consume stats: %d topics do not exist, first=%s", len(gone), gone[0])
        answer = ConsumeStats(offset_table=table, consume_tps=tps)
        return Reply(b"", await encode_rows(answer, len(table)))

    def _subscribed(self, group: str, topic: str) -> bool:
        """False for what an online group has subscriptions, but none on this topic."""
        online = self._consumers.find(group)
        if online is None or not online.subscriptions or topic in online.subscriptions:
            return True
        log.debug("consume stats: not subscribed topic=%s group=%s", topic, group)
        return False

    async def _progress(
        self,
        group: str,
        topic: str,
        queues: int,
        table: dict[MessageQueue, OffsetWrapper],
        *,
        pulls: bool,
    ) -> None:
        async for queue_id in paced([*range(queues), *self._store.queues_from(topic, queues)]):
            high = max(0, self._store.max_offset(topic, queue_id))
            committed = max(0, self._offsets.query(group, topic, queue_id))
            pulled = self._offsets.query_pull(group, topic, queue_id)
            last = self._store.store_time(topic, queue_id, committed - 1) if committed > 0 else 0
            queue = MessageQueue(topic=topic, broker_name=self._broker_name, queue_id=queue_id)
            table[queue] = OffsetWrapper(
                broker_offset=high,
                consumer_offset=committed,
                pull_offset=max(pulled, committed) if pulls else 0,
                last_timestamp=max(0, last),
            )

    def all_consume_stats(
        self, ctx: RequestContext, header: GetConsumeStatsInBrokerHeader, body: bytes
    ) -> Task:
        """GET_BROKER_CONSUME_STATS: every group's progress on every topic; `isOrder` picks ordered topics."""
        return Task(self._all_consume_stats(header.is_order), large=True)

    async def _all_consume_stats(self, is_order: bool) -> Reply:
        topics_of: dict[str, list[str]] = {}
        async for key in paced(self._offsets.keys(), 10_000):
            name, _, group = key.partition("@")
            topics_of.setdefault(group, []).append(name)
        count = 0
        wanted: list[tuple[str, list[Topic]]] = []
        async for config in paced(self._groups.all()):
            group = config.group_name
            topics: list[Topic] = []
            async for name in paced(sorted(topics_of.get(group, ()))):
                found = self._topics.find(name)
                if found is None or (is_order and not found.order):
                    continue
                if self._subscribed(group, name):
                    count += found.write_queues
                    check_rows(count, "ask for one group after the other (GET_CONSUME_STATS)")
                    topics.append(found)
            wanted.append((group, topics))
        answer = ConsumeStatsList(broker_addr=self._address)
        async for group, topics in paced(wanted):
            rows: list[ConsumeStats] = []
            async for topic in paced(topics):
                table: dict[MessageQueue, OffsetWrapper] = {}
                await self._progress(group, topic.name, topic.write_queues, table, pulls=False)
                tps = self._items.tps(GROUP_GET_NUMS, f"{topic.name}@{group}")
                rows.append(ConsumeStats(offset_table=table, consume_tps=tps))
                for at in table.values():
                    answer.total_diff += at.broker_offset - at.consumer_offset
                    answer.total_inflight_diff += at.pull_offset - at.consumer_offset
            answer.consume_stats_list.append({group: rows})
        return Reply(b"", await encode_rows(answer, count))

    def time_span(
        self, ctx: RequestContext, header: QueryConsumeTimeSpanRequestHeader, body: bytes
    ) -> Task:
        """QUERY_CONSUME_TIME_SPAN: store times of each queue's first, last and last consumed message."""
        topic = self._topics.find(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        return Task(self._time_span(header, topic.write_queues, ctx.now_ms), large=True)

    async def _time_span(
        self, header: QueryConsumeTimeSpanRequestHeader, queues: int, now_ms: int
    ) -> Reply:
        topic, store = header.topic, self._store
        spans: list[QueueTimeSpan] = []
        async for queue_id in paced([*range(queues), *store.queues_from(topic, queues)]):
            first = store.store_time(topic, queue_id, store.min_offset(topic, queue_id))
            end = store.max_offset(topic, queue_id)
            committed = self._offsets.query(header.group, topic, queue_id)
            consumed = first
            if committed > 0:
                consumed = store.store_time(topic, queue_id, committed - 1)
            delay_ms = 0
            if committed < end:
                delay_ms = now_ms - store.store_time(topic, queue_id, committed)
            queue = MessageQueue(topic=topic, broker_name=self._broker_name, queue_id=queue_id)
            spans.append(
                QueueTimeSpan(
                    message_queue=queue,
                    min_time_stamp=first,
                    max_time_stamp=store.store_time(topic, queue_id, end - 1),
                    consume_time_stamp=consumed,
                    delay_time=delay_ms,
                )
            )
        answer = QueryConsumeTimeSpanBody(consume_time_span_set=spans)
        return Reply(b"", await encode_rows(answer, len(spans)))

    def consume_queue(
        self, ctx: RequestContext, header: QueryConsumeQueueRequestHeader, body: bytes
    ) -> Reply:
        """QUERY_CONSUME_QUEUE: units of one queue, at most MAX_UNITS."""
        topic, queue_id = header.topic, header.queue_id
        if queue_id not in self._store.queues_of(topic):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        count = max(0, min(header.count, MAX_UNITS))
        low = self._store.min_offset(topic, queue_id)
        units = None
        if header.index >= low:
            units = self._store.queue_units(topic, queue_id, header.index, max(1, count))
        if units is None:
            return Reply(remark=f"Index {header.index} of {queue_id}@{topic} is not exist!")
        answer = QueryConsumeQueueResponseBody(
            max_queue_index=self._store.max_offset(topic, queue_id),
            min_queue_index=low,
            queue_data=[
                ConsumeQueueData(physic_offset=offset, physic_size=size, tags_code=code)
                for offset, size, code in units[:count]
            ],
        )
        group = header.consumer_group
        if group is not None:
            online = self._consumers.find(group)
            answer.subscription_data = online.subscriptions.get(topic) if online else None
            found = answer.subscription_data is not None
            answer.filter_data = "null" if found else f"{group}@{topic} is not online!"
        return Reply(b"", encode_body(answer))

    def stats_data(
        self, ctx: RequestContext, header: ViewBrokerStatsDataRequestHeader, body: bytes
    ) -> Reply:
        """VIEW_BROKER_STATS_DATA: a counter over the last minute, hour and day."""
        found = self._items.find(header.stats_name, header.stats_key)
        if found is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return Reply(b"", encode_body(found))


# The broker's counters: sampled on beats, and brought into the tables that operators see.


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
