"""The Spark job: read the topic as a table, copy it to Parquet as a stream, and sum it up."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo.flights import SPARK_SCHEMA, Totals

from roquette.spark.jdk import spark_session


@dataclass(slots=True)
class Analysis:
    """Totals over distinct flights, as Spark found them, and the summary."""

    batch_rows: int
    batch: Totals
    parquet_rows: int
    parquet: Totals
    micro_batches: int
    summary: list[dict[str, Any]]


def analyse(namesrvs: str, topic: str, parquet: Path, checkpoint: Path, cores: int = 2) -> Analysis:
    """Read the topic twice, once in one go and once as a stream into Parquet; then sum up the Parquet."""
    from pyspark.sql import functions as f

    spark = spark_session("roquette-demo", cores)
    options = {"namesrvAddr": namesrvs, "subscribe": topic}
    flight = f.from_json(f.col("body"), SPARK_SCHEMA).alias("flight")

    table = spark.read.format("rocketmq").options(**options).schema("body string").load()
    batch_rows, batch = _totals(table.select(flight).select("flight.*"))

    stream = (
        spark.readStream.format("rocketmq")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="120000")
        .schema("body string, broker_name string, queue_id int, queue_offset long")
        .load()
    )
    query = (
        stream.select(flight, "broker_name", "queue_id", "queue_offset")
        .select("flight.*", "broker_name", "queue_id", "queue_offset")
        .writeStream.format("parquet")
        .option("path", str(parquet))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    micro_batches = sum(1 for progress in query.recentProgress if progress["numInputRows"])

    archive = spark.read.parquet(str(parquet))
    parquet_rows, from_parquet = _totals(archive)
    summary = (
        archive.dropDuplicates(["id"])
        .groupBy("carrier", "hour")
        .agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("departed"),
            f.sum("dep_delay").alias("departure_delay_minutes"),
            f.count("arr_delay").alias("arrived"),
            f.sum("arr_delay").alias("arrival_delay_minutes"),
        )
        .orderBy("carrier", "hour")
    )
    rows = [row.asDict() for row in summary.collect()]
    return Analysis(batch_rows, batch, parquet_rows, from_parquet, micro_batches, rows)


def count_messages(namesrvs: str, topic: str) -> int:
    """How many messages a topic holds, by Spark."""
    spark = spark_session("roquette-demo", 2)
    options = {"namesrvAddr": namesrvs, "subscribe": topic, "columns": "queue_offset"}
    return int(spark.read.format("rocketmq").options(**options).load().count())


def stop_spark() -> None:
    """End the JVM's work."""
    spark_session("roquette-demo", 2).stop()


def _totals(flights: Any) -> tuple[int, Totals]:
    """Rows, and totals over distinct flight numbers, in one pass."""
    from pyspark.sql import functions as f

    once = flights.groupBy("id").agg(
        f.count("*").alias("copies"),
        f.first("distance").alias("distance"),
        f.first("dep_delay").alias("dep_delay"),
        f.first("arr_delay").alias("arr_delay"),
        f.first("tailnum").alias("tailnum"),
    )
    row = once.agg(
        f.sum("copies").alias("rows"),
        f.count("id").alias("flights"),
        f.sum("distance").alias("distance"),
        f.count("dep_delay").alias("departure_delays"),
        f.sum("dep_delay").alias("departure_delay_minutes"),
        f.count("arr_delay").alias("arrival_delays"),
        f.sum("arr_delay").alias("arrival_delay_minutes"),
        f.sum(f.col("tailnum").isNull().cast("int")).alias("without_tail_number"),
    ).first()
    values = {name: value or 0 for name, value in row.asDict().items()}
    return values.pop("rows"), Totals(**values)
