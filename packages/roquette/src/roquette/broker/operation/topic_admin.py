"""Topics by request: create (17, 18), list (21), one (351), the system's (305), statistics (202), delete (215),
who consumes (300).

Apache: AdminBrokerProcessor.
"""

import logging

from roquette.broker.floor.config import system_topics
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import (
    Feature,
    Lane,
    check_count,
    decode_request,
    encode_rows,
    paced,
)
from roquette.broker.floor.item_stats import TOPIC_PUT_NUMS
from roquette.broker.floor.outbound import AUTO_CREATED, LOG_END
from roquette.broker.floor.tables.groups import (
    MESSAGE_TYPE,
    TOPIC_ATTRIBUTES,
    altered,
    parse_changes,
)
from roquette.errors import Refused
from roquette.message.message import MessageQueue
from roquette.message.names import MAX_TOPIC, SYSTEM_TOPICS, topic_error
from roquette.remoting.promises import Promise
from roquette.remoting.request import Outcome, Reply, RequestContext, Row, Task, row
from roquette.wire.bodies import (
    CreateTopicListRequestBody,
    GroupList,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from roquette.wire.codes import RequestCode, ResponseCode
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
FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicProcessor(Feature):
    """Everything operators do with topics on one broker."""

    def __init__(self, core: BrokerCore) -> None:
        self._topics = core.tables.topics
        self._offsets = core.tables.offsets
        self._consumers = core.tables.consumers
        self._store = core.store
        self._items = core.items
        self._saved = core.saved
        self._deletions = core.deletions
        self._live = core.live

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        code, lane, nothing = RequestCode, Lane.ADMIN, Promise.NOTHING
        return [
            row(
                code.UPDATE_AND_CREATE_TOPIC,
                self.create_topic,
                CreateTopicRequestHeader,
                lane,
                Promise.FILE,
            ),
            row(code.UPDATE_AND_CREATE_TOPIC_LIST, self.create_topics, None, lane, Promise.FILE),
            row(code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self.system_list, None, lane, nothing),
            row(code.GET_ALL_TOPIC_CONFIG, self.all_topics, None, lane, nothing),
            row(code.GET_TOPIC_CONFIG, self.one_topic, GetTopicConfigRequestHeader, lane, nothing),
            row(
                code.GET_TOPIC_STATS_INFO, self.stats, GetTopicStatsInfoRequestHeader, lane, nothing
            ),
            row(
                code.DELETE_TOPIC_IN_BROKER,
                self.delete_topic,
                DeleteTopicRequestHeader,
                lane,
                Promise.FILE,
            ),
            row(
                code.QUERY_TOPIC_CONSUME_BY_WHO,
                self.consumed_by,
                QueryTopicConsumeByWhoRequestHeader,
                lane,
                nothing,
            ),
        ]

    def create_topic(
        self, ctx: RequestContext, header: CreateTopicRequestHeader, body: bytes
    ) -> Outcome:
        """UPDATE_AND_CREATE_TOPIC."""
        wanted = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type or "SINGLE_TAG",
            topic_sys_flag=header.topic_sys_flag or 0,
            order=bool(header.order),
        )
        self._check_name(wanted.topic_name)
        wanted.attributes = parse_changes(header.attributes)
        if ext_dict(ctx.command.ext).get(AUTO_CREATED) == "true":
            self._topics.merge_auto_created(self._checked(wanted, auto=True), ctx.now_ms)
            return self._saved.topic_set(Reply(), PEER_SETTLE_S)
        return self._put(ctx, [wanted])

    def create_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """UPDATE_AND_CREATE_TOPIC_LIST: all or none."""
        return self._put(ctx, decode_request(CreateTopicListRequestBody, body).topic_config_list)

    def _put(self, ctx: RequestContext, wanted: list[TopicConfig]) -> Outcome:
        """Check all, then change what differs; the attributes are changes (`+key`, `-key`)."""
        check_count(len(wanted), "topics")
        checked = [self._checked(config) for config in wanted]
        self._topics.make_room((config.topic_name for config in checked), by_operator=True)
        for config in checked:
            known = self._topics.find(config.topic_name)
            if known is None or known.to_config() != config:
                old = str(known)
                topic = self._topics.put(config, ctx.now_ms)
                log.info("topic set by=%s old=[%s] new=[%s]", ctx.peer.remote, old, topic)
        return self._saved.topic_set(Reply())

    def _check_name(self, name: str) -> None:
        known = self._topics.find(name) is not None
        error = topic_error(name, MAX_TOPIC if known else self._live.store.max_topic_length)
        guarded = self._live.current.validate_system_topic_when_update_topic
        if error is None and guarded and self._deletions.is_system(name):
            error = f"The topic[{name}] is conflict with system topic."
        if error is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, error)

    def _checked(self, config: TopicConfig, *, auto: bool = False) -> TopicConfig:
        """The topic with its attributes applied to what it has; raises Refused."""
        name = config.topic_name
        self._check_name(name)
        for what, count in (
            ("readQueueNums", config.read_queue_nums),
            ("writeQueueNums", config.write_queue_nums),
        ):
            if not 0 <= count <= 65_536:
                raise Refused(
                    ResponseCode.INVALID_PARAMETER,
                    f"{what} {count} of topic[{name}] is outside 0..65536",
                )
        if not 0 <= config.perm <= 15:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"perm {config.perm} of topic[{name}] is outside 0..15",
            )
        if config.topic_filter_type not in FILTER_TYPES:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "No enum constant org.apache.rocketmq.common.TopicFilterType."
                f"{config.topic_filter_type}",
            )
        changes = config.attributes or {}
        if (
            changes.get(f"+{MESSAGE_TYPE}") == "MIXED"
            and not self._live.current.enable_mixed_message_type
            and not auto  # a v5 client's first message has made it
        ):
            raise Refused(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        known = self._topics.find(name)
        current = None if known is None else known.attributes
        config.attributes = altered(TOPIC_ATTRIBUTES, current, changes)
        return config

    def all_topics(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """GET_ALL_TOPIC_CONFIG: everything in one answer."""
        return Task(self._all_topics(), large=True)

    async def _all_topics(self) -> Reply:
        version = self._topics.data_version  # the older one: who goes by it asks again
        log_end = (
            self._store.max_physical_offset
        )  # later records of topics not listed are of later ones
        table = {topic.name: topic.to_config() async for topic in paced(self._topics.all())}
        wrapper = TopicConfigAndMappingSerializeWrapper(
            topic_config_table=table, data_version=version
        )
        ext = encode_dict({"totalTopicNum": str(len(table)), LOG_END: str(log_end)})
        return Reply(ext, await encode_rows(wrapper, len(table)))

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
    ) -> Task:
        """GET_TOPIC_STATS_INFO: offsets of every queue and when it was last written; unlike Apache's, also of those
        beyond the topic's numbers that still hold messages."""
        topic = self._topics.find(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        return Task(
            self._stats(header.topic, max(topic.read_queues, topic.write_queues)), large=True
        )

    async def _stats(self, topic: str, queues: int) -> Reply:
        table: dict[MessageQueue, TopicOffset] = {}
        ids = [*range(queues), *self._store.queues_from(topic, queues)]
        async for queue_id in paced(ids):
            low = max(0, self._store.min_offset(topic, queue_id))
            high = max(0, self._store.max_offset(topic, queue_id))
            last = self._store.store_time(topic, queue_id, high - 1) if high > low else 0
            queue = MessageQueue(
                topic=topic, broker_name=self._live.current.broker_name, queue_id=queue_id
            )
            table[queue] = TopicOffset(
                min_offset=low, max_offset=high, last_update_timestamp=max(0, last)
            )
        tps = self._items.tps(TOPIC_PUT_NUMS, topic)
        answer = TopicStatsTable(offset_table=table, topic_put_tps=tps)
        return Reply(b"", await encode_rows(answer, len(table)))

    def delete_topic(
        self, ctx: RequestContext, header: DeleteTopicRequestHeader, body: bytes
    ) -> Outcome:
        """DELETE_TOPIC_IN_BROKER: the topic, its queues and every group's offsets on it."""
        name = header.topic
        error = topic_error(name)
        if error is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, error)
        if self._deletions.is_system(name):
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
            )
        self._saved.topic_may_go(name)
        self._deletions.delete_topic(name, ctx.now_ms)
        return self._saved.topic_deleted(Reply())

    def system_list(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        own = {config.topic_name for config in system_topics(self._live.current)}
        return Reply(b"", encode_body(TopicList(topic_list=sorted(own | SYSTEM_TOPICS))))

    def consumed_by(
        self, ctx: RequestContext, header: QueryTopicConsumeByWhoRequestHeader, body: bytes
    ) -> Reply:
        """QUERY_TOPIC_CONSUME_BY_WHO: groups online on the topic, and groups with offsets on it."""
        names = set(self._consumers.groups_of_topic(header.topic)) | set(
            self._offsets.groups_of(header.topic)
        )
        return Reply(b"", encode_body(GroupList(group_list=sorted(names))))
