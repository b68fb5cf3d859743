"""Nothing of a JSON body vanishes: each field is in a column, in `_rescued`, or its message is in quarantine."""

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.tables import folder_files, log_files, rows
from tests.spark.records import make_record

from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.pipeline import PIPELINE, ArchiveOptions
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.pipelines.rows.json_rows import MALFORMED, NO_OBJECT, TWICE, JsonReader

NAMES = ("n", "name", "at", "inner", "list", "objects", "texts", "wild")
SCHEMA = (
    "n long, name string, at double, inner struct<n: int, name: string, inner: struct<n: long>>, "
    "list array<long>, objects array<struct<n: long, name: string>>, texts map<string, long>"
)
Kind = Any


def struct(**columns: Kind) -> Kind:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return {"type": "struct", "fields": fields}


def array(kind: Kind) -> Kind:
    return {"type": "array", "elementType": kind, "containsNull": True}


def map_of(kind: Kind, keys: str = "string") -> Kind:
    return {"type": "map", "keyType": keys, "valueType": kind, "valueContainsNull": True}


KNOWN = struct(
    n="long",
    name="string",
    at="double",
    inner=struct(n="integer", name="string", inner=struct(n="long")),
    list=array("long"),
    objects=array(struct(n="long", name="string")),
    texts=map_of("long"),
)

numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**6), 10**6).map(float),
)
plain = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=5))
names = st.one_of(st.sampled_from(NAMES), st.text(max_size=4))
values = st.recursive(
    plain,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)),
    max_leaves=12,
)
FITTING: dict[str, st.SearchStrategy[Any]] = {
    "n": st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-99, 99).map(float)),
    "name": st.text(max_size=5),
    "at": numbers,
    "list": st.lists(st.integers(-9, 9).map(float), max_size=3),
    "inner": st.dictionaries(names, st.integers(0, 9), max_size=4),
    "objects": st.lists(st.dictionaries(names, st.integers(0, 9), max_size=3), max_size=3),
    "texts": st.dictionaries(st.text(max_size=3), st.integers(0, 9).map(float), max_size=3),
}
bodies = st.one_of(
    st.dictionaries(names, values, max_size=6),
    st.builds(
        lambda known, extra: {**extra, **known},
        st.fixed_dictionaries({}, optional=FITTING),
        st.dictionaries(st.text(max_size=4), values, max_size=3),
    ),
)


