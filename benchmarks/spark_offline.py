"""Rates of `format("rocketmq_commitlog")` on two cores, beside what the Python data source API can give at most.

    .venv/bin/python -m benchmarks.spark_offline [--rows 3000000] [--repeats 5] [--json FILE]

A store of 128 B bodies with the properties of an ordinary producer is written first, then read to a noop sink on
local[2]: by the offline source, and from batches that were made before (the ceiling). The decoder alone, in
one thread of this process, says what of it is Spark's. Two smaller stores show what is lost where messages differ:
in the sizes of bodies and values, and in their topics, producers and properties, too. Medians of runs
that take turns; rates want a quiet machine, CPU less so.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import DataType, StructType

from benchmarks.spark_source import family_cpu_s
from roquette.message.message_id import host_bytes
from roquette.message.properties import encode_properties
from roquette.message.record import encode_blank, encode_record
from roquette.message.record_layout import Draft, Place
from roquette_spark.commitlog.files import commitlog_options
from roquette_spark.commitlog.plan import plan
from roquette_spark.commitlog.source import CommitLogReader
from roquette_spark.local.jdk import spark_session
from roquette_spark.values.schema import COLUMNS

SEGMENT = 256 << 20
NARROW = ("topic", "queue_id", "queue_offset", "body")
# What the study of the API measured its 0.84 M rows/s of "numpy decode" with.
STUDIED = (*("topic", "queue_id", "queue_offset", "key", "tags", "body"),
           *("born_timestamp", "store_timestamp", "properties"))  # fmt: skip
LIMITS = {"offline, all columns": 0.7e6, "offline, 4 columns": 1.0e6}


MIXED_SIZES, MIXED_PRODUCERS = "mixed sizes", "mixed producers"
_PRODUCERS = tuple(host_bytes(f"10.0.0.{n}", 50000) for n in (7, 8, 9))


def message(
    number: int, mix: str, chance: random.Random
) -> tuple[bytes, bytes, bytes, dict[str, str]]:
    """Topic, producer's address, body and properties of a message."""
    properties = {
        "UNIQ_KEY": f"7F000001ABCD0DA14E0C{number:012X}",
        "KEYS": f"order-{number:09d}",
        "WAIT": "true",
        "TAGS": ("TagA", "TagB", "TagC")[number % 3],
        "region": "north",
    }
    body = bytes(range(33, 33 + 64)) * 2
    if not mix:
        return b"BenchTopic", _PRODUCERS[0], body, properties
    body = (body * 2)[: chance.randrange(64, 193)]
    properties["KEYS"] = f"order-{chance.randrange(10 ** chance.randrange(3, 10))}"
    properties["region"] = ("north", "south", "east", "west")[chance.randrange(4)]
    if mix == MIXED_SIZES:
        return b"BenchTopic", _PRODUCERS[0], body, properties
    match chance.randrange(3):
        case 0:
            return b"BenchTopic", _PRODUCERS[0], body, properties
        case 1:
            del properties["TAGS"]
            return (
                b"Orders",
                _PRODUCERS[1],
                body,
                properties | {"__SHARDINGKEY": f"g{number % 100}"},
            )
        case _:
            head = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
            return b"Payments", _PRODUCERS[2], body, head | properties


