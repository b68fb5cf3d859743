"""`archive` beside that of 1b94d96: `python -m benchmarks.spark_before [--kind compiled] [--rows 600000] [--repeats 5]`.

Each commit has a process of its own with one Spark (local[2]), kept for all rounds; runs take turns; medians of the warm
ones. Bodies of 128 bytes (raw) and JSON of eight fields, 8 queues, 1,024 messages a pull, into a new table each time:

    before      `archive` of 1b94d96, from a checkout of it in a temporary directory
    now         `archive` of this checkout
    offline     this checkout's offline source into Spark's Parquet writer, all columns, partitioned by day

Rates of batches are rows by the seconds that the pipeline counts for its batches; those of runs are by the whole of
a run but for Spark's start: planning, stream, batches, joining of files, check, report. CPU is that of the process,
its JVM and its Python workers, without the broker, for a whole run.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools import workspace

from benchmarks import servers
from benchmarks.spark_archive import COLUMNS, JSON, RAW, fill
from benchmarks.spark_source import WIDE_PULLS
from roquette_spark.local.jdk import spark_environment, spark_session

COMMIT = "1b94d96"
# Runs in the interpreter of another commit, too: only what all of them have.
RUNNER = """
import importlib, json, os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

TICKS = os.sysconf("SC_CLK_TCK")
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "2g").config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "2").config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")

def either(*names):
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            pass
    raise ModuleNotFoundError(names)

pipeline = either("roquette_spark.pipelines.archive.pipeline", "roquette.pipelines.archive").PIPELINE
run_pipeline = either("roquette_spark.pipelines.kit.running", "roquette.pipelines.running").run_pipeline
Batches = either("roquette_spark.pipelines.kit.stream", "roquette.pipelines.stream").Batches
counted, done = [], Batches.done

def count(self, number, rows, seconds):
    counted.append((rows, seconds))
    done(self, number, rows, seconds)

Batches.done = count

def cpu_s():
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15])) / TICKS
    found, waiting = 0.0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found += used.get(pid, 0.0)
        waiting += parents.get(pid, [])
    return found

def run(asked):
    if "store" in asked:
        rows = spark.read.format("rocketmq_commitlog").option("topic", asked["topic"]).load(asked["store"])
        rows.selectExpr("*", "to_date(store_timestamp) as dt").write.partitionBy("dt").parquet(asked["to"])
        return
    options = pipeline.options(
        namesrv=asked["namesrv"], topics=(asked["topic"],), to=asked["to"], format=asked["format"], schema=asked["schema"]
    )
    result = run_pipeline(pipeline, options, directory=asked["to"] + "/report")
    assert result.ok

print(json.dumps(importlib.import_module("roquette").__file__), flush=True)
for line in sys.stdin:
    counted.clear()
    used, began = cpu_s(), time.monotonic()
    run(json.loads(line))
    took, cpu = time.monotonic() - began, cpu_s() - used
    print(json.dumps([took, cpu, sum(s for _, s in counted), sum(r for r, _ in counted)]), flush=True)
"""


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
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roquette-bench-")))
        pair = servers.start(asked.kind, WIDE_PULLS)
        stack.callback(pair.stop)
        spark = spark_session("fill", 2)
        fill(spark, pair, asked.rows)
        spark.stop()
        trees = {"before": checkout(folder / "before"), "now": servers.ROOT}
        children = {
            name: stack.enter_context(runner(tree, asked.kind)) for name, tree in trees.items()
        }
        found = {"kind": asked.kind, "rows": asked.rows} | rates(pair, children, asked, folder)
    for name, value in found.items():
        print(f"{name:28} {value if isinstance(value, (str, int)) else format(value, ',.2f')}")
    print(json.dumps(found))


def checkout(folder: Path) -> Path:
    """The files of the commit, without a worktree that git would have to forget."""
    folder.mkdir()
    words = ("git", "-C", str(servers.ROOT), "archive", COMMIT, "src")
    files = subprocess.run(words, check=True, capture_output=True).stdout
    subprocess.run(("tar", "-x", "-C", str(folder)), input=files, check=True)
    return folder


@contextlib.contextmanager
def runner(tree: Path, kind: str) -> Iterator["subprocess.Popen[str]"]:
    """A process with one Spark and the code of a tree."""
    environment = {**os.environ, **spark_environment(os.environ), **servers.form_of(kind)}
    environment["PYTHONPATH"] = workspace.python_path(tree)
    child = subprocess.Popen(
        (sys.executable, "-c", RUNNER),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        where = json.loads(child.stdout.readline())
        if not where.startswith(str(tree)):
            raise RuntimeError(f"{where} runs instead of {tree}")
        yield child
    finally:
        assert child.stdin is not None
        child.stdin.close()
        child.wait()


def ask(child: "subprocess.Popen[str]", words: dict[str, Any]) -> list[float]:
    """Seconds, CPU seconds, seconds of batches and their rows of one run."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(words) + "\n")
    child.stdin.flush()
    answer = child.stdout.readline()
    if not answer:
        raise RuntimeError("a runner ended; what it said stands above")
    found: list[float] = json.loads(answer)
    return found


def rates(
    pair: servers.Pair,
    children: "dict[str, subprocess.Popen[str]]",
    asked: argparse.Namespace,
    folder: Path,
) -> dict[str, float]:
    """Rows a second of each way, CPU a row, and the ratios."""
    store = next(pair.folder.rglob("commitlog")).parent
    taken: dict[str, list[list[float]]] = {}
    for repeat in range(asked.repeats + 1):
        for topic, form, schema in ((RAW, "raw", ""), (JSON, "json", COLUMNS)):
            words = {"topic": topic, "to": str(folder / "out"), "format": form, "schema": schema}
            ways = {
                "before": {**words, "namesrv": pair.namesrv},
                "now": {**words, "namesrv": pair.namesrv},
                "offline": {**words, "store": str(store)},
            }
            for way, given in ways.items():
                found = ask(children.get(way, children["now"]), given)
                shutil.rmtree(folder / "out")
                if way != "offline" and found[3] < asked.rows:
                    raise RuntimeError(f"{way}: {found[3]} rows of {topic}")
                if repeat:  # the first round warms the JVM and the page cache
                    taken.setdefault(f"{form} {way}", []).append(found)
    found_of: dict[str, float] = {}
    for name, runs in taken.items():
        wall, cpu, batches, _ = map(statistics.median, zip(*runs))
        found_of[f"{name} run rows/s"] = asked.rows / wall
        if batches:
            found_of[f"{name} batch rows/s"] = asked.rows / batches
        found_of[f"{name} us/row"] = cpu / asked.rows * 1e6
    for form in ("raw", "json"):
        for what in ("run", "batch"):
            now = found_of[f"{form} now {what} rows/s"]
            found_of[f"{form} {what} now / before"] = now / found_of[f"{form} before {what} rows/s"]
        found_of[f"{form} batch now / offline"] = now / found_of[f"{form} offline run rows/s"]
    return found_of


if __name__ == "__main__":
    main()
