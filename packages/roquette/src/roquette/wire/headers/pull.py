"""Pulling: 11, 361."""

import msgspec

from roquette.wire.numbers import Int32, Int64


class PullMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64 = 0
    suspend_timeout_millis: Int64 = 0
    subscription: str | None = None
    sub_version: Int64 = 0
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None
    bname: str | None = None


class PullMessageResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None
