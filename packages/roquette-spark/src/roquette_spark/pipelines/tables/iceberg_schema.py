"""Spark's JSON of a schema as Iceberg's schema, and back. Iceberg has no byte and no short: they become integers."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg import types
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.transforms import IdentityTransform

from roquette.errors import ConfigError

_PLAIN = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "boolean": types.BooleanType(),
    "byte": types.IntegerType(),
    "short": types.IntegerType(),
    "integer": types.IntegerType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "date": types.DateType(),
    "timestamp": types.TimestamptzType(),
    "timestamp_ntz": types.TimestampType(),
}
_SPARK = {kind: name for name, kind in _PLAIN.items() if name not in ("byte", "short")}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_FIRST_PARTITION_ID = 1000  # by Iceberg's specification


def iceberg_schema(spark_json: str) -> Schema:
    """Field ids are given anew, in the order of the columns.

    Raises:
        ConfigError: Iceberg has no such type.
    """
    fields = _fields(json.loads(spark_json)["fields"], itertools.count(1))
    return assign_fresh_schema_ids(Schema(*fields))


def partition_spec(schema: Schema, columns: Sequence[str]) -> PartitionSpec:
    """By the values of columns, as they are."""
    return PartitionSpec(
        *(
            PartitionField(schema.find_field(name).field_id, number, IdentityTransform(), name)
            for number, name in enumerate(columns, _FIRST_PARTITION_ID)
        )
    )


def spark_json(schema: Schema) -> str:
    """The inverse of `iceberg_schema`."""
    return json.dumps(_spark(schema.as_struct()))


def _fields(fields: Sequence[Mapping[str, Any]], ids: Iterator[int]) -> Iterator[types.NestedField]:
    for field in fields:
        number = next(ids)
        yield types.NestedField(number, field["name"], _type(field["type"], ids), required=False)


def _type(kind: Any, ids: Iterator[int]) -> types.IcebergType:
    if isinstance(kind, str):
        found = _DECIMAL.fullmatch(kind)
        if found is not None:
            return types.DecimalType(int(found[1]), int(found[2]))
        if kind in _PLAIN:
            return _PLAIN[kind]
    elif kind["type"] == "struct":
        return types.StructType(*_fields(kind["fields"], ids))
    elif kind["type"] == "array":
        element = _type(kind["elementType"], ids)
        return types.ListType(next(ids), element, element_required=False)
    elif kind["type"] == "map":
        key, value = _type(kind["keyType"], ids), _type(kind["valueType"], ids)
        return types.MapType(next(ids), key, next(ids), value, value_required=False)
    raise ConfigError(f"a table of Iceberg cannot have a column of type {kind}: use Delta Lake")


def _spark(kind: types.IcebergType) -> Any:
    match kind:
        case types.StructType():
            fields = [
                {
                    "name": field.name,
                    "type": _spark(field.field_type),
                    "nullable": True,
                    "metadata": {},
                }
                for field in kind.fields
            ]
            return {"type": "struct", "fields": fields}
        case types.ListType():
            return {
                "type": "array",
                "elementType": _spark(kind.element_type),
                "containsNull": True,
            }
        case types.MapType():
            return {
                "type": "map",
                "keyType": _spark(kind.key_type),
                "valueType": _spark(kind.value_type),
                "valueContainsNull": True,
            }
        case types.DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
    return _SPARK.get(kind, "string")  # a uuid, a time: what Spark's reader makes of others
