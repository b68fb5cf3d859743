"""The stored record: its layout, encoded and decoded. A pull reply's body is a row of these. HOT.

| field | bytes | note |
|---|---|---|
| total size | 4 | the whole record |
| magic | 4 | V1 0xDAA320A7, V2 0xDAA320AB, blank (end of a file) 0xCBD43194 |
| body CRC | 4 | CRC-32 of the body & 0x7FFFFFFF |
| queue id, flag | 4 + 4 | |
| queue offset, physical offset | 8 + 8 | at bytes 20 and 28 |
| sys flag | 4 | at byte 36 |
| born timestamp, born host | 8 + 8 or 20 | 20 when sys flag has 0x10: address, then port as int32 |
| store timestamp, store host | 8 + 8 or 20 | 20 when sys flag has 0x20 |
| reconsume times, prepared offset | 4 + 8 | |
| body length, body | 4 + n | |
| topic length, topic | 1 + n, in V2 2 + n | V2 when the topic has more than 127 bytes |
| properties length, properties | 2 + n | |

Apache: MessageExtEncoder (writes), CommitLog.checkMessageAndReturnSize and MessageDecoder (read).
"""

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i32, i64

from roquette.base.checksum import crc32
from roquette.base.javatypes import java_text
from roquette.errors import CorruptRecord

RECORD_MAGIC_V1: Final = -626843481
RECORD_MAGIC_V2: Final = -626843477
BLANK_MAGIC: Final = -875286124
BLANK_SIZE: Final = 8  # the smallest blank: its size and its magic
MAX_TOPIC_V1: Final = 127
MAX_TOPIC: Final = 32_767
MAX_PROPERTIES: Final = 32_767

_FIXED_SIZE: Final = 75  # everything of V1 but the hosts, body, topic and properties
_V4_HOST: Final = 8
_V6_HOST: Final = 20
_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20


class StoredRecord:
    """One record, decoded. Hosts are raw: the address (4 or 16 bytes), then the port as int32."""

    __slots__ = (
        "body",
        "body_crc",
        "born_host",
        "born_timestamp_ms",
        "flag",
        "magic",
        "physical_offset",
        "prepared_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "size",
        "store_host",
        "store_timestamp_ms",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        size: int,
        magic: int,
        body_crc: int,
        queue_id: int,
        flag: int,
        queue_offset: int,
        physical_offset: int,
        sys_flag: int,
        born_timestamp_ms: int,
        born_host: bytes,
        store_timestamp_ms: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_offset: int,
        body: bytes,
        topic: str,
        properties: str,
    ) -> None:
        self.size: int = size
        self.magic: int = magic
        self.body_crc: int = body_crc
        self.queue_id: int = queue_id
        self.flag: int = flag
        self.queue_offset: int = queue_offset
        self.physical_offset: int = physical_offset
        self.sys_flag: int = sys_flag
        self.born_timestamp_ms: int = born_timestamp_ms
        self.born_host: bytes = born_host
        self.store_timestamp_ms: int = store_timestamp_ms
        self.store_host: bytes = store_host
        self.reconsume_times: int = reconsume_times
        self.prepared_offset: int = prepared_offset
        self.body: bytes = body
        self.topic: str = topic
        self.properties: str = properties


def record_size(
    body_len: int, topic_len: int, properties_len: int, born_host_len: int, store_host_len: int
) -> int:
    """Bytes a record takes (Apache: MessageExtEncoder.calMsgLength)."""
    size = _FIXED_SIZE + body_len + topic_len + properties_len + born_host_len + store_host_len
    return size + 1 if topic_len > MAX_TOPIC_V1 else size


