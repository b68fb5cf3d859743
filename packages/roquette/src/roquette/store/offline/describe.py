"""Records, units, slots and headers in plain words and JSON values."""

import base64
from datetime import UTC, datetime
from typing import Any, Final

from roquette.errors import CorruptRecord
from roquette.message.compression import Compression, decompress
from roquette.message.message_id import host_text, offset_message_id
from roquette.message.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from roquette.message.record_layout import StoredRecord
from roquette.message.sysflag import (
    COMPRESSED,
    COMPRESSION_MASK,
    COMPRESSION_SHIFT,
    TRANSACTION_MASK,
)

MAX_BODY: Final = 64 << 20
_TRANSACTION: Final = {0x4: "prepared", 0x8: "commit", 0xC: "rollback"}


def plain_body(record: StoredRecord) -> tuple[bytes, str]:
    """The body as it was sent, and why that is not so ("" when it is)."""
    try:
        return decompress(record.body, record.sys_flag, MAX_BODY), ""
    except CorruptRecord as error:
        return record.body, str(error)


def flag_words(sys_flag: int) -> list[str]:
    """The system flag in words."""
    words: list[str] = []
    if sys_flag & COMPRESSED:
        kind = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
        known = kind in {member.value for member in Compression}
        words.append(Compression(kind).name.lower() if known else "zlib")
    transaction = _TRANSACTION.get(sys_flag & TRANSACTION_MASK)
    if transaction:
        words.append(transaction)
    return words


def host_words(host: bytes) -> str:
    """`ip:port` of a record's host."""
    try:
        return host_text(host)
    except CorruptRecord:
        return host.hex()


def record_fields(record: StoredRecord, body: str = "auto") -> dict[str, Any]:
    """Everything known of a record, as JSON values.

    Args:
        body: `auto` gives text as `body` and other bytes as `body_base64`; `base64`, `text` or `none` as they say.
    """
    properties = decode_properties(record.properties)
    offset_id = offset_message_id(record.store_host, record.physical_offset)
    found: dict[str, Any] = {
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "size": record.size,
        "id": properties.get(UNIQ_KEY, offset_id),
        "offset_id": offset_id,
        "tag": properties.get(TAGS),
        "keys": properties.get(KEYS, "").split(),
        "properties": properties,
        "born_ms": record.born_timestamp_ms,
        "stored_ms": record.store_timestamp_ms,
        "born_host": host_words(record.born_host),
        "store_host": host_words(record.store_host),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "flags": flag_words(record.sys_flag),
        "reconsume_times": record.reconsume_times,
        "prepared_offset": record.prepared_offset,
    }
    if body == "none":
        return found
    data, fault = plain_body(record)
    if fault:
        found["body_fault"] = fault
    text = None
    if body != "base64":
        try:
            text = data.decode("utf-8", "replace" if body == "text" else "strict")
        except UnicodeDecodeError:
            text = None
    if text is not None:
        found["body"] = text
    else:
        found["body_base64"] = base64.b64encode(data).decode()
    return found


def time_words(time_ms: int) -> str:
    """Local time with milliseconds; `-` for never, the number for what is no time."""
    if time_ms <= 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return str(time_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}"
