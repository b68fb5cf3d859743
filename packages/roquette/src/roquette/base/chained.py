"""Entries of a file that only grows, each with a sum over itself and the one before: what is read is a beginning of what was written."""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from roquette.base.checksum import crc32

_HEAD: Final = struct.Struct(">IIB")  # bytes of the content, CRC-32 of the last sum and it, kind


class ChainedEntry(NamedTuple):
    """One sound entry: `end` is the byte behind it, `crc` its sum."""

    kind: int
    content: bytes
    start: int
    end: int
    crc: int


def chained(kind: int, content: bytes, previous: int) -> tuple[bytes, int]:
    """The bytes of an entry that follows one with the sum `previous` (0: none), and its own sum."""
    crc = crc32(previous.to_bytes(4, "big") + content)
    return _HEAD.pack(len(content), crc, kind) + content, crc


def chained_entries(data: bytes) -> Iterator[ChainedEntry]:
    """The entries of a file as far as its sums are right."""
    start, crc = 0, 0
    while start + _HEAD.size <= len(data):
        size, said, kind = _HEAD.unpack_from(data, start)
        end = start + _HEAD.size + size
        content = data[start + _HEAD.size : end]
        if end > len(data) or said != crc32(crc.to_bytes(4, "big") + content):
            return
        yield ChainedEntry(kind, content, start, end, said)
        start, crc = end, said
