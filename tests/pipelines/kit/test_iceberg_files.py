"""What Iceberg's metadata say of our files, and schemas there and back."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.pipelines.rows.parquet_files import ParquetFiles
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


def test_bounds_hold_every_value_and_nulls_are_counted(tmp_path: Path) -> None:
    """Long texts are cut, upper ones upwards; times are exact to the microsecond, decimals to 38 digits."""
    metadata = table_of(iceberg_schema(spark_schema(KINDS)))
    columns = {
        "text": ["x" * 65, "ü" * 40, None],
        "number": [-1, 2**62, 5],
        "small": [1, 9, None],
        "price": [Decimal("9" * 36 + ".25"), Decimal("-0.01"), Decimal("1.00")],
        "ratio": [0.5, -2.5, 1e300],
        "at": [datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2013, 1, 1, tzinfo=UTC)],
        "local": [datetime(2013, 1, 1, 0, 0, 0, 5_999), None],
        "day": [date(1969, 12, 31), date(2013, 1, 1)],
    }
    rows = pa.Table.from_pylist(
        [
            {name: values[n] if n < len(values) else None for name, values in columns.items()}
            for n in range(3)
        ],
        schema=schema_to_pyarrow(metadata.schema(), include_field_ids=False),
    )
    out = ParquetFiles(TableFiles(str(tmp_path)), "x", rows.schema)
    out.write(rows)
    (file,) = out.close()
    assert file.footer is not None

    made = to_iceberg(file, "file:///t/x.parquet", metadata, file.footer)

    schema = metadata.schema()
    assert {schema.find_column_name(number) for number in made.lower_bounds} == {*columns} - {
        "small"
    }
    for name in {*columns} - {"small"}:
        field = schema.find_field(name)
        some = [to_bytes(field.field_type, v) for v in columns[name] if v is not None]
        values = [from_bytes(field.field_type, each) for each in some]
        least, most = (
            from_bytes(field.field_type, bounds[field.field_id])
            for bounds in (made.lower_bounds, made.upper_bounds)
        )
        assert least <= min(values), name
        assert most >= max(values), name
        if name != "text":
            assert (least, most) == (min(values), max(values)), name
    nulls = json.loads(from_iceberg(made, "x", metadata, 7).stats)["nullCount"]
    assert (nulls["text"], nulls["number"], nulls["raw"]) == (1, 0, 3)


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
    with pytest.raises(ConfigError, match=r"cannot have these columns .*interval"):
        iceberg_schema(spark_schema({"x": "interval"}))
