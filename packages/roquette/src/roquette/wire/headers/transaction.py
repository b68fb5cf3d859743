"""Transactions, replies and recall: 37, 39, 323, 326, 370."""

import msgspec

from roquette.wire.numbers import Int32, Int64


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
