"""Rates of `archive`'s batches: `python -m benchmarks.spark_archive [--kind compiled] [--rows 500000] [--repeats 5]`.

One Spark (local[2]), warm; bodies of 128 bytes (raw) and JSON of eight fields, 8 queues, 1,024 messages a pull; medians of
runs that take turns:

    noop        the source into nothing, the columns of an archive: the ceiling of Spark's API
    spark       the source into Spark's Parquet writer, partitioned by day, JSON by from_json: how archives were written
                until 1b94d96 (without its look at each body, its log and its joining of files)
    archive     what `archive` does: tasks read and write, and the table's log names the files

CPU of all is that of Spark's JVM, its Python workers and the broker together.
"""

import argparse
import contextlib
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks import loads, servers
from benchmarks.spark_source import WIDE_PULLS, family_cpu_s
from roquette.message.message import MessageQueue
from roquette_spark.local.jdk import spark_session
from roquette_spark.pipelines.kit.message_rows import DAY, RAW_COLUMNS, RowForm
from roquette_spark.pipelines.kit.table_files import Commit
from roquette_spark.pipelines.kit.topics import find_topics
from roquette_spark.pipelines.rows.decoder import table_type
from roquette_spark.pipelines.rows.tasks import BatchWork, write_batch
from roquette_spark.pipelines.tables.delta_table import open_table
from roquette_spark.values.offsets import QueueRange

RAW, JSON = "BenchRaw", "BenchJson"
COLUMNS = "id long, name string, price double, paid boolean, quantity int, city string, note string, at string"
FIELDS = (
    "id",
    "concat('name', id) as name",
    "id * 0.5 as price",
    "id % 2 = 0 as paid",
    "cast(id % 9 as int) as quantity",
    "'Berlin' as city",
    "'xxxxxxxx' as note",
    "'2023-02-01' as at",
)


def main() -> None:
    """Measure, print a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="compiled", choices=servers.KINDS)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    if asked.kind == "compiled":
        servers.build_compiled()
    with contextlib.ExitStack() as stack:
        pair = servers.start(asked.kind, WIDE_PULLS)
        stack.callback(pair.stop)
        spark = spark_session("benchmark", 2, spark__driver__memory="2g")
        stack.callback(spark.stop)
        fill(spark, pair, asked.rows)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="roquette-bench-"))
        found = {"kind": asked.kind, "rows": asked.rows} | rates(spark, pair, asked, folder)
    for name, value in found.items():
        print(f"{name:28} {value if isinstance(value, (str, int)) else format(value, ',.2f')}")
    print(json.dumps(found))


def fill(spark: Any, pair: servers.Pair, rows: int) -> None:
    """Both topics."""
    for topic in (RAW, JSON):
        servers.create_topic(pair, topic)
    done = loads.raw(pair, "send", RAW, count=rows, body=128, connections=4, inflight=8)
    if done.errors or done.messages != rows:
        raise RuntimeError(f"the topic was not filled: {done}")
    fields = spark.range(rows).selectExpr(*FIELDS)
    bodies = fields.selectExpr("to_json(struct(*)) as body")
    target = bodies.write.format("rocketmq").mode("append")
    target.option("namesrvAddr", pair.namesrv).option("topic", JSON).save()


def rates(
    spark: Any, pair: servers.Pair, asked: argparse.Namespace, folder: str
) -> dict[str, float]:
    """Rows a second of each way, and CPU of all."""
    source = {"namesrvAddr": pair.namesrv}
    schema = spark.createDataFrame([], COLUMNS).schema

    def messages(topic: str) -> Any:
        reader = spark.read.format("rocketmq").options(**source, subscribe=topic)
        return reader.load().select(*RAW_COLUMNS)

    def by_spark(topic: str) -> Any:
        rows = messages(topic)
        if topic == JSON:
            from pyspark.sql import functions as f

            rows = rows.withColumn("value", f.from_json(f.col("body").cast("string"), schema))
            rows = rows.select("value.*", *(name for name in rows.columns if name not in ("value", "body")))  # fmt: skip
        return rows.selectExpr("*", f"to_date(store_timestamp) as {DAY}")

    def archive(topic: str) -> None:
        form = RowForm("json", schema.json()) if topic == JSON else RowForm("raw")
        table = open_table(f"{folder}/archive")
        table.create(table_type(form).json(), (DAY,), {})
        ranges = [
            QueueRange(MessageQueue(topic, each.broker_name, each.queue_id), each.start, each.end)
            for each in find_topics(pair.namesrv, [topic], source)
        ]
        apart = f"{folder}/archive.quarantine" if topic == JSON else ""
        work = BatchWork(0, {**source, "subscribe": topic}, form, table.files.root, apart)
        written = write_batch(spark, {topic: work}, ranges)[topic]
        table.commit(Commit(adds=written.good, batch=("bench", 0)), "STREAMING UPDATE")
        if written.rows != asked.rows:
            raise RuntimeError(f"{written.rows} rows were written")

    def ways(topic: str) -> dict[str, Callable[[], None]]:
        return {
            "noop": lambda: messages(topic).write.format("noop").mode("overwrite").save(),
            "spark": lambda: by_spark(topic).write.partitionBy(DAY).parquet(f"{folder}/spark"),
            "archive": lambda: archive(topic),
        }

    seconds: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    for repeat in range(asked.repeats + 1):
        for topic in (RAW, JSON):
            for way, run in ways(topic).items():
                used, began = family_cpu_s() + servers.cpu_s(pair.broker_pid), time.monotonic()
                run()
                took = time.monotonic() - began
                if repeat:  # the first round warms the JVM and the page cache
                    name = f"{topic.removeprefix('Bench').lower()} {way}"
                    seconds.setdefault(name, []).append(took)
                    after = family_cpu_s() + servers.cpu_s(pair.broker_pid)
                    cpu.setdefault(name, []).append(after - used)
                for each in ("spark", "archive", "archive.quarantine"):
                    shutil.rmtree(f"{folder}/{each}", ignore_errors=True)
    found = {f"{n} rows/s": asked.rows / statistics.median(taken) for n, taken in seconds.items()}
    for name, taken in cpu.items():
        found[f"{name} all us/row"] = statistics.median(taken) / asked.rows * 1e6
    return found


if __name__ == "__main__":
    main()
