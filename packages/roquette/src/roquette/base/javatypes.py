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


def java_hash_ascii(data: bytes, start: i64, end: i64, seed: i64) -> i64:
    """`java_hash` of a piece of encoded text, without a copy; NOT_ASCII when it is not that simple."""
    value: i64 = seed
    position: i64 = start
    while position + 8 <= end:
        eight: i64 = read_i64_le(data, position)
        if eight >> 7 & ONES:
            return NOT_ASCII
        value = _hash_of_four(value, eight)
        value = _hash_of_four(value, eight >> 32)
        position += 8
    while position < end:
        unit: i64 = data[position]
        if unit > 127:
            return NOT_ASCII
        value = (value * 31 + unit) & 0xFFFFFFFF
        position += 1
    return value - 0x100000000 if value > 0x7FFFFFFF else value


def _hash_of_four(value: i64, four: i64) -> i64:
    """The hash with four more bytes, the first one lowest."""
    value = (value * 31 + (four & 255)) * 31 + (four >> 8 & 255)
    return ((value * 31 + (four >> 16 & 255)) * 31 + (four >> 24 & 255)) & 0xFFFFFFFF


def whole_number(text: str | None, most: int) -> int:
    """The number a property holds, 0 to `most`; -1 if it is invalid."""
    if text is None or len(text) > 20 or not text.isdecimal():
        return -1
    number = int(text)
    return number if number <= most else -1


def parse_java_bool(text: str | None) -> bool:
    """`Boolean.parseBoolean`: "true" in any case is true, everything else is false."""
    return text is not None and text.lower() == "true"
