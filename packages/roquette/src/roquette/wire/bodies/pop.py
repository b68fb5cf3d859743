"""POP: batch acknowledgements, the request mode of a group, assignments, and the state of orderly pops."""

import msgspec

from roquette.message.message import MessageQueue
from roquette.wire.numbers import Int32, Int64


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
