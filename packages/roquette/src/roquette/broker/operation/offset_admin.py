"""Operators and offsets: reset (222), clone (314), correction (308), everything for a replica (43, 45).

Apache: AdminBrokerProcessor.resetOffset and its neighbours, Broker2Client.resetOffset; refusals carry their texts.
"""

import logging
from collections.abc import Callable

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane
from roquette.broker.floor.requests import check_resets
from roquette.broker.floor.steps import MANY, encode_rows, paced, reply_of
from roquette.broker.floor.tables.offsets import LONG_MAX, MAX_QUEUE_ID, NOT_FOUND
from roquette.broker.floor.tables.topics import Topic
from roquette.errors import Refused
from roquette.message.message import MessageQueue
from roquette.remoting.outcomes import Outcome, Reply, Task
from roquette.remoting.promises import Promise
from roquette.remoting.request import RequestContext, Row, row
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
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
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
        """What it serves."""
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
        return Task(self._all_offsets())

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
