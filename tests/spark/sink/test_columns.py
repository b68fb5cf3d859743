"""Arrow columns to bytes, also sliced ones and ones with nulls; Java's hash of a whole column."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquette.base.javatypes import java_hash
from roquette_spark.sink.rows import (
    BadRow,
    bytes_list,
    check_spaces,
    java_hashes,
    joined_list,
    millisecond_list,
    property_list,
    text_list,
)

KINDS = [pa.string(), pa.large_string(), pa.string_view()]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(values=st.lists(st.none() | st.text(max_size=12), max_size=12), cut=st.integers(0, 4))
def test_strings_come_as_bytes_whatever_arrow_calls_them(
    kind: pa.DataType, values: list[str | None], cut: int
) -> None:
    column = pa.array(values, kind).slice(cut)

    assert bytes_list(column) == [None if v is None else v.encode() for v in values[cut:]]


@settings(deadline=None)
@given(values=st.lists(st.none() | st.text(max_size=40), max_size=12), cut=st.integers(0, 4))
def test_hashes_are_javas(values: list[str | None], cut: int) -> None:
    column = pa.array(values, pa.string()).slice(cut)

    found = java_hashes(column).tolist()

    assert found == [java_hash(v or "") for v in values[cut:]]


def test_hashes_of_known_and_of_long_texts() -> None:
    column = pa.array(["key-1", "order", "x" * 1000])
    assert java_hashes(column).tolist() == [
        java_hash("key-1"),
        java_hash("order"),
        java_hash("x" * 1000),
    ]
    assert java_hash("order") == 106006350  # "order".hashCode() in Java


def test_properties_of_rows_with_nulls_and_slices() -> None:
    rows = [{"x": "0"}, {"a": "1", "b": "2"}, None, {}, {"c": "3", "empty": "", "none": None}]
    column = pa.array([None if r is None else list(r.items()) for r in rows], MAP)

    found = property_list(column.slice(1), frozenset(), frozenset({"b"}), 0)

    assert found == [b"a\x011\x02", b"", b"", b"c\x013\x02"]


MAP = pa.map_(pa.string(), pa.string())


def test_a_reserved_property_is_refused_with_its_row_and_name() -> None:
    column = pa.array([[("a", "1")], [], [("b", "1"), ("UNIQ_KEY", "x")]], MAP)

    with pytest.raises(BadRow, match=r"row 102: the property UNIQ_KEY is RocketMQ's own"):
        property_list(column, frozenset({"UNIQ_KEY"}), frozenset(), 100)


def test_separators_and_spaces_are_refused_with_their_row() -> None:
    with pytest.raises(BadRow, match=r"row 8: tags holds a control character"):
        text_list(pa.array(["a", "b\x02c"]), "tags", 7)
    with pytest.raises(BadRow, match=r"row 1: key holds a space"):
        check_spaces([b"a", b"b c", None], "key", 0)
    with pytest.raises(BadRow, match=r"row 0: keys holds a space"):
        joined_list(pa.array([["a", "b c"]]), "keys", 0)


def test_lists_of_keys_are_joined() -> None:
    column = pa.array([["x"], ["a", "b"], None, [], ["c", None, ""]]).slice(1)
    assert joined_list(column, "keys", 0) == [b"a b", None, None, b"c"]


def test_times_become_milliseconds_towards_the_past() -> None:
    times = pa.array([1_700_000_000_123_999, None, -1], pa.timestamp("us", tz="UTC"))
    assert millisecond_list(times) == [1_700_000_000_123, None, -1]
    assert millisecond_list(pa.array([5], pa.int64())) == [5]
