"""Offsets: 14, 15, 29 to 32."""

import msgspec

from roquette.wire.numbers import Int32, Int64


class QueryConsumerOffsetRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    bname: str | None = None


class QueryConsumerOffsetResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    offset: Int64


class UpdateConsumerOffsetRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    bname: str | None = None


class SearchOffsetRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    bname: str | None = None


class SearchOffsetResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    offset: Int64


class GetMaxOffsetRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    queue_id: Int32
    committed: bool = True
    bname: str | None = None


class GetMaxOffsetResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    offset: Int64


class GetMinOffsetRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    queue_id: Int32
    bname: str | None = None


class GetMinOffsetResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    queue_id: Int32
    bname: str | None = None


class GetEarliestMsgStoretimeResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    timestamp: Int64
