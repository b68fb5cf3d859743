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
from tests.pipelines.kit.test_json_bodies import SCHEMA, bodies, sample
from tests.pipelines.rows.test_decoder import messages

from roquette_spark.pipelines.kit.message_rows import MALFORMED, TWICE, RowForm
from roquette_spark.pipelines.rows.decoder import Decoder, widened
from roquette_spark.pipelines.rows.json_rows import EMPTY, NO_OBJECT, NOT_UTF8, JsonReader


def schema(**columns: Any) -> str:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def struct(**columns: Any) -> Any:
    return json.loads(schema(**columns))


def array(kind: Any) -> Any:
    return {"type": "array", "elementType": kind, "containsNull": True}


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
        (b'{"n": "1"}', MALFORMED),
        (b'{"n": true}', MALFORMED),
        (b'{"n": 1.5}', MALFORMED),
        (b'{"n": 9223372036854775808}', MALFORMED),
        (b'{"yes": 1}', MALFORMED),
        (b'{"at": "1.5"}', MALFORMED),
        (b'{"inner": []}', MALFORMED),
        (b'{"list": {}}', MALFORMED),
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
        ("double", "1e400", math.inf),
        ("decimal(5,2)", "1.005", Decimal("1.01")),
        ("decimal(5,2)", '"12.5"', Decimal("12.50")),
        ("date", '"2023-02-01"', date(2023, 2, 1)),
        ("timestamp", '"2023-02-01T10:00:00.5+02:00"', datetime(2023, 2, 1, 8, 0, 0, 500_000, UTC)),
        ("timestamp", '"2023-02-01 10:00:00"', datetime(2023, 2, 1, 10, tzinfo=UTC)),
        ("timestamp", "1675245600", datetime(2023, 2, 1, 10, tzinfo=UTC)),
        ("binary", '"YWI="', b"ab"),
        (
            {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
            '{"a": 1}',
            [("a", 1)],
        ),
    ],
)
def test_values_by_their_columns_type(kind: Any, text: str, expected: Any) -> None:
    [row] = both(schema(x=kind), f'{{"x": {text}}}'.encode())

    assert row == [expected, None]


@pytest.mark.parametrize(
    "kind, text",
    [
        ("decimal(3,2)", "10.5"),
        ("date", '"2023-02-30"'),
        ("date", "5"),
        ("timestamp", '"yesterday"'),
        ("timestamp", "1e300"),
        ("binary", '"%"'),
        ("boolean", '"true"'),
        ("byte", "128"),
    ],
)
def test_values_that_do_not_fit(kind: Any, text: str) -> None:
    [row] = both(schema(x=kind), f'{{"x": {text}}}'.encode())

    assert row == [None, MALFORMED]


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
    assert found.rescued.to_pylist() == ['{"late":{"a":[1.50,null],"b":null}}', '{"inner":{"y":"t"}}', None, None]  # fmt: skip
    assert found.errors.to_pylist() == [None, None, None, MALFORMED]
    wider = widened(struct(n="integer", inner=struct(x="long")), reader.news)
    assert wider == struct(
        n="long", inner=struct(x="long", y="string"), late=struct(a=array("double"))
    )
    again = JsonReader(json.dumps(wider)).read(pa.array(some))
    assert again.errors.null_count == 4
    assert again.rescued is not None
    assert again.rescued.to_pylist() == ['{"late":{"b":null}}', None, None, None]


def same(mine: Any, theirs: Any) -> bool:
    """But for JSON within texts, where Spark may write a number in another way than the body has it."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return mine.keys() == theirs.keys() and all(same(mine[n], theirs[n]) for n in mine)
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if mine != theirs and isinstance(mine, str) and isinstance(theirs, str):
        return bool(json.loads(mine) == json.loads(theirs))
    return repr(mine) == repr(theirs)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_rows_are_those_that_spark_makes(spark: Any) -> None:
    from pyspark.sql.types import StructType

    from roquette_spark.pipelines.kit import message_rows as forms

    text = StructType.fromDDL(
        SCHEMA + ", d decimal(9,2), day date, t timestamp, b boolean, f float, s short"
    ).json()
    form = RowForm("json", text)
    more = [
        b'{"d": 1.005, "day": "2023-02-01", "t": "2023-02-01T10:00:00Z", "b": true, "f": 0.1, "s": 7}',
        b'{"d": "12.5", "t": 1675245600}',
        b'{"d": 123456789.5}',
        b'{"day": "2023-02-30"}',
        b'{"day": "2023-1-5"}',
        b'{"t": "2023-02-01 10:00:00.123456"}',
        b'{"t": "2023-02-01"}',
        b'{"s": 40000}',
        b'{"at": NaN}',
        b'{"at": "Infinity"}',
        b'{"at": ""}',
        b'{"name": 1.10}',
        b'{"name": {"a":[1,2.50]}}',
        b'{"list": 1}',
        b'{"inner": "x"}',
        b'{"texts": {"a": null}}',
        b"",
        b"\xff{}",
        b"\v{}",
        b"{}x",
        *ODD,
    ]
    batch = messages(*sample(1500), *more)
    # Rows, not Arrow: PySpark 4.2 would want pandas for it.
    rows = [
        tuple(dict(each) if name == "properties" else each for name, each in row.items())
        for row in batch.to_pylist()
    ]
    frame = forms.marked(spark.createDataFrame(rows, forms.source_schema()), form)
    fine = frame.where(f"{forms.BAD} is null").selectExpr(
        f"{forms.PARSED}.*", "queue_offset as _queue_offset", f"{forms.LOOKED}.rescued as _rescued"
    )
    good = {row["_queue_offset"]: row.asDict(recursive=True) for row in fine.collect()}
    bad = {row["queue_offset"]: row["error"] for row in forms.bad_rows(frame).collect()}

    found = Decoder(form, JsonReader(text)).decode(batch)

    assert found.bad is not None
    mine = {row["queue_offset"]: row["error"] for row in found.bad.to_pylist()}
    bodies_by_place = batch.column("body").to_pylist()
    differ = {
        bodies_by_place[at]: (bad.get(at), mine.get(at))
        for at in bad.keys() | mine.keys()
        if bad.get(at) != mine.get(at)
    }
    assert not differ
    for row in found.good.to_pylist():
        theirs = good[row["_queue_offset"]]
        for name in ("n", "name", "at", "inner", "list", "objects", "d", "b", "f", "s", "day", "_rescued"):  # fmt: skip
            body = bodies_by_place[row["_queue_offset"]]
            assert same(row[name], theirs[name]), (name, row[name], theirs[name], body)
        assert dict(row["texts"] or []) == (theirs["texts"] or {})
        at = row["t"] and row["t"].replace(tzinfo=None)
        assert at == theirs["t"], bodies_by_place[row["_queue_offset"]]
    assert len(good) == found.good.num_rows
