"""The Spark job: the topic as a table, the topic as a stream into Parquet, and the delays summed up.

python -m examples.demo.analyse NAMESRVS TOPIC SUMMARY_TOPIC PARQUET CHECKPOINT RESULT

Tells what it does line by line; what it found goes to the file RESULT, as JSON.
"""

import asyncio
import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo.flights import SPARK_SCHEMA, Totals

from roquette import Client
from roquette_spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM of one minute: less work for itself
SUMMARY_SCHEMA = (
    "carrier string, hour int, flights long, departed long, departure_delay_minutes long, "
    "arrived long, arrival_delay_minutes long"
)


@dataclass(slots=True)
class Analysis:
    """What Spark found; totals are over distinct flights, rows count every message.

    Attributes:
        summary: one row per airline and hour.
        summary_messages: how many messages the summary's topic has.
        summary_totals: flights, and their minutes of departure delay, added up from those messages.
    """

    batch_rows: int
    batch: Totals
    parquet_rows: int
    parquet: Totals
    micro_batches: int
    summary: list[dict[str, Any]]
    summary_messages: int
    summary_totals: tuple[int, int]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Analysis":
        """Read what `save` wrote."""
        found = json.loads(path.read_text(encoding="utf-8"))
        found["batch"], found["parquet"] = Totals(**found["batch"]), Totals(**found["parquet"])
        found["summary_totals"] = tuple(found["summary_totals"])
        return cls(**found)


def main(
    namesrvs: str, topic: str, summary_topic: str, parquet: str, checkpoint: str, result: str
) -> None:
    """The whole job."""
    spark = spark_session("roquette-demo", CORES, spark__driver__extraJavaOptions=SHORT_LIFE)
    print(f"Spark {spark.version} runs", flush=True)
    batch_rows, batch = read_table(spark, namesrvs, topic)
    print(f"read as a table: {batch_rows:,} rows", flush=True)
    micro_batches = archive(spark, namesrvs, topic, parquet, checkpoint)
    rows, totals, summary = sum_up(spark, parquet)
    print(f"copied to Parquet as a stream: {rows:,} rows, {micro_batches} steps", flush=True)
    asyncio.run(publish(namesrvs, summary_topic, summary))
    messages, summary_totals = read_summary(spark, namesrvs, summary_topic)
    print(f"summary published to topic {summary_topic}: {messages:,} messages", flush=True)
    found = Analysis(
        batch_rows, batch, rows, totals, micro_batches, summary, messages, summary_totals
    )
    found.save(Path(result))
    spark.stop()


def read_table(spark: "SparkSession", namesrvs: str, topic: str) -> tuple[int, Totals]:
    """Everything the topic has now, in one go."""
    from pyspark.sql import functions as f

    table = (
        spark.read.format("rocketmq")
        .option("namesrvAddr", namesrvs)
        .option("subscribe", topic)
        .schema("body string")
        .load()
    )
    return _totals(table.select(f.from_json("body", SPARK_SCHEMA).alias("flight")))


def archive(spark: "SparkSession", namesrvs: str, topic: str, parquet: str, checkpoint: str) -> int:
    """Copy the topic to Parquet as a stream that ends when it has caught up; returns its steps.

    Run again with the same checkpoint, it would copy only what came since.
    """
    from pyspark.sql import functions as f

    stream = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", namesrvs)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "120000")
        .schema("body string, broker_name string, queue_id int, queue_offset long")
        .load()
    )
    query = (
        stream.select(
            f.from_json("body", SPARK_SCHEMA).alias("flight"),
            *("broker_name", "queue_id", "queue_offset"),
        )
        .writeStream.format("parquet")
        .option("path", parquet)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(1 for progress in query.recentProgress if progress["numInputRows"])


def sum_up(spark: "SparkSession", parquet: str) -> tuple[int, Totals, list[dict[str, Any]]]:
    """Rows and totals of the Parquet table, and delays by airline and hour."""
    from pyspark.sql import functions as f

    table = spark.read.parquet(parquet)
    rows, totals = _totals(table)
    summary = (
        table.select("flight.*")
        .dropDuplicates(["id"])
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
    return rows, totals, [row.asDict() for row in summary.collect()]


async def publish(namesrvs: str, topic: str, rows: list[dict[str, Any]]) -> None:
    """One message per airline and hour, with our producer."""
    async with Client(namesrvs) as mq:
        for row in rows:
            body = json.dumps(row, separators=(",", ":"))
            key = f"{row['carrier']}-{row['hour']}"
            await mq.send(topic, body, tag=str(row["carrier"]), key=key)


def read_summary(spark: "SparkSession", namesrvs: str, topic: str) -> tuple[int, tuple[int, int]]:
    """The summary as its topic has it: messages; flights and minutes of departure delay added up."""
    from pyspark.sql import functions as f

    table = (
        spark.read.format("rocketmq")
        .option("namesrvAddr", namesrvs)
        .option("subscribe", topic)
        .schema("body string")
        .load()
        .select(f.from_json("body", SUMMARY_SCHEMA).alias("row"))
    )
    found = table.agg(
        f.count("*"), f.sum("row.flights"), f.sum("row.departure_delay_minutes")
    ).first()
    assert found is not None
    return found[0], (found[1], found[2])


def _totals(table: "DataFrame") -> tuple[int, Totals]:
    """Rows, and totals over distinct flight numbers, in one pass."""
    from pyspark.sql import functions as f

    names = ("distance", "dep_delay", "arr_delay", "tailnum")
    once = (
        table.select("flight.*")
        .groupBy("id")
        .agg(f.count("*").alias("copies"), *(f.first(name).alias(name) for name in names))
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
    assert row is not None
    values = {name: value or 0 for name, value in row.asDict().items()}
    return values.pop("rows"), Totals(**values)


if __name__ == "__main__":
    main(*sys.argv[1:])
