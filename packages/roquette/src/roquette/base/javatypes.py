"""Java's arithmetic on texts and numbers, where the protocol depends on it. HOT."""

import re
from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64

from roquette.base.plain_text import ONES

_HALF_PAIR: Final = re.compile(
    rb"\xed[\xa0-\xbf][\x80-\xbf]?"
)  # Python makes two or three marks of it


def java_text(data: bytes) -> str:
    """`new String(data, UTF_8)`: what is not UTF-8 becomes U+FFFD, as often as Java's decoder says."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _HALF_PAIR.sub(b"\xef\xbf\xbd", data).decode("utf-8", "replace")


def java_hash(text: str, seed: int = 0) -> int:
    """`String.hashCode` of a text: an int32 over its UTF-16 units.

    Args:
        seed: the hash of a prefix, so that `java_hash(b, java_hash(a)) == java_hash(a + b)`.
    """
    value: i64 = seed
    data = text.encode("utf-8", "surrogatepass")
    if len(data) == len(text):  # ASCII, as nearly every key and tag
        position: i64 = 0
        size: i64 = len(data)
        while position < size:
            value = (value * 31 + data[position]) & 0xFFFFFFFF
            position += 1
        return value - 0x100000000 if value > 0x7FFFFFFF else value
    for character in text:
        code: i64 = ord(character)
        if code > 0xFFFF:  # Java sees such a character as two units, a surrogate pair
            code -= 0x10000
            value = (value * 31 + (0xD800 | (code >> 10))) & 0xFFFFFFFF
            code = 0xDC00 | (code & 0x3FF)
        value = (value * 31 + code) & 0xFFFFFFFF
    return value - 0x100000000 if value > 0x7FFFFFFF else value


NOT_ASCII: Final = 1 << 40
_BYTES: Final = 0x00FF00FF00FF00FF
_PAIRS: Final = 0x0000FFFF0000FFFF


def java_hash_ascii(data: bytes, start: i64, end: i64, seed: i64) -> i64:
    """`java_hash` of a piece of encoded text, without a copy; NOT_ASCII when it is not that simple."""
    value: i64 = seed
    position: i64 = start
    while position + 8 <= end:
        eight: i64 = read_i64_le(data, position)
        if eight >> 7 & ONES:
            return NOT_ASCII
        # Neighbours, then their pairs: a sum has the room of its bytes. The first byte is the lowest.
        twos: i64 = (eight & _BYTES) * 31 + (eight >> 8 & _BYTES)
        fours: i64 = (twos & _PAIRS) * 31**2 + (twos >> 16 & _PAIRS)
        value = (value * 31**4 + (fours & 0xFFFFFFFF)) & 0xFFFFFFFF
        value = (value * 31**4 + (fours >> 32)) & 0xFFFFFFFF
        position += 8
    while position < end:
        unit: i64 = data[position]
        if unit > 127:
            return NOT_ASCII
        value = (value * 31 + unit) & 0xFFFFFFFF
        position += 1
    return value - 0x100000000 if value > 0x7FFFFFFF else value


def whole_number(text: str | None, most: int) -> int:
    """The number a property holds, 0 to `most`; -1 if it is invalid."""
    if text is None or len(text) > 20 or not text.isdecimal():
        return -1
    number = int(text)
    return number if number <= most else -1


def parse_java_bool(text: str | None) -> bool:
    """`Boolean.parseBoolean`: "true" in any case is true, everything else is false."""
    return text is not None and text.lower() == "true"