def write_store(root: Path, rows: int, mix: str = "") -> int:
    """Segments of records as producers with one key and one tag make them; returns the bytes of the log."""
    directory = root / "commitlog"
    directory.mkdir(parents=True)
    stored, chance = host_bytes("10.0.0.1", 10911), random.Random(7)
    base, position, parts = 0, 0, []

    def close() -> None:
        rest = SEGMENT - position
        parts.append(encode_blank(rest) + bytes(rest - 8))
        (directory / f"{base:020d}").write_bytes(b"".join(parts))
        parts.clear()

    for number in range(rows):
        topic, born, body, properties = message(number, mix, chance)
        at = 1_700_000_000_000 + number
        text = encode_properties(properties).encode()
        draft = Draft(topic.decode(), number % 8, text, body, at, born)
        record = encode_record(draft, Place(topic, stored, at + 3, number // 8, base + position))
        if position + len(record) + 8 > SEGMENT:
            close()
            base, position = base + SEGMENT, 0
            record = record[:28] + base.to_bytes(8, "big") + record[36:]
        parts.append(record)
        position += len(record)
    total = base + position
    rest = SEGMENT - position
    (directory / f"{base:020d}").write_bytes(b"".join(parts) + bytes(rest))
    return total


class Prebuilt(DataSource):
    """One batch, made once for each task, given again and again: what the API itself costs."""

    @classmethod
    def name(cls) -> str:
        """For format(...)."""
        return "bench_prebuilt"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Spark's door."""
        return PrebuiltReader(schema, self.options["path"], int(self.options["rows"]))


class PrebuiltReader(DataSourceReader):
    """Two tasks that give the log's first batch until they gave `rows`."""

    def __init__(self, schema: StructType, path: str, rows: int) -> None:
        self._schema = schema
        self._path = path
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """One for each core."""
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Half of the rows."""
        reader = CommitLogReader(self._schema, commitlog_options({"path": self._path}))
        batch = next(reader.read(reader.partitions()[0]))
        for _ in range(self._rows // 2 // batch.num_rows):
            yield batch


def decode_alone(path: str, columns: tuple[str, ...]) -> Callable[[], int]:
    """All of the log to Arrow in this thread; the function returns the rows it made."""
    schema = DataType.fromDDL(", ".join(f"{name} {COLUMNS[name]}" for name in columns))
    reader = CommitLogReader(schema, commitlog_options({"path": path}))
    return lambda: sum(b.num_rows for part in reader.partitions() for b in reader.read(part))


def measured(run: Callable[[], int]) -> tuple[float, float]:
    """Rows per second, and CPU µs a row of this process, Spark's JVM and its workers."""
    used, begin = family_cpu_s() + time.process_time(), time.perf_counter()
    rows = run()
    took = time.perf_counter() - begin
    return rows / took, (family_cpu_s() + time.process_time() - used) / rows * 1e6


def cases(spark: Any, path: str, rows: int) -> dict[str, Callable[[], int]]:
    """Every case, as a function that returns how many rows it moved."""

    def job(source: str, columns: tuple[str, ...], **options: str) -> Callable[[], int]:
        ddl = ", ".join(f"`{name}` {COLUMNS[name]}" for name in columns)

        def run() -> int:
            frame = spark.read.format(source).schema(ddl).options(path=path, **options)
            frame.load().write.format("noop").mode("append").save()
            return rows

        return run

    def offline(columns: tuple[str, ...], **options: str) -> Callable[[], int]:
        return job("rocketmq_commitlog", columns, **options)

    def prebuilt(columns: tuple[str, ...]) -> Callable[[], int]:
        return job("bench_prebuilt", columns, rows=str(rows))

    everything = tuple(COLUMNS)
    return {
        "offline, all columns": offline(everything),
        "offline, all columns, CRC not checked": offline(everything, checkCrc="false"),
        "offline, the study's 9 columns": offline(STUDIED),
        "offline, 4 columns": offline(NARROW),
        "prebuilt Arrow, all columns": prebuilt(everything),
        "prebuilt Arrow, the study's 9 columns": prebuilt(STUDIED),
        "prebuilt Arrow, 4 columns": prebuilt(NARROW),
        "decoder alone, one core, all columns": decode_alone(path, everything),
        "decoder alone, one core, the study's 9 columns": decode_alone(path, STUDIED),
        "decoder alone, one core, 4 columns": decode_alone(path, NARROW),
        **{
            f"decoder alone, one core, all columns, {mix}": decode_alone(
                f"{path}/{mix}", everything
            )
            for mix in (MIXED_SIZES, MIXED_PRODUCERS)
        },
    }


def main() -> None:
    """Write, read, say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquette-bench-offline-") as folder:
        size = write_store(Path(folder), asked.rows)
        for mix in (MIXED_SIZES, MIXED_PRODUCERS):
            write_store(Path(folder) / mix, asked.rows // 5, mix)
        splits = len(plan(commitlog_options({"path": folder})))
        print(f"{asked.rows:,} records of {size // asked.rows} bytes, {splits} splits")
        spark = spark_session("bench-offline", 2)
        spark.dataSource.register(Prebuilt)
        found: dict[str, float] = {}
        todo = cases(spark, folder, asked.rows)
        assert todo["decoder alone, one core, 4 columns"]() == asked.rows
        count = spark.read.format("rocketmq_commitlog").load(folder).count()
        assert count == asked.rows, f"{count} rows of {asked.rows}"
        for run in todo.values():  # the JVM compiles, workers start
            run()
        rounds = [{name: measured(run) for name, run in todo.items()} for _ in range(asked.repeats)]
        for name in todo:  # the ways take turns
            found[name] = statistics.median(each[name][0] for each in rounds)
            cpu = statistics.median(each[name][1] for each in rounds)
            found[f"{name}, CPU us/row"] = cpu
            limit = LIMITS.get(name)
            verdict = "" if limit is None else f"   (must reach {limit / 1e6:.1f} M)"
            print(
                f"{name:50} {found[name] / 1e6:6.2f} M rows/s {cpu:6.2f} CPU us/row{verdict}",
                flush=True,
            )
        spark.stop()
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
