"""The same job on a standalone Spark cluster of one and of two workers: `python -m benchmarks.spark_cluster [--rows 1000000] [--rounds 3]`.

A real master and real workers (`spark-class`) on this machine, one core each. A store of 128 B bodies is read by
`format("rocketmq_commitlog")`, all columns, into a no-op sink and into Parquet. The rounds take turns with one and with
two workers' cores; of each the first run warms the executors up and is not counted. Medians, and the speed-up.

Two workers, a driver and a master share two cores here: the speed-up is a lower bound of what two machines give.
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.pipelines.standalone import Standalone, standalone

from benchmarks.spark_offline import write_store
from roquette_spark.local.jdk import spark_environment

WORKERS = (1, 2)
SPLIT = "32m"


def main() -> None:
    """Measure, print a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=2, help="counted runs of each round")
    asked = parser.parse_args()
    taken: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="roquette-bench-cluster-") as name:
        folder = Path(name)
        write_store(folder / "store", asked.rows)
        with standalone(folder, max(WORKERS)) as cluster:
            for _ in range(asked.rounds):
                for workers in WORKERS:
                    with session(cluster, workers) as spark:
                        for job, seconds in runs(spark, folder, asked):
                            print(f"{workers} {job} {seconds:.1f} s", flush=True)
                            taken.setdefault((job, workers), []).append(seconds)
    found = {key: statistics.median(seconds) for key, seconds in taken.items()}
    report = {}
    for job in sorted({job for job, _ in found}):
        one, two = found[job, WORKERS[0]], found[job, WORKERS[1]]
        print(
            f"{job:10} 1 worker {asked.rows / one:10,.0f} rows/s   2 workers {asked.rows / two:10,.0f} rows/s"
            f"   speed-up {one / two:.2f}"
        )
        report[job] = {"one_s": one, "two_s": two, "speed_up": one / two}
    print(json.dumps({"rows": asked.rows} | report))


@contextlib.contextmanager
def session(cluster: Standalone, workers: int) -> Iterator[Any]:
    """A driver that has so many workers' cores."""
    os.environ.update(spark_environment(os.environ))
    from pyspark.sql import SparkSession

    conf = {
        "spark.cores.max": str(workers),
        "spark.executor.cores": "1",
        "spark.executor.memory": "768m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    spark = (
        SparkSession.builder.appName("cluster")
        .master(cluster.address)
        .config(map=conf)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def runs(spark: Any, folder: Path, asked: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """(job, seconds) of the counted runs, after one that warms up and checks the number of rows."""
    reader = spark.read.format("rocketmq_commitlog").option("splitBytes", SPLIT)
    frame = reader.load(str(folder / "store"))
    count = frame.select("queue_offset").count()
    if count != asked.rows:
        raise RuntimeError(f"{count} rows were read of {asked.rows}")
    for number in range(asked.runs + 1):
        for job in ("noop", "parquet"):
            writer = frame.write.format(job).mode("overwrite")
            began = time.monotonic()
            if job == "noop":
                writer.save()
            else:
                writer.save(str(folder / "out"))
            if number:
                yield job, time.monotonic() - began


if __name__ == "__main__":
    main()
