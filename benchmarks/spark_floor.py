"""The time of a small micro-batch, beside the least that Spark takes for any Python source.

    python -m benchmarks.spark_floor [--kind compiled] [--rounds 3] [--batches 15] [--advised] [--conf KEY=VALUE] [--queues 8]

Two queries take turns, each with a no-op sink and ten (or so) batches a round: `rocketmq` gets ten messages over
8 queues at a time, `trivial` is a Python source of a few lines whose batches have one row in one task and that asks
nobody for anything. What Spark says of their parts is printed beside each other; the ratio of the two is told
whatever the machine is doing. `--advised` takes the settings docs/spark.md advises for short batches.
"""

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import loads, servers
from roquette_spark.local.jdk import spark_session

TOPIC = "BenchFloor"
PARTS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
PAUSE_S = 0.5
# docs/spark.md, "Short batches".
ADVISED = {
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}


def main() -> None:
    """Measure, print a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="compiled", choices=servers.KINDS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=15)
    parser.add_argument("--queues", type=int, default=servers.QUEUES)
    parser.add_argument("--advised", action="store_true")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--option", action="append", default=[])
    asked = parser.parse_args()
    if asked.kind == "compiled":
        servers.build_compiled()
    conf = dict(ADVISED if asked.advised else {}) | dict(c.split("=", 1) for c in asked.conf)
    options = dict(option.split("=", 1) for option in asked.option)
    with contextlib.ExitStack() as stack:
        pair = servers.start(asked.kind)
        stack.callback(pair.stop)
        servers.create_topic(pair, TOPIC, asked.queues)
        spark = spark_session("floor", 2, **{k.replace(".", "__"): v for k, v in conf.items()})
        stack.callback(spark.stop)
        found = floors(spark, pair, TOPIC, asked.rounds, asked.batches, options)
    for name, parts in found.items():
        print(f"{name:10}", *(f"{part} {value:,.1f}" for part, value in parts.items()))
    ratios = {p: found["rocketmq"][p] / found["trivial"][p] for p in ("all", "shortest")}
    print(f"ratio      all {ratios['all']:.2f} shortest {ratios['shortest']:.2f}")
    print(json.dumps(found | {"kind": asked.kind, "conf": conf, "options": options}))


def floors(
    spark: Any,
    pair: servers.Pair,
    topic: str,
    rounds: int,
    batches: int,
    options: dict[str, str] | None = None,
) -> dict[str, dict[str, float]]:
    """Of both queries, in ms: the median of the whole batch (`all`) and of its parts, and the shortest batch."""
    spark.dataSource.register(trivial_source())
    given = {"namesrvAddr": pair.namesrv, "subscribe": topic, "offsetPollIntervalMs": "10"}
    ours = spark.readStream.format("rocketmq").options(**given | (options or {})).load()
    trivial = spark.readStream.format("trivial").load()

    def send() -> None:
        loads.raw(pair, "send", topic, count=10, body=128)

    ways = {"trivial": (trivial, lambda: None), "rocketmq": (ours, send)}
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (frame, step) in ways.items():
            taken[name] += run(frame, step, batches)
    return {
        name: {
            part: statistics.median(one.get(key, 0) for one in batches_of)
            for part, key in (("all", "triggerExecution"), *((p, p) for p in PARTS))
        }
        | {"shortest": min(one["triggerExecution"] for one in batches_of)}
        for name, batches_of in taken.items()
    }


def run(frame: Any, step: Callable[[], None], batches: int) -> list[dict[str, float]]:
    """The durations of the batches with rows of one query, but for the first three."""
    with tempfile.TemporaryDirectory() as folder:
        query = frame.writeStream.format("noop").option("checkpointLocation", folder).start()
        taken: dict[int, dict[str, float]] = {}
        end = time.monotonic() + 60 + batches * 10
        try:
            while len(taken) < batches + 3 and time.monotonic() < end:
                step()
                time.sleep(PAUSE_S)
                for progress in query.recentProgress:
                    if progress["numInputRows"]:
                        taken[progress["batchId"]] = progress["durationMs"]
        finally:
            # A query that is stopped while it plans says so at length.
            frame.sparkSession.sparkContext.setLogLevel("OFF")
            query.stop()
            frame.sparkSession.sparkContext.setLogLevel("ERROR")
    return [taken[batch] for batch in sorted(taken)][3:]


def trivial_source() -> type:
    """One row a batch, one batch per pause. A class within a function travels to the workers by value."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    pause_s = PAUSE_S

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"at": 0}

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
            return {"at": int(time.time() / pause_s)}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition(end["at"])]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            schema = pa.schema([pa.field("at", pa.int64())])
            yield pa.RecordBatch.from_pydict({"at": [partition.value]}, schema=schema)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "trivial"

        def schema(self) -> str:
            return "at long"

        def streamReader(self, schema: Any) -> Reader:
            return Reader()

    return Source


if __name__ == "__main__":
    main()
