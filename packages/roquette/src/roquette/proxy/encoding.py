"""Replies of every message, written without building them from parts: an ack's, and a message that is delivered. HOT.

protobuf's own messages say the same (`tests/proxy/test_encoding.py` compares them); field numbers are definition.proto's
and service.proto's.
"""

from hashlib import md5
from typing import Final

from roquette.message import properties as p
from roquette.message.message_id import host_text, offset_message_id
from roquette.message.properties import RESERVED
from roquette.message.record_layout import StoredRecord
from roquette.message.sysflag import COMPRESSED

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
_ACKED: Final = b"\x0a\x08" + _OK
_SENT: Final = _ACKED  # of a SendMessageResponse, and of each of its entries
_RESULT: Final = b"\x1a\x08" + _OK  # AckMessageResultEntry.status
_GZIP: Final = b"\x28\x02"  # SystemProperties.body_encoding
_IDENTITY: Final = b"\x28\x01"
_NORMAL: Final = b"\x30\x01"  # SystemProperties.message_type
_FIFO: Final = b"\x30\x02"
_DIGEST: Final = b"\x22\x24\x08\x02\x12\x20"  # SystemProperties.body_digest: MD5, 32 characters


def _varint(number: int) -> bytes:
    """A number of 0 to 2**64 - 1."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_SHORT: Final = [_varint(number) for number in range(4_096)]


def varint(number: int) -> bytes:
    """A number; below 0 as 64 bits, as int32 and int64 fields write it."""
    if 0 <= number < 4_096:
        return _SHORT[number]
    return _varint(number & 0xFFFFFFFFFFFFFFFF)


def field(head: bytes, text: str) -> bytes:
    """A field of text behind its tag. A half surrogate, which no peer can have sent as UTF-8, becomes `?`."""
    data = text.encode() if text.isascii() else text.encode("utf-8", "replace")
    return head + varint(len(data)) + data


def acknowledged(message_id: str, handle: str) -> bytes:
    """AckMessageResponse: one entry, and it is OK."""
    entry = _RESULT
    if handle:
        entry = field(b"\x12", handle) + entry
    if message_id:
        entry = field(b"\x0a", message_id) + entry
    return _ACKED + b"\x12" + varint(len(entry)) + entry


def entry_of(message_id: str, transaction_id: str, offset: int, recall_handle: str = "") -> bytes:
    """SendResultEntry of a message that is stored. Raises ValueError: no queue has such an offset."""
    if not 0 <= offset < 1 << 63:
        raise ValueError(f"offset {offset} is none")
    parts = [_SENT]
    if message_id:
        parts.append(field(b"\x12", message_id))
    if transaction_id:
        parts.append(field(b"\x1a", transaction_id))
    if offset:
        parts += [b"\x20", varint(offset)]
    if recall_handle:
        parts.append(field(b"\x2a", recall_handle))
    return b"".join(parts)


def stored(entries: list[bytes]) -> bytes:
    """SendMessageResponse: all of the entries are OK."""
    if len(entries) == 1:
        return _SENT + b"\x12" + varint(len(entries[0])) + entries[0]
    return _SENT + b"".join([b"\x12" + varint(len(entry)) + entry for entry in entries])


def _time(head: bytes, ms: int) -> bytes:
    ms = min(max(ms, 0), LONGEST_MS)
    seconds, rest = divmod(ms, 1_000)
    data = b"\x08" + varint(seconds) if seconds else b""
    if rest:
        data += b"\x10" + varint(rest * 1_000_000)
    return head + varint(len(data)) + data


def delivery_time(ms: int) -> bytes:
    """ReceiveMessageResponse: the time of delivery."""
    return _time(b"\x1a", ms)


def delivered(
    record: StoredRecord, topic: bytes, receipt: str, named: dict[str, str]
) -> bytes | None:
    """ReceiveMessageResponse: a message; None for one with rare properties, which `delivered.to_message` makes.

    Args:
        topic: Resource, serialized. named: the record's properties, without the receipt.
    """
    tag: str | None = None
    group: str | None = None
    trace: str | None = None
    keys = message_id = host = ""
    user: list[bytes] = []
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
            entry = field(b"\x0a", name) + field(b"\x12", value)
            user.append(b"\x12" + varint(len(entry)) + entry)
            if name == p.SHARDING_KEY:
                group = value
            elif name == p.TRACE_CONTEXT:
                trace = value
    body = record.body
    parts: list[bytes] = []
    if tag is not None:
        parts.append(field(b"\x0a", tag))
    if keys:
        parts += [field(b"\x12", key) for key in keys.split(p.KEY_SEPARATOR) if key]
    if not message_id:
        message_id = offset_message_id(record.store_host, record.physical_offset)
    parts.append(field(b"\x1a", message_id))
    parts.append(_DIGEST + md5(body, usedforsecurity=False).hexdigest().upper().encode())
    parts.append(_GZIP if record.sys_flag & COMPRESSED else _IDENTITY)
    parts.append(_NORMAL if group is None else _FIFO)
    parts.append(_time(b"\x3a", record.born_timestamp_ms))
    parts.append(field(b"\x42", host or host_text(record.born_host).rpartition(":")[0]))
    parts.append(_time(b"\x4a", record.store_timestamp_ms))
    parts.append(field(b"\x52", host_text(record.store_host)))
    parts.append(field(b"\x62", receipt))
    if record.queue_id:
        parts.append(b"\x68" + varint(record.queue_id))
    parts.append(b"\x70" + varint(record.queue_offset))
    parts.append(b"\x80\x01" + varint(record.reconsume_times + 1))
    if group is not None:
        parts.append(field(b"\x8a\x01", group))
    if trace is not None:
        parts.append(field(b"\x92\x01", trace))
    system = b"".join(parts)
    whole = [b"\x0a", varint(len(topic)), topic, *user, b"\x1a", varint(len(system)), system]
    if body:
        whole += [b"\x22", varint(len(body)), body]
    message = b"".join(whole)
    return b"\x12" + varint(len(message)) + message
