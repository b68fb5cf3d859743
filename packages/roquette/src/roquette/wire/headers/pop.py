"""POP consumption: 200050, 200052, 200054, 200055."""

import msgspec

from roquette.wire.numbers import Int32, Int64


class PopMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's PopMessageRequestHeader. A `born_time` of 0 or none is filled in by the broker."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64 = 0
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None
    bname: str | None = None


class PopMessageResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's PopMessageResponseHeader, of pop and peek."""

    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0
    rest_num: Int64 = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PeekMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str
    bname: str | None = None


class NotificationRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64 = 0
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None
    bname: str | None = None


class NotificationResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str
    topic: str
    queue_id: Int32
    bname: str | None = None


class PollingInfoResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    polling_num: Int32 = 0
