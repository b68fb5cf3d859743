"""The columns of a RocketMQ message in Spark, and the subset a query asks for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from roquette.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

# Spark's type text by column, in the order of the default schema.
COLUMNS: dict[str, str] = {
    "topic": "string",
    "broker_name": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "msg_id": "string",
    "uniq_key": "string",
    "key": "string",
    "keys": "array<string>",
    "tags": "string",
    "body": "binary",
    "properties": "map<string,string>",
    "born_timestamp": "timestamp",
    "store_timestamp": "timestamp",
    "born_host": "string",
    "store_host": "string",
    "flag": "int",
    "sys_flag": "int",
    "body_crc": "int",
    "reconsume_times": "int",
    "commit_log_offset": "bigint",
    "store_size": "int",
    "message_type": "string",
    "message_group": "string",
    "deliver_timestamp": "timestamp",
    "dlq_origin_topic": "string",
    "dlq_origin_msg_id": "string",
}


def default_schema(
    columns: Sequence[str], *, include_properties: bool, body_as_string: bool = False
) -> str:
    """The schema as Spark's DDL text: all columns, or those of option `columns` in that order."""
    names = list(columns) or [c for c in COLUMNS if include_properties or c != "properties"]
    for name in names:
        if name not in COLUMNS:
            raise ConfigError(f"rocketmq: unknown column {name}; known: {', '.join(COLUMNS)}")
    types = COLUMNS | ({"body": "string"} if body_as_string else {})
    return ", ".join(f"`{name}` {types[name]}" for name in names)


def check_schema(schema: StructType) -> None:
    """A schema given with .schema(...) may leave columns out and reorder them, and read body as string.

    Raises:
        ConfigError: a column is unknown or of another type.
    """
    for field in schema.fields:
        wanted = COLUMNS.get(field.name)
        given = field.dataType.simpleString()
        if wanted is None:
            raise ConfigError(f"rocketmq: unknown column {field.name}; known: {', '.join(COLUMNS)}")
        if given != wanted and (field.name, given) != ("body", "string"):
            raise ConfigError(f"rocketmq: column {field.name} is {wanted}, not {given}")


def arrow_schema(schema: StructType) -> "pa.Schema":
    """Exactly what Spark compares the first batch with."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
