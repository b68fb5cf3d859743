"""Pulling: 11, 361."""

import msgspec


class PullMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's PullMessageRequestHeader."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int = 0
    suspend_timeout_millis: int = 0
    subscription: str | None = None
    sub_version: int = 0
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_froward_client_id: str | None = None
    bname: str | None = None


class PullMessageResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's PullMessageResponseHeader."""

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None
