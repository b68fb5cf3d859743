"""Values that partition a table of Iceberg without being a column of it, as pyiceberg computes them."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform as IcebergTransform
from pyiceberg.transforms import parse_transform

from roquette_spark.pipelines.kit.message_rows import TIMES, Transform

_FIELD_ID = b"PARQUET:field_id"  # Arrow's name, by which pyiceberg finds it


def iceberg_transform(transform: Transform) -> IcebergTransform[Any, Any]:
    """As the table's metadata have it."""
    width = f"[{transform.width}]" if transform.width else ""
    return parse_transform(f"{transform.function}{width}")


def can_make(transform: Transform, kind: pa.DataType) -> bool:
    """Return True if there are such values of a column's; bytes have none that can name a folder."""
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        return False
    if transform.function == "truncate" and pa.types.is_decimal(kind):
        return False  # pyiceberg 0.12 does not find such files again, to replace them
    return bool(iceberg_transform(transform).can_transform(_iceberg_type(kind)))


def schema_of_arrow(columns: pa.Schema) -> Schema:
    """With ids of fields, of which nothing else knows. Raises TypeError, ValueError: Iceberg has no such type."""
    numbers = count(1)
    return pyarrow_to_schema(pa.schema([_numbered(each, numbers) for each in columns]))


def _numbered(field: pa.Field, numbers: Iterator[int]) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_numbered(each, numbers) for each in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_numbered(kind.key_field, numbers), _numbered(kind.item_field, numbers))
    elif pa.types.is_list(kind):
        kind = pa.list_(_numbered(kind.value_field, numbers))
    known = field.metadata or {}
    return field.with_type(kind).with_metadata({**known, _FIELD_ID: str(next(numbers))})


def _iceberg_type(kind: pa.DataType) -> Any:
    return schema_of_arrow(pa.schema([("c", kind)])).fields[0].field_type


class HiddenPart:
    """Adds those values to rows, as a column of texts; it goes into folders' names and not into files.

    Attributes:
        schema: of the rows then.
    """

    def __init__(self, transform: Transform, schema: pa.Schema) -> None:
        self._transform, self._how = transform, iceberg_transform(transform)
        self._kind = _iceberg_type(schema.field(transform.column).type)
        self.schema = schema.append(pa.field(transform.name, pa.string()))

    def added(self, rows: pa.Table) -> pa.Table:
        """Raises OverflowError for a time whose day has no name."""
        values = rows.column(self._transform.column).combine_chunks()
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us"))  # in UTC
            if self._transform.function in TIMES:  # few, where times are many
                values = pc.floor_temporal(values, unit=self._transform.function)
            values = values.cast(pa.int64())
        elif pa.types.is_date(values.type):
            values = values.cast(pa.int32())
        coded, make = values.dictionary_encode(), self._how.transform(self._kind)
        made = map(make, coded.dictionary.to_pylist())
        texts = pa.array(
            [self._how.to_human_string(self._kind, each) for each in made], pa.string()
        )
        return rows.append_column(self.schema.field(-1), texts.take(coded.indices))
