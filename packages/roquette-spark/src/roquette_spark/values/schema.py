"""The columns of a RocketMQ message in Spark, the subset a query asks for, and Kafka's names for them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from roquette.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

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


def kafka_compatible_view(frame: "DataFrame") -> "DataFrame":
    """Key, value, topic, partition, offset, timestamp, timestampType and headers, with Kafka's types.

    `broker_name` stays as a last column: queue numbers, which stand as partitions, begin at 0 on each broker.
    The frame needs all of our columns that appear here.
    """
    from pyspark.sql import functions as f

    header = "transform(map_entries(properties), p -> struct(p.key AS key, cast(p.value AS binary) AS value))"
    return frame.select(
        f.col("key").cast("binary").alias("key"),
        f.col("body").cast("binary").alias("value"),
        f.col("topic"),
        f.col("queue_id").alias("partition"),
        f.col("queue_offset").alias("offset"),
        f.col("store_timestamp").alias("timestamp"),
        f.lit(1).alias("timestampType"),  # the log's time, not the producer's
        f.expr(header).alias("headers"),
        f.col("broker_name"),
    )
