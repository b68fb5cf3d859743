"""Entries that POP writes into the revive log: check-points, acknowledgements, batch acknowledgements. Pure.

They are messages of the topic rmq_sys_REVIVE_LOG_<cluster>, distinguished by their tag; the body is JSON with the
short keys of Apache's PopCheckPoint, AckMsg and BatchAckMsg. A page on it: docs/formats/pop.md.
"""

from typing import Final

import msgspec

from roquette.errors import RemoteProtocolError
from roquette.wire.bodies import OrderInfo
from roquette.wire.json_body import decode_body, encode_body

CK_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
ORDER_TAG: Final = "order"  # ours: Apache's broker passes it over
TAGS: Final = frozenset((CK_TAG, ACK_TAG, BATCH_ACK_TAG, ORDER_TAG))
_FAR: Final = 2**62  # no offset is that great, and the sum of two stays within 64 bits
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
ORDER_REVIVE_QID: Final = 999  # in receipts of orderly pops, which leave nothing in the revive log
ACK_INTERVAL_MS: Final = 1_000  # PopAckConstants.ackTimeInterval
GRACE_MS: Final = ACK_INTERVAL_MS + 1_000  # from the end of the invisible time to the revival


class CheckPoint(msgspec.Struct, kw_only=True):
    """Messages of one queue handed out by one pop (or one, whose invisible time was changed).

    Attributes:
        start_offset: where in the queue the pop began to read.
        diffs: of each message, its distance from `start_offset`; without any, they are neighbours.
        bit_map: bit i: message i is acknowledged. 0 in the log.
        revive_offset: place in the revive log; 0 in the log.
        reput_times: Apache's count of revivals that failed.
        suspend: coming again is no further try.
    """

    start_offset: int = msgspec.field(name="so", default=0)
    pop_time: int = msgspec.field(name="pt", default=0)
    invisible_time: int = msgspec.field(name="it", default=0)
    bit_map: int = msgspec.field(name="bm", default=0)
    num: int = msgspec.field(name="n", default=0)
    queue_id: int = msgspec.field(name="q", default=0)
    topic: str | None = msgspec.field(name="t", default=None)
    group: str | None = msgspec.field(name="c", default=None)
    revive_offset: int = msgspec.field(name="ro", default=0)
    diffs: list[int] | None = msgspec.field(name="d", default=None)
    broker_name: str | None = msgspec.field(name="bn", default=None)
    reput_times: str | msgspec.UnsetType | None = msgspec.field(name="rp", default=msgspec.UNSET)
    suspend: bool = msgspec.field(name="sp", default=False)

    @property
    def revive_time(self) -> int:
        """Time at which the messages become visible again, epoch ms."""
        return self.pop_time + self.invisible_time

    @property
    def key(self) -> tuple[str | None, str | None, int, int, int]:
        """Key that acknowledgements find it by (mergeKey; this broker's check-points only)."""
        return (self.topic, self.group, self.queue_id, self.start_offset, self.pop_time)

    @property
    def end_offset(self) -> int:
        """The queue offset after its last message."""
        return self.offset_at(max(self.num, 1) - 1) + 1

    def index_of(self, offset: int) -> int:
        """Return which of its messages has this queue offset; -1 if none has (indexOfAck)."""
        distance = offset - self.start_offset
        if distance < 0:
            return -1
        if not self.diffs:
            return distance if distance < self.num else -1
        return self.diffs.index(distance) if distance in self.diffs else -1

    def offset_at(self, index: int) -> int:
        """The queue offset of a message (ackOffsetByIndex)."""
        if not self.diffs:
            return self.start_offset + index
        return self.start_offset + self.diffs[index]

    def unacknowledged(self) -> list[int]:
        """Queue offsets of the messages that are not acknowledged."""
        return [self.offset_at(i) for i in range(self.num) if not self.bit_map >> i & 1]

    @property
    def done(self) -> bool:
        """True when every message is acknowledged."""
        everything = (1 << self.num) - 1
        return self.bit_map & everything == everything

    @property
    def tag(self) -> str:
        """Tag by which it is told apart in the log."""
        return CK_TAG

    @property
    def unique_key(self) -> str:
        """PopMessageProcessor.genCkUniqueId."""
        return (
            f"{self.topic}@{self.queue_id}@{self.start_offset}@{self.group}@{self.pop_time}"
            f"@{self.broker_name}@{CK_TAG}"
        )


