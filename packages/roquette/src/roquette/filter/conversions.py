"""Java's conversions of property texts, byte for byte as its filter does them. HOT.

A text is the UTF-8 of a property. Integer.valueOf and Long.valueOf take a sign and decimal digits of any script;
Double.valueOf trims, and takes what FloatingDecimal.readJavaFormatString takes.
"""

import math
import re
import unicodedata
from typing import Final

from mypy_extensions import i64

BAD: Final = 2  # instead of a sign: the text is no such number (NumberFormatException)

MAX_INTEGER: Final = 2_147_483_647
MAX_LONG: Final = 9_223_372_036_854_775_807
_FAST_DIGITS: Final = 18  # so many always fit

_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_BLANKS: Final = "".join([chr(code) for code in range(33)])


def compare_integer(text: bytes, constant: i64, is_long: bool) -> i64:
    """Sign of text minus constant, after Long.valueOf or Integer.valueOf; BAD when the text is invalid."""
    size: i64 = len(text)
    position: i64 = 0
    value: i64 = 0
    negative = False
    if size > 0:
        first: i64 = text[0]
        if first == 45:
            negative = True
            position = 1
        elif first == 43:
            position = 1
    # More digits may not fit an i64, and Java takes digits beyond ASCII: the slow way judges both.
    if position == size or size - position > _FAST_DIGITS:
        return _compare_slowly(text, constant, is_long)
    while position < size:
        digit: i64 = text[position]
        if digit < 48 or digit > 57:
            return _compare_slowly(text, constant, is_long)
        value = value * 10 + digit - 48
        position += 1
    if negative:
        value = -value
    if not is_long and (value > MAX_INTEGER or value < -MAX_INTEGER - 1):
        return BAD
    if value < constant:
        return -1
    return 1 if value > constant else 0


def _compare_slowly(text: bytes, constant: int, is_long: bool) -> int:
    value = java_integer(text.decode("utf-8", "replace"), MAX_LONG if is_long else MAX_INTEGER)
    if value is None:
        return BAD
    if value < constant:
        return -1
    return 1 if value > constant else 0


def java_integer(text: str, highest: int) -> int | None:
    """Integer.valueOf or Long.valueOf, by their highest value; None where Java throws."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        return None
    value = 0
    for character in digits:
        digit = -1
        if ord(character) <= 0xFFFF:  # Java looks at UTF-16 units: half a pair is no digit
            digit = unicodedata.decimal(character, -1)
        if digit < 0:
            return None
        value = value * 10 + digit
        if value > highest + 1:
            return None
    if text.startswith("-"):
        return -value
    return value if value <= highest else None


def java_double(text: bytes) -> float | None:
    """Double.valueOf; None where Java throws."""
    words = text.decode("utf-8", "replace").strip(_BLANKS)
    found = _DECIMAL.match(words)
    if found is not None:
        rest = words[found.end() :]
        if not rest or (len(rest) == 1 and rest in "fFdD"):
            return float(found.group())
    unsigned = words[1:] if words[:1] in ("+", "-") else words
    if unsigned == "NaN":
        return math.nan
    if unsigned == "Infinity":
        return -math.inf if words.startswith("-") else math.inf
    found = _HEX.match(words)
    if found is not None:
        rest = words[found.end() :]
        if not rest or (len(rest) == 1 and rest in "fFdD"):
            return _from_hex(found.group())
    return None


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def compare_double(text: bytes, constant: float) -> int:
    """Sign of text compared with a constant, after Double.valueOf; BAD when the text is invalid."""
    value = java_double(text)
    return BAD if value is None else double_sign(value, constant)


def double_sign(left: float, right: float) -> int:
    """Double.compareTo: -0.0 is below 0.0, NaN equals itself and is above everything."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        if left != 0.0:
            return 0
        return int(math.copysign(1.0, left) - math.copysign(1.0, right)) // 2
    if left != left:  # noqa: PLR0124 - NaN
        return 0 if right != right else 1  # noqa: PLR0124
    return -1