def write_record(
    w: BytesWriter,
    topic: bytes,
    queue_id: i32,
    flag: i32,
    queue_offset: i64,
    physical_offset: i64,
    sys_flag: i32,
    born_ms: i64,
    born_host: bytes,
    store_ms: i64,
    store_host: bytes,
    reconsume_times: i32,
    prepared_offset: i64,
    body: bytes,
    properties: bytes,
) -> None:
    """Append the record's bytes. Hosts of 20 bytes set their bit in the sys flag; a long topic makes V2.

    The caller has checked the limits (topic and properties: 32,767 bytes each).
    """
    topic_len = len(topic)
    born_len = len(born_host)
    store_len = len(store_host)
    assert topic_len <= MAX_TOPIC
    assert len(properties) <= MAX_PROPERTIES
    assert born_len == _V4_HOST or born_len == _V6_HOST  # noqa: PLR1714 - a set would be built
    assert store_len == _V4_HOST or store_len == _V6_HOST  # noqa: PLR1714
    size = _FIXED_SIZE + born_len + store_len + len(body) + topic_len + len(properties)
    long_topic = topic_len > MAX_TOPIC_V1
    if long_topic:
        size += 1
    if born_len == _V6_HOST:
        sys_flag |= _BORN_V6
    if store_len == _V6_HOST:
        sys_flag |= _STORE_V6
    write_i32_be(w, size)
    write_i32_be(w, RECORD_MAGIC_V2 if long_topic else RECORD_MAGIC_V1)
    write_i32_be(w, crc32(body) & 0x7FFFFFFF)
    write_i32_be(w, queue_id)
    write_i32_be(w, flag)
    write_i64_be(w, queue_offset)
    write_i64_be(w, physical_offset)
    write_i32_be(w, sys_flag)
    write_i64_be(w, born_ms)
    w.write(born_host)
    write_i64_be(w, store_ms)
    w.write(store_host)
    write_i32_be(w, reconsume_times)
    write_i64_be(w, prepared_offset)
    write_i32_be(w, len(body))
    w.write(body)
    if long_topic:
        write_i16_be(w, len(topic))
    else:
        w.append(len(topic))
    w.write(topic)
    write_i16_be(w, len(properties))
    w.write(properties)


def encode_record(
    topic: bytes,
    queue_id: i32,
    flag: i32,
    queue_offset: i64,
    physical_offset: i64,
    sys_flag: i32,
    born_ms: i64,
    born_host: bytes,
    store_ms: i64,
    store_host: bytes,
    reconsume_times: i32,
    prepared_offset: i64,
    body: bytes,
    properties: bytes,
) -> bytes:
    """One record's bytes; see `write_record`."""
    w = BytesWriter()
    write_record(
        w,
        topic,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        body,
        properties,
    )
    return w.getvalue()


def encode_blank(size: i32) -> bytes:
    """The start of the blank that fills a file's last `size` bytes: its size and its magic."""
    w = BytesWriter()
    write_i32_be(w, size)
    write_i32_be(w, BLANK_MAGIC)
    return w.getvalue()


def peek_size_magic(data: bytes, position: i64) -> tuple[int, int]:
    """The size and the magic that stand at `position`.

    Raises:
        CorruptRecord: fewer than 8 bytes are left there.
    """
    if position < 0 or position + 8 > len(data):
        raise CorruptRecord(f"no room for a record at {position} of {len(data)} bytes")
    size: int = read_i32_be(data, position)
    magic: int = read_i32_be(data, position + 4)
    return size, magic


def is_sound(record: bytes, size: i64, physical_offset: i64, topic: bytes, queue_id: i64) -> bool:
    """Is this a whole record of a queue, at home where it stands, whose body matches its CRC?

    Cheaper than `decode_record`: nothing is made of it. The format has no check of other fields.
    """
    if len(record) != size or size < _FIXED_SIZE + 2 * _V4_HOST:
        return False
    if read_i32_be(record, 0) != size or read_i64_be(record, 28) != physical_offset:
        return False
    if read_i32_be(record, 12) != queue_id:
        return False
    magic: int = read_i32_be(record, 4)
    sys_flag: int = read_i32_be(record, 36)
    position: i64 = 84
    if sys_flag & _BORN_V6:
        position += _V6_HOST - _V4_HOST
    if sys_flag & _STORE_V6:
        position += _V6_HOST - _V4_HOST
    if position + 4 > size:
        return False
    body_len: int = read_i32_be(record, position)
    start: i64 = position + 4
    if body_len < 0 or start + body_len + 4 > size:
        return False
    end: i64 = start + body_len
    body_crc: int = read_i32_be(record, 8)
    if body_len > 0 and crc32(record[start:end]) & 0x7FFFFFFF != body_crc:
        return False
    topic_len: int
    if magic == RECORD_MAGIC_V1:
        topic_len = record[end]
        end += 1
    elif magic == RECORD_MAGIC_V2:
        topic_len = read_i16_be(record, end)
        end += 2
    else:
        return False
    if topic_len != len(topic) or end + topic_len + 2 > size:
        return False
    if record[end : end + topic_len] != topic:
        return False
    end += topic_len
    properties_len: int = read_i16_be(record, end)
    return end + 2 + properties_len == size


