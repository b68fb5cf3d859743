"""One host with 1, 2 and 4 brokers: `python -m benchmarks.host [--seconds 8] [--repeats 3]`.

`roquette up --brokers N`, compiled; the C load (benchmarks/load.c) sends to each broker at once, one process a broker, 4 connections
with 32 requests each on their way. Shown are the messages a second of all brokers together, what one costs in CPU of the
brokers, and the slowest broker's p99; medians of repeats that take turns. The loads run on the same cores as the brokers.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import loads, servers
from roquette.apps.local_group import LocalGroup, load_group

COUNTS = (1, 2, 4)
TOPIC = "BenchHost"
LOAD = {"connections": 4, "inflight": 32, "body": 128, "warmup": 20_000}


@contextmanager
def brokers(count: int) -> Iterator[LocalGroup]:
    """So many masters that serve, with the topic on all of them."""
    program = str(servers.ENVIRONMENTS["compiled"] / "bin" / "roquette")
    environment = os.environ | servers.form_of("compiled") | {"PYTHONPATH": ""}
    with tempfile.TemporaryDirectory(prefix="roquette-bench-host-") as folder:
        log = (Path(folder) / "up.log").open("w")
        words = [program, "up", "--dir", folder, "--brokers", str(count)]
        up = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            assert up.stdout is not None
            for line in up.stdout:
                if line.startswith("ready "):
                    break
            else:
                raise RuntimeError((Path(folder) / "up.log").read_text())
            group = load_group(folder)
            create = ["topic", "create", TOPIC, "--cluster", group.cluster, "-n", group.namesrv]
            subprocess.run([program, *create], check=True, env=environment, capture_output=True)
            yield group
        finally:
            up.terminate()
            up.wait(60)
            log.close()


def send(group: LocalGroup, seconds: float) -> list[loads.Measured]:
    """One run: every broker has its own load."""

    def one(part: Any) -> loads.Measured:
        pair: Any = SimpleNamespace(broker=part.address, broker_pid=part.pid, way=None, user=None)
        return loads.raw(pair, "send", TOPIC, **LOAD, seconds=seconds)

    with ThreadPoolExecutor(len(group.brokers)) as pool:
        return list(pool.map(one, group.brokers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    servers.build_compiled()
    loads.raw_program()
    found: dict[int, list[tuple[float, float, int]]] = {count: [] for count in COUNTS}
    for _ in range(asked.repeats):
        for count in COUNTS:
            with brokers(count) as group:
                runs = send(group, asked.seconds)
            if errors := sum(run.errors for run in runs):
                raise RuntimeError(f"{errors} sends were refused: {runs[0].first_error}")
            sent, cpu = sum(run.messages for run in runs), sum(run.cpu_s for run in runs)
            found[count].append((sum(r.rate for r in runs), cpu / sent * 1e6, max(r.p99_us for r in runs)))  # fmt: skip
    table = Table("brokers", "sends/s of all", "CPU µs a message", "p99 of the slowest, ms")
    rows = {}
    for count, values in found.items():
        rate, cost, p99 = (statistics.median(each) for each in zip(*values, strict=True))
        rows[count] = {"sends_s": rate, "cpu_us": cost, "p99_us": p99}
        table.add_row(str(count), f"{rate:,.0f}", f"{cost:.2f}", f"{p99 / 1000:.1f}")
    Console().print(table)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
