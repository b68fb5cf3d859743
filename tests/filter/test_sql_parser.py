"""The checks and bounds of the parser; that it takes what Apache takes is shown against Apache's own."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.errors import ExpressionError
from roquette.filter.sql_parser import (
    MAX_DEPTH,
    MAX_HEIGHT,
    MAX_NODES,
    Constant,
    Equal,
    IsNull,
    Not,
    Property,
    Type,
    parse_sql,
)
from roquette.filter.tags import MAX_LENGTH

WORDS = (
    "a b c TAGS NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH = <> > >= < <= ( ) , + - "
    "0 1 5 1L 1.5 1e400 99999999999999999999 'x' '' '5' 'open @ -- /*"
)  # fmt: skip


def test_a_tree():
    node, count = parse_sql("NOT a IS NOT NULL")

    assert count == 5
    assert node == Not(IsNull(Not(parse_sql("a")[0])))


def test_constants_have_javas_class():
    types = []
    for text in ("5", "2147483647", "2147483648", "5L", "5.", "'5'", "TRUE"):
        node, _ = parse_sql(f"a = {text}")
        assert isinstance(node, Equal)
        assert isinstance(node.right, Constant)
        types.append(node.right.type)

    assert types == [
        Type.INTEGER, Type.INTEGER, Type.LONG, Type.INTEGER, Type.DOUBLE, Type.STRING, Type.BOOLEAN,
    ]  # fmt: skip


def test_what_stands_behind_a_complete_expression_is_not_read():
    assert parse_sql("a = b c @")[0] == Equal(Property("a"), Property("b"))


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "the end at column 1, expected a property, a literal or a bracket"),
        ("a =", "the end at column 4, expected a property"),
        ("a = 1 @", "no token begins with '@' at column 7"),
        ("a NOT 5", "'5' at column 7, expected BETWEEN, IN"),
        ("a IN (5)", "'5' at column 7, expected a text in single quotes"),
        ("a IN ('x'", "the end at column 10, expected CLOSE"),
        ("5 IN ('x')", "IN wants a property on its left"),
        ("a = NULL", "NULL cannot be compared, use IS NULL"),
        ("TRUE = 5", "TRUE and FALSE cannot be compared with texts and numbers"),
        ("a > 'x'", "'x' cannot be compared by >"),
        ("(a = 1) > 5", "a truth value cannot be compared by >"),
        ("a BETWEEN 5 AND 1", "BETWEEN: 5 must be less than or equal to 1"),
        ("5", "the expression will not result in a boolean value"),
        ("-a", "the expression will not result in a boolean value"),
        ("a = 9223372036854775808", "does not fit a long"),
        ("a = " + "9" * 5000, "does not fit a long"),
        ("a = 0.0", "is not a double above 0"),
        ("a = 1e400", "is not a double above 0"),
        ("a" * (MAX_LENGTH + 1), f"the expression has {MAX_LENGTH + 1} characters"),
        ("(" * (MAX_DEPTH + 1) + "a", f"nested deeper than {MAX_DEPTH}"),
        ("NOT " * (MAX_DEPTH + 1) + "a", f"nested deeper than {MAX_DEPTH}"),
        ("a IS NULL" + " IS NULL" * MAX_HEIGHT, f"nested deeper than {MAX_HEIGHT}"),
        ("b OR " * (MAX_NODES // 2) + "b", f"more than {MAX_NODES} names"),
    ],
)
def test_errors_say_what_is_wrong(text, words):
    with pytest.raises(ExpressionError) as raised:
        parse_sql(text)

    assert words in str(raised.value)


def test_an_error_quotes_little_of_a_long_literal():
    with pytest.raises(ExpressionError) as raised:
        parse_sql("a > '" + "x" * 10_000 + "'")

    assert len(str(raised.value)) < 200


def test_wide_expressions_are_fine():
    many = " OR ".join(f"a = '{number}'" for number in range(900))
    listed = "a IN (" + ",".join(f"'{number}'" for number in range(1500)) + ")"

    assert parse_sql(many)[1] == 2701
    assert parse_sql(listed)[1] == 2
    parse_sql("(" * (MAX_DEPTH - 1) + "a" + ")" * (MAX_DEPTH - 1))


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_an_error_of_ours(text):
    with contextlib.suppress(ExpressionError):
        parse_sql(text)


@given(st.lists(st.sampled_from(WORDS.split(" ")), max_size=20))
def test_any_row_of_words_is_an_expression_or_an_error_of_ours(words):
    with contextlib.suppress(ExpressionError):
        parse_sql(" ".join(words))
