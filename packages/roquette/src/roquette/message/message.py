"""Messages that applications send and receive: `Message`, `MessageQueue`, `ReceivedMessage`."""

from collections.abc import Awaitable, Generator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Protocol

import msgspec

from roquette.base.javatypes import whole_number
from roquette.errors import MessageSettled
from roquette.message import properties as names
from roquette.message.compression import decompress
from roquette.message.message_id import host_text, offset_message_id
from roquette.message.properties import decode_properties
from roquette.message.record_layout import StoredRecord
from roquette.message.sysflag import COMPRESSED

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS: Final = 100_000_000_000  # up to the year 5138; milliseconds up to 1973
MAX_BODY_SIZE: Final = 64 * 1024 * 1024  # of a decompressed body; producers' own limit is 4 MiB


def is_seconds(moment_ms: int) -> bool:
    """Return True if what should be milliseconds since 1970 can only be seconds; 0 is the beginning."""
    return 0 < moment_ms < _SECONDS


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """One queue of a topic on one broker. Ordered by topic, broker name, queue id."""

    topic: str
    broker_name: str
    queue_id: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


def unread(place: int | None, first: int, end: int) -> int:
    """Count the messages of a queue that wait for a group: what was deleted does not, and where it has no place yet, all do.

    Args:
        place: where the group goes on; None or below 0: it has no offset there.
        first, end: the offsets of the queue's oldest message and of its next one.
    """
    return max(0, end - max(first, place or 0))


@dataclass(slots=True)
class Message:
    """A message to send.

    Attributes:
        tag: what consumers filter by.
        keys: what the message can be found by; no spaces within a key.
        properties: the application's own; names of `properties.RESERVED` are RocketMQ's.
        flag: a number RocketMQ only carries.
        delay_level: 1..18 delivers later (level 1 is 1 s, 18 is 2 h); 0 at once.
        wait_store_ok: whether the answer waits for the broker's flush and replication.
        shard_key: messages with one key go to one queue.
        deliver_at: deliver it then, a time with a zone; None at once.
        priority: 0 and up: pop gives higher ones first, of a topic made for priorities; None has none.
    """

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    wait_store_ok: bool = True
    shard_key: str | None = None
    deliver_at: datetime | None = None
    priority: int | None = None

    @property
    def deliver_at_ms(self) -> int:
        """`deliver_at` in milliseconds since 1970; 0 at once."""
        return 0 if self.deliver_at is None else _ms(self.deliver_at)


class Done:
    """Awaitable that is over."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


DONE: Final = Done()


class Delivery(Protocol):
    """Giver of a message: it hears what the application says of it.

    The work of each begins at the call, awaited or not; what it returns is done when it is so. In the blocking client calls wait.
    """

    def ack(self, message: "ReceivedMessage") -> Awaitable[None]:
        """It is done."""

    def retry(self, message: "ReceivedMessage", after_s: float | None) -> Awaitable[None]:
        """It failed, and comes again; None: when the group's settings say."""

    def dead_letter(self, message: "ReceivedMessage") -> Awaitable[None]:
        """It goes to the group's dead letters."""

    def extend(self, message: "ReceivedMessage", seconds: float) -> Awaitable[None]:
        """It is hidden from others for so long from now."""

    def expires_in(self, message: "ReceivedMessage") -> float | None:
        """Seconds for which it is hidden from others; None: as long as its queue is ours."""


