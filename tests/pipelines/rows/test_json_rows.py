"""JSON bodies as columns: the fast way says what the slow one says, and both what Spark's from_json says."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipelines.rows.test_json_bodies import array, bodies, map_of, struct

from roquette_spark.pipelines.rows.json_rows import (
    EMPTY,
    MALFORMED,
    NO_OBJECT,
    NOT_UTF8,
    TWICE,
    JsonReader,
)


def schema(**columns: Any) -> str:
    return json.dumps(struct(**columns))


REGULAR = schema(
    n="long",
    name="string",
    at="double",
    yes="boolean",
    small="integer",
    inner=struct(n="long", name="string"),
    list=array("long"),
)


def both(text: str, *given_bodies: bytes | None) -> list[list[Any]]:
    """What the slow way reads, after a comparison with the fast one where that reads it at all."""
    values = pa.array(given_bodies, pa.binary())
    slow = JsonReader(text)._read_each(values)
    found = [
        [*(column[i].as_py() for column in slow.columns), slow.errors[i].as_py()]
        for i in range(len(values))
    ]
    reader = JsonReader(text)
    fast = reader._read_at_once(values) if reader._regular else None
    if fast is not None:
        assert slow.rescued is None
        for one, other in zip(slow.columns, fast.columns, strict=True):
            assert one.type == other.type
            assert repr(one.to_pylist()) == repr(other.to_pylist())
        assert fast.errors.null_count == len(values) == slow.errors.null_count
    return found


@settings(max_examples=settings.default.max_examples * 4, deadline=None)
@given(st.lists(bodies.map(lambda body: json.dumps(body).encode()), min_size=1, max_size=4))
def test_the_fast_way_reads_what_the_slow_one_reads_or_nothing(some: list[bytes]) -> None:
    both(REGULAR, *some)


ODD = [
    b'{"n":1}{"n":2}',
    b'{"n":1',
    b'"name":"x"}',
    b'{"inner":',
    b'{"n":1}}',
    b'{"n":1,}',
    b'{"n":1}\n{"n":2}',
    b'{"n":\n1}',
    b'{"n":0},"body":{"n":1}',
    b'{"n":0}}\n{"row":1,"body":{"n":1}',
    b"null",
    b'{"name":"\\ud83d\\ude00"}',
    b'{"name":"\\ud83d"}',
    b'{"at":NaN}',
    b'{"at":1e400}',
    b'{"at":-0.0}',
    b'{"n":01}',
    b'{"n":1.0}',
    b'{"small":2147483648}',
    b'{"list":[1,null,2]}',
    b'{"inner":null}',
    b'{"inner":[]}',
    b"{}",
    b" {}",
    b'{"n":1,"n":2}',
    b'\xef\xbb\xbf{"n":1}',
]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(ODD), min_size=1, max_size=5))
def test_halves_and_doubles_never_shift_rows(some: list[bytes]) -> None:
    both(REGULAR, *some)


def test_regular_bodies_take_the_fast_way() -> None:
    some = [json.dumps({"n": i, "name": f"größe {i}", "list": [i]}).encode() for i in range(50)]

    found = JsonReader(REGULAR)._read_at_once(pa.array(some))

    assert found is not None
    assert found.columns[0].to_pylist() == list(range(50))


@pytest.mark.parametrize(
    "body, error",
    [
        (None, EMPTY),
        (b"", EMPTY),
        (b"\xff{}", NOT_UTF8),
        (b"[1]", NO_OBJECT),
        (b"null", NO_OBJECT),
        (b'{"n": 1', MALFORMED),
        (b'{"n": 1, "n": 2}', TWICE),
    ],
)
def test_why_a_body_is_bad(body: bytes | None, error: str) -> None:
    [row] = both(REGULAR, body)

    assert row[-1] == error


@pytest.mark.parametrize(
    "kind, text, expected",
    [
        ("string", '{"a": [1, 2.50]}', '{"a":[1,2.50]}'),
        ("string", "1.10", "1.10"),
        ("string", "true", "true"),
        ("long", "19.0", 19),
        ("double", '"-INF"', -math.inf),
        ("float", "3.4028235e38", 3.4028234663852886e38),
        ("decimal(5,2)", "1.010", Decimal("1.01")),
        ("decimal(5,2)", "1e2", Decimal("100.00")),
        ("decimal(38,3)", "12345678901234567890123456789012345.5", Decimal("12345678901234567890123456789012345.500")),
        ("decimal(5,2)", '"12.5"', Decimal("12.50")),
        ("date", '"2023-02-01"', date(2023, 2, 1)),
        ("timestamp", '"2023-02-01T10:00:00.5+02:00"', datetime(2023, 2, 1, 8, 0, 0, 500_000, UTC)),
        ("timestamp", '"2023-02-01 10:00:00"', datetime(2023, 2, 1, 10, tzinfo=UTC)),
        ("timestamp", "1675245600", datetime(2023, 2, 1, 10, tzinfo=UTC)),
        ("binary", '"YWI="', b"ab"),
        (
            map_of("long"),
            '{"a": 1}',
            [("a", 1)],
        ),
        (
            map_of("long", "integer"),
            '{"7": 1}',
            [(7, 1)],
        ),
    ],
)  # fmt: skip
def test_values_by_their_columns_type(kind: Any, text: str, expected: Any) -> None:
    [row] = both(schema(x=kind), f'{{"x": {text}}}'.encode())

    assert row == [expected, None]


@pytest.mark.parametrize(
    "kind, text",
    [
        ("decimal(3,2)", "10.5"),
        ("decimal(10,2)", "1.005"),
        ("decimal(10,2)", '"NaN"'),
        ("decimal(10,2)", '"1_0"'),
        ("decimal(10,2)", "NaN"),
        ("decimal(10,2)", "1e999999999"),
        ("float", "1e300"),
        ("float", "-3.4028236e38"),
        ("double", "1e400"),
        ("double", "1" + "0" * 400),
        ("long", "1.5"),
        ("long", "9223372036854775808"),
        ("long", '"1"'),
        ("long", "true"),
        ("double", '"1.5"'),
        ("boolean", "1"),
        (array("long"), "{}"),
        (struct(a="long"), "[]"),
        (map_of("long", "integer"), '{"x": 1}'),
        (map_of("long", "double"), '{"1.0": 1, "1.00": 2}'),
        ("date", '"2023-02-30"'),
        ("date", "5"),
        ("timestamp", '"yesterday"'),
        ("timestamp", "1e300"),
        ("binary", '"%"'),
        ("boolean", '"true"'),
        ("byte", "128"),
    ],
)  # fmt: skip
def test_a_value_that_its_column_cannot_hold_costs_that_field_alone(kind: Any, text: str) -> None:
    body = f'{{"x": {text}, "y": 7}}'.encode()
    given = pa.array([body], pa.binary())
    found = JsonReader(schema(x=kind, y="long")).read(given)

    x, y = found.columns
    assert (x.to_pylist(), y.to_pylist(), found.errors.to_pylist()) == ([None], [7], [None])
    assert found.rescued is not None
    assert found.rescued.to_pylist() == [f'{{"x":{text.replace(" ", "")}}}']


def test_what_no_column_takes_is_rescued_and_becomes_news() -> None:
    reader = JsonReader(schema(n="integer", inner=struct(x="long")))
    some = [
        b'{"n": 1, "late": {"a": [1.50, null], "b": null}}',
        b'{"n": 2, "inner": {"x": 1, "y": "t"}}',
        b'{"n": 3}',
        b'{"n": 3000000000}',
    ]

    found = reader.read(pa.array(some))

    assert found.rescued is not None
    assert found.rescued.to_pylist() == ['{"late":{"a":[1.50,null],"b":null}}', '{"inner":{"y":"t"}}', None, '{"n":3000000000}']  # fmt: skip
    assert found.errors.null_count == 4
    wider = reader.news
    assert wider == struct(
        n="long", inner=struct(x="long", y="string"), late=struct(a=array("double"))
    )
    again = JsonReader(json.dumps(wider)).read(pa.array(some))
    assert again.errors.null_count == 4
    assert again.rescued is not None
    assert again.rescued.to_pylist() == ['{"late":{"b":null}}', None, None, None]
