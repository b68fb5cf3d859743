"""CPU of `current-state`'s batches: `python -m benchmarks.spark_state [--keys 1000000] [--batches 20] [--share 0.3]`.

A table of so many keys, 1 % of them changed in each batch, in two patterns: spread over all keys, and the newest keys only.
Three ways, medians of batches in one warm Spark (local[2]):

    changes     what `current-state` does: files of changes, buckets with many of them rewritten; a whole version never
    rewrite     `--compact-every 1`: the whole table in each batch, by pyarrow
    spark       the whole table in each batch by Spark's shuffle and its Parquet writer: how it was until November 2026

CPU is that of Spark's JVM, its Python workers and this process; the broker's is left out.
"""

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import servers
from benchmarks.spark_source import WIDE_PULLS, family_cpu_s
from roquette_spark.local.jdk import spark_session
from roquette_spark.pipelines.kit.message_rows import RESCUED
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.pipelines.kit.table_files import Commit, TableFiles
from roquette_spark.pipelines.rows.decoder import arrow_of
from roquette_spark.pipelines.rows.parquet_files import ParquetFiles, as_columns
from roquette_spark.pipelines.state.change_rows import (
    DELETED,
    ORDER,
    TIES,
    VERSION,
    Bucket,
    hashes_of,
    key_of,
)
from roquette_spark.pipelines.state.pipeline import PIPELINE, CurrentState, CurrentStateOptions
from roquette_spark.pipelines.tables.delta_table import open_table

COLUMNS = (
    "id long, v long, op string, name string, price double, paid boolean, quantity int, city string"
)
CHANGES = (
    "concat('name', id, '-', v) as name",
    "id * 0.5 as price",
    "id % 2 = 0 as paid",
    "cast(id % 9 as int) as quantity",
    "'Berlin' as city",
)
PATTERNS = ("spread", "newest")
PART_ROWS = 625_000
BATCHES: list[float] = []  # CPU seconds of each batch of the run under way


def main() -> None:
    """Measure, print a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="interpreted", choices=servers.KINDS)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rewrites", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.3)
    asked = parser.parse_args()
    if asked.kind == "compiled":
        servers.build_compiled()
    with contextlib.ExitStack() as stack:
        pair = servers.start(asked.kind, WIDE_PULLS)
        stack.callback(pair.stop)
        spark = spark_session("benchmark", 2, spark__driver__memory="3g")
        stack.callback(spark.stop)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="roquette-bench-"))
        _watch_batches()
        found: dict[str, Any] = vars(asked)
        for pattern in PATTERNS:
            found |= _measure(spark, pair, asked, pattern, f"{folder}/{pattern}")
            for name, value in found.items():
                print(f"{name:32} {value}", flush=True)
    print(json.dumps(found))


def _watch_batches() -> None:
    """Note the CPU of each batch from now on."""
    apply: Callable[..., None] = CurrentState._apply_ranges

    def watched(self: CurrentState, *given: Any) -> None:
        used = _cpu_s()
        apply(self, *given)
        BATCHES.append(_cpu_s() - used)

    CurrentState._apply_ranges = watched  # type: ignore[method-assign]


def _cpu_s() -> float:
    return family_cpu_s() + time.process_time()


def _measure(
    spark: Any, pair: servers.Pair, asked: argparse.Namespace, pattern: str, folder: str
) -> dict[str, Any]:
    topic, size = f"Bench{pattern}", asked.keys // 100
    servers.create_topic(pair, topic)
    options = CurrentStateOptions(
        namesrv=pair.namesrv, topic=topic, to=f"{folder}/state", report=f"{folder}/report", key=("id",), version="v",
        delete_when="op = 'd'", schema=COLUMNS, batch=size, rewrite_share=asked.share, compact_every=0, check=False,
    )  # fmt: skip

    def run(batches: int, first: int, **more: Any) -> tuple[float, dict[str, Any]]:
        _send(spark, pair, topic, asked.keys, pattern, range(first, first + batches))
        BATCHES.clear()
        result = run_pipeline(PIPELINE, replace(options, **more))
        assert result.summary["this_run"]["rows"] == batches * size, result.summary
        return statistics.median(BATCHES), result.summary

    run(1, 1)  # makes the table
    _put_base(f"{folder}/state", asked.keys)
    run(2, 2)  # warms the JVM
    changes, summary = run(asked.batches, 4)
    total = sum(BATCHES)
    files = len(open_table(f"{folder}/state").snapshot.files)
    rewrite, _ = run(asked.rewrites, 100, compact_every=1, check=True)
    by_spark = _rewrite_by_spark(spark, pair, options, asked.rewrites)
    return {
        f"{pattern}: changes, CPU s a batch": round(changes, 2),
        f"{pattern}: rewrite, CPU s": round(rewrite, 2),
        f"{pattern}: spark, CPU s": round(by_spark, 2),
        f"{pattern}: changes / rewrite": round(changes / rewrite, 3),
        f"{pattern}: changes / spark": round(changes / by_spark, 3),
        f"{pattern}: all batches / spark": round(total / by_spark / asked.batches, 3),
        f"{pattern}: buckets rewritten": summary["buckets_rewritten"],
        f"{pattern}: files at the end": files,
    }


def _send(
    spark: Any, pair: servers.Pair, topic: str, keys: int, pattern: str, batches: range
) -> None:
    """1 % of the keys for each batch, with the batch's number as version; one change in 50 is a deletion."""
    size = keys // 100
    chosen = f"{keys - size} + id % {size}" if pattern == "newest" else f"(id * 7919 * 31) % {keys}"
    rows = spark.range(batches.start * size, batches.stop * size, numPartitions=8)
    rows = rows.selectExpr(f"cast({chosen} as long) as key", f"cast(id div {size} as long) as v")
    rows = rows.selectExpr("key as id", "v", "if(hash(key, v) % 50 = 0, 'd', 'u') as op")
    bodies = rows.selectExpr("id", "v", "op", *CHANGES).selectExpr("to_json(struct(*)) as body")
    target = bodies.write.format("rocketmq").mode("append")
    target.option("namesrvAddr", pair.namesrv).option("topic", topic).save()


