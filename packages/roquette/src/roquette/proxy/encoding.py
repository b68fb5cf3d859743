"""Replies of every message, written without protobuf's objects: a send's, an ack's, and a message that is delivered. HOT.

protobuf's own messages say the same (`tests/proxy/test_encoding.py` compares them); field numbers are definition.proto's
and service.proto's.
"""

from hashlib import md5
from typing import Final

from librt.strings import BytesWriter, read_i64_be
from mypy_extensions import i64, u8

from roquette.base.digits import write_hex
from roquette.message import properties as p
from roquette.message.message_id import host_text, offset_message_id
from roquette.message.properties import RESERVED
from roquette.message.record_layout import StoredRecord
from roquette.message.sysflag import COMPRESSED
from roquette.wire.plain_v5 import (
    BORN,
    BORN_HOST,
    ENCODING,
    GROUP,
    KEY,
    MESSAGE_ID,
    QUEUE_ID,
    TAG,
    TYPE,
)

LONGEST_MS: Final = 253_402_300_799_999  # a Timestamp ends with the year 9999
_RARE: Final = frozenset(
    (
        p.TIMER_DELIVER_MS,
        p.TIMER_DELAY_SEC,
        p.TRAN_MSG,
        p.DELAY,
        p.LITE_TOPIC,
        p.PRIORITY,
        p.CHECK_IMMUNITY_TIME_IN_SECONDS,
        p.DLQ_ORIGIN_TOPIC,
        p.DLQ_ORIGIN_MESSAGE_ID,
    )
)
_OK: Final = b"\x08\xa0\x9c\x01\x12\x02OK"  # Status{code: OK, message: "OK"}
_DONE: Final = (
    b"\x0a\x08" + _OK
)  # as the first field: of a reply, and of each entry of SendMessageResponse
_RESULT: Final = b"\x1a\x08" + _OK  # AckMessageResultEntry.status
_DIGEST: Final = b"\x22\x24\x08\x02\x12\x20"  # SystemProperties.body_digest: MD5, 32 characters
# Tags: a field's number and the kind of its value, of several messages
_FIRST: Final = 0x0A
_SECOND: Final = 0x12
_THIRD: Final = 0x1A
_FOURTH: Final = 0x22
# and of what only a stored message's SystemProperties have.
_STORED: Final = 0x4A
_STORE_HOST: Final = 0x52
_RECEIPT: Final = 0x62
_OFFSET: Final = 0x70
_ATTEMPT: Final = 0x80
_TRACE: Final = 0x92

# Of the reply that is written: each is begun anew by who uses it.
_reply: Final = BytesWriter()
_user: Final = BytesWriter()
_system: Final = BytesWriter()


def _put(w: BytesWriter, number: i64) -> None:
    """Append a varint: of 64 bits, so that one below 0 has ten bytes, as int32 and int64 fields write it."""
    while number > 127 or number < 0:
        w.append(u8(number & 127 | 128))
        number = number >> 7 & 0x01FFFFFFFFFFFFFF
    w.append(u8(number))


def _size_of(number: i64) -> i64:
    """Bytes of a varint that is not below 0."""
    size: i64 = 1
    while number > 127:
        number >>= 7
        size += 1
    return size


def _put_data(w: BytesWriter, tag: i64, data: bytes) -> None:
    _put(w, tag)
    _put(w, len(data))
    w.write(data)


