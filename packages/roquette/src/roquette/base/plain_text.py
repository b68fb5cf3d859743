"""Runs of plain text: bytes that JSON and property strings have as they are. HOT: compiled by mypyc in the fast build.

Plain is ASCII from the space to `~`, but quotes and backslashes. Eight bytes are looked at together, the first one lowest: each
test sets the highest bit of a byte that it is about, and perhaps of bytes behind it.
"""

from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64

_QUOTE: Final = 34
_BACKSLASH: Final = 92
ONES: Final = 0x0101010101010101
"""The lowest bit of each of eight bytes."""
TRUE: Final = 0x74727565
"""The word `true`, as `read_i32_be` has it."""


def unplain(eight: i64) -> i64:
    """0: these eight bytes are plain, as `read_i64_le` has them; else the lowest bit set is of the first byte that is not."""
    ones: i64 = ONES  # products of literals would be objects
    quotes: i64 = eight ^ ones * _QUOTE
    slashes: i64 = eight ^ ones * _BACKSLASH
    tested: i64 = eight | eight + ones | eight - ones * 32 | quotes - ones | slashes - ones
    return tested >> 7 & ones


def first_of(bits: i64) -> i64:
    """Which of eight bytes the lowest bit that `unplain` has set is of."""
    place: i64 = 0
    if bits & 0xFFFFFFFF == 0:
        place = 4
        bits >>= 32
    if bits & 0xFFFF == 0:
        place += 2
        bits >>= 16
    return place if bits & 0xFF else place + 1


def plain_end(data: bytes, at: i64, end: i64) -> i64:
    """The place of the first byte of data[at:end] that is not plain; `end`: all are."""
    last: i64 = len(data) - 8
    while at <= last:
        bits: i64 = unplain(read_i64_le(data, at))
        if bits:
            at += first_of(bits)
            return at if at < end else end
        at += 8
        if at >= end:
            return end
    while at < end:
        one: i64 = data[at]
        if one < 32 or one > 126 or one == _QUOTE or one == _BACKSLASH:
            break
        at += 1
    return at


def separator_at(data: bytes, at: i64, least: i64) -> i64:
    """The place of the next byte, from `at` on, that is a separator of property strings: 1 or 2, and no less than `least`; the end
    when there is none."""
    end: i64 = len(data)
    ones: i64 = ONES
    while at < end:
        if at + 8 <= end:
            eight: i64 = read_i64_le(data, at)
            below: i64 = (eight - ones * 3 & ~eight) >> 7 & ones
            if not below:
                at += 8
                continue
            at += first_of(below)
        one: i64 = data[at]
        if least <= one <= 2:
            return at
        at += 1
    return end


def stands_at(data: bytes, at: i64, text: bytes) -> bool:
    """Does `text` stand in `data` from `at` on? There are as many bytes."""
    size: i64 = len(text)
    position: i64 = 0
    while position + 8 <= size:
        if read_i64_le(data, at + position) != read_i64_le(text, position):
            return False
        position += 8
    while position < size:
        if data[at + position] != text[position]:
            return False
        position += 1
    return True
