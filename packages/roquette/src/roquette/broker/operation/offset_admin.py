"""Operators and offsets: reset (222), clone (314), correction (308), everything for a replica (43, 45).

Apache: AdminBrokerProcessor.resetOffset and its neighbours, Broker2Client.resetOffset; refusals carry their texts.
"""

import logging
from collections.abc import Callable

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import (
    MANY,
    Feature,
    Lane,
    check_resets,
    encode_rows,
    paced,
    reply_of,
)
from roquette.broker.floor.tables.groups import COMMIT_BACKWARD
from roquette.broker.floor.tables.offsets import LONG_MAX, MAX_QUEUE_ID, NOT_FOUND
from roquette.broker.floor.tables.topics import Topic
from roquette.errors import Refused
from roquette.message.message import MessageQueue
from roquette.remoting.promises import Promise
from roquette.remoting.request import Outcome, Reply, RequestContext, Row, Task, row
from roquette.store.format.results import Found
from roquette.store.queue_read import ReadRequest
from roquette.wire.bodies import (
    QueryCorrectionOffsetBody,
    QueueOffset,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_dict
from roquette.wire.headers import (
    CloneGroupOffsetRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.broker")


class OffsetAdminProcessor(Feature):
    """Changes the offsets of whole groups.

    Args:
        wake_group: answers the held pulls of a topic and group, which a reset reaches at once.
    """

    def __init__(self, core: BrokerCore, wake_group: Callable[[str, str], None]) -> None:
        tables = core.tables
        self._live = core.live
        self._store = core.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = tables.consumers
        self._wake_group = wake_group
        self._saved = core.saved

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        code, lane = RequestCode, Lane.ADMIN
        return [
            row(
                code.INVOKE_BROKER_TO_RESET_OFFSET,
                self.reset_offset,
                ResetOffsetRequestHeader,
                lane,
                Promise.FILE,
            ),
            row(
                code.CLONE_GROUP_OFFSET,
                self.clone_offset,
                CloneGroupOffsetRequestHeader,
                lane,
                Promise.FILE,
            ),
            row(
                code.QUERY_CORRECTION_OFFSET,
                self.correction_offset,
                QueryCorrectionOffsetHeader,
                lane,
                Promise.NOTHING,
            ),
            row(code.GET_ALL_CONSUMER_OFFSET, self.all_offsets, None, lane, Promise.NOTHING),
        ]

    # 222: in the broker, or through the clients.

    def reset_offset(
        self, ctx: RequestContext, header: ResetOffsetRequestHeader, body: bytes
    ) -> Outcome:
        """INVOKE_BROKER_TO_RESET_OFFSET."""
        log.info(
            "reset of offsets asked topic=%s group=%s queue_id=%d offset=%s timestamp=%d force=%s by=%s",
            header.topic,
            header.group,
            header.queue_id,
            header.offset,
            header.timestamp,
            header.is_force,
            ctx.peer.remote,
        )
        if not self._live.current.use_server_side_reset_offset:
            return self._reset_through_clients(ctx, header)
        topic = self._topics.find(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if self._groups.known(header.group) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist"
            )
        return Task(self._reset(ctx, header, topic))

    async def _reset(
        self, ctx: RequestContext, header: ResetOffsetRequestHeader, topic: Topic
    ) -> Reply | None:
        targets = await self._targets(header, topic)
        if not targets:
            raise Refused(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        self._offsets.make_room(header.group, topic.name, targets, by_operator=True)
        async for queue_id, offset in paced(targets.items()):
            self._offsets.reset(header.group, topic.name, queue_id, offset, ctx.now_ms)
        self._wake_group(topic.name, header.group)
        shown = targets if len(targets) <= MANY else f"{len(targets)} offsets"
        log.info("offsets reset topic=%s group=%s to=%s", topic.name, header.group, shown)
        broker = self._live.current.broker_name
        table = {
            MessageQueue(topic=topic.name, broker_name=broker, queue_id=queue_id): offset
            async for queue_id, offset in paced(targets.items())
        }
        answer = ResetOffsetBody(offset_table=table)
        reply = Reply(b"", await encode_rows(answer, len(targets)))
        return await reply_of(self._saved.offsets_set(reply))

    async def _targets(self, header: ResetOffsetRequestHeader, topic: Topic) -> dict[int, int]:
        queue_id, offset = header.queue_id, header.offset
        if queue_id < 0:
            queues = paced(range(topic.read_queues))
            return {q: self._at(topic.name, q, header.timestamp) async for q in queues}
        if queue_id > MAX_QUEUE_ID:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"QueueId is {queue_id}, topic is {topic.name}"
            )
        if offset is None or offset == -1:
            return {queue_id: self._at(topic.name, queue_id, header.timestamp)}
        low = self._store.min_offset(topic.name, queue_id)
        high = self._store.max_offset(topic.name, queue_id)
        if not low <= offset <= high + 1:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{low}-{high}]",
            )
        return {queue_id: offset}

    def _at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The queue's offset at a time; its end for a negative one."""
        if timestamp_ms < 0:
            return self._store.max_offset(topic, queue_id)
        return self._store.offset_by_time(topic, queue_id, timestamp_ms)

    def _named(self, topic: Topic, offsets: dict[int, int]) -> dict[MessageQueue, int]:
        broker = self._live.current.broker_name
        return {
            MessageQueue(topic=topic.name, broker_name=broker, queue_id=queue_id): offset
            for queue_id, offset in offsets.items()
        }

    def _reset_through_clients(
        self, ctx: RequestContext, header: ResetOffsetRequestHeader
    ) -> Reply:
        """The way of brokers before 5.0: RESET_CONSUMER_CLIENT_OFFSET (220) to every member."""
        name, group = header.topic, header.group
        topic = self._topics.find(name)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={name}",
            )
        targets: dict[int, int] = {}
        for queue_id in range(topic.write_queues):
            committed = self._offsets.query(group, name, queue_id)
            if committed == NOT_FOUND:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            wanted = max(0, self._at(name, queue_id, header.timestamp))
            targets[queue_id] = wanted if header.is_force else min(wanted, committed)
        online = self._consumers.find(group)
        if online is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {name} "
                f"Timestamp: {header.timestamp}",
            )
        named = self._named(topic, targets)
        ext = encode_dict(
            {
                "topic": name,
                "group": group,
                "queueId": "-1",
                "timestamp": str(header.timestamp),
                "isForce": "false",
            }
        )
        body = encode_body(ResetOffsetBody(offset_table=named))
        pushed = _for_c(named) if ctx.command.language == "CPP" else body
        for channel in online.channels.values():
            check_resets(channel.version)
            channel.peer.notify(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, pushed)
        return Reply(b"", body)

    # 314, 308, 43, 45

    def clone_offset(
        self, ctx: RequestContext, header: CloneGroupOffsetRequestHeader, body: bytes
    ) -> Outcome:
        """CLONE_GROUP_OFFSET: without a topic, of every topic the source has offsets on."""
        return Task(self._clone(ctx, header))

    async def _clone(
        self, ctx: RequestContext, header: CloneGroupOffsetRequestHeader
    ) -> Reply | None:
        source = header.src_group
        blank = not (header.topic or "").strip()
        names = self._offsets.topics_of(source) if blank else [header.topic or ""]
        online = self._consumers.find(source)
        left_out: list[str] = []
        async for name in paced(names):
            if self._topics.find(name) is None:
                left_out.append(name)
                continue
            if (
                not header.offline
                and online is not None
                and online.subscriptions
                and name not in online.subscriptions
            ):
                left_out.append(name)
                continue
            queues = self._offsets.of_topic(source, name)
            self._offsets.make_room(header.dest_group, name, queues, by_operator=True)
            self._offsets.clone(source, header.dest_group, name, ctx.now_ms)
        if left_out:
            log.warning(
                "clone of offsets: %d topics do not exist or are not subscribed to group=%s first=%s",
                len(left_out),
                source,
                left_out[0],
            )
        return await reply_of(self._saved.offsets_set(Reply()))

    def correction_offset(
        self, ctx: RequestContext, header: QueryCorrectionOffsetHeader, body: bytes
    ) -> Reply:
        """QUERY_CORRECTION_OFFSET: where the slowest other group is, where that is behind `compare_group`."""
        topic = header.topic
        left_out = [name for name in (header.filter_groups or "").split(",") if name]
        least = self._offsets.least_of_groups(
            topic, left_out, lambda queue_id: self._store.min_offset(topic, queue_id)
        )
        for queue_id, offset in self._offsets.of_topic(header.compare_group, topic).items():
            if least.get(queue_id, LONG_MAX) > offset:
                least[queue_id] = LONG_MAX
        return Reply(b"", encode_body(QueryCorrectionOffsetBody(correction_offsets=least)))

    def all_offsets(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """GET_ALL_CONSUMER_OFFSET: consumerOffset.json, for a replica."""
        return Task(self._all_offsets(), large=True)

    async def _all_offsets(self) -> Reply:
        wrapper = self._offsets.to_wrapper(with_resets=False)
        rows = sum(map(len, wrapper.offset_table.values()))
        return Reply(b"", await encode_rows(wrapper, rows, java_keys=True))


def _for_c(offsets: dict[MessageQueue, int]) -> bytes:
    """The list that C++ clients read."""
    rows = [
        QueueOffset(
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            offset=offset,
        )
        for queue, offset in offsets.items()
    ]
    return encode_body(ResetOffsetBodyForC(offset_table=rows))


# Offsets by request: committed (14, 15), by time (29), ends of a queue (30, 31), age of its start (32).
# Apache: ConsumerManageProcessor, AdminBrokerProcessor.


class OffsetProcessor(Feature):
    """Serves offsets; unknown topics and queues have the offset 0, as in Apache."""

    def __init__(self, core: BrokerCore) -> None:
        self._saved = core.saved
        self._store = core.store
        self._topics = core.tables.topics
        self._groups = core.tables.groups
        self._offsets = core.tables.offsets
        self._backward = core.tables.backward_commits

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        code, lane, nothing = RequestCode, Lane.ADMIN, Promise.NOTHING
        return [
            row(
                code.QUERY_CONSUMER_OFFSET,
                self.query_consumer_offset,
                QueryConsumerOffsetRequestHeader,
                Lane.CONSUMER_MANAGER,
                nothing,
            ),
            row(
                code.UPDATE_CONSUMER_OFFSET,
                self.update_consumer_offset,
                UpdateConsumerOffsetRequestHeader,
                Lane.CONSUMER_MANAGER,
                Promise.JOURNAL,
            ),
            row(
                code.SEARCH_OFFSET_BY_TIMESTAMP,
                self.search_offset,
                SearchOffsetRequestHeader,
                lane,
                nothing,
            ),
            row(code.GET_MAX_OFFSET, self.max_offset, GetMaxOffsetRequestHeader, lane, nothing),
            row(code.GET_MIN_OFFSET, self.min_offset, GetMinOffsetRequestHeader, lane, nothing),
            row(
                code.GET_EARLIEST_MSG_STORETIME,
                self.earliest_store_time,
                GetEarliestMsgStoretimeRequestHeader,
                lane,
                nothing,
            ),
        ]

    def query_consumer_offset(
        self, ctx: RequestContext, header: QueryConsumerOffsetRequestHeader, body: bytes
    ) -> Reply:
        """QUERY_CONSUMER_OFFSET. A group that never committed starts at 0 while 0 is still fresh."""
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset >= 0:
            return _offset(offset)
        if header.set_zero_if_not_found is False:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, do not set to zero, maybe this group boot first",
            )
        first = self._store.begin_read(ReadRequest(header.topic, header.queue_id, 0, 1, 1))
        if isinstance(first, Found) and first.count and first.min_offset <= 0:
            return _offset(0)
        raise Refused(
            ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first"
        )

    def update_consumer_offset(
        self, ctx: RequestContext, header: UpdateConsumerOffsetRequestHeader, body: bytes
    ) -> Outcome:
        """UPDATE_CONSUMER_OFFSET. A smaller offset than the committed one is accepted."""
        group, topic = header.consumer_group, header.topic
        if self._groups.known(group) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if self._topics.find(topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if not 0 <= header.queue_id <= MAX_QUEUE_ID:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"QueueId is {header.queue_id}, topic is {topic}"
            )
        offsets = self._offsets
        if offsets.unsafe is not None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"no offset is committed now: the journal of offsets cannot be written ({offsets.unsafe})",
            )
        queue_id, offset = header.queue_id, header.commit_offset
        if offsets.pending_resets and offsets.has_reset(group, topic, queue_id):
            return Reply(remark="Offset has been previously reset")
        if not offsets.commit(group, topic, queue_id, offset, ctx.now_ms, ctx.peer.remote):
            why = f"group[{group}] has the attribute {COMMIT_BACKWARD}=REFUSE"
            if self._backward.never:
                why = "a replica takes no smaller one"
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"offset {offset} is behind the committed one, and {why}: topic[{topic}] "
                f"queueId[{queue_id}] stays at {offsets.query(group, topic, queue_id)}",
            )
        return self._saved.committed(Reply())

    def search_offset(
        self, ctx: RequestContext, header: SearchOffsetRequestHeader, body: bytes
    ) -> Reply:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first message stored at or after a time, or the last before it."""
        upper = (header.boundary_type or "lower").lower() == "upper"
        return _offset(
            self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper=upper)
        )

    def max_offset(
        self, ctx: RequestContext, header: GetMaxOffsetRequestHeader, body: bytes
    ) -> Reply:
        """GET_MAX_OFFSET."""
        return _offset(self._store.max_offset(header.topic, header.queue_id))

    def min_offset(
        self, ctx: RequestContext, header: GetMinOffsetRequestHeader, body: bytes
    ) -> Reply:
        """GET_MIN_OFFSET."""
        return _offset(self._store.min_offset(header.topic, header.queue_id))

    def earliest_store_time(
        self, ctx: RequestContext, header: GetEarliestMsgStoretimeRequestHeader, body: bytes
    ) -> Reply:
        """GET_EARLIEST_MSG_STORETIME; -1 for an empty queue."""
        first = self._store.min_offset(header.topic, header.queue_id)
        timestamp_ms = self._store.store_time(header.topic, header.queue_id, first)
        return Reply(b'{"timestamp":"%d"}' % timestamp_ms)


def _offset(offset: int) -> Reply:
    return Reply(b'{"offset":"%d"}' % offset)
