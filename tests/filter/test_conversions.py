"""Java's Integer.valueOf, Long.valueOf and Double.valueOf; more of it is asked of Java itself in the interop tests."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.filter.sql_eval import (
    BAD,
    MAX_INTEGER,
    MAX_LONG,
    compare_double,
    compare_integer,
    double_sign,
    java_double,
    java_integer,
)


@pytest.mark.parametrize(
    "text, value",
    [
        ("5", 5), ("+5", 5), ("-5", -5), ("0005", 5), ("-0", 0), ("٣", 3), ("5٣", 53), ("2147483647", MAX_INTEGER),
        ("-2147483648", -MAX_INTEGER - 1), ("2147483648", None), ("-2147483649", None), ("", None), ("-", None),
        ("+-5", None), (" 5", None), ("5 ", None), ("1_0", None), ("5L", None), ("𝟓", None), ("0x5", None), ("²", None),
    ],
)  # fmt: skip
def test_integers(text, value):
    assert java_integer(text, MAX_INTEGER) == value
    wanted = BAD if value is None else (value > 5) - (value < 5)
    assert compare_integer(text.encode(), 5, False) == wanted


def test_longs():
    assert compare_integer(b"9223372036854775807", MAX_LONG, True) == 0
    assert compare_integer(b"-9223372036854775808", -MAX_LONG - 1, True) == 0
    assert compare_integer(b"9223372036854775808", 0, True) == BAD
    assert compare_integer(b"2147483648", 0, False) == BAD
    assert compare_integer(b"0" * 30 + b"7", 7, True) == 0
    assert compare_integer(b"\xff\xfe", 7, True) == BAD


@given(st.integers(-(1 << 64), 1 << 64), st.integers(-(1 << 63), MAX_LONG))
def test_longs_are_compared_as_numbers(value, constant):
    wanted = (value > constant) - (value < constant)
    if not -(1 << 63) <= value <= MAX_LONG:
        wanted = BAD

    assert compare_integer(str(value).encode(), constant, True) == wanted


@pytest.mark.parametrize(
    "text, value",
    [
        ("5", 5.0), (" 5\t", 5.0), ("\x00 5", 5.0), ("5.", 5.0), (".5", 0.5), ("1e3", 1000.0), ("1E+3", 1000.0), ("1d", 1.0),
        ("1.5F", 1.5), ("NaN", math.nan), ("-Infinity", -math.inf), ("+Infinity", math.inf), ("1e400", math.inf), ("-1e400", -math.inf),
        ("1e-400", 0.0), ("0x1p3", 8.0), ("0x1.8P+1d", 3.0), ("0x.8p0", 0.5), ("0x1p99999", math.inf), ("-0x1p99999", -math.inf),
        ("", None), (".", None), ("e5", None), ("1e", None), ("1dd", None), ("nan", None), ("inf", None), ("infinity", None),
        ("1_0", None), ("٣", None), ("0x1", None), ("0xp3", None), ("1 2", None), ("5\u00a0", None), ("NaNd", None), ("--1", None),
    ],
)  # fmt: skip
def test_doubles(text, value):
    found = java_double(text.encode())
    assert (found is None) == (value is None)
    if value is not None and found is not None:
        assert double_sign(found, value) == 0


@given(st.binary(max_size=30))
def test_any_bytes_are_a_double_or_none(data):
    found = java_double(data)

    assert found is None or isinstance(found, float)
    assert compare_double(data, 5.0) in (-1, 0, 1, BAD)


def test_doubles_are_ordered_as_javas_compare_to():
    order = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    for left in range(len(order)):
        for right in range(len(order)):
            wanted = (left > right) - (left < right)
            assert double_sign(order[left], order[right]) == wanted