class Ack(msgspec.Struct, kw_only=True):
    """An acknowledgement of one message, or with `offsets` of several, of one check-point."""

    ack_offset: int = msgspec.field(name="ao", default=-1)
    start_offset: int = msgspec.field(name="so", default=0)
    group: str | None = msgspec.field(name="c", default=None)
    topic: str | None = msgspec.field(name="t", default=None)
    queue_id: int = msgspec.field(name="q", default=0)
    pop_time: int = msgspec.field(name="pt", default=0)
    broker_name: str | None = msgspec.field(name="bn", default=None)
    offsets: list[int] | None = msgspec.field(name="aol", default=None)

    @property
    def tag(self) -> str:
        """Tag by which it is told apart in the log."""
        return ACK_TAG if self.offsets is None else BATCH_ACK_TAG

    @property
    def acknowledged(self) -> list[int]:
        """Queue offsets of the messages."""
        return [self.ack_offset] if self.offsets is None else self.offsets

    @property
    def key(self) -> tuple[str | None, str | None, int, int, int]:
        """The key of its check-point."""
        return (self.topic, self.group, self.queue_id, self.start_offset, self.pop_time)

    @property
    def unique_key(self) -> str:
        """PopMessageProcessor.genAckUniqueId and genBatchAckUniqueId."""
        head = f"{self.topic}@{self.queue_id}"
        if self.offsets is None:
            return f"{head}@{self.ack_offset}@{self.group}@{self.pop_time}@{self.broker_name}@{ACK_TAG}"
        some = ", ".join(map(str, self.offsets))
        return f"{head}@[{some}]@{self.group}@{self.pop_time}@{BATCH_ACK_TAG}"


class OrderEntry(msgspec.Struct, kw_only=True):
    """Entry of what orderly pops hold of a queue, after each change."""

    topic: str | None = msgspec.field(name="t", default=None)
    group: str | None = msgspec.field(name="c", default=None)
    queue_id: int = msgspec.field(name="q", default=0)
    info: OrderInfo = msgspec.field(name="i", default_factory=OrderInfo)

    @property
    def tag(self) -> str:
        """Tag by which it is told apart in the log."""
        return ORDER_TAG

    @property
    def unique_key(self) -> str:
        """In the manner of the others'."""
        return f"{self.topic}@{self.queue_id}@{self.group}@{self.info.pop_time}@{ORDER_TAG}"


Entry = CheckPoint | Ack | OrderEntry


def encode(entry: Entry) -> bytes:
    """The body of an entry's message."""
    return encode_body(entry)


def decode(tag: str | None, body: bytes) -> Entry | None:
    """An entry of the revive log; None if it is not one, or names neither topic nor group."""
    entry: Entry
    try:
        if tag == CK_TAG:
            entry = decode_body(CheckPoint, body)
        elif tag in (ACK_TAG, BATCH_ACK_TAG):
            entry = decode_body(Ack, body)
        elif tag == ORDER_TAG:
            entry = decode_body(OrderEntry, body)
        else:
            return None
    except RemoteProtocolError:
        return None
    if entry.topic is None or entry.group is None:
        return None
    if isinstance(entry, CheckPoint) and not _sound(entry):
        return None
    return entry


def _sound(point: CheckPoint) -> bool:
    diffs = point.diffs or []
    return (
        0 <= point.num <= 127
        and len(diffs) in (0, point.num)
        and all(0 <= diff < _FAR for diff in diffs)
        and 0 <= point.queue_id < 2**31
        and 0 <= point.start_offset < _FAR
    )
