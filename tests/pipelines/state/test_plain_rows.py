"""Changes decoded in a worker, beside those that Spark parses and evaluates."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.pipelines.rows.test_decoder import messages

from roquette_spark.pipelines.kit import message_rows as forms
from roquette_spark.pipelines.rows.decoder import messages_schema
from roquette_spark.pipelines.state.change_rows import (
    ChangeForm,
    PlainRows,
    changes_of,
    mark_changes,
    plain_form,
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
    "null": (replace(PLAIN, delete_when="op IS NULL"), BODIES),
    "not null": (replace(PLAIN, delete_when=" op is not null "), BODIES),
    "two keys": (replace(PLAIN, key=("id", "v")), BODIES),
    "debezium": (DEBEZIUM, EVENTS),
    "wrapped": (WRAPPED, [{"payload": each} for each in EVENTS]),
}


def read(form: ChangeForm, batch: pa.RecordBatch) -> tuple[list[Any], list[Any], int]:
    plain = plain_form(form)
    assert plain is not None
    changes, decoded = PlainRows(plain).read(batch)
    assert decoded.bad is not None
    return changes.to_pylist(), decoded.bad.column("error").to_pylist(), decoded.rescued


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


@pytest.mark.parametrize(
    "more",
    [
        {"version": "v + 1"},
        {"version": "V"},
        {"version": "current_timestamp"},
        {"delete_when": "op = 'd' or gone"},
        {"delete_when": "v = '1'"},
        {"delete_when": "op = 'it\\'s'"},
        {"delete_when": "unknown is null"},
        {"body_schema": schema_of(id="integer", v="long", op="string", _keys="string")},
        {"body_schema": schema_of(id="integer", v="interval", op="string")},
    ],
)
def test_all_else_is_sparks_to_evaluate(more: dict[str, Any]) -> None:
    assert plain_form(replace(PLAIN, **more)) is None


@pytest.mark.spark
@pytest.mark.parametrize(
    "cases",
    [
        ("within a column", "two keys", "wrapped"),
        pytest.param(tuple(CASES), marks=pytest.mark.long),
    ],
    ids=["some", "all"],
)
def test_both_ways_give_the_same_rows(spark: Any, cases: tuple[str, ...]) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(messages_schema())
    for name, (form, bodies) in ((name, CASES[name]) for name in cases):
        batch = messages(*(json.dumps(each).encode() for each in bodies), b"", b"[1]")
        found, errors, _ = read(form, batch)
        given = [tuple(row.values()) for row in batch.to_pylist(maps_as_pydicts="strict")]
        marked = mark_changes(spark.createDataFrame(given, schema), form)
        by_spark = [row.asDict(recursive=True) for row in changes_of(marked, form).collect()]
        bad = [row[forms.BAD] for row in marked.where(f"{forms.BAD} is not null").collect()]
        assert [plain(row) for row in found] == [plain(row) for row in by_spark], name
        assert errors == bad, name


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Times as numbers: Spark gives them without a zone."""
    return {
        name: value.timestamp() if hasattr(value, "timestamp") else value
        for name, value in row.items()
    }