@dataclass(frozen=True, slots=True)
class HandlerDecision:
    """Decision of an application about a message before its handler ended.

    Attributes:
        after_s: when it is not accepted: seconds until it comes again; None: as the group's settings say.
        dead: it goes to the dead letters.
    """

    accepted: bool = False
    after_s: float | None = None
    dead: bool = False


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class ReceivedMessage:
    """A message as a consumer sees it: the body is decompressed.

    Attributes:
        message_id: the sender's unique id, or the offset message id when it gave none.
        offset_message_id: names the record on its broker.
        queue_offset: index in the queue. `physical_offset`: byte position in the commit log.
        born_host: `ip:port` of the sender. `store_host`: `ip:port` of the broker.
        reconsume_times: how often the group has failed on this message before.
        sys_flag: as stored, without the bit for compression.
        store_size: bytes of the stored record.
        delivery: the consumer that handed it out, while it is at work. decision: what was said of it meanwhile.
    """

    topic: str
    queue: MessageQueue
    body: bytes
    properties: dict[str, str]
    tag: str | None
    keys: tuple[str, ...]
    message_id: str
    offset_message_id: str
    queue_offset: int
    physical_offset: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    born_host: str
    store_host: str
    reconsume_times: int
    flag: int
    sys_flag: int
    body_crc: int
    store_size: int
    prepared_offset: int
    delivery: Delivery | None = field(default=None, repr=False, compare=False)
    decision: HandlerDecision | None = field(default=None, repr=False, compare=False)

    def ack(self) -> Awaitable[None]:
        """It is done, whatever comes after; twice does nothing. Of a popped message the broker has confirmed it when this is awaited.

        Raises:
            MessageSettled: it is settled already, or no consumer handed it out.
            MessageExpired: of a popped one, its time is over: it comes again. ClientError: the broker refused, or did
                not answer; it may be tried again while there is time.
        """
        if self.delivery is None and self.decision is not None and self.decision.accepted:
            return DONE
        return self._at_work().ack(self)

    def retry(self, after: float | timedelta | None = None) -> Awaitable[None]:
        """It failed: let it come again, with one try more. In a handler `raise roquette.Retry(after=...)` does the same.

        Args:
            after: seconds, or a timedelta; None: as the group's settings say. Consumers of queues go by the broker's delay
                levels: it is the first level that is not shorter (1 s, 5 s, 10 s, 30 s, 1 min ... 2 h); in order, what follows waits.

        Raises what `ack` does.
        """
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and seconds < 0:
            raise ValueError(f"after={after!r} is in the past")
        return self._at_work().retry(self, seconds)

    def dead_letter(self) -> Awaitable[None]:
        """Put it into the group's dead-letter topic `%DLQ%<group>` now; broadcasting has none. Raises what `ack` does."""
        return self._at_work().dead_letter(self)

    def extend(self, invisible: float | timedelta) -> Awaitable[None]:
        """Hide a popped message for so long from now, in seconds or as a timedelta. Raises what `ack` does; ValueError:
        it was not popped, and has no time."""
        seconds = invisible.total_seconds() if isinstance(invisible, timedelta) else invisible
        return self._at_work().extend(self, seconds)

    @property
    def expires_in(self) -> float | None:
        """Seconds until a popped message comes again; below 0: it may be with somebody else already. None: it has no time."""
        return None if self.delivery is None else self.delivery.expires_in(self)

    @property
    def settled(self) -> bool:
        """True if it is done, given back or dead; of a popped message, as the broker has confirmed."""
        return self.decision is not None

    def _at_work(self) -> Delivery:
        if self.delivery is None:
            raise MessageSettled(
                f"message {self.message_id} is settled already, or no consumer handed it out"
            )
        return self.delivery

    def __getstate__(self) -> list[object]:
        """Without its consumer, which stays in its process."""
        return [getattr(self, f.name) for f in fields(self) if f.name != "delivery"]

    def __setstate__(self, state: list[object]) -> None:
        self.delivery = None
        names_of = (f.name for f in fields(self) if f.name != "delivery")
        for name, value in zip(names_of, state, strict=True):
            setattr(self, name, value)

    @property
    def shard_key(self) -> str | None:
        """The key that chose the queue, None when none did."""
        return self.properties.get(names.SHARDING_KEY)

    @property
    def priority(self) -> int | None:
        """Priority it was sent with, None when it had none."""
        found = whole_number(self.properties.get(names.PRIORITY), names.MAX_PRIORITY)
        return None if found < 0 else found

    @property
    def born_at(self) -> datetime:
        """Time at which its sender sent it, by the sender's clock; in UTC."""
        return _time(self.born_timestamp_ms)

    @property
    def stored_at(self) -> datetime:
        """Time at which its broker stored it, by the broker's clock; in UTC."""
        return _time(self.store_timestamp_ms)

    @property
    def origin_topic(self) -> str:
        """The topic it was first sent to: of a dead letter or a retry not the topic it lies in."""
        found = self.properties
        return found.get(names.DLQ_ORIGIN_TOPIC) or found.get(names.RETRY_TOPIC) or self.topic


def _ms(at: datetime) -> int:
    """Milliseconds since 1970, whole."""
    return (at - EPOCH) // timedelta(milliseconds=1)


def _time(ms: int) -> datetime:
    """Whole milliseconds since 1970, without the rounding of a float."""
    return EPOCH + timedelta(milliseconds=ms)


def received(
    record: StoredRecord, broker_name: str, max_body_size: int = MAX_BODY_SIZE
) -> ReceivedMessage:
    """Make the message that a consumer gets of a stored record (Apache: MessageDecoder.decode on the client).

    Raises:
        CorruptRecord: the body cannot be decompressed within `max_body_size` bytes.
    """
    properties = decode_properties(record.properties)
    offset_id = offset_message_id(record.store_host, record.physical_offset)
    return ReceivedMessage(
        topic=record.topic,
        queue=MessageQueue(record.topic, broker_name, record.queue_id),
        body=decompress(record.body, record.sys_flag, max_body_size),
        properties=properties,
        tag=properties.get(names.TAGS),
        keys=tuple(properties.get(names.KEYS, "").split()),
        message_id=properties.get(names.UNIQ_KEY, offset_id),
        offset_message_id=offset_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        born_timestamp_ms=record.born_timestamp_ms,
        store_timestamp_ms=record.store_timestamp_ms,
        born_host=host_text(record.born_host),
        store_host=host_text(record.store_host),
        reconsume_times=record.reconsume_times,
        flag=record.flag,
        sys_flag=record.sys_flag & ~COMPRESSED,
        body_crc=record.body_crc,
        store_size=record.size,
        prepared_offset=record.prepared_offset,
    )
