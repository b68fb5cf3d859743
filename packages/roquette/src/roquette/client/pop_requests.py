"""POP as requests: pop, acknowledge, change the invisible time; and receipts, by which brokers know a popped message.

A receipt is `start popTime invisibleTime reviveQid t brokerName queueId queueOffset`; t: 0 the topic's message, 1 and
2 the group's pop retry topic's, of version 1 and 2. Pure. Apache: ExtraInfoUtil, MQClientAPIImpl.processPopResponse.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from roquette.client.calls import Call, nothing
from roquette.errors import RemoteProtocolError
from roquette.message import properties
from roquette.message.names import RETRY_PREFIX, pop_retry_topic
from roquette.message.properties import decode_properties
from roquette.message.record_layout import StoredRecord
from roquette.wire.bodies.clients import BatchAck, BatchAckMessageRequestBody
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext
from roquette.wire.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    ConsumerSendMsgBackRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from roquette.wire.json_body import encode_body

FARTHEST: Final = 1_024  # from the first message of a pop: what one batch of acks may span
_ORDERLY: Final = 999  # the revive queue in receipts of orderly pops
_NOTHING: Final = frozenset(
    (int(ResponseCode.POLLING_TIMEOUT), int(ResponseCode.PULL_NOT_FOUND), int(ResponseCode.POLLING_FULL))
)  # fmt: skip


class Receipt(NamedTuple):
    """Data by which a broker knows a popped message again."""

    start: int
    pop_time: int
    invisible_ms: int
    revive_queue: int
    kind: str
    broker_name: str
    queue_id: int
    offset: int

    @property
    def text(self) -> str:
        """As brokers read it."""
        return " ".join(map(str, self))

    @property
    def batched(self) -> bool:
        """True if its ack may go with others of its pop."""
        return self.revive_queue != _ORDERLY and 0 <= self.offset - self.start < FARTHEST

    def topic(self, topic: str, group: str) -> str:
        """Return the topic in which the message lies that was popped of `topic`."""
        return topic if self.kind == "0" else pop_retry_topic(topic, group, v2=self.kind == "2")


def read_receipt(text: str) -> Receipt:
    """Raises RemoteProtocolError: it is none."""
    words = text.split(" ")
    try:
        start, pop_time, invisible_ms, revive, kind, broker_name, queue_id, offset = words[:8]
        return Receipt(
            int(start), int(pop_time), int(invisible_ms), int(revive), kind, broker_name,
            int(queue_id), int(offset),
        )  # fmt: skip
    except ValueError:
        raise RemoteProtocolError(f"{text[:80]!r} is no receipt of a popped message") from None


def kind_of(topic: str) -> str:
    """Return which of the three kinds a topic is."""
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


class Popped(NamedTuple):
    """The answer to one pop: whole records (none is possible), and what their receipts are made of."""

    records: bytes
    pop_time: int = 0
    invisible_ms: int = 0
    revive_queue: int = 0
    starts: dict[str, int] = {}
    counts: dict[str, int] = {}
    full: bool = False

    def receipt(self, record: StoredRecord, broker_name: str) -> Receipt:
        """The receipt of one of its messages, whose number of tries is set. Raises RemoteProtocolError."""
        own = decode_properties(record.properties).get(properties.POP_CK)
        if own is not None:
            return read_receipt(own)
        kind, queue_id, offset = kind_of(record.topic), record.queue_id, record.queue_offset
        place = f"{kind} {queue_id}"
        if self.counts:
            tries = self.counts.get(f"{kind} qo{queue_id}%{offset}") or self.counts.get(place)
            record.reconsume_times = tries or record.reconsume_times
        return Receipt(
            self.starts.get(place, offset), self.pop_time, self.invisible_ms, self.revive_queue, kind,
            broker_name, queue_id, offset,
        )  # fmt: skip


def _numbers(text: str | None) -> dict[str, int]:
    """`t queueId number;...` by its first two words. Raises RemoteProtocolError."""
    found: dict[str, int] = {}
    for entry in (text or "").split(";"):
        place, mark, number = entry.rpartition(" ")
        if mark:
            try:
                found[place] = int(number)
            except ValueError:
                raise RemoteProtocolError(f"{number[:40]!r} is not a number") from None
    return found


def _read_pop(answer: Command) -> Popped:
    if answer.code:
        return Popped(b"", full=answer.code == ResponseCode.POLLING_FULL)
    head = decode_ext(PopMessageResponseHeader, answer.ext)
    return Popped(
        answer.body,
        head.pop_time,
        head.invisible_time,
        head.revive_qid,
        _numbers(head.start_offset_info),
        _numbers(head.order_count_info),
    )


def pop(header: PopMessageRequestHeader) -> Call[Popped]:
    """Take messages out of sight for a while."""
    return Call(RequestCode.POP_MESSAGE, _read_pop, header, also=_NOTHING)


def ack(group: str, topic: str, receipt: Receipt) -> Call[None]:
    """A popped message is done. `topic`: the one that was popped."""
    header = AckMessageRequestHeader(
        consumer_group=group,
        topic=receipt.topic(topic, group),
        queue_id=receipt.queue_id,
        extra_info=receipt.text,
        offset=receipt.offset,
        bname=receipt.broker_name,
    )
    return Call(RequestCode.ACK_MESSAGE, nothing, header)


def batch_ack(group: str, topic: str, receipts: Sequence[Receipt]) -> Call[None]:
    """Messages of one broker are done; all receipts are `batched`. Brokers before 5.1 do not know the request."""
    by_pop: dict[Receipt, int] = {}
    for receipt in receipts:
        pop = receipt._replace(offset=0)
        by_pop[pop] = by_pop.get(pop, 0) | 1 << (receipt.offset - receipt.start)
    acks = [
        BatchAck(
            consumer_group=group,
            topic=topic,
            retry=pop.kind,
            start_offset=pop.start,
            queue_id=pop.queue_id,
            revive_queue_id=pop.revive_queue,
            pop_time=pop.pop_time,
            invisible_time=pop.invisible_ms,
            bits=bits.to_bytes((bits.bit_length() + 7) // 8, "little"),
        )
        for pop, bits in by_pop.items()
    ]
    body = BatchAckMessageRequestBody(broker_name=receipts[0].broker_name, acks=acks)
    return Call(RequestCode.BATCH_ACK_MESSAGE, nothing, body=encode_body(body))


def change(
    group: str, topic: str, receipt: Receipt, invisible_ms: int, *, suspend: bool = False
) -> Call[Receipt]:
    """Have a message come again so long from now; returns its new receipt. `suspend`: no try was made."""

    def read(answer: Command) -> Receipt:
        new = decode_ext(ChangeInvisibleTimeResponseHeader, answer.ext)
        if not new.pop_time:
            return receipt
        return receipt._replace(
            start=receipt.offset,
            pop_time=new.pop_time,
            invisible_ms=new.invisible_time,
            revive_queue=new.revive_qid,
        )

    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=receipt.topic(topic, group),
        queue_id=receipt.queue_id,
        extra_info=receipt.text,
        offset=receipt.offset,
        invisible_time=invisible_ms,
        suspend=suspend,
        bname=receipt.broker_name,
    )
    return Call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, read, header)


def bury(group: str, topic: str, message_id: str, place: int) -> Call[None]:
    """Copy a message, by its place in the log, into the group's dead-letter topic."""
    header = ConsumerSendMsgBackRequestHeader(
        offset=place,
        group=group,
        delay_level=-1,
        origin_msg_id=message_id,
        origin_topic=topic,
        max_reconsume_times=0,
    )
    return Call(RequestCode.CONSUMER_SEND_MSG_BACK, nothing, header)
