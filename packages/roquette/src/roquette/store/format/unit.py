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

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

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
    """What stands in the place of a lost message behind a unit: see `ConsumeQueue.skip_to`."""
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
