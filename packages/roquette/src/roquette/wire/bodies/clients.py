"""Bodies in which clients tell brokers about themselves, and brokers tell operators about clients."""

import msgspec

from roquette.message.message import MessageQueue
from roquette.wire.json_body import Int32, Int64


class SubscriptionData(msgspec.Struct, rename="camel", kw_only=True):
    """Subscription of a group to a topic. `code_set`: hashes of the tags; `sub_version`: the client's clock."""

    topic: str = ""
    sub_string: str = "*"
    tags_set: list[str] = msgspec.field(default_factory=list)
    code_set: list[Int32] = msgspec.field(default_factory=list)
    sub_version: Int64 = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(msgspec.Struct, rename="camel"):
    """One producer group of a client."""

    group_name: str = ""


class ConsumerData(msgspec.Struct, rename="camel", kw_only=True):
    """One consumer group of a client."""

    group_name: str = ""
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = msgspec.field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(msgspec.Struct, rename="camel", kw_only=True):
    """Body of HEART_BEAT."""

    client_id: str = msgspec.field(name="clientID", default="")
    producer_data_set: list[ProducerData] = msgspec.field(default_factory=list)
    consumer_data_set: list[ConsumerData] = msgspec.field(default_factory=list)
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False


class GetConsumerListByGroupResponseBody(msgspec.Struct, rename="camel"):
    """Client ids of a group."""

    consumer_id_list: list[str] = msgspec.field(default_factory=list)


class CheckClientRequestBody(msgspec.Struct, rename="camel"):
    """Body of CHECK_CLIENT_CONFIG: may the group subscribe like this?"""

    client_id: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class Connection(msgspec.Struct, rename="camel"):
    """One client's connection."""

    client_id: str = ""
    client_addr: str = ""
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(msgspec.Struct, rename="camel"):
    """Answer of GET_CONSUMER_CONNECTION_LIST."""

    connection_set: list[Connection] = msgspec.field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(msgspec.Struct, rename="camel"):
    """Answer of GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[Connection] = msgspec.field(default_factory=list)


class ProducerInfo(msgspec.Struct, rename="camel"):
    """One producer connection; `last_update_timestamp` is when it was last heard of (ms)."""

    client_id: str = ""
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str | None = None
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTableInfo(msgspec.Struct, rename="camel"):
    """Answer of GET_ALL_PRODUCER_INFO: producers by group."""

    data: dict[str, list[ProducerInfo]] = {}


class LockBatchRequestBody(msgspec.Struct, rename="camel"):
    """Body of LOCK_BATCH_MQ."""

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = msgspec.field(default_factory=list)


class UnlockBatchRequestBody(msgspec.Struct, rename="camel"):
    """Body of UNLOCK_BATCH_MQ."""

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = msgspec.field(default_factory=list)


class LockBatchResponseBody(msgspec.Struct):
    """Queues that are now the asking client's."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class ProcessQueueInfo(msgspec.Struct, rename="camel", kw_only=True):
    """State of one queue inside a consumer. `droped` is Java's spelling."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_mib: Int32 = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    droped: bool = False
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class PopProcessQueueInfo(msgspec.Struct, rename="camel"):
    """State of one queue a consumer pops from. `droped` is Java's spelling."""

    wait_ack_count: Int32 = 0
    droped: bool = False
    last_pop_timestamp: Int64 = 0


class ConsumeStatus(msgspec.Struct, kw_only=True):
    """Rates of one topic inside a consumer."""

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: Int64 = msgspec.field(name="consumeFailedMsgs", default=0)


class ConsumerRunningInfo(msgspec.Struct, rename="camel", kw_only=True):
    """A client's answer to GET_CONSUMER_RUNNING_INFO."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = msgspec.field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None


class ConsumeMessageDirectlyResult(msgspec.Struct, rename="camel", kw_only=True):
    """A client's answer to CONSUME_MESSAGE_DIRECTLY."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0


# POP: batch acknowledgements, the request mode of a group, assignments, and the state of orderly pops.


class BatchAck(msgspec.Struct, kw_only=True):
    """Acknowledgements of one check-point. `bits` is a Java BitSet: bit i is the offset `start_offset + i`."""

    consumer_group: str = msgspec.field(name="c", default="")
    topic: str = msgspec.field(name="t", default="")
    retry: str = msgspec.field(name="r", default="")  # "0", "1" or "2": whose topic it is
    start_offset: Int64 = msgspec.field(name="so", default=0)
    queue_id: Int32 = msgspec.field(name="q", default=0)
    revive_queue_id: Int32 = msgspec.field(name="rq", default=0)
    pop_time: Int64 = msgspec.field(name="pt", default=0)
    invisible_time: Int64 = msgspec.field(name="it", default=0)
    bits: bytes = msgspec.field(name="b", default=b"")


class BatchAckMessageRequestBody(msgspec.Struct, rename="camel"):
    """Body of BATCH_ACK_MESSAGE."""

    broker_name: str | None = None
    acks: list[BatchAck] = msgspec.field(default_factory=list)


class SetMessageRequestModeRequestBody(msgspec.Struct, rename="camel"):
    """Body of SET_MESSAGE_REQUEST_MODE: whether a group pulls ("PULL") or pops ("POP") a topic."""

    topic: str = ""
    consumer_group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: Int32 = 0


class MessageRequestModeSerializeWrapper(msgspec.Struct, rename="camel"):
    """messageRequestMode.json and the answer of GET_ALL_MESSAGE_REQUEST_MODE: topic -> group -> mode."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}


class QueryAssignmentRequestBody(msgspec.Struct, rename="camel"):
    """Body of QUERY_ASSIGNMENT."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: str = "CLUSTERING"


class MessageQueueAssignment(msgspec.Struct, rename="camel"):
    """A queue of a client, and how it is to consume it."""

    message_queue: MessageQueue
    mode: str = "PULL"


class QueryAssignmentResponseBody(msgspec.Struct, rename="camel"):
    """Answer of QUERY_ASSIGNMENT; None tells the client to keep what it has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class OrderInfo(msgspec.Struct, kw_only=True):
    """Messages that one orderly pop of a queue handed out, and those of them that are done.

    Attributes:
        offsets: the first is a queue offset, the others are distances from it.
        next_visible: queue offset -> when it may be popped again, where that was changed (epoch ms).
        consumed: queue offset -> how often it was popped before; absent is 0.
        committed: bit i says that offset i is acknowledged.
    """

    pop_time: Int64 = msgspec.field(name="popTime", default=0)
    invisible_time: Int64 | None = msgspec.field(name="i", default=None)
    offsets: list[int] = msgspec.field(name="o", default_factory=list)
    next_visible: dict[int, int] | None = msgspec.field(name="ot", default=None)
    consumed: dict[int, int] | None = msgspec.field(name="oc", default=None)
    last_consume: Int64 = msgspec.field(name="l", default=0)
    committed: Int64 = msgspec.field(name="cm", default=0)
    attempt_id: str | None = msgspec.field(name="a", default=None)


class ConsumerOrderInfoSerializeWrapper(msgspec.Struct):
    """consumerOrderInfo.json: "topic@group" -> queue id -> the last orderly pop."""

    table: dict[str, dict[int, OrderInfo]] = {}
