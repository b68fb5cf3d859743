"""Rates of Spark's source: `python -m benchmarks.spark_source [--kind compiled] [--rows 600000] [--repeats 5]`.

One Spark (local[2]), a no-op sink, bodies of 128 bytes, 8 queues; medians of runs that take turns:

    prebuilt    an Arrow batch of all columns that is ready and only repeated: the ceiling of Spark's Python API
    decode      records in memory, decoded and handed to Spark: what a source without a network would reach
    broker      the source, all columns; once at the broker's default limits (32 messages a pull), once with
                maxTransferCountOnMessageInMemory=1024
    narrow      the same with topic, queue_id, queue_offset and body

Then the time of a micro-batch of a few rows, and beside it that of a source that does nothing
(`benchmarks.spark_floor` has the parts of both). The servers are processes of their own; CPU of the broker is that of
its process, all threads; CPU of all is that of Spark's JVM and Python workers and of the broker together, which
travels between machines and neighbours better than rows a second do.
"""

import argparse
import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import loads, servers
from benchmarks.spark_floor import floors
from roquette.message.message_id import host_bytes
from roquette.message.record import encode_record
from roquette.message.record_layout import Draft, Place
from roquette_spark.local.jdk import spark_session
from roquette_spark.values.schema import default_schema

TOPIC = "BenchSpark"
NARROW = "topic,queue_id,queue_offset,body"
WIDE_PULLS = {"maxTransferCountOnMessageInMemory": "1024"}
BATCH = 8_000


def main() -> None:
    """Measure, print a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="compiled", choices=servers.KINDS)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    if asked.kind == "compiled":
        servers.build_compiled()
    with contextlib.ExitStack() as stack:
        pairs = {}
        for name, settings in (("32", {}), ("1024", WIDE_PULLS)):
            pairs[name] = servers.start(asked.kind, settings)
            stack.callback(pairs[name].stop)
            fill(pairs[name], asked.rows)
        spark = spark_session("benchmark", 2, spark__driver__memory="2g")
        stack.callback(spark.stop)
        found = {"kind": asked.kind, "rows": asked.rows} | rates(spark, pairs, asked)
        short = floors(spark, pairs["32"], TOPIC, rounds=3, batches=10)
        found["micro_batch_ms"] = short["rocketmq"]["all"]
        found["trivial_micro_batch_ms"] = short["trivial"]["all"]
    for name, value in found.items():
        print(f"{name:28} {value if isinstance(value, (str, int)) else format(value, ',.2f')}")
    print(json.dumps(found))


def fill(pair: servers.Pair, rows: int) -> None:
    """A topic with `rows` messages of 128 bytes."""
    servers.create_topic(pair, TOPIC)
    done = loads.raw(pair, "send", TOPIC, count=rows, body=128, connections=4, inflight=8)
    if done.errors or done.messages != rows:
        raise RuntimeError(f"the topic was not filled: {done}")


def rates(
    spark: Any, pairs: dict[str, servers.Pair], asked: argparse.Namespace
) -> dict[str, float]:
    """Rows a second of each way, and the broker's CPU."""
    spark.dataSource.register(source_in_memory("prebuilt", decoded=False))
    spark.dataSource.register(source_in_memory("decode", decoded=True))

    def in_memory(name: str) -> Callable[[], Any]:
        return lambda: spark.read.format(name).option("rows", str(asked.rows)).load()

    def broker(name: str, **options: str) -> Callable[[], Any]:
        given = {"namesrvAddr": pairs[name].namesrv, "subscribe": TOPIC} | options
        return lambda: spark.read.format("rocketmq").options(**given).load()

    ways = {
        "prebuilt": (in_memory("prebuilt"), None),
        "decode": (in_memory("decode"), None),
        "broker 32": (broker("32"), pairs["32"]),
        "broker 1024": (broker("1024"), pairs["1024"]),
        "narrow 32": (broker("32", columns=NARROW), pairs["32"]),
        "narrow 1024": (broker("1024", columns=NARROW), pairs["1024"]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    sparks: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(asked.repeats + 1):
        for name, (frame, pair) in ways.items():
            used = servers.cpu_s(pair.broker_pid) if pair else 0.0
            spark_used = family_cpu_s()
            began = time.monotonic()
            frame().write.format("noop").mode("overwrite").save()
            took = time.monotonic() - began
            if repeat:  # the first round warms the JVM and the page cache
                seconds[name].append(took)
                cpu[name].append((servers.cpu_s(pair.broker_pid) if pair else 0.0) - used)
                sparks[name].append(family_cpu_s() - spark_used + cpu[name][-1])
    found = {
        f"{name} rows/s": asked.rows / statistics.median(taken) for name, taken in seconds.items()
    }
    for name, (_, pair) in ways.items():
        found[f"{name} all us/row"] = statistics.median(sparks[name]) / asked.rows * 1e6
        if pair:
            found[f"{name} broker us/row"] = statistics.median(cpu[name]) / asked.rows * 1e6
    return found


def family_cpu_s() -> float:
    """CPU seconds of this process's descendants, servers left out: Spark's JVM and its Python workers."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    commands: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, text = path.read_text().rpartition(")")
        except OSError:
            continue  # it has ended
        fields = text.split()
        pid = int(path.parent.name)
        commands[pid] = head.partition("(")[2]
        parents.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15])) / servers.TICKS
    found, waiting = 0.0, list(parents.get(os.getpid(), []))
    while waiting:
        pid = waiting.pop()
        if commands[pid] != "roquette":
            found += used[pid]
            waiting += parents.get(pid, [])
    return found


def source_in_memory(name: str, *, decoded: bool) -> type:
    """A source without a network. A class within a function travels to the workers by value."""
    frames = frames_of(BATCH)
    columns = default_schema((), include_properties=True)

    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, schema: Any, rows: int) -> None:
            self.schema, self.rows = schema, rows

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(self.rows // 8) for _ in range(8)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            from roquette_spark.source.decode import RecordColumns, RecordDecoder
            from roquette_spark.values.schema import arrow_schema

            decoder = RecordDecoder(arrow_schema(self.schema), topic=TOPIC, broker_name="bench")
            batch = decoder.decode(RecordColumns(frames, start=0, end=BATCH))
            left = partition.value
            while left:
                if decoded:
                    batch = decoder.decode(RecordColumns(frames, start=0, end=BATCH))
                yield batch.slice(0, left)
                left -= min(left, BATCH)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return columns

        def reader(self, schema: Any) -> Reader:
            return Reader(schema, int(self.options["rows"]))

    return Source


def frames_of(count: int) -> bytes:
    """Stored records like those of the filled topic."""
    host = host_bytes("127.0.0.1", 10911)
    found: list[bytes] = []
    for i in range(count):
        at = 1_700_000_000_000 + i
        properties = b"UNIQ_KEY\x017F000001ABCD0DA14E0C%012X\x02WAIT\x01true\x02" % i
        draft = Draft(TOPIC, 3, properties, b"x" * 128, at, host)
        found.append(encode_record(draft, Place(TOPIC.encode(), host, at + 1, i, i * 300)))
    return b"".join(found)


if __name__ == "__main__":
    main()
