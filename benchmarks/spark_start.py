"""What a short `archive` costs, nearly all of it the start: `python -m benchmarks.spark_start [--rounds 5] [--rows 2000]`.

Each run is the command as a process of its own: a small topic, local[2], raw rows. CPU is that of the driver, of
Spark's JVM and of its Python workers, as the kernel counts it when they end; medians of runs that take turns:

    before      the JVM's options until November 2026
    now         those of the pipeline

`--options "-XX:... -XX:..."` adds a way with other options of the JVM.
"""

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import loads, servers
from roquette_spark.pipelines.kit.running import JVM_OPTIONS

TOPIC = "BenchStart"
BEFORE = "-XX:+UseSerialGC"
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Measure, print a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="compiled", choices=servers.KINDS)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--options", action="append", default=[])
    asked = parser.parse_args()
    if asked.kind == "compiled":
        servers.build_compiled()
    # Workers that outlive their parents become our children, so that the kernel tells their CPU.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ways = {"before": [BEFORE], "now": [], **{each: [each] for each in asked.options}}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with contextlib.ExitStack() as stack:
        pair = servers.start(asked.kind)
        stack.callback(pair.stop)
        servers.create_topic(pair, TOPIC)
        loads.raw(pair, "send", TOPIC, count=asked.rows, body=128, connections=4, inflight=8)
        for _ in range(asked.rounds):
            for name, options in ways.items():
                taken[name].append(run(pair, options))
    found: dict[str, float] = {"rows": asked.rows}
    for name, runs in taken.items():
        found[f"{name} CPU s"], found[f"{name} s"] = map(statistics.median, zip(*runs))
    for name, value in found.items():
        print(f"{name:28} {value:,.2f}")
    print(json.dumps(found | {"kind": asked.kind}))


def run(pair: servers.Pair, options: list[str]) -> tuple[float, float]:
    """CPU seconds and seconds of one `archive` into a new table."""
    with tempfile.TemporaryDirectory(prefix="roquette-bench-") as folder:
        words = ["pipeline", "archive", "-n", pair.namesrv, "--topics", TOPIC, "--format", "raw"]
        words += ["--to", f"{folder}/table", "--report", f"{folder}/report", "--master", "local[2]"]
        for each in options:
            words += ["--spark-conf", f"{JVM_OPTIONS[0]}={each}"]
        program = Path(sys.executable).with_name("roquette")
        began = time.monotonic()
        with open(f"{folder}/log", "wb") as log:
            started = subprocess.Popen([str(program), *words], stdout=log, stderr=log)
            used = cpu_until_all_ended({each.popen.pid for each in pair.processes}, started)
        took = time.monotonic() - began
        if started.returncode:
            raise RuntimeError(Path(folder, "log").read_text())
        return used, took


def cpu_until_all_ended(others: set[int], started: subprocess.Popen[bytes]) -> float:
    """CPU seconds of our children but `others`, when all have ended."""
    used = 0.0
    while set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())) - others:  # fmt: skip
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            time.sleep(0.02)
            continue
        if pid == started.pid:
            started.returncode = os.waitstatus_to_exitcode(status)
        used += usage.ru_utime + usage.ru_stime
    return used


if __name__ == "__main__":
    main()