def exact(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


NOTHING = object()


def check(value: Any, kind: Kind, column: Any, left: Any = NOTHING) -> bool:
    """Each field is in its column by value, or else as it was in what is left; says whether anything is left."""
    what = kind["type"] if isinstance(kind, dict) else kind
    if left is not NOTHING and column is None:
        assert left == value
        return True
    if value is None:
        assert column is None and left is NOTHING
        return False
    if what == "struct":
        known = {field["name"]: field["type"] for field in kind["fields"]}
        rest = {} if left is NOTHING else left
        assert rest.keys() <= value.keys()
        found = [check(value[name], known.get(name, "none"), column.get(name), rest.get(name, NOTHING)) for name in value]  # fmt: skip
        return any(found)
    if what == "array":
        rest = [None] * len(value) if left is NOTHING else left
        every = zip(value, column, rest, strict=True)
        found = [check(v, kind["elementType"], c, r or NOTHING) for v, c, r in every]
        return any(found)
    if what == "map":
        assert left is NOTHING
        assert dict(column) == value
        return False
    assert left is NOTHING
    if what == "double":
        assert column == float(value) and math.isfinite(column)
    elif what == "string" and not isinstance(value, str):
        assert exact(column) == value
    else:
        assert column == value
    return False


@pytest.mark.promise("Spark and pipelines", "every field of a JSON body has a column or is rescued")
@settings(max_examples=settings.default.max_examples * 10, deadline=None)
@given(bodies)
def test_every_field_has_a_column_or_is_rescued_as_it_was(body: dict[str, Any]) -> None:
    text = json.dumps(body)

    row, error, rescued = JsonReader(json.dumps(KNOWN)).read_one(text.encode())

    assert error is None
    left = NOTHING if rescued is None else exact(rescued)
    assert check(exact(text), KNOWN, row, left) == (rescued is not None)


@pytest.mark.parametrize(
    ("body", "rescued", "error"),
    [
        (b'{"n": 19}', None, None),
        (b'{"n": 19.0}', None, None),
        (b'{"n": 19.5}', '{"n":19.5}', None),
        (b'{"n": 1e300, "name": "a"}', '{"n":1e300}', None),
        (b'{"n": 1e99999999999999999999}', '{"n":1e99999999999999999999}', None),
        (b'{"n": 1.9e1, "x": 1.10}', '{"x":1.10}', None),
        (b'{"x": 1e400, "at": 1e400}', '{"x":1e400,"at":1e400}', None),
        (b'{"inner": {"n": 1.0, "z": [1]}}', '{"inner":{"z":[1]}}', None),
        (b'{"inner": {"n": "x"}}', '{"inner":{"n":"x"}}', None),
        (b'{"inner": []}', '{"inner":[]}', None),
        (b'{"list": [1, "x"]}', '{"list":[1,"x"]}', None),
        (b'{"texts": {"a": 1, "b": "x"}}', '{"texts":{"a":1,"b":"x"}}', None),
        (b'{"objects": [{"n": 1}, {"m": 2}]}', '{"objects":[null,{"m":2}]}', None),
        (b'{"objects": [{"n": "x"}, {}]}', '{"objects":[{"n":"x"},null]}', None),
        (b'{"objects": [1]}', '{"objects":[1]}', None),
        (b"[1]", None, NO_OBJECT),
        (b'{"n": 1} {"n": 2}', None, MALFORMED),
        (b'{"n": 1, "n": 2}', None, TWICE),
        (b'{"inner": {"n": 1, "n": 2}}', None, TWICE),
        (b'{"name": "\\ud800"}', None, MALFORMED),
        (b'{"a":' * 100_000, None, MALFORMED),
    ],
)
def test_what_of_a_body_has_no_column(body: bytes, rescued: str | None, error: str | None) -> None:
    row, why, left = JsonReader(json.dumps(KNOWN)).read_one(body)

    assert (left, why) == (rescued, error)
    assert (row is None) == (error is not None)


def sample(count: int) -> list[bytes]:
    """Bodies as hypothesis draws them, some malformed."""
    found: list[bytes] = [
        b'{"n": 19.0, "name": "a"}',
        b'{"n": 1, "late": {"a": [1.50, "x"]}}',
        b'{"n": 1, "n": 2}',
        b'{"n": 1} and more',
        b'{"n": "one", "name": "b"}',
        b"{'n': 1}",
        b'{"n": 19.5}',
    ]

    @settings(max_examples=count, deadline=None, database=None, derandomize=True)
    @given(bodies)
    def draw(body: dict[str, Any]) -> None:
        found.append(json.dumps(body).encode())

    draw()
    return found


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_table_and_its_quarantine_have_all_of_every_body(spark: Any, tmp_path: Path) -> None:
    queue, given_bodies = MessageQueue("T", "broker-a", 0), sample(400)
    properties = {"colour": "red", "__SHARDINGKEY": "g"}
    records = [make_record(i, body, properties, queue_id=0) for i, body in enumerate(given_bodies)]
    with FakeCluster({queue: records}) as cluster:
        options = ArchiveOptions(
            namesrv=cluster.address,
            topics=("T",),
            to=str(tmp_path),
            report=str(tmp_path / "report"),
            schema=SCHEMA,
            schema_evolution="fixed",
            compact=False,
        )
        result = run_pipeline(PIPELINE, options)

    good = {row["_queue_offset"]: row for row in rows(log_files(tmp_path / "T"))}
    bad = {row["queue_offset"]: row for row in rows(folder_files(tmp_path / "T.quarantine"))}
    assert good.keys() | bad.keys() == set(range(len(given_bodies)))
    assert not good.keys() & bad.keys()
    rescued = 0
    for i, body in enumerate(given_bodies):
        if i in bad:
            assert bad[i]["body"] == body
            continue
        row, before = good[i], exact(body.decode())
        assert dict(row["_properties"])["colour"] == "red"
        rescued += row["_rescued"] is not None
        check(before, KNOWN, row, exact(row["_rescued"]) if row["_rescued"] else NOTHING)
    assert good[0]["n"] == 19
    assert good[1]["_rescued"] == '{"late":{"a":[1.50,"x"]}}'
    assert (good[4]["n"], good[4]["name"], good[4]["_rescued"]) == (None, "b", '{"n":"one"}')
    assert [i in bad for i in range(7)] == [False, False, True, True, False, True, False]
    summary = result.summary["topics"]["T"]
    assert (summary["quarantined"], summary["rescued"]) == (len(bad), rescued)
    assert sum(summary["reasons"].values()) == len(bad)
    assert summary["rescued_fields"]["late"] >= 1
    assert "fields without a column" in result.last_line
    assert "fields without a column" in (tmp_path / "report/report.html").read_text()
