"""Properties read by columns, by separators, by name or slowly are the same: those of `decode_properties`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquette.message.properties import decode_properties
from roquette_spark.source import columns as module
from roquette_spark.source.columns import (
    Properties,
    UniformProperties,
    VariedProperties,
    property_columns,
)

FILLER = b"\x01filler\x02"  # stands between the strings: nothing may be read of it


def columns_of(sections: list[bytes]) -> Properties:
    data, starts, ends = FILLER, [], []
    for section in sections:
        starts.append(len(data))
        data += section
        ends.append(len(data))
        data += FILLER
    return property_columns(data, np.array(starts, np.int64), np.array(ends, np.int64))


def check(sections: list[bytes]) -> Properties:
    """All that the columns tell is what the slow codec tells."""
    found = columns_of(sections)
    expected = [decode_properties(section.decode("utf-8", "replace")) for section in sections]
    for name in {"TAGS", "absent", *(name for row in expected for name in row)}:
        column = found.column(name)
        column.validate(full=True)
        assert column.to_pylist() == [row.get(name) for row in expected]
        has = found.has(name)
        present = [False] * len(sections) if has is None else has.tolist()
        assert present == [name in row for row in expected]
        assert (has is None) == (not any(present))
    for without in (frozenset[str](), frozenset({"TAGS"}), frozenset({"TAGS", "KEYS", "a"})):
        maps = found.maps(without=without)
        maps.validate(full=True)
        assert maps.to_pylist() == [
            [(name, value) for name, value in row.items() if name not in without]
            for row in expected
        ]
    return found


def section(**properties: str) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


ONE, TWO = section(KEYS="k1", TAGS="A", a="x"), section(KEYS="k2", TAGS="B", a="x")


@pytest.mark.parametrize(
    ("sections", "by_columns"),
    [
        ([ONE, TWO, ONE], True),
        ([ONE], True),
        ([ONE, section(KEYS="k", TAGS="AB", a="x")], False),  # as long, but cut elsewhere
        ([ONE, section(KEYS="k", TAGS="AB", a="xyz")], False),  # values of other sizes
        ([section(KEYS="ü"), section(KEYS="ä")], False),
        ([section(KEYS="a\x00"), section(KEYS="ab")], False),
    ],
)
def test_the_same_names_in_the_same_order_are_read_by_counting(
    sections: list[bytes], by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(
        module, "from_separators", lambda *a, f=module.from_separators: calls.append(a) or f(*a)
    )

    assert isinstance(check(sections), UniformProperties)

    assert (not calls) == by_columns


@pytest.mark.parametrize(
    "sections",
    [
        [ONE, section(TAGS="A", KEYS="k1", a="x")],  # another order
        [ONE, section(KEYS="k1", TAGS="A", b="x")],  # another name of one size
        [ONE, section(KEYS="k1", TAGS="A", bc="x")],  # and of another
        [ONE, section(KEYS="k1", TAGS="A", a="x", b="y")],  # one more
        [ONE, section(KEYS="k1", TAGS="A"), section(KEYS="k1", TAGS="A", a="x", b="y")],
        [ONE, b""],
        [b"", b""],
        [ONE, section(KEYS="k1", TAGS="A", ä="x")],
    ],
)
def test_other_names_are_read_by_name(sections: list[bytes]) -> None:
    assert isinstance(check(sections), VariedProperties)


@pytest.mark.parametrize(
    "odd",
    [
        b"KEYS\x01k1\x02TAGS\x01A\x02a\x01x",  # no separator at the end
        b"KEYS\x01\x02TAGS\x01A1\x02a\x01xy\x02",  # an empty value
        b"\x01KEYS\x02TAGS\x01A1\x02a\x01x\x02",  # an empty name
        b"KEYS\x01k\x01\x02TAGS\x01A\x02a\x01x\x02",  # a separator of names within a value
        b"KEYS\x02k1\x01TAGS\x01A\x02a\x01x\x02",
        b"a\x01k1\x02TAGS\x01A\x02a\x01xyzw\x02",  # a name twice
        b"KEYS\x01k\xff\x02TAGS\x01A\x02a\x01x\x02",  # no UTF-8
    ],
)
def test_odd_strings_are_read_as_the_codec_reads_them(odd: bytes) -> None:
    for sections in ([odd], [odd, odd], [ONE, odd, TWO], [odd, ONE], [b"", odd]):
        check(sections)


def test_an_entry_ends_with_its_string_even_where_the_next_one_could_go_on_with_it() -> None:
    check([b"KEYS\x01k", b"1\x02TAGS\x01A\x02"])


letters = st.sampled_from("ab \x00ü\x7f")
values = st.text(letters, max_size=3) | st.sampled_from(["k1", "k2", "A\x01", "B\x02"])
names = st.sampled_from(["KEYS", "TAGS", "a", "ab", "ü"])
layouts = st.lists(names, max_size=4)


@given(layouts, st.lists(st.lists(values, min_size=4, max_size=4), max_size=8), layouts)
@settings(deadline=None, max_examples=300)
def test_any_strings_of_one_layout_or_nearly(
    layout: list[str], rows: list[list[str]], other: list[str]
) -> None:
    def text(names: list[str], values: list[str]) -> bytes:
        return "".join(f"{n}\x01{v}\x02" for n, v in zip(names, values)).encode()

    sections = [text(layout, row) for row in rows]
    check(sections)
    check([*sections, text(other, ["k1", "k2", "k1", "k2"])])
    check([text(layout, [v[:1].ljust(2, "x") for v in row]) for row in rows])
