"""Finding messages: 12, 33, 321."""

import msgspec


class QueryMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's QueryMessageRequestHeader."""

    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int


class QueryMessageResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's QueryMessageResponseHeader."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class ViewMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's ViewMessageRequestHeader."""

    topic: str | None = None
    offset: int


class QueryConsumeQueueRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's QueryConsumeQueueRequestHeader."""

    topic: str
    queue_id: int
    index: int
    count: int
    consumer_group: str | None = None