def _utf8(text: str) -> bytes:
    """A half surrogate, which no peer can have sent as UTF-8, becomes `?`."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _put_text(w: BytesWriter, tag: i64, text: str) -> None:
    _put_data(w, tag, _utf8(text))


def _put_number(w: BytesWriter, tag: i64, number: i64) -> None:
    _put(w, tag)
    _put(w, number)


def _put_time(w: BytesWriter, tag: i64, ms: i64) -> None:
    """A Timestamp: whole seconds, and nanoseconds."""
    ms = 0 if ms < 0 else LONGEST_MS if ms > LONGEST_MS else ms
    _put(w, tag)
    begin: i64 = len(w)
    w.append(u8(0))  # its size, which is not known yet
    seconds: i64 = ms // 1_000
    nanos: i64 = ms % 1_000 * 1_000_000
    if seconds:
        _put_number(w, 0x08, seconds)
    if nanos:
        _put_number(w, 0x10, nanos)
    w[begin] = u8(len(w) - begin - 1)


def acknowledged(entry: bytes) -> bytes:
    """AckMessageResponse: one entry is OK.

    Args:
        entry: AckMessageEntry without a lite topic; the result has its fields, and the status behind.
    """
    w = _reply
    w.truncate(0)
    w.write(_DONE)
    _put(w, _SECOND)
    _put(w, len(entry) + len(_RESULT))
    w.write(entry)
    w.write(_RESULT)
    return w.getvalue()


def entry_of(message_id: str, transaction_id: str, offset: int, recall_handle: str = "") -> bytes:
    """SendResultEntry of a message that is stored. Raises ValueError: no queue has such an offset."""
    if not 0 <= offset < 1 << 63:
        raise ValueError(f"offset {offset} is none")
    w = _reply
    w.truncate(0)
    w.write(_DONE)
    if message_id:
        _put_text(w, _SECOND, message_id)
    if transaction_id:
        _put_text(w, _THIRD, transaction_id)
    if offset:
        _put_number(w, 0x20, offset)
    if recall_handle:
        _put_text(w, 0x2A, recall_handle)
    return w.getvalue()


def stored(entries: list[bytes]) -> bytes:
    """SendMessageResponse: all of the entries are OK."""
    w = _reply
    w.truncate(0)
    w.write(_DONE)
    for entry in entries:
        _put_data(w, _SECOND, entry)
    return w.getvalue()


def delivery_time(ms: int) -> bytes:
    """ReceiveMessageResponse: the time of delivery."""
    w = _reply
    w.truncate(0)
    _put_time(w, _THIRD, ms)
    return w.getvalue()


def delivered(
    record: StoredRecord, topic: bytes, receipt: str, named: dict[str, str]
) -> bytes | None:
    """ReceiveMessageResponse: a message; None for one with rare properties, which `delivered.to_message` makes.

    Args:
        topic: Resource, serialized. named: the record's properties, without the receipt.
    """
    w = _user
    w.truncate(0)
    tag: str | None = None
    group: str | None = None
    trace: str | None = None
    keys = message_id = host = ""
    for name, value in named.items():
        if name == p.TAGS:
            tag = value
        elif name == p.UNIQ_KEY:
            message_id = value
        elif name == p.KEYS:
            keys = value
        elif name == p.BORN_HOST:
            host = value
        elif name in _RARE:
            return None
        elif name not in RESERVED:
            known, said = _utf8(name), _utf8(value)
            size: i64 = 2 + len(known) + len(said)
            _put_number(w, _SECOND, size + _size_of(len(known)) + _size_of(len(said)))
            _put_data(w, _FIRST, known)
            _put_data(w, _SECOND, said)
            if name == p.SHARDING_KEY:
                group = value
            elif name == p.TRACE_CONTEXT:
                trace = value
    user = w.getvalue()
    w = _system
    w.truncate(0)
    if tag is not None:
        _put_text(w, TAG, tag)
    if keys:
        for key in keys.split(p.KEY_SEPARATOR):
            if key:
                _put_text(w, KEY, key)
    if not message_id:
        message_id = offset_message_id(record.store_host, record.physical_offset)
    _put_text(w, MESSAGE_ID, message_id)
    body = record.body
    digest = md5(body, usedforsecurity=False).digest()
    w.write(_DIGEST)
    write_hex(w, read_i64_be(digest, 0))
    write_hex(w, read_i64_be(digest, 8))
    _put_number(w, ENCODING, 2 if record.sys_flag & COMPRESSED else 1)  # GZIP, IDENTITY
    _put_number(w, TYPE, 1 if group is None else 2)  # NORMAL, FIFO
    _put_time(w, BORN, record.born_timestamp_ms)
    _put_text(w, BORN_HOST, host or host_text(record.born_host).rpartition(":")[0])
    _put_time(w, _STORED, record.store_timestamp_ms)
    _put_text(w, _STORE_HOST, host_text(record.store_host))
    _put_text(w, _RECEIPT, receipt)
    if record.queue_id:
        _put_number(w, QUEUE_ID, record.queue_id)
    _put_number(w, _OFFSET, record.queue_offset)
    _put_number(w, _ATTEMPT, record.reconsume_times + 1)
    if group is not None:
        _put_text(w, GROUP, group)
    if trace is not None:
        _put_text(w, _TRACE, trace)
    system = w.getvalue()
    whole: i64 = 2 + _size_of(len(topic)) + len(topic) + len(user)
    whole += _size_of(len(system)) + len(system)
    if body:
        whole += 1 + _size_of(len(body)) + len(body)
    w = _reply
    w.truncate(0)
    _put_number(w, _SECOND, whole)
    _put_data(w, _FIRST, topic)
    w.write(user)
    _put_data(w, _THIRD, system)
    if body:
        _put_data(w, _FOURTH, body)
    return w.getvalue()
