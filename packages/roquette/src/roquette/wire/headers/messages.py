"""Sending, pulling, popping, receipts, offsets and finding messages: 10, 310, 320, 36, 37, 39, 323, 326, 370; 11, 12, 14, 15, 29 to 33, 321, 361, 200050 to 200055."""

import msgspec

from roquette.wire.json_body import Int32, Int64

# Sending: 10, 310, 320, 36.


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


# Pulling, popping, receipts, offsets and finding messages: 11, 12, 14, 15, 29 to 33, 321, 361, 200050 to 200055.


# Pulling: 11, 361.


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


# Offsets: 14, 15, 29 to 32.


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


# POP consumption: 200050, 200052, 200054, 200055.


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


# Receipts of popped messages: 200051, 200053.


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


# Finding messages: 12, 33, 321.


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