def _put_base(root: str, keys: int) -> None:
    """The table becomes one of so many keys."""
    from pyspark.sql.types import StructType

    table = open_table(root)
    schema = arrow_of(StructType.fromJson(json.loads(table.snapshot.schema)))
    text = schema.set(schema.get_field_index(DELETED), pa.field(DELETED, pa.string()))
    parts = 1
    while keys > parts * PART_ROWS:
        parts *= 2
    ids = np.arange(keys)
    hashes = hashes_of(key_of(pa.table({"id": ids}), ["id"]))
    adds = []
    for bucket in Bucket().split(parts):
        mine = ids[np.asarray(bucket.has(hashes))]
        folder = "snapshot-0000000000"
        out = ParquetFiles(TableFiles(f"{root}/{folder}"), f"part-{bucket}_base", text, (DELETED,))
        out.write(as_columns(_base_rows(mine), text))
        for file in out.close():
            adds.append(replace(file, path=f"{folder}/{file.path}"))
    table.commit(Commit(adds, list(table.snapshot.files.values())), "BENCHMARK")


def _base_rows(ids: np.ndarray) -> pa.Table:
    count, stored = len(ids), pa.scalar(1_700_000_000_000_000, pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "id": ids,
            "v": np.zeros(count, np.int64),
            "op": pa.repeat(pa.scalar("u"), count),
            "name": [f"name{each}-0" for each in ids],
            "price": ids * 0.5,
            "paid": ids % 2 == 0,
            "quantity": (ids % 9).astype(np.int32),
            "city": pa.repeat(pa.scalar("Berlin"), count),
            "_store_timestamp": pa.repeat(stored, count),
            "_broker_name": pa.repeat(pa.scalar("broker-a"), count),
            "_queue_id": (ids % 8).astype(np.int32),
            "_queue_offset": ids // 8,
            "_version": np.zeros(count, np.int64),
            DELETED: pa.repeat(pa.scalar("false"), count),
        }
    )


def _rewrite_by_spark(
    spark: Any, pair: servers.Pair, options: CurrentStateOptions, repeats: int
) -> float:
    """Median CPU of a batch as `current-state` did it before: 1 % of the keys into the whole table."""
    from pyspark.sql import functions as f

    table = open_table(options.to)

    def latest(rows: Any) -> Any:
        names = rows.columns
        best = rows.groupBy(*options.key).agg(f.max_by(f.struct(*names), f.struct(*ORDER)).alias("best"))  # fmt: skip
        return best.select(*(f.col(f"best.`{name}`").alias(name) for name in names))

    taken = []
    for number in range(repeats + 1):
        ends = {"startingOffsets": "earliest", "endingOffsets": _ends(options.topic, options.batch)}
        used = _cpu_s()
        source = {"namesrvAddr": pair.namesrv, "subscribe": options.topic}
        messages = spark.read.format("rocketmq").options(**source, **ends).load()
        body = f.from_json(f.col("body").cast("string"), COLUMNS).alias("b")
        new = messages.select("*", body).select(
            "b.*",
            *(f.col(name.removeprefix("_")).alias(name) for name in TIES),
            f.lit(None).cast("string").alias(RESCUED),
            f.col("b.v").alias(VERSION),
            f.lit(False).alias(DELETED),
        )
        new.write.mode("overwrite").parquet(f"{options.to}/_bench/staged")
        staged = spark.read.schema(new.schema).parquet(f"{options.to}/_bench/staged")
        assert staged.count() >= options.batch - 8
        paths = [f"{options.to}/{file.path}" for file in table.snapshot.files.values()]
        whole = spark.read.option("basePath", options.to).schema(new.schema).parquet(*paths)
        merged = latest(whole.unionAll(latest(staged)))
        merged.write.mode("overwrite").partitionBy(DELETED).parquet(f"{options.to}/_bench/merged")
        if number:  # the first one warms the JVM
            taken.append(_cpu_s() - used)
    return statistics.median(taken)


def _ends(topic: str, rows: int) -> str:
    return json.dumps({topic: {"bench": {str(queue): rows // 8 for queue in range(8)}}})


if __name__ == "__main__":
    main()
