"""Numbers as text, written without an object. HOT: compiled by mypyc in the fast build."""

from librt.strings import BytesWriter
from mypy_extensions import i64, u8


def write_decimal(w: BytesWriter, value: i64) -> None:
    """Append a number as Java's Long.toString writes it; `value` is above -2**63."""
    if value < 0:
        w.append(u8(45))
        value = -value
    if value < 10:
        w.append(u8(48 + value))
        return
    power: i64 = 1
    while value // power >= 10:
        power *= 10
    while power > 0:
        digit: i64 = value // power
        w.append(u8(48 + digit))
        value -= digit * power
        power //= 10


def write_hex(w: BytesWriter, value: i64) -> None:
    """Append a number that is not negative as 16 hexadecimal digits, A to F large."""
    shift: i64 = 60
    while shift >= 0:
        digit: i64 = (value >> shift) & 15
        w.append(u8(48 + digit if digit < 10 else 55 + digit))
        shift -= 4
