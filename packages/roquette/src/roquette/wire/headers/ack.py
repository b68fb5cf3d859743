"""Receipts of popped messages: 200051, 200053."""

import msgspec

from roquette.wire.numbers import Int32, Int64


class AckMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's AckMessageRequestHeader. `topic` is the one popped from: a retried message's retry topic."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None
    bname: str | None = None


class ChangeInvisibleTimeRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's ChangeInvisibleTimeRequestHeader; the time counts from now, ms. `suspend`: no try was made."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool = False
    bname: str | None = None


class ChangeInvisibleTimeResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0
