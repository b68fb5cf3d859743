"""The sink of `format("rocketmq")`: rows a second into a broker, everything on one machine.

    .venv/bin/python -m benchmarks.spark_sink --kinds compiled apache --rows 500000 --repeats 5

Rows lie in Spark's memory before the clock runs. Each table row is a median over repeats, taken in turn; the broker's
CPU time is of the same runs. Spark has as many tasks as --tasks; brokers are those of `python -m benchmarks`.
"""

import argparse
import json
import statistics
import time
from typing import Any

from benchmarks import servers

BODY = 128
CASES: dict[str, tuple[list[str], dict[str, str]]] = {
    "body only, any queue": (["body"], {}),
    "body and key, queue by key": (["body", "key"], {}),
    "body, key, tags, properties": (["body", "key", "tags", "properties"], {}),
    "body and key, idempotent": (["body", "key"], {"deliveryGuarantee": "idempotent"}),
}


def frame_of(spark: Any, rows: int, tasks: int) -> Any:
    """The rows, cached: making them is not measured."""
    frame = spark.range(0, rows, 1, tasks).selectExpr(
        f"rpad(string(id), {BODY}, 'x') AS body",
        "concat('key-', id % 1000) AS key",
        "elt(int(id % 3) + 1, 'A', 'B', 'C') AS tags",
        "map('n', string(id), 'region', 'eu') AS properties",
    )
    frame = frame.cache()
    frame.count()
    return frame


def measure(
    frame: Any, columns: list[str], pair: servers.Pair, given: dict[str, str]
) -> list[float]:
    """One write: seconds, and the broker's CPU seconds."""
    cpu_s, began = servers.cpu_s(pair.broker_pid), time.monotonic()
    options = {"namesrvAddr": pair.namesrv, "topic": "SparkSink", **given}
    frame.select(*columns).write.format("rocketmq").options(**options).mode("append").save()
    return [time.monotonic() - began, servers.cpu_s(pair.broker_pid) - cpu_s]


def bench_kind(kind: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All cases against one kind of broker."""
    from roquette_spark.local.jdk import spark_session

    pair = servers.start(kind, {"flushDiskType": "ASYNC_FLUSH", "diskMaxUsedSpaceRatio": "95"})
    try:
        servers.create_topic(pair, "SparkSink")
        time.sleep(2)  # the route reaches the name server
        spark = spark_session("spark-sink", arguments.tasks, spark__driver__memory="2g")
        frame = frame_of(spark, arguments.rows, arguments.tasks)
        found: dict[str, list[list[float]]] = {name: [] for name in CASES}
        for repeat in range(arguments.repeats + 1):  # the first warms up
            for name, (columns, given) in CASES.items():
                sample = measure(frame, columns, pair, given)
                if repeat:
                    found[name].append(sample)
        return [summary(kind, name, arguments.rows, samples) for name, samples in found.items()]
    finally:
        pair.stop()


def summary(kind: str, name: str, rows: int, samples: list[list[float]]) -> dict[str, Any]:
    """A line of the table."""
    seconds = [sample[0] for sample in samples]
    return {
        "broker": kind,
        "case": name,
        "rows_per_s": round(rows / statistics.median(seconds)),
        "lowest": round(rows / max(seconds)),
        "highest": round(rows / min(seconds)),
        "broker_us_per_row": round(statistics.median(s[1] for s in samples) / rows * 1e6, 2),
    }


def main() -> None:
    """Measure and print a table, or JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=["compiled"], choices=servers.KINDS)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    lines = [line for kind in arguments.kinds for line in bench_kind(kind, arguments)]
    if arguments.json:
        for line in lines:
            print(json.dumps(line))
        return
    print("| broker | columns | rows/s, median (range) | broker's CPU, us a row |")
    print("|---|---|---|---|")
    for line in lines:
        spread = f"{line['lowest']:,} to {line['highest']:,}"
        print(
            f"| {line['broker']} | {line['case']} | {line['rows_per_s']:,} ({spread}) | {line['broker_us_per_row']} |"
        )


if __name__ == "__main__":
    main()
