"""What a record is indexed by: hashes of its unique id, its keys and its tags. HOT.

The hashed text is "topic#key"; for tags it is "topic#T#tags" (Apache: IndexService.buildKey).
"""

from typing import Final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from roquette.base.javatypes import NOT_ASCII, java_hash, java_hash_ascii, java_text
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

    __slots__ = ("_known", "_seed")

    def __init__(self, topic: str) -> None:
        self._seed: int = java_hash(topic + "#")
        self._known: dict[bytes, TagHashes] = {}

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
        """The tags code of a record; adds what the index gets of it, each key's hash and the physical offset."""
        spans.scan(properties)
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
        tags = self.tag_hashes(properties[spans.tags_start : spans.tags_end])
        write_i64_be(entries, tags.key)
        write_i64_be(entries, physical)
        return tags.code

    def tag_hashes(self, tags: bytes) -> "TagHashes":
        """Both hashes of an encoded TAGS value."""
        known = self._known.get(tags)
        if known is None:
            text = java_text(tags)
            key = positive_hash(java_hash(text, java_hash(_TAG_MARK, self._seed)))
            known = TagHashes(java_hash(text), key)
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

    __slots__ = ("code", "key")

    def __init__(self, code: int, key: int) -> None:
        self.code: i64 = code
        self.key: i64 = key


def tags_code_of(properties: bytes) -> int:
    """The tags code of an encoded property string: the Java hash of its TAGS, 0 without."""
    tags = property_bytes(properties, TAGS_MARK)
    return 0 if tags is None else java_hash(java_text(tags))


def key_hashes(record: StoredRecord) -> list[int]:
    """What a record is indexed by, in order; nothing for a rolled back one."""
    if record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return []
    return TopicKeys(record.topic).hashes_of(record.properties)


def may_lack_entries(topic: str) -> bool:
    """Are a topic's records well without entries? Those of POP's check points were not indexed by their ids at first."""
    return topic.startswith(REVIVE_LOG_PREFIX)
