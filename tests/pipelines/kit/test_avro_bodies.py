"""Avro bodies become columns, and what is no Avro is told."""

import datetime
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.tables import folder_files, rows
from tests.spark.records import make_record

from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.pipeline import PIPELINE, ArchiveOptions
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.pipelines.rows import avro_rows
from roquette_spark.pipelines.rows.avro_rows import (
    AvroReader,
    columns_of_avro,
    read_avro_schema,
    read_body,
)

fastavro = pytest.importorskip("fastavro")

SCHEMA = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": "int"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
    ],
}
AT = datetime.datetime(2013, 2, 1, 12, tzinfo=datetime.UTC)


def encode(number: int) -> bytes:
    stream = io.BytesIO()
    note = None if number % 2 else f"größe {number}"
    value = {"id": number, "note": note, "at": AT, "lines": [number] * 2, "more": {"x": 0.5}}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), value)
    return stream.getvalue()


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_rows, "find_spec", lambda name: None)

    with pytest.raises(ConfigError) as caught:
        read_avro_schema("order.avsc", OsFiles())

    assert str(caught.value) == (
        'archive: --format avro needs fastavro: pip install "roquette[avro]"'
    )


def test_a_body_is_read_whole_or_told() -> None:
    schema = fastavro.parse_schema(SCHEMA)

    value, error = read_body(encode(2), schema)

    assert (value and value["note"], error) == ("größe 2", None)
    assert read_body(encode(2) + b"x", schema)[1] == (
        "the body is longer than an Avro record of its schema"
    )
    assert read_body(b"", schema)[1] == "the body is empty"
    for cut in range(1, len(encode(2))):
        found, error = read_body(encode(2)[:cut], schema)
        assert found is None
        assert "no Avro of its schema" in (error or "")


@pytest.mark.parametrize(
    ("avro", "message"),
    [
        (["int", "string"], "a union of several types is not supported"),
        ({"type": "array", "items": "order"}, "x is no Avro schema .UnknownType: order"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
            "x: r: a type within itself, R, is not supported",
        ),
        ("no", "x is no Avro schema"),
    ],
)
def test_types_without_a_counterpart_are_told(avro: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        columns_of_avro(avro, (), "x")


def of_two(name: str, kind: object) -> dict[str, object]:
    fields = [{"name": "a", "type": kind}, {"name": "b", "type": kind}]
    return {"type": "record", "name": name, "fields": fields}


def test_names_stand_for_what_they_name_and_bombs_are_refused() -> None:
    place = {"type": "record", "name": "x.Place", "fields": [{"name": "zip", "type": "int"}]}
    found = columns_of_avro(of_two("R", "x.Place"), [place], "x")
    assert [each["type"]["fields"][0]["type"] for each in found["fields"]] == ["integer"] * 2

    references = [place, *(of_two(f"N{n}", f"N{n - 1}" if n else "x.Place") for n in range(40))]
    with pytest.raises(ConfigError, match="more than 10,000 types"):
        columns_of_avro(of_two("R", "N39"), references, "x")


LOGICAL = {
    "type": "record",
    "name": "L",
    "fields": [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "known", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "many", "type": {"type": "array", "items": {"type": "long", "logicalType": "time-micros"}}},
    ],
}  # fmt: skip
KNOWN = UUID(int=7)
LOGICAL_VALUE = {
    "price": Decimal("12.30"), "at": datetime.time(10, 5), "known": KNOWN,
    "local": datetime.datetime(2013, 2, 1, 12), "many": [datetime.time(1, 2, 3, 4)],
}  # fmt: skip


def test_logical_types_have_columns() -> None:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(LOGICAL), LOGICAL_VALUE)
    columns = columns_of_avro(LOGICAL, (), "x")

    found = AvroReader(json.dumps(columns), json.dumps(LOGICAL)).read(
        pa.array([stream.getvalue(), b"\0"], pa.binary())
    )

    assert [each["type"] for each in columns["fields"]][:4] == [
        "decimal(12,2)", "string", "string", "timestamp",
    ]  # fmt: skip
    assert [column[0].as_py() for column in found.columns] == [
        Decimal("12.30"),
        "10:05:00",
        str(KNOWN),
        datetime.datetime(2013, 2, 1, 12, tzinfo=datetime.UTC),
        ["01:02:03.000004"],
    ]
    assert found.errors[1].as_py() is not None


def test_records_without_fields_have_no_column() -> None:
    none = {"type": "record", "name": "None", "fields": []}
    listed = {"type": "array", "items": "None"}
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "gone", "type": "None"}]}
    kept = [{"name": "n", "type": "int"}, {"name": "gone", "type": ["null", "None"]}]
    kinds = [none, listed, {"type": "map", "values": listed}, inner]
    fields = [{"name": f"gone{i}", "type": kind} for i, kind in enumerate(kinds)]
    fields.append({"name": "kept", "type": {"type": "record", "name": "Kept", "fields": kept}})
    schema = {"type": "record", "name": "R", "fields": fields}
    columns = columns_of_avro(schema, (), "x")
    value = {"gone0": {}, "gone1": [{}], "gone2": {"a": [{}]}, "gone3": {"gone": {}}}
    value["kept"] = {"n": 7, "gone": {}}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)

    reader = AvroReader(json.dumps(columns), json.dumps(schema))
    found = reader.read(pa.array([stream.getvalue()], pa.binary()))

    assert [each["name"] for each in columns["fields"]] == ["kept"]
    assert found.columns[0].to_pylist() == [{"n": 7}]
    assert found.errors.to_pylist() == [None]


def test_a_schema_file_must_be_there_and_a_record(tmp_path: Path) -> None:
    path = tmp_path / "s.avsc"
    path.write_text('"int"')

    for given, message in (
        ("", "needs --schema FILE"),
        ("no", "cannot be read"),
        (str(path), "is no record"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_avro_schema(given, OsFiles())


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    queue = MessageQueue("T", "broker-a", 0)
    bodies = [*(encode(n) for n in range(50)), b"\x01"]
    with FakeCluster({queue: [make_record(i, b, queue_id=0) for i, b in enumerate(bodies)]}) as c:
        yield c


@pytest.mark.spark
def test_an_avro_topic_becomes_a_table(spark: Any, cluster: FakeCluster, tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(SCHEMA))
    options = ArchiveOptions(
        namesrv=cluster.address,
        topics=("T",),
        to=str(tmp_path / "lake"),
        report=str(tmp_path / "report"),
        format="avro",
        schema=str(path),
        day_of="at",
    )

    result = run_pipeline(PIPELINE, options)

    files = folder_files(tmp_path / "lake/T")
    found = {row["id"]: row for row in rows(files)}
    assert sorted(found) == list(range(50))
    assert (found[4]["note"], found[5]["note"], found[4]["at"]) == ("größe 4", None, AT)
    assert (found[4]["lines"], found[4]["more"]) == ([4, 4], [("x", 0.5)])
    assert {file.parent.name for file in files} == {"dt=2013-02-01"}
    (bad,) = rows(folder_files(tmp_path / "lake/T.quarantine"))
    assert (bad["body"], bad["error"]) == (b"\x01", "the body is no Avro of its schema (EOFError)")
    assert result.ok
