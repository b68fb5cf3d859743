"""Topics by request: create (17), list (21), one (351), statistics (202), delete (215), who consumes (300).

Apache: AdminBrokerProcessor.
"""

import logging
from typing import Protocol

from roquette.broker.consumers import ConsumerTable
from roquette.broker.offsets import OffsetTable
from roquette.broker.outbound import AUTO_CREATED
from roquette.broker.stats import BrokerStats
from roquette.broker.topics import TopicTable
from roquette.errors import Refused
from roquette.message.message import MessageQueue
from roquette.message.names import is_system_topic, topic_error
from roquette.remoting.dispatcher import RequestContext
from roquette.remoting.outcomes import Outcome, Reply
from roquette.store.message_store import MessageStore
from roquette.wire.bodies import (
    GroupList,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicOffset,
    TopicStatsTable,
)
from roquette.wire.codes import ResponseCode
from roquette.wire.header_codec import encode_dict, ext_dict
from roquette.wire.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.broker.topics")

PEER_SETTLE_S = 0.25  # another broker's sender waits for us


class TopicChanges(Protocol):
    """What must follow a change of topics: persist, and register with the name servers before the reply."""

    def changed(self, topic: str, reply: Reply, limit_s: float = ...) -> Outcome:
        """The outcome that answers `reply` once the name servers know, after `limit_s` seconds at most."""
        ...


class TopicProcessor:
    """Everything operators do with topics on one broker."""

    def __init__(
        self,
        topics: TopicTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        store: MessageStore,
        stats: BrokerStats,
        changes: TopicChanges,
        broker_name: str,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._store = store
        self._stats = stats
        self._changes = changes
        self._broker_name = broker_name

    def create_topic(
        self, ctx: RequestContext, header: CreateTopicRequestHeader, body: bytes
    ) -> Outcome:
        """UPDATE_AND_CREATE_TOPIC."""
        name = header.topic
        error = topic_error(name)
        if error is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, error)
        if is_system_topic(name):
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
            )
        for what, count in (
            ("readQueueNums", header.read_queue_nums),
            ("writeQueueNums", header.write_queue_nums),
        ):
            if not 0 <= count <= 65_536:
                raise Refused(
                    ResponseCode.INVALID_PARAMETER,
                    f"{what} {count} of topic[{name}] is outside 0..65536",
                )
        if not 0 <= header.perm <= 15:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"perm {header.perm} of topic[{name}] is outside 0..15",
            )
        config = TopicConfig(
            topic_name=name,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type or "SINGLE_TAG",
            topic_sys_flag=header.topic_sys_flag or 0,
            order=bool(header.order),
            attributes=self._attributes(name, header.attributes),
        )
        if ext_dict(ctx.command.ext).get(AUTO_CREATED) == "true":
            self._topics.merge_auto_created(config, ctx.now_ms)
            return self._changes.changed(name, Reply(), PEER_SETTLE_S)
        old = str(self._topics.find(name))
        topic = self._topics.put(config, ctx.now_ms)
        log.info("topic set by=%s old=[%s] new=[%s]", ctx.peer.remote, old, topic)
        return self._changes.changed(name, Reply())

    def _attributes(self, name: str, text: str | None) -> dict[str, str]:
        """Apply `+k=v,-k` (AttributeUtil.alterCurrentAttributes) to what the topic has."""
        known = self._topics.find(name)
        attributes = dict(known.attributes) if known is not None else {}
        for word in filter(None, (part.strip() for part in (text or "").split(","))):
            key, _, value = word[1:].partition("=")
            if word[0] == "+" and key and value:
                attributes[key] = value
            elif word[0] == "-" and key:
                attributes.pop(key, None)
            else:
                raise Refused(
                    ResponseCode.INVALID_PARAMETER,
                    f"attribute string {word!r} is not +key=value or -key",
                )
        return attributes

    def all_topics(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_ALL_TOPIC_CONFIG: everything in one answer."""
        table = self._topics.to_table()
        wrapper = TopicConfigAndMappingSerializeWrapper(
            topic_config_table=table, data_version=self._topics.data_version
        )
        return Reply(encode_dict({"totalTopicNum": str(len(table))}), encode_body(wrapper))

    def one_topic(
        self, ctx: RequestContext, header: GetTopicConfigRequestHeader, body: bytes
    ) -> Reply:
        """GET_TOPIC_CONFIG."""
        topic = self._topics.find(header.topic)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}"
            )
        ext = encode_dict({AUTO_CREATED: "true"}) if topic.is_young(ctx.now_ms) else b""
        return Reply(ext, encode_body(topic.to_config()))

    def stats(
        self, ctx: RequestContext, header: GetTopicStatsInfoRequestHeader, body: bytes
    ) -> Reply:
        """GET_TOPIC_STATS_INFO: offsets of every queue and when it was last written."""
        topic = self._topics.find(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            low = max(0, self._store.min_offset(header.topic, queue_id))
            high = max(0, self._store.max_offset(header.topic, queue_id))
            last = self._store.store_time(header.topic, queue_id, high - 1) if high > low else 0
            queue = MessageQueue(
                topic=header.topic, broker_name=self._broker_name, queue_id=queue_id
            )
            table[queue] = TopicOffset(
                min_offset=low, max_offset=high, last_update_timestamp=max(0, last)
            )
        tps = self._stats.topic_puts.rate((header.topic, ""))
        return Reply(b"", encode_body(TopicStatsTable(offset_table=table, topic_put_tps=tps)))

    def delete_topic(
        self, ctx: RequestContext, header: DeleteTopicRequestHeader, body: bytes
    ) -> Outcome:
        """DELETE_TOPIC_IN_BROKER: the topic, its queues and every group's offsets on it."""
        name = header.topic
        error = topic_error(name)
        if error is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, error)
        if is_system_topic(name):
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
            )
        log.info("topic deleted topic=%s by=%s", name, ctx.peer.remote)
        self._topics.delete(name, ctx.now_ms)
        self._offsets.delete_topic(name)
        self._store.delete_topic(name)
        return self._changes.changed(name, Reply())

    def consumed_by(
        self, ctx: RequestContext, header: QueryTopicConsumeByWhoRequestHeader, body: bytes
    ) -> Reply:
        """QUERY_TOPIC_CONSUME_BY_WHO: groups online on the topic, and groups with offsets on it."""
        names = set(self._consumers.groups_of_topic(header.topic)) | set(
            self._offsets.groups_of(header.topic)
        )
        return Reply(b"", encode_body(GroupList(group_list=sorted(names))))
