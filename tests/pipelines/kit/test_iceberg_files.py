"""Statistics between Delta's JSON and Iceberg's bounds."""

import json
from decimal import Decimal

import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.table_files import DataFile
from roquette_spark.pipelines.tables.iceberg_files import from_iceberg, to_iceberg
from roquette_spark.pipelines.tables.iceberg_table import iceberg_schema, spark_json

KINDS = {
    "text": "string",
    "number": "long",
    "small": "integer",
    "price": "decimal(38,2)",
    "ratio": "double",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "day": "date",
    "raw": "binary",
    "yes": "boolean",
}


def spark_schema(kinds: dict[str, object]) -> str:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in kinds.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def table_of(schema: Schema) -> TableMetadata:
    return new_table_metadata(schema, PartitionSpec(), UNSORTED_SORT_ORDER, "file:///t")


def given(metadata: TableMetadata, stats: dict[str, object]) -> IcebergFile:
    file = DataFile("x.parquet", 1, 3, 0, stats=json.dumps(stats))
    return to_iceberg(file, "file:///t/x.parquet", metadata, None)


def test_bounds_of_each_kind_come_back() -> None:
    metadata = table_of(iceberg_schema(spark_schema(KINDS)))
    least = {
        "text": "a",
        "number": -1,
        "price": -1.25,
        "ratio": 0.5,
        "at": "1969-12-31T23:59:59.999999Z",
        "local": "2013-01-01T00:00:00.000001",
        "day": "1969-12-31",
    }
    stats = {
        "numRecords": 3,
        "minValues": {**least, "small": 1, "yes": False},
        "maxValues": {**least, "number": 2**62, "small": 9},
        "nullCount": {"raw": 2, "text": 0},
    }

    found = json.loads(from_iceberg(given(metadata, stats), "x", metadata, 7).stats)

    assert found["minValues"] == least
    assert found["maxValues"] == {**least, "number": 2**62}
    assert (found["numRecords"], found["nullCount"]) == (3, stats["nullCount"])


def test_upper_bounds_are_not_below_what_was_cut() -> None:
    metadata = table_of(iceberg_schema(spark_schema(KINDS)))
    most = {"at": "2013-01-01T00:00:00.005Z", "text": "x" * 65}
    stats = {"numRecords": 3, "minValues": {"text": "x" * 65}, "maxValues": most}

    made = given(metadata, stats)

    schema = metadata.schema()
    at, text = schema.find_field("at"), schema.find_field("text")
    assert from_bytes(at.field_type, made.upper_bounds[at.field_id]) % 1_000_000 == 5_999
    assert text.field_id not in made.upper_bounds
    assert made.lower_bounds[text.field_id] == b"x" * 64


def test_long_decimals_are_exact() -> None:
    metadata = table_of(iceberg_schema(spark_schema({"price": "decimal(38,2)"})))
    text = "9" * 36 + ".25"
    stats = f'{{"minValues":{{"price":{text}}}}}'
    file = DataFile("x.parquet", 1, 3, 0, stats=stats)

    made = to_iceberg(file, "file:///t/x.parquet", metadata, None)

    assert from_bytes(metadata.schema().find_type("price"), made.lower_bounds[1]) == Decimal(text)


def test_bounds_written_before_a_column_was_widened_are_read() -> None:
    metadata = table_of(iceberg_schema(spark_schema({"n": "long"})))
    made = given(metadata, {"minValues": {"n": 5}})
    assert made.lower_bounds == {1: to_bytes(LongType(), 5)}
    made.lower_bounds[1] = b"\x05\0\0\0"  # as of an integer

    assert json.loads(from_iceberg(made, "x", metadata, 0).stats)["minValues"] == {"n": 5}


def test_schemas_come_back() -> None:
    kinds: dict[str, object] = {
        **KINDS,
        "tags": {"type": "array", "elementType": "long", "containsNull": True},
        "properties": {
            "type": "map",
            "keyType": "string",
            "valueType": "string",
            "valueContainsNull": True,
        },
        "inner": json.loads(spark_schema({"a": "float", "b": "date"})),
    }
    text = spark_schema(kinds)

    assert json.loads(spark_json(iceberg_schema(text))) == json.loads(text)
    with pytest.raises(ConfigError, match="cannot have a column of type interval"):
        iceberg_schema(spark_schema({"x": "interval"}))
