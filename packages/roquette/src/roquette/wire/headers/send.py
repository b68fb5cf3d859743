"""Sending: 10, 310, 320, 36."""

import msgspec

from roquette.wire.json_body import Int32, Int64

_LETTERS = dict(
    zip(
        (
            "producer_group",
            "topic",
            "default_topic",
            "default_topic_queue_nums",
            "queue_id",
            "sys_flag",
            "born_timestamp",
            "flag",
            "properties",
            "reconsume_times",
            "unit_mode",
            "max_reconsume_times",
            "batch",
            "bname",
        ),
        "abcdefghijklmn",
        strict=True,
    )
)


class SendMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32 = 4
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    bname: str | None = None


class SendMessageRequestHeaderV2(msgspec.Struct, gc=False, kw_only=True, rename=_LETTERS):
    """The same fields under letters, as Java sends them."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32 = 4
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    bname: str | None = None


class SendMessageResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class ConsumerSendMsgBackRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    bname: str | None = None


# Transactions, replies and recall: 37, 39, 323, 326, 370.


class EndTransactionRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str | None = None
    msg_id: str | None = None


class ReplyMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64


class RecallMessageRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    msg_id: str