def decode_record(data: bytes, position: i64, check_crc: bool) -> StoredRecord:
    """The record at `position`, which must lie completely within `data`.

    Strict: the total size must be exactly the sum of the parts, as in Apache's
    CommitLog.checkMessageAndReturnSize. Texts that are not UTF-8 are read with U+FFFD, as Java does.

    Args:
        check_crc: compare the body with its CRC (an empty body has none).

    Raises:
        CorruptRecord: whatever is wrong; nothing else is raised, on any bytes.
    """
    start = position
    limit: i64 = len(data)
    if start < 0 or start + _FIXED_SIZE + 2 * _V4_HOST > limit:
        raise CorruptRecord(f"no room for a record at {start} of {limit} bytes")
    size: int = read_i32_be(data, start)
    magic: int = read_i32_be(data, start + 4)
    if magic != RECORD_MAGIC_V1 and magic != RECORD_MAGIC_V2:  # noqa: PLR1714 - two integer compares
        raise CorruptRecord(f"magic {magic & 0xFFFFFFFF:#x} at {start} is not a record's")
    end = start + size
    if size < _FIXED_SIZE + 2 * _V4_HOST or end > limit:
        raise CorruptRecord(f"record at {start} claims {size} bytes, {limit - start} are there")
    sys_flag: int = read_i32_be(data, start + 36)
    born_len: i64 = _V6_HOST if sys_flag & _BORN_V6 else _V4_HOST
    store_len: i64 = _V6_HOST if sys_flag & _STORE_V6 else _V4_HOST
    rest: i64 = size - _FIXED_SIZE - born_len - store_len  # for body, topic and properties
    pos = start + 56 + born_len + store_len + 12  # the body's length
    if rest < 0:
        raise CorruptRecord(f"record at {start} of {size} bytes is too short for its hosts")
    body_len: int = read_i32_be(data, pos)
    if body_len < 0 or body_len > rest:
        raise CorruptRecord(f"record at {start}: body of {body_len} bytes in a record of {size}")
    rest -= body_len
    body = data[pos + 4 : pos + 4 + body_len]
    body_crc: int = read_i32_be(data, start + 8)
    if check_crc and body_len > 0 and crc32(body) & 0x7FFFFFFF != body_crc:
        raise CorruptRecord(f"record at {start}: the body does not match its CRC {body_crc}")
    pos += 4 + body_len
    topic_len: int
    if magic == RECORD_MAGIC_V1:
        topic_len = data[pos]
        pos += 1
    else:
        topic_len = read_i16_be(data, pos)
        rest -= 1
        pos += 2
    if topic_len < 0 or topic_len > rest or (magic == RECORD_MAGIC_V1 and topic_len > MAX_TOPIC_V1):
        raise CorruptRecord(f"record at {start}: topic of {topic_len} bytes in a record of {size}")
    rest -= topic_len
    topic = data[pos : pos + topic_len]
    pos += topic_len
    properties_len: int = read_i16_be(data, pos)
    if properties_len != rest:
        raise CorruptRecord(
            f"record at {start}: properties of {properties_len} bytes where {rest} are left"
        )
    properties = data[pos + 2 : end]
    queue_id: int = read_i32_be(data, start + 12)
    flag: int = read_i32_be(data, start + 16)
    hosts = start + 48
    after_born = hosts + born_len
    after_hosts = after_born + 8 + store_len
    reconsume_times: int = read_i32_be(data, after_hosts)
    return StoredRecord(
        size,
        magic,
        body_crc,
        queue_id,
        flag,
        read_i64_be(data, start + 20),
        read_i64_be(data, start + 28),
        sys_flag,
        read_i64_be(data, start + 40),
        data[hosts:after_born],
        read_i64_be(data, after_born),
        data[after_born + 8 : after_hosts],
        reconsume_times,
        read_i64_be(data, after_hosts + 4),
        body,
        java_text(topic),
        java_text(properties),
    )


def decode_records(data: bytes, check_crc: bool = False) -> list[StoredRecord]:
    """All records of a pull, pop or query reply's body.

    Raises:
        CorruptRecord: a record is broken, or the last one is cut off.
    """
    records: list[StoredRecord] = []
    position: i64 = 0
    limit: i64 = len(data)
    while position < limit:
        record = decode_record(data, position, check_crc)
        records.append(record)
        position += record.size
    return records
