"""Offsets and statistics of topics and groups."""

import msgspec

from roquette.message.message import MessageQueue
from roquette.wire.bodies.data_version import DataVersion


class ConsumerOffsetSerializeWrapper(msgspec.Struct, rename="camel"):
    """consumerOffset.json: "topic@group" -> queue id -> offset."""

    offset_table: dict[str, dict[int, int]] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class DelayOffsetSerializeWrapper(msgspec.Struct, rename="camel"):
    """delayOffset.json: delay level -> offset of its queue."""

    offset_table: dict[int, int] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class TopicOffset(msgspec.Struct, rename="camel"):
    """The range of one queue, and when it was last written (ms)."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(msgspec.Struct, rename="camel"):
    """Answer of GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0


class OffsetWrapper(msgspec.Struct, rename="camel"):
    """A group's place in one queue. `last_timestamp`: store time of its last consumed message."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(msgspec.Struct, rename="camel"):
    """Answer of GET_CONSUME_STATS."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ResetOffsetBody(msgspec.Struct, rename="camel"):
    """Offsets to continue from."""

    offset_table: dict[MessageQueue, int] = {}


class LocalOffsets(msgspec.Struct, rename="camel"):
    """offsets.json of a broadcasting consumer."""

    offset_table: dict[MessageQueue, int] = {}


class GetConsumerStatusBody(msgspec.Struct, rename="camel"):
    """Where a client is in its queues."""

    message_queue_table: dict[MessageQueue, int] = {}
    consumer_table: dict[str, dict[MessageQueue, int]] = {}
