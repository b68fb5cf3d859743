"""The units of a consume queue: their layout, and one as it is read. HOT.

| field | bytes | note |
|---|---|---|
| physical offset | 8 | of the record in the commit log |
| size | 4 | of the record |
| tags code | 8 | Java hash of TAGS; due time in SCHEDULE_TOPIC_XXXX |

A filler (offset 0, size INT_MAX, tags 0) marks a position before the queue's first message (Apache:
ConsumeQueue.fillPreBlank). Where messages are lost to the log, units stand that Apache's broker passes over, too: see
`ConsumeQueue.skip_to`.
"""

import struct
from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i64_be
from mypy_extensions import i64

from roquette.base.javatypes import NOT_ASCII, java_hash, java_hash_ascii, java_text
from roquette.base.plain_text import stands_at
from roquette.message.names import REVIVE_LOG_PREFIX
from roquette.message.properties import (
    KEYS,
    TAGS,
    TAGS_MARK,
    UNIQ_KEY,
    KeySpans,
    property_bytes,
    property_value,
)
from roquette.message.record_layout import StoredRecord
from roquette.message.sysflag import TRANSACTION_MASK, TRANSACTION_ROLLBACK

UNIT_SIZE: Final = 20
FILLER_SIZE: Final = 0x7FFFFFFF
FILLER_FROM: Final = 1 << 30
"""A unit of this size or more has no record: a file of the log, and so a record, is smaller."""
UNIT: Final = struct.Struct(">qiq")
FILLER: Final = UNIT.pack(0, FILLER_SIZE, 0)


def encode_unit(physical_offset: i64, size: i64, tags_code: i64) -> bytes:
    """The bytes of a unit."""
    return UNIT.pack(physical_offset, size, tags_code)


def is_filler(physical_offset: i64, size: i64, segment_size: i64) -> bool:
    """Does a unit of `FILLER_FROM` bytes or more stand for no message? Else it is damaged."""
    return size == FILLER_SIZE or size == FILLER_SIZE - physical_offset % segment_size


def passing_unit(before: bytes, next_physical: i64, segment_size: i64) -> bytes:
    """Return the unit that stands in the place of a lost message behind a unit: see `ConsumeQueue.skip_to`."""
    size: int = read_i32_be(before, 8)
    if size < FILLER_FROM and next_physical >= 0 and segment_size <= FILLER_FROM:
        end: i64 = read_i64_be(before, 0) + size - 1
        if end // segment_size < next_physical // segment_size:
            return UNIT.pack(end, FILLER_SIZE - end % segment_size, 0)
    return before


class UnitView:
    """One unit: the physical offset and size of its record, and the tags code."""

    __slots__ = ("code", "physical", "size")

    def __init__(self) -> None:
        self.physical: i64 = 0
        self.size: i64 = 0
        self.code: i64 = 0

    def look_at(self, units: bytes, at: i64) -> None:
        """Take the fields from some bytes."""
        size: int = read_i32_be(units, at + 8)
        self.physical = read_i64_be(units, at)
        self.size = size
        self.code = read_i64_be(units, at + 12)

    @property
    def empty(self) -> bool:
        """Was nothing ever written there?"""
        return self.size == 0 and self.physical == 0 and self.code == 0

    def fills(self, segment_size: i64) -> bool:
        """Does the unit stand for no message? `segment_size`: bytes of a file of the log."""
        return self.size >= FILLER_FROM and is_filler(self.physical, self.size, segment_size)

    @property
    def end(self) -> i64:
        """The byte after its record; of what has none, the least that no record before reaches."""
        if self.size < FILLER_FROM:
            return self.physical + self.size
        return self.physical if self.size == FILLER_SIZE else self.physical + 1


# Hashes by which a record is indexed: of its unique id, its keys and its tags. HOT.
# The hashed text is "topic#key"; for tags it is "topic#T#tags" (Apache: IndexService.buildKey).


REPEATS: Final = 1 << 32  # beside a hash for the index: of tags, which the next message has, too
_CACHED: Final = 64  # tags of one topic whose hashes are kept,
_CACHED_SIZE: Final = 128  # none longer than that
_TAG_MARK: Final = "T#"


