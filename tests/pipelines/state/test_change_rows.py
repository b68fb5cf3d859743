"""Changes decoded in a worker, and expressions that Spark evaluates over them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipelines.rows.test_decoder import messages

from roquette.errors import ConfigError
from roquette_spark.pipelines.state.change_rows import (
    ChangeForm,
    ChangeRows,
    enveloped,
    evaluated,
    unevaluated,
)


def schema_of(**columns: Any) -> str:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


INNER = json.loads(schema_of(id="integer", name="string"))
PLAIN = ChangeForm(
    schema_of(id="integer", v="long", op="string", gone="boolean", at=INNER),
    ("id",),
    "v",
    "op = 'd'",
    "none",
)
DEBEZIUM = replace(
    PLAIN,
    body_schema=schema_of(before=INNER, after=INNER, op="string", ts_ms="long"),
    version="",
    delete_when="",
    envelope="debezium",
)
WRAPPED = replace(DEBEZIUM, body_schema=schema_of(payload=json.loads(DEBEZIUM.body_schema)))
ONE, TWO = {"id": 1, "name": "one"}, {"id": 2, "name": "two"}
EVENTS = [
    {"op": "c", "ts_ms": 1, "before": None, "after": ONE},
    {"op": "d", "ts_ms": 2, "before": TWO, "after": None},
    {"op": "u", "ts_ms": 3, "before": ONE, "after": {"id": 1, "name": None}, "source": "x"},
    {"op": "u", "ts_ms": 4, "before": None, "after": None},
    {"op": "u", "ts_ms": 5, "before": TWO, "after": None},
    {"op": "d", "ts_ms": None, "before": TWO, "after": None},
]
BODIES = [
    {"id": 1, "v": 5, "op": "d", "gone": True, "at": ONE},
    {"id": 2, "v": None, "op": None, "gone": None, "at": None},
    {"id": 3, "v": 7, "op": "u", "gone": False, "late": 1.50},
    {"v": 8},
]
CASES = {
    "plain": (PLAIN, BODIES),
    "time of storing": (replace(PLAIN, version="", delete_when=""), BODIES),
    "column of the message": (replace(PLAIN, version="queue_offset"), BODIES),
    "within a column": (replace(PLAIN, version="at.id", delete_when="at.name = 'one'"), BODIES),
    "boolean": (replace(PLAIN, delete_when="gone"), BODIES),
    "either": (replace(PLAIN, delete_when="gone or op = 'u' OR at.name is null"), BODIES),
    "null": (replace(PLAIN, delete_when="op IS NULL"), BODIES),
    "not null": (replace(PLAIN, delete_when=" op is not null "), BODIES),
    "two keys": (replace(PLAIN, key=("id", "v")), BODIES),
    "debezium": (DEBEZIUM, EVENTS),
    "wrapped": (WRAPPED, [{"payload": each} for each in EVENTS]),
}


def read(form: ChangeForm, batch: pa.RecordBatch) -> tuple[list[Any], list[Any], int]:
    rows = ChangeRows(form)
    assert rows.is_plain
    found = rows.decode(batch)
    assert found.bad is not None
    return found.good.to_pylist(), found.bad.column("error").to_pylist(), found.rescued


def test_changes_and_what_is_none() -> None:
    bodies = [*(json.dumps(each).encode() for each in BODIES), b"{", b""]

    rows, errors, rescued = read(PLAIN, messages(*bodies))

    assert [(row["id"], row["_version"], row["deleted"]) for row in rows] == [
        (1, 5, True),
        (2, None, False),
        (3, 7, False),
    ]
    assert errors[0] == "a column of the key is null" and len(errors) == 3
    assert rescued == 1


@pytest.mark.parametrize("form", [DEBEZIUM, WRAPPED], ids=["bare", "wrapped"])
def test_the_row_is_that_after_the_change_as_a_whole(form: ChangeForm) -> None:
    """As Debezium's ExtractNewRecordState has it."""
    events = EVENTS if form is DEBEZIUM else [{"payload": each} for each in EVENTS]

    rows, errors, _ = read(form, messages(*(json.dumps(each).encode() for each in events), b""))

    assert [(row["id"], row["name"], row["_version"], row["deleted"]) for row in rows] == [
        (1, "one", 1, False),
        (2, "two", 2, True),
        (1, None, 3, False),  # a column that was set to null
        (2, "two", 5, True),  # no row after the change: it is a deletion whatever it is called
        (2, "two", None, True),
    ]
    assert errors == ["a column of the key is null"]


