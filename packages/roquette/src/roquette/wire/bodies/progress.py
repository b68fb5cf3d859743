"""Offsets and statistics of topics and groups."""

import msgspec

from roquette.message.message import MessageQueue
from roquette.wire.bodies.clients import SubscriptionData
from roquette.wire.bodies.tables import DataVersion
from roquette.wire.json_body import Int32, Int64


class ConsumerOffsetSerializeWrapper(msgspec.Struct, rename="camel"):
    """consumerOffset.json: "topic@group" -> queue id -> offset.

    `reset_offset_table` is ours (Apache keeps it in memory): resets that no pull has taken yet.
    """

    offset_table: dict[str, dict[int, int]] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    reset_offset_table: dict[str, dict[int, int]] | None = None


class DelayOffsetSerializeWrapper(msgspec.Struct, rename="camel"):
    """delayOffset.json: delay level -> offset of its queue."""

    offset_table: dict[int, int] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class TimerMetric(msgspec.Struct, rename="camel"):
    """Waiting timer messages of one topic, and when that changed (ms)."""

    count: Int64 = 0
    time_stamp: Int64 = 0


class TimerMetricsSerializeWrapper(msgspec.Struct, rename="camel"):
    """config/timermetrics and the answer to GET_TIMER_METRICS: topic -> count."""

    timing_count: dict[str, TimerMetric] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class TopicOffset(msgspec.Struct, gc=False, rename="camel"):
    """The range of one queue, and when it was last written (ms)."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStatsTable(msgspec.Struct, rename="camel"):
    """Answer of GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0


class OffsetWrapper(msgspec.Struct, gc=False, rename="camel"):
    """A group's place in one queue. `last_timestamp`: store time of its last consumed message."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0


class ConsumeStats(msgspec.Struct, rename="camel"):
    """Answer of GET_CONSUME_STATS."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ConsumeStatsList(msgspec.Struct, rename="camel"):
    """Answer of GET_BROKER_CONSUME_STATS: per group, a ConsumeStats for each topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = msgspec.field(default_factory=list)
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class QueueOffset(msgspec.Struct, gc=False, rename="camel"):
    """One queue and an offset in it."""

    topic: str = ""
    broker_name: str = ""
    queue_id: Int32 = 0
    offset: Int64 = 0


class ResetOffsetBodyForC(msgspec.Struct, rename="camel"):
    """ResetOffsetBody as C++ clients read it: a list, since object keys are not JSON."""

    offset_table: list[QueueOffset] = msgspec.field(default_factory=list)


class QueueTimeSpan(msgspec.Struct, gc=False, rename="camel"):
    """Store times (ms) of a queue's first, last and last consumed message."""

    message_queue: MessageQueue | None = None
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0


class QueryConsumeTimeSpanBody(msgspec.Struct, rename="camel"):
    """Answer of QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = msgspec.field(default_factory=list)


class QueryCorrectionOffsetBody(msgspec.Struct, rename="camel"):
    """Answer of QUERY_CORRECTION_OFFSET: queue id to offset."""

    correction_offsets: dict[int, int] = {}


class BrokerStatsItem(msgspec.Struct, rename="camel"):
    """A counter over one span; `avgpt` is the average per put."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(msgspec.Struct, rename="camel"):
    """Answer of VIEW_BROKER_STATS_DATA."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


class ConsumeQueueData(msgspec.Struct, gc=False, rename="camel"):
    """One unit of a consume queue, and whether a group's filter takes it."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(msgspec.Struct, rename="camel"):
    """Answer of QUERY_CONSUME_QUEUE."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0


class QuerySubscriptionResponseBody(msgspec.Struct, rename="camel"):
    """Answer of QUERY_SUBSCRIPTION_BY_CONSUMER."""

    subscription_data: SubscriptionData | None = None
    group: str | None = None
    topic: str | None = None


class ResetOffsetBody(msgspec.Struct, rename="camel"):
    """Offsets to continue from."""

    offset_table: dict[MessageQueue, int] = {}


class LocalOffsets(msgspec.Struct, rename="camel"):
    """offsets.json of a broadcasting consumer."""

    offset_table: dict[MessageQueue, int] = {}


class GetConsumerStatusBody(msgspec.Struct, rename="camel"):
    """Offsets of a client in its queues."""

    message_queue_table: dict[MessageQueue, int] = {}
    consumer_table: dict[str, dict[MessageQueue, int]] = {}
