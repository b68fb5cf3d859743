"""What a record is indexed by: hashes of its unique id, its keys and its tags. HOT.

The hashed text is "topic#key"; for tags it is "topic#T#tags" (Apache: IndexService.buildKey).
"""

from typing import Final

from roquette.base.javatypes import java_hash
from roquette.store.index_file import positive_hash

_CACHED: Final = 1024
_TAG_MARK: Final = "T#"


class TopicKeys:
    """Hashes of one topic's keys, with what repeats kept ready."""

    __slots__ = ("_seed", "_tags")

    def __init__(self, topic: str) -> None:
        self._seed: int = java_hash(topic + "#")
        self._tags: dict[str, int] = {}

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
                if len(self._tags) >= _CACHED:
                    self._tags.clear()
                known = positive_hash(java_hash(tags, java_hash(_TAG_MARK, self._seed)))
                self._tags[tags] = known
            found.append(known)
        return found


def _value(properties: str, mark: str) -> str | None:
    """The value behind the last `mark`, which is 0x02 NAME 0x01; None when absent or empty."""
    at = properties.rfind(mark)
    if at >= 0:
        start = at + len(mark)
    elif properties.startswith(mark[1:]):
        start = len(mark) - 1
    else:
        return None
    end = properties.find("\x02", start)
    return (properties[start:] if end < 0 else properties[start:end]) or None


def property_value(properties: str, name: str) -> str | None:
    """One value out of a stored property string, the last if it is there twice; None when absent or empty."""
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
