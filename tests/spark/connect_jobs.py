"""Jobs over Spark Connect, in a process of their own: PySpark has either a session of this kind or of the other. Run by test_connect."""

import json
import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from roquette.errors import ConfigError
from roquette_spark.local.jdk import spark_environment
from roquette_spark.pipelines.kit.running import open_session

SCHEMA = "queue_id int, queue_offset long, body string, key string"


def main(namesrv: str, topic: str, copy: str, stream_copy: str, folder: str) -> None:
    """Print what came of each job, as JSON."""
    os.environ.update(spark_environment(os.environ))
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    print(json.dumps(jobs(spark, {"namesrvAddr": namesrv}, topic, copy, stream_copy, folder)))
    spark.stop()


def run(stream: DataFrame, sink: str, options: dict[str, str]) -> None:
    """What there is."""
    writer = stream.writeStream.format(sink).options(**options)
    writer.trigger(availableNow=True).start().awaitTermination()


def jobs(
    spark: SparkSession,
    given: dict[str, str],
    topic: str,
    copy: str,
    stream_copy: str,
    folder: str,
) -> dict[str, object]:
    """Read, write, and both as streams."""
    found: dict[str, object] = {"session": type(spark).__module__}
    frame = spark.read.format("rocketmq").options(**given, subscribe=topic).load()
    columns = frame.select("queue_id", "queue_offset", f.col("body").cast("string"), "key")
    found["read"] = sorted(tuple(row) for row in columns.collect())
    found["narrow"] = frame.where("queue_id = 0 AND queue_offset < 3").count()
    out = columns.select("body", "key").write.format("rocketmq").options(**given, topic=copy)
    out.mode("append").save()
    stream = spark.readStream.format("rocketmq").schema(SCHEMA)
    stream = stream.options(**given, subscribe=topic, startingOffsets="earliest").load()
    files = {"path": f"{folder}/rows", "checkpointLocation": f"{folder}/first"}
    run(stream, "parquet", files)
    to = {**given, "topic": stream_copy, "checkpointLocation": f"{folder}/second"}
    run(stream.select("body", "key"), "rocketmq", to)
    found["stream"] = sorted(tuple(row) for row in spark.read.parquet(f"{folder}/rows").collect())
    try:
        spark.read.format("rocketmq").options(**given, subscrib=topic).load().collect()
    except PySparkException as error:
        found["wrong"] = str(error)
    try:
        open_session("x", "local[2]", (), os.devnull)
    except ConfigError as error:
        found["pipelines"] = str(error)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