def positive_hash(value: int) -> int:
    """Math.abs of a Java hash, with its one negative result made 0."""
    if value < 0:
        return -value if value > -0x80000000 else 0
    return value


class TopicKeys:
    """Hashes of one topic's keys, with what repeats kept ready."""

    __slots__ = ("_known", "_last", "_seed")

    def __init__(self, topic: str) -> None:
        self._seed: int = java_hash(topic + "#")
        self._known: dict[bytes, TagHashes] = {}
        self._last: TagHashes = _NO_TAGS  # most messages have those of the one before

    def hashes_of(self, properties: str) -> list[int]:
        """Positive hashes of a record's property string in Apache's order: unique id, each word of KEYS, tags."""
        found: list[int] = []
        uniq_key = property_value(properties, UNIQ_KEY)
        if uniq_key:
            found.append(positive_hash(java_hash(uniq_key, self._seed)))
        for key in (property_value(properties, KEYS) or "").split(" "):
            if key:
                found.append(positive_hash(java_hash(key, self._seed)))
        tags = property_value(properties, TAGS)
        if tags:
            found.append(self.tag_hashes(tags.encode()).key)
        return found

    def collect(
        self, properties: bytes, spans: KeySpans, physical: i64, entries: BytesWriter
    ) -> i64:
        """The tags code of a record; adds what the index gets of it, each key's hash and the physical offset.

        `spans` has looked at `properties`.
        """
        if spans.uniq_end > spans.uniq_start:
            write_i64_be(entries, self.hash_of(properties, spans.uniq_start, spans.uniq_end))
            write_i64_be(entries, physical)
        start = spans.keys_start
        while start < spans.keys_end:
            end = start
            while end < spans.keys_end and properties[end] != 32:
                end += 1
            if end > start:
                write_i64_be(entries, self.hash_of(properties, start, end))
                write_i64_be(entries, physical)
            start = end + 1
        if spans.tags_end <= spans.tags_start:
            return 0
        tags = self._last
        size = spans.tags_end - spans.tags_start
        if size != len(tags.text) or not stands_at(properties, spans.tags_start, tags.text):
            tags = self.tag_hashes(properties[spans.tags_start : spans.tags_end])
            if size <= _CACHED_SIZE:
                self._last = tags
        write_i64_be(entries, tags.key + REPEATS)
        write_i64_be(entries, physical)
        return tags.code

    def tag_hashes(self, tags: bytes) -> "TagHashes":
        """Both hashes of an encoded TAGS value."""
        known = self._known.get(tags)
        if known is None:
            text = java_text(tags)
            key = positive_hash(java_hash(text, java_hash(_TAG_MARK, self._seed)))
            known = TagHashes(tags, java_hash(text), key)
            if len(tags) <= _CACHED_SIZE:
                if len(self._known) >= _CACHED:
                    self._known.clear()
                self._known[tags] = known
        return known

    def hash_of(self, data: bytes, start: i64, end: i64) -> i64:
        """The positive hash of a key that is encoded in `data`."""
        found = java_hash_ascii(data, start, end, self._seed)
        if found == NOT_ASCII:
            return positive_hash(java_hash(java_text(data[start:end]), self._seed))
        return positive_hash(found)


class TagHashes:
    """Of a TAGS value: what the queue unit carries, and what the index does."""

    __slots__ = ("code", "key", "text")

    def __init__(self, text: bytes, code: int, key: int) -> None:
        self.text: bytes = text
        self.code: i64 = code
        self.key: i64 = key


_NO_TAGS: Final = TagHashes(b"", 0, 0)


def tags_code_of(properties: bytes) -> int:
    """The tags code of an encoded property string: the Java hash of its TAGS, 0 without."""
    tags = property_bytes(properties, TAGS_MARK)
    return 0 if tags is None else java_hash(java_text(tags))


def key_hashes(record: StoredRecord) -> list[int]:
    """Return the hashes by which a record is indexed, in order; none for a rolled back one."""
    if record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return []
    return TopicKeys(record.topic).hashes_of(record.properties)


def may_lack_entries(topic: str) -> bool:
    """Are a topic's records well without entries? Those of POP's check points were not indexed by their ids at first."""
    return topic.startswith(REVIVE_LOG_PREFIX)
