"""Selectors asked about property bytes: three-valued logic, Java's conversions, total for any bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.interop.filter_cases import VALUES, Cases

from roquette.errors import ExpressionError
from roquette.filter.sql_compile import compile_sql
from roquette.filter.sql_eval import ERROR, FALSE, NULL, TRUE
from roquette.message.properties import property_bytes

MESSAGE = (
    b"n\x015\x02big\x012147483648\x02d\x011.5\x02s\x01abc\x02t\x01tRUe\x02e\x01\x02p\x01it's\x02"
)
ANSWERS = [
    ("n = 5", TRUE), ("n = 5.0", TRUE), ("n = '5'", TRUE), ("n = '5.0'", FALSE), ("n <> 5", FALSE),
    ("n > 4 AND n < 6", TRUE), ("n BETWEEN 5 AND 5", TRUE), ("n NOT BETWEEN 1 AND 4", TRUE),
    ("4 < n", TRUE), ("6 <= n", FALSE), ("n > -1", TRUE), ("n = - -5", TRUE),
    ("big > 5", ERROR), ("big > 5L", ERROR), ("big > 2147483648", FALSE), ("big >= 2147483648", TRUE),
    ("d > 1", ERROR), ("d > 1.0", TRUE), ("d = 1.5", TRUE), ("s > 1.0", ERROR), ("s > n", ERROR),
    ("d < n", TRUE), ("s = 'abc'", TRUE), ("s = s", TRUE), ("s = n", FALSE),
    ("s CONTAINS 'b'", TRUE), ("s STARTSWITH 'b'", FALSE), ("s ENDSWITH 'c'", TRUE),
    ("s NOT CONTAINS 'x'", TRUE), ("s CONTAINS ''", FALSE), ("s NOT CONTAINS ''", FALSE),
    ("x CONTAINS 'b'", FALSE), ("x NOT CONTAINS 'b'", FALSE), ("5 CONTAINS '5'", FALSE),
    ("'abc' CONTAINS 'b'", TRUE), ("'' NOT ENDSWITH 'a'", TRUE),
    ("s IN ('x', 'abc')", TRUE), ("s NOT IN ('x')", TRUE), ("x IN ('x')", NULL), ("x NOT IN ('x')", NULL),
    ("p = 'it''s'", TRUE), ("t = TRUE", TRUE), ("t = FALSE", FALSE), ("s = FALSE", TRUE), ("TRUE = t", ERROR),
    ("TRUE = x", FALSE), ("t", FALSE), ("x", NULL), ("NOT t", TRUE), ("NOT x", NULL),
    ("x = 5", NULL), ("x <> 5", NULL), ("5 = x", FALSE), ("5 <> x", TRUE), ("x > 5", NULL), ("5 > x", NULL),
    ("x = y", TRUE), ("x = s", NULL), ("s = x", FALSE), ("x IS NULL", TRUE), ("s IS NULL", FALSE),
    ("s IS NOT NULL", TRUE), ("e IS NULL", TRUE), ("(x = 1) IS NULL", TRUE), ("(d > 1) IS NULL", ERROR),
    ("TRUE", TRUE), ("NULL", NULL), ("NOT NULL", NULL), ("5 = TRUE", FALSE), ("5 = 5.0", TRUE), ("5 IS NULL", FALSE),
    ("x = 1 AND s = 'no'", FALSE), ("x = 1 AND s = 'abc'", NULL), ("x = 1 OR s = 'abc'", TRUE),
    ("x = 1 OR s = 'no'", NULL), ("d > 1 OR TRUE", ERROR), ("TRUE OR d > 1", TRUE), ("FALSE AND d > 1", FALSE),
    ("-s = 5", NULL), ("-(d > 1) = 5", ERROR), ("(n = 5) = (s = 'abc')", TRUE), ("NOT n = 5", FALSE),
]  # fmt: skip


@pytest.mark.parametrize("expression, answer", ANSWERS)
def test_answers(expression, answer):
    found = compile_sql(expression)

    assert found.evaluate(MESSAGE) == answer
    assert found.matches(MESSAGE) == (answer == TRUE)


@pytest.mark.parametrize(
    "properties, value",
    [
        (b"", None),
        (b"a\x015\x02", b"5"),
        (b"a\x015", b"5"),
        (b"b\x01x\x02a\x015\x02", b"5"),
        (b"a\x011\x02a\x012\x02", b"2"),
        (b"a\x011\x02a\x01\x02", b"1"),
        (b"a\x011\x02b\x01a\x015\x02", b"1"),
        (b"a\x011\x015\x02", b"1\x015"),
        (b"ba\x015\x02", None),
        (b"a\x01", None),
        (b"a\x02a", None),
        (b"\x02\x02a\x017\x02", b"7"),
    ],
)
def test_a_property_is_found_as_java_finds_it(properties, value):
    assert property_bytes(properties, b"a\x01") == value


@given(st.integers(0, 1 << 32), st.one_of(st.binary(max_size=80), st.sampled_from(VALUES)))
def test_every_compiled_selector_answers_for_any_bytes(seed, value):
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    cases = Cases(seed)
    for _ in range(5):
        try:
            found = compile_sql(cases.next()[0])
        except ExpressionError:
            continue
        assert found.evaluate(data) in (TRUE, FALSE, NULL, ERROR)
        assert found.evaluate(b"a\x01" + data + b"\x02b\x01" + data) in (TRUE, FALSE, NULL, ERROR)


def test_deep_and_wide_selectors_do_not_exhaust_the_stack():
    deep = "NOT (" * 31 + "a IS NULL" + " IS NULL" * 60 + ")" * 31
    wide = " OR ".join(["a = 'x'"] * 1300)

    assert compile_sql(deep).evaluate(b"") in (TRUE, FALSE)
    assert compile_sql(wide).evaluate(b"") == NULL
