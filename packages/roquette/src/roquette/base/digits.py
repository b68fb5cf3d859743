"""Numbers as text, written without an object. HOT: compiled by mypyc in the fast build."""

from typing import Final

from librt.strings import BytesWriter, write_i64_be, write_i64_le
from mypy_extensions import i64, u8

_EIGHT_DIGITS: Final = 100_000_000


def write_decimal(w: BytesWriter, value: i64) -> None:
    """Append a number as Java's Long.toString writes it; `value` is above -2**63."""
    if value < 0:
        w.append(u8(45))
        value = -value
    if value < _EIGHT_DIGITS:
        _write_digits(w, value, 1)
    else:
        write_decimal(w, value // _EIGHT_DIGITS)
        _write_digits(w, value % _EIGHT_DIGITS, 8)


def _write_digits(w: BytesWriter, value: i64, least: i64) -> None:
    """Append `least` to eight digits, the first one lowest in `eight`."""
    eight: i64 = 0
    size: i64 = 0
    while value > 0 or size < least:
        eight = eight << 8 | 48 + value % 10
        value //= 10
        size += 1
    start: i64 = len(w)
    write_i64_le(w, eight)
    w.truncate(start + size)


def write_hex(w: BytesWriter, value: i64) -> None:
    """Append the 64 bits of a number as 16 hexadecimal digits, A to F large."""
    write_i64_be(w, _eight_hex(value >> 32 & 0xFFFFFFFF))
    write_i64_be(w, _eight_hex(value & 0xFFFFFFFF))


def _eight_hex(value: i64) -> i64:
    """Eight digits, the last one lowest: the value's parts of four bits are moved to a byte each."""
    value = (value | value << 16) & 0x0000FFFF0000FFFF
    value = (value | value << 8) & 0x00FF00FF00FF00FF
    value = (value | value << 4) & 0x0F0F0F0F0F0F0F0F
    letters: i64 = value + 0x0606060606060606 >> 4 & 0x0101010101010101
    return value + 0x3030303030303030 + letters * 7
