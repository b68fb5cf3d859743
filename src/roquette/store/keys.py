"""What a record is indexed by: hashes of its unique id, its keys and its tags. HOT.

The hashed text is "topic#key"; for tags it is "topic#T#tags" (Apache: IndexService.buildKey).
"""

from typing import Final

from roquette.base.javatypes import java_hash
from roquette.store.index_file import positive_hash

_CACHED: Final = 1024
_PREFIX: Final = 20  # of a unique id: address, process and class loader, the same for one client
_TAG_MARK: Final = "T#"


class TopicKeys:
    """Hashes of one topic's keys, with what repeats kept ready."""

    __slots__ = ("_prefixes", "_seed", "_tags")

    def __init__(self, topic: str) -> None:
        self._seed: int = java_hash(topic + "#")
        self._prefixes: dict[str, int] = {}
        self._tags: dict[str, int] = {}

    def hashes(self, uniq_key: str | None, keys: str | None, tags: str | None) -> list[int]:
        """Positive hashes in Apache's order: unique id, each word of `keys`, tags."""
        found: list[int] = []
        if uniq_key:
            found.append(positive_hash(self._of_unique(uniq_key)))
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

    def _of_unique(self, uniq_key: str) -> int:
        prefix = uniq_key[:_PREFIX]
        known = self._prefixes.get(prefix)
        if known is None:
            if len(self._prefixes) >= _CACHED:
                self._prefixes.clear()
            known = self._prefixes[prefix] = java_hash(prefix, self._seed)
        return java_hash(uniq_key[_PREFIX:], known)


def property_value(properties: str, name: str) -> str | None:
    """One value out of a stored property string; None when absent or empty."""
    wanted = name + "\x01"
    start = len(wanted)
    if not properties.startswith(wanted):
        at = properties.find("\x02" + wanted)
        if at < 0:
            return None
        start += at + 1
    end = properties.find("\x02", start)
    return (properties[start:] if end < 0 else properties[start:end]) or None


def tags_of(properties: str) -> str | None:
    """The TAGS property; what `property_value` gives, quicker."""
    at = properties.find("\x02TAGS\x01")
    if at < 0:
        return property_value(properties, "TAGS") if properties.startswith("TAGS\x01") else None
    end = properties.find("\x02", at + 6)
    return (properties[at + 6 :] if end < 0 else properties[at + 6 : end]) or None
