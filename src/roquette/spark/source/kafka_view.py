"""Our columns under the names of Spark's Kafka source, for queries that come from there."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def kafka_compatible_view(frame: "DataFrame") -> "DataFrame":
    """Key, value, topic, partition, offset, timestamp, timestampType and headers, with Kafka's types.

    `broker_name` stays as a last column: queue numbers, which stand as partitions, begin anew at each broker.
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