def test_a_field_that_does_not_fit_does_not_cost_the_change() -> None:
    rows, errors, rescued = read(
        PLAIN, messages(b'{"id": 1, "v": 10.5, "op": "u"}', b'{"id": "x"}')
    )

    assert [(row["id"], row["_version"], row["_rescued"]) for row in rows] == [
        (1, None, '{"v":10.5}')
    ]
    assert (errors, rescued) == (["a column of the key is null"], 1)


def test_what_is_inferred_of_snapshots_has_both_sides() -> None:
    seen = schema_of(payload=json.loads(schema_of(after=INNER, op="string")))

    form = replace(WRAPPED, body_schema=enveloped(seen))

    deletion = {"payload": {"op": "d", "before": TWO, "after": None}}
    rows, _, _ = read(form, messages(json.dumps(deletion).encode()))
    assert [(row["id"], row["name"], row["deleted"]) for row in rows] == [(2, "two", True)]
    with pytest.raises(ConfigError, match="bodies have no after, before, ts_ms"):
        ChangeRows(replace(WRAPPED, body_schema=enveloped(schema_of(op="string"))))


@pytest.mark.parametrize(
    "more",
    [
        {"version": "v + 1"},
        {"version": "V"},
        {"version": "current_timestamp"},
        {"delete_when": "op = 'd' and gone"},
        {"delete_when": "op = 'd or gone'"},
        {"delete_when": "v = '1'"},
        {"delete_when": "op = 'it\\'s'"},
        {"delete_when": "unknown is null"},
    ],
)
def test_all_else_is_sparks_to_evaluate(more: dict[str, Any]) -> None:
    assert not ChangeRows(replace(PLAIN, **more)).is_plain


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"body_schema": schema_of(id="integer", v="interval")}, "never of type interval"),
        ({"body_schema": schema_of(id="integer", Deleted="boolean")}, "column Deleted has the name"),
        ({"key": ("nr",)}, "--key nr is no column of the body; those are: id, v, op, gone, at"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_before_anything_is_read(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ChangeRows(replace(PLAIN, **more))


@pytest.mark.spark
@pytest.mark.parametrize(
    "cases",
    [
        ("within a column", "two keys", "wrapped"),
        pytest.param(tuple(CASES), marks=pytest.mark.long),
    ],
    ids=["some", "all"],
)
def test_spark_evaluates_to_the_same_rows(
    spark: Any, tmp_path: Path, cases: tuple[str, ...]
) -> None:
    for number, (name, (form, bodies)) in enumerate((name, CASES[name]) for name in cases):
        batch = messages(*(json.dumps(each).encode() for each in bodies), b"", b"[1]")
        found, errors, _ = read(form, batch)
        decoded = ChangeRows(form, plain=False).decode(batch)
        path = str(tmp_path / f"{number}.parquet")
        pq.write_table(decoded.good, path)
        frame = spark.read.schema(unevaluated(form)).parquet(path)
        by_spark = [row.asDict(recursive=True) for row in evaluated(frame, form).collect()]
        assert [plain(row) for row in found] == [plain(row) for row in by_spark], name
        assert decoded.bad is not None
        assert errors == decoded.bad.column("error").to_pylist(), name


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Times as numbers: Spark gives them without a zone."""
    return {
        name: value.timestamp() if hasattr(value, "timestamp") else value
        for name, value in row.items()
    }
