"""What a record is indexed by: hashes of its unique id, its keys and its tags. HOT.

The hashed text is "topic#key"; for tags it is "topic#T#tags" (Apache: IndexService.buildKey).
"""

from typing import Final

from mypy_extensions import i64

from roquette.base.javatypes import NOT_ASCII, java_hash, java_hash_ascii, java_text
from roquette.store.filtered import properties_in
from roquette.store.index_file import positive_hash

_CACHED: Final = 64  # tags of one topic whose hashes are kept,
_CACHED_SIZE: Final = 128  # none longer than that
_TAG_MARK: Final = "T#"


class TopicKeys:
    """Hashes of one topic's keys, with what repeats kept ready."""

    __slots__ = ("_known", "_seed", "_tags")

    def __init__(self, topic: str) -> None:
        self._seed: int = java_hash(topic + "#")
        self._tags: dict[str, int] = {}
        self._known: dict[bytes, TagHashes] = {}

    def hashes(self, uniq_key: str | None, keys: str | None, tags: str | None) -> list[int]:
        """Positive hashes in Apache's order: unique id, each word of `keys`, tags."""
        found: list[int] = []
        if uniq_key:
            found.append(positive_hash(java_hash(uniq_key, self._seed)))
        if keys:
            for key in keys.split(" "):
                if key:
                    found.append(positive_hash(java_hash(key, self._seed)))
        if tags:
            known = self._tags.get(tags)
            if known is None:
                known = positive_hash(java_hash(tags, java_hash(_TAG_MARK, self._seed)))
                if len(tags) <= _CACHED_SIZE:
                    if len(self._tags) >= _CACHED:
                        self._tags.clear()
                    self._tags[tags] = known
            found.append(known)
        return found

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
        """The positive hash of a key that stands encoded in `data`."""
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


class KeySpans:
    """Where TAGS, KEYS and UNIQ_KEY stand in an encoded property string: start and end, equal when absent.

    Of a property that is there twice the last one that has a value counts, as in Java.
    """

    __slots__ = ("keys_end", "keys_start", "tags_end", "tags_start", "uniq_end", "uniq_start")

    def __init__(self) -> None:
        self.tags_start: i64 = 0
        self.tags_end: i64 = 0
        self.keys_start: i64 = 0
        self.keys_end: i64 = 0
        self.uniq_start: i64 = 0
        self.uniq_end: i64 = 0

    def scan(self, data: bytes) -> None:
        """Find them in a property string, in one pass."""
        self.tags_start = self.tags_end = 0
        self.keys_start = self.keys_end = 0
        self.uniq_start = self.uniq_end = 0
        position: i64 = 0
        end: i64 = len(data)
        while position < end:
            name = position
            while position < end and data[position] != 1 and data[position] != 2:
                position += 1
            if position < end and data[position] == 1:
                value = position + 1
                while position < end and data[position] != 2:
                    position += 1
                self._note(data, name, value, position)
            position += 1

    def _note(self, data: bytes, name: i64, value: i64, end: i64) -> None:
        if value == end:
            return
        length: i64 = value - 1 - name
        if length == 4:
            word = data[name : name + 4]
            if word == b"TAGS":
                self.tags_start, self.tags_end = value, end
            elif word == b"KEYS":
                self.keys_start, self.keys_end = value, end
        elif length == 8 and data[name : name + 8] == b"UNIQ_KEY":
            self.uniq_start, self.uniq_end = value, end


def span_of(data: bytes, start: i64, end: i64, name: bytes) -> tuple[i64, i64]:
    """Where the last value of a property stands in `data`; equal when it has none. `name` ends with 0x01."""
    stop: i64 = end
    while True:
        at: i64 = data.rfind(name, start, stop)
        if at < 0:
            return 0, 0
        if at == start or data[at - 1] == 2:
            value: i64 = at + len(name)
            close: i64 = data.find(b"\x02", value, end)
            if close < 0:
                close = end
            if close > value:
                return value, close
        stop = at + len(name) - 1


def tags_code_in(record: bytes) -> int:
    """The tags code of a whole stored record: the Java hash of its TAGS, 0 without."""
    text = properties_in(record)
    start, end = span_of(text, 0, len(text), b"TAGS\x01")
    return java_hash(java_text(text[start:end])) if end > start else 0


def _value(properties: str, mark: str) -> str | None:
    """The value behind the last `mark`, which is 0x02 NAME 0x01, that has one; None when there is none."""
    end: i64 = len(properties)
    while True:
        at: i64 = properties.rfind(mark, 0, end)
        if at >= 0:
            start = at + len(mark)
        elif properties.startswith(mark[1:]):
            start = len(mark) - 1
        else:
            return None
        stop = properties.find("\x02", start)
        value = properties[start:] if stop < 0 else properties[start:stop]
        if value or at < 0:
            return value or None
        end = at + 1


def property_value(properties: str, name: str) -> str | None:
    """One value out of a stored property string, the last that has a value; None when there is none."""
    return _value(properties, f"\x02{name}\x01")


def tags_of(properties: str) -> str | None:
    """The TAGS property."""
    return _value(properties, "\x02TAGS\x01")


def keys_of(properties: str) -> str | None:
    """The KEYS property."""
    return _value(properties, "\x02KEYS\x01")


def unique_key_of(properties: str) -> str | None:
    """The UNIQ_KEY property."""
    return _value(properties, "\x02UNIQ_KEY\x01")
