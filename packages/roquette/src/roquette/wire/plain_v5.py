"""SendMessage and AckMessage of the v5 protocol as clients really write them, read without protobuf's objects. HOT.

Their contract: what they take, protobuf takes with the same result. They take one message, or one receipt, its fields in the
order of their numbers, each once, of those that an ordinary one has. All else they leave.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from roquette.wire.send_fields import LastName

MOST_SECONDS: Final = 253_402_300_799  # a Timestamp ends with the year 9999
# Tags, a field's number and the kind of its value: of Message,
_TOPIC: Final = 0x0A
_USER: Final = 0x12
_SYSTEM: Final = 0x1A
_BODY: Final = 0x22
# and of SystemProperties.
TAG: Final = 0x0A
KEY: Final = 0x12
MESSAGE_ID: Final = 0x1A
ENCODING: Final = 0x28
TYPE: Final = 0x30
BORN: Final = 0x3A
BORN_HOST: Final = 0x42
QUEUE_ID: Final = 0x68
GROUP: Final = 0x8A


@mypyc_attr(acyclic=True, free_list_len=1)
class SentMessage:
    """A message as its producer sends it (definition.proto's Message), as plain values.

    Attributes:
        encoding, type: of Encoding and MessageType. born_ms: epoch; 0: there is none.
        deliver_ms, priority, recovery_s: None where they are absent.
    """

    def __init__(self) -> None:
        self.topic: str = ""
        self.user: dict[str, str] = {}
        self.tag: str = ""
        self.keys: list[str] = []
        self.message_id: str = ""
        self.encoding: int = 0
        self.type: int = 0
        self.born_ms: int = 0
        self.host: str = ""
        self.group: str = ""
        self.body: bytes = b""
        self.deliver_ms: int | None = None
        self.attempts: int = 0
        self.trace: str = ""
        self.recovery_s: int | None = None
        self.lite_topic: str = ""
        self.priority: int | None = None


@mypyc_attr(acyclic=True, free_list_len=1)
class AckedMessage:
    """What an AckMessageRequest says: of one message, by its receipt.

    Attributes:
        entry: its AckMessageEntry, serialized: a message id and the receipt.
    """

    __slots__ = ("entry", "group", "receipt", "topic")

    def __init__(self, topic: str, group: str, entry: bytes, receipt: str) -> None:
        self.topic: str = topic
        self.group: str = group
        self.entry: bytes = entry
        self.receipt: str = receipt


_topic: Final = LastName()
_group: Final = LastName()


def plain_ack(data: bytes) -> AckedMessage | None:
    """Read an AckMessageRequest; None: protobuf must."""
    end: i64 = len(data)
    group, after_group = _part(data, 0, end, 0x0A)
    if group < 0:
        return None
    topic, after_topic = _part(data, after_group, end, 0x12)
    if topic < 0:
        return None
    entry, last = _part(data, after_topic, end, 0x1A)
    if entry < 0 or last != end:
        return None
    message_id, at = _part(data, entry, end, 0x0A)
    receipt, last = _part(data, at, end, 0x12)
    if message_id < 0 or receipt < 0 or last != end:
        return None
    group, topic = _named(data, group, after_group), _named(data, topic, after_topic)
    if group < 0 or topic < 0:
        return None
    try:
        data[message_id:at].decode()
        return AckedMessage(
            _topic.name_of(data, topic, after_topic),
            _group.name_of(data, group, after_group),
            data[entry:end],
            data[receipt:end].decode(),
        )
    except UnicodeDecodeError:
        return None


def _part(data: bytes, at: i64, end: i64, tag: i64) -> tuple[i64, i64]:
    """Where the value behind this tag begins, and where it ends; -1: it is not there, or has nothing."""
    if at < 0 or at >= end or data[at] != tag:
        return -1, -1
    size, begin = _size(data, at + 1, end)
    return (begin, begin + size) if size > 0 else (-1, -1)


def plain_send(data: bytes) -> SentMessage | None:
    """Read a SendMessageRequest; None: protobuf must."""
    end: i64 = len(data)
    size, at = _size(data, 1, end)
    if at < 0 or data[0] != 0x0A or at + size != end:
        return None
    found = SentMessage()
    try:
        return found if _message(data, at, end, found) else None
    except UnicodeDecodeError:
        return None


def _message(data: bytes, at: i64, end: i64, found: SentMessage) -> bool:
    last: i64 = 0
    while at < end:
        tag: i64 = data[at]
        if tag < last or (tag == last and tag != _USER):
            return False
        last = tag
        size, at = _size(data, at + 1, end)
        if at < 0:
            return False
        stop: i64 = at + size
        if tag == _SYSTEM:
            if not _system(data, at, stop, found):
                return False
        elif tag == _BODY:
            found.body = data[at:stop]
        elif tag == _TOPIC:
            begin: i64 = _named(data, at, stop)
            if begin < 0:
                return False
            found.topic = _topic.name_of(data, begin, stop)
        elif tag != _USER or not _user(data, at, stop, found.user):
            return False
        at = stop
    return True


def _named(data: bytes, at: i64, stop: i64) -> i64:
    """Where the name of a Resource in data[at:stop] begins; -1: it has more than that, a namespace."""
    size, begin = _size(data, at + 1, stop)
    return begin if begin > 0 and data[at] == 0x12 and begin + size == stop else -1


def _user(data: bytes, at: i64, end: i64, user: dict[str, str]) -> bool:
    """A property of the application's: a name and a value."""
    size, begin = _size(data, at + 1, end)
    if begin < 0 or data[at] != 0x0A:
        return False
    at = begin + size
    name = data[begin:at].decode()
    size, begin = _size(data, at + 1, end)
    if begin < 0 or data[at] != 0x12 or begin + size != end or name in user:
        return False
    user[name] = data[begin:end].decode()
    return True


def _system(data: bytes, at: i64, end: i64, found: SentMessage) -> bool:
    last: i64 = 0
    number: i64 = 0
    while at < end:
        tag: i64 = data[at]
        if tag < last or (tag == last and tag != KEY):
            return False
        last = tag
        at += 1
        if tag == ENCODING or tag == TYPE or tag == QUEUE_ID:
            number, at = _number(data, at, end)
            if at < 0 or number > 0x7FFFFFFF:
                return False
            if tag == ENCODING:
                found.encoding = number
            elif tag == TYPE:
                found.type = number
            continue
        if tag == GROUP:
            if at >= end or data[at] != 1:
                return False
            at += 1
        size, at = _size(data, at, end)
        if at < 0:
            return False
        stop: i64 = at + size
        if tag == BORN:
            if not _time(data, at, stop, found):
                return False
            at = stop
            continue
        text = data[at:stop].decode()
        if tag == MESSAGE_ID:
            found.message_id = text
        elif tag == TAG:
            found.tag = text
        elif tag == KEY:
            found.keys.append(text)
        elif tag == BORN_HOST:
            found.host = text
        elif tag == GROUP:
            found.group = text
        else:
            return False
        at = stop
    return True


def _time(data: bytes, at: i64, end: i64, found: SentMessage) -> bool:
    """The time a message was made, a Timestamp."""
    seconds: i64 = 0
    nanos: i64 = 0
    if at < end and data[at] == 0x08:
        seconds, at = _number(data, at + 1, end)
    if 0 <= at < end and data[at] == 0x10:
        nanos, at = _number(data, at + 1, end)
    if at != end or nanos > 0x7FFFFFFF:
        return False
    if seconds <= MOST_SECONDS:
        found.born_ms = seconds * 1000 + nanos // 1_000_000
    return True


def _number(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """The number at `at`, of nine bytes at most, and the place behind it, -1 if there is none."""
    value: i64 = 0
    shift: i64 = 0
    while at < end and shift < 63:
        one: i64 = data[at]
        at += 1
        value |= (one & 127) << shift
        if one < 128:
            return value, at
        shift += 7
    return 0, -1


def _size(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """The length at `at`, and the place behind it, -1 if so much does not follow before `end`."""
    size: i64 = 0
    if at >= end:
        return 0, -1
    begin: i64 = at
    size = data[at]
    at += 1
    if size >= 128:
        size, at = _number(data, begin, end)
        if at - begin > 4:
            return 0, -1
    if at < 0 or size > end - at:
        return 0, -1
    return size, at
