"""Nothing of a JSON body vanishes: each field is in a column, in `_rescued`, or its message is in quarantine."""

import json
from collections.abc import Iterator
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
from roquette_spark.pipelines.kit.message_rows import MALFORMED, TWICE, look_at
from roquette_spark.pipelines.kit.running import run_pipeline

NAMES = ("n", "name", "at", "inner", "list", "objects", "texts", "wild")
SCHEMA = (
    "n long, name string, at double, inner struct<n: int, name: string, inner: struct<n: long>>, "
    "list array<long>, objects array<struct<n: long, name: string>>, texts map<string, long>"
)
Kind = Any
KNOWN: Kind = {
    "type": "struct",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "at", "type": "double"},
        {
            "name": "inner",
            "type": {
                "type": "struct",
                "fields": [
                    {"name": "n", "type": "integer"},
                    {"name": "name", "type": "string"},
                    {
                        "name": "inner",
                        "type": {"type": "struct", "fields": [{"name": "n", "type": "long"}]},
                    },
                ],
            },
        },
        {"name": "list", "type": {"type": "array", "elementType": "long"}},
        {
            "name": "objects",
            "type": {
                "type": "array",
                "elementType": {
                    "type": "struct",
                    "fields": [{"name": "n", "type": "long"}, {"name": "name", "type": "string"}],
                },
            },
        },
        {"name": "texts", "type": {"type": "map", "keyType": "string", "valueType": "long"}},
    ],
}

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


def leaves(value: Any, kind: Kind, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of what no column takes, without what lies below."""
    what = kind["type"] if isinstance(kind, dict) else kind
    if what == "struct" and isinstance(value, dict):
        known = {field["name"]: field["type"] for field in kind["fields"]}
        for name, each in value.items():
            if name in known:
                yield from leaves(each, known[name], (*path, name))
            else:
                yield (*path, name)
    elif what == "map" and isinstance(value, dict):
        for name, each in value.items():
            yield from leaves(each, kind["valueType"], (*path, name))
    elif what == "array" and isinstance(value, list):
        for i, each in enumerate(value):
            yield from leaves(each, kind["elementType"], (*path, i))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@pytest.mark.promise("Spark and pipelines", "every field of a JSON body has a column or is rescued")
@settings(max_examples=settings.default.max_examples * 10, deadline=None)
@given(bodies)
def test_every_field_has_a_column_or_is_rescued_as_it_was(body: dict[str, Any]) -> None:
    text = json.dumps(body)

    found = look_at(text.encode(), KNOWN)

    before = exact(text)
    if found is None:
        assert list(leaves(before, KNOWN)) == []
        return
    if found["error"]:
        return  # to the quarantine, whole
    if found["text"]:
        assert exact(found["text"]) == before
    wanted = list(leaves(before, KNOWN))
    rescued = exact(found["rescued"]) if found["rescued"] else None
    assert bool(wanted) == (rescued is not None)
    for path in wanted:
        assert at(rescued, path) == at(before, path)


@pytest.mark.parametrize(
    ("body", "rescued", "text", "error"),
    [
        (b'{"n": 19.0}', None, '{"n":19}', None),
        (b'{"n": 1.9e1, "x": 1.10}', '{"x":1.10}', '{"n":19,"x":1.10}', None),
        (
            b'{"x": 1e400, "y": 12345678901234567890}',
            '{"x":1e400,"y":12345678901234567890}',
            None,
            None,
        ),
        (
            b'{"inner": {"n": 1.0, "z": [1]}}',
            '{"inner":{"z":[1]}}',
            '{"inner":{"n":1,"z":[1]}}',
            None,
        ),
        (b'{"objects": [{"n": 1}, {"m": 2}]}', '{"objects":[null,{"m":2}]}', None, None),
        (b'{"n": 1} {"n": 2}', None, None, MALFORMED),
        (b'{"n": 1, "n": 2}', None, None, TWICE),
        (b'{"inner": {"n": 1, "n": 2}}', None, None, TWICE),
        (b'{"name": "\\ud800"}', None, None, MALFORMED),
        (b'{"n": 1e99999999999999999999}', None, None, MALFORMED),
        (b"[" * 100_000, None, None, MALFORMED),
    ],
)
def test_what_is_said_of_a_body(
    body: bytes, rescued: str | None, text: str | None, error: str | None
) -> None:
    assert look_at(body, KNOWN) == {"rescued": rescued, "text": text, "error": error}


@pytest.mark.parametrize("body", [b'{"n": 19}', b'{"n": 19.5}', b"[1]", b'{"n": 1e300}', b"{}"])
def test_nothing_is_said_where_spark_sees_all(body: bytes) -> None:
    assert look_at(body, KNOWN) is None


def sample(count: int) -> list[bytes]:
    """Bodies as hypothesis draws them, some malformed."""
    found: list[bytes] = [
        b'{"n": 19.0, "name": "a"}',
        b'{"n": 1, "late": {"a": [1.50, "x"]}}',
        b'{"n": 1, "n": 2}',
        b'{"n": 1} and more',
        b'{"n": "one"}',
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
        apart = exact(row["_rescued"]) if row["_rescued"] else {}
        rescued += row["_rescued"] is not None
        for path in leaves(before, KNOWN):
            assert at(apart, path) == at(before, path)
        check_columns(row, before)
    assert good[0]["n"] == 19
    assert good[1]["_rescued"] == '{"late":{"a":[1.50,"x"]}}'
    assert [i in bad for i in range(7)] == [False, False, True, True, True, True, True]
    summary = result.summary["topics"]["T"]
    assert (summary["quarantined"], summary["rescued"]) == (len(bad), rescued)
    assert sum(summary["reasons"].values()) == len(bad)
    assert summary["rescued_fields"]["late"] >= 1
    assert "fields without a column" in result.last_line
    assert "fields without a column" in (tmp_path / "report/report.html").read_text()


def check_columns(row: dict[str, Any], body: dict[str, Any]) -> None:
    """Fields with a column are in it, by value."""
    for name in ("n", "list"):
        assert row[name] == body.get(name)
    if isinstance(body.get("name"), str):
        assert row["name"] == body["name"]
    if body.get("at") is not None:
        assert row["at"] == float(body["at"])
    if body.get("inner") is not None:
        assert row["inner"]["n"] == body["inner"].get("n")
    if body.get("objects") is not None:
        assert [None if each is None else each["n"] for each in row["objects"]] == [
            None if each is None else each.get("n") for each in body["objects"]
        ]
    if body.get("texts") is not None:
        assert dict(row["texts"]) == body["texts"]
