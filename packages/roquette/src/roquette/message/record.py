"""Stored records, encoded and decoded. A pull reply's body is a row of these. HOT."""

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i32, i64

from roquette.base.checksum import crc32
from roquette.errors import CorruptRecord
from roquette.message.record_layout import (
    BLANK_MAGIC,
    FIXED_SIZE,
    MAX_PROPERTIES,
    MAX_TOPIC,
    MAX_TOPIC_V1,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
    V4_HOST,
    V6_HOST,
    Draft,
    Place,
    StoredRecord,
)
from roquette.message.record_view import FAULT_WORDS, SOUND, RecordView
from roquette.message.sysflag import BORN_HOST_V6, STORE_HOST_V6

_crc32: Final = crc32  # found without a look into the module's names


def record_size(
    body_len: int, topic_len: int, properties_len: int, born_host_len: int, store_host_len: int
) -> int:
    """Bytes a record takes (Apache: MessageExtEncoder.calMsgLength)."""
    size = FIXED_SIZE + body_len + topic_len + properties_len + born_host_len + store_host_len
    return size + 1 if topic_len > MAX_TOPIC_V1 else size


def write_record(w: BytesWriter, draft: Draft, place: Place) -> None:
    """Append the record's bytes. Hosts of 20 bytes set their bit in the sys flag; a long topic makes V2.

    The caller has checked the limits (topic and properties: 32,767 bytes each).
    """
    topic = place.topic
    properties = draft.properties
    body = draft.body
    born_host = draft.born_host
    store_host = place.store_host
    sys_flag = i32(draft.sys_flag)
    topic_len = len(topic)
    born_len = len(born_host)
    store_len = len(store_host)
    assert topic_len <= MAX_TOPIC
    assert len(properties) <= MAX_PROPERTIES
    assert born_len == V4_HOST or born_len == V6_HOST
    assert store_len == V4_HOST or store_len == V6_HOST
    size = FIXED_SIZE + born_len + store_len + len(body) + topic_len + len(properties)
    long_topic = topic_len > MAX_TOPIC_V1
    if long_topic:
        size += 1
    if born_len == V6_HOST:
        sys_flag |= BORN_HOST_V6
    if store_len == V6_HOST:
        sys_flag |= STORE_HOST_V6
    write_i32_be(w, size)
    write_i32_be(w, RECORD_MAGIC_V2 if long_topic else RECORD_MAGIC_V1)
    # Java clears the sign of the CRC (UtilAll.crc32).
    write_i32_be(w, _crc32(body) & 0x7FFFFFFF)
    write_i32_be(w, i32(draft.queue_id))
    write_i32_be(w, i32(draft.flag))
    write_i64_be(w, place.queue_offset)
    write_i64_be(w, place.physical_offset)
    write_i32_be(w, sys_flag)
    write_i64_be(w, draft.born_ms)
    w.write(born_host)
    write_i64_be(w, place.store_ms)
    w.write(store_host)
    write_i32_be(w, i32(draft.reconsume_times))
    write_i64_be(w, draft.prepared_offset)
    write_i32_be(w, len(body))
    w.write(body)
    if long_topic:
        write_i16_be(w, len(topic))
    else:
        w.append(len(topic))
    w.write(topic)
    write_i16_be(w, len(properties))
    w.write(properties)


def encode_record(draft: Draft, place: Place) -> bytes:
    """One record's bytes; see `write_record`."""
    w = BytesWriter()
    write_record(w, draft, place)
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


def decode_record(data: bytes, position: i64, check_crc: bool) -> StoredRecord:
    """The record at `position`, which must lie completely within `data` and be what a reply must be.

    Args:
        check_crc: compare the body with its CRC (an empty body has none).

    Raises:
        CorruptRecord: whatever is wrong; nothing else is raised, on any bytes.
    """
    return _decode(RecordView(), data, position, check_crc)


def _decode(view: RecordView, data: bytes, position: i64, check_crc: bool) -> StoredRecord:
    fault = view.find(data, position)
    if fault == SOUND and check_crc:
        fault = view.check_body()
    if fault != SOUND:
        raise CorruptRecord(f"record at {position} of {len(data)} bytes: {FAULT_WORDS[fault]}")
    return view.record()


def decode_records(data: bytes, check_crc: bool = False) -> list[StoredRecord]:
    """All records of a pull, pop or query reply's body.

    Raises:
        CorruptRecord: a record is broken, or the last one is cut off.
    """
    view = RecordView()
    records: list[StoredRecord] = []
    position: i64 = 0
    limit: i64 = len(data)
    while position < limit:
        records.append(_decode(view, data, position, check_crc))
        position += view.size
    return records


# The body of a batch send: the messages of one topic, one after another. HOT.
# | field | bytes | note | |---|---|---| | total size | 4 | of this entry; the Apache broker ignores it, and so do we | | magic, body CRC | 4 + 4 | both 0 | | flag | 4 | the user's flag | | body length, body | 4 + n | | | properties length, properties | 2 + n | |
# Apache: MessageDecoder.encodeMessages (writes), MessageExtEncoder.encode(MessageExtBatch) (reads).


ENTRY_SIZE: Final = 22  # an entry without body and properties


def encode_batch(messages: list[tuple[int, bytes, bytes]]) -> bytes:
    """The batch body of (flag, body, properties) triples; properties of at most 32,767 bytes."""
    w = BytesWriter()
    for flag, body, properties in messages:
        write_i32_be(w, ENTRY_SIZE + len(body) + len(properties))
        write_i32_be(w, 0)
        write_i32_be(w, 0)
        write_i32_be(w, flag)
        write_i32_be(w, len(body))
        w.write(body)
        write_i16_be(w, len(properties))
        w.write(properties)
    return w.getvalue()


class BatchCursor:
    """Goes through a batch body; after `advance` the fields say where the message's parts lie in `data`."""

    __slots__ = (
        "_end",
        "body_end",
        "body_start",
        "data",
        "flag",
        "properties_end",
        "properties_start",
    )

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        self._end: i64 = 0
        self.flag: i64 = 0
        self.body_start: i64 = 0
        self.body_end: i64 = 0
        self.properties_start: i64 = 0
        self.properties_end: i64 = 0

    def advance(self) -> bool:
        """Go to the next message; False at the end.

        Raises:
            CorruptRecord: the entry does not fit the bytes that are there.
        """
        data = self.data
        limit: i64 = len(data)
        start = self._end
        if start >= limit:
            return False
        if start + ENTRY_SIZE > limit:
            raise CorruptRecord(f"batch entry at {start}: {limit - start} bytes are left")
        flag: int = read_i32_be(data, start + 12)
        body_len: int = read_i32_be(data, start + 16)
        if body_len < 0 or start + ENTRY_SIZE + body_len > limit:
            raise CorruptRecord(f"batch entry at {start}: body of {body_len} bytes does not fit")
        self.flag = flag
        self.body_start = start + 20
        self.body_end = self.body_start + body_len
        properties_len: int = read_i16_be(data, self.body_end)
        self.properties_start = self.body_end + 2
        self.properties_end = self.properties_start + properties_len
        if properties_len < 0 or self.properties_end > limit:
            raise CorruptRecord(f"batch entry: properties of {properties_len} bytes do not fit")
        self._end = self.properties_end
        return True

    @property
    def body(self) -> bytes:
        """The message's body, a copy."""
        return self.data[self.body_start : self.body_end]

    @property
    def properties(self) -> bytes:
        """The message's property string in UTF-8, a copy."""
        return self.data[self.properties_start : self.properties_end]
