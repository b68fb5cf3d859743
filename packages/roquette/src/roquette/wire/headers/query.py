"""Finding messages: 12, 33, 321."""

import msgspec

from roquette.wire.numbers import Int32, Int64


class QueryMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64


class QueryMessageResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str | None = None
    offset: Int64


class QueryConsumeQueueRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None
