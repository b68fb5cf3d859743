"""`python -m benchmarks.client`: what one client process costs, beside Apache's official Python client and Java's.

All of them use one Apache 5.5.0 broker with its LOCAL proxy, in turn, in one run: ours and Java's by the remoting protocol,
the official one by gRPC. CPU microseconds of the *client's* process a message, and messages a second; 128 bytes; medians of
the repeats. Ours runs compiled (tools/build_compiled.py makes that environment).
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from tests.interop.v5.peers import python_peer

from benchmarks import servers
from benchmarks.grpc import create_group, start_apache
from benchmarks.loads import JavaClient

HERE = Path(__file__).resolve().parent
QUEUES = 8
IDLE_QUEUES = 100


class Cost(NamedTuple):
    """Of one load."""

    cpu_us: float
    rate: float


class Row(NamedTuple):
    """One load of ours, and what it is compared with: the row of the official client, and the limits of their ratios."""

    verb: str
    count: int
    official: str
    cpu_limit: float
    rate_limit: float


ROWS = (
    Row("one", 20_000, "one", 0.25, 5),
    Row("pipelined", 200_000, "pipelined", 0.08, 15),
    Row("batch", 300_000, "pipelined", 0.08, 15),
    Row("handler", 200_000, "handler", 0.05, 25),
    Row("iterate", 100_000, "handler", 0.05, 0),
    Row("blocking-one", 5_000, "one", 0.4, 0),
    Row("blocking-handler", 50_000, "handler", 0.1, 0),
)
OFFICIAL = {"one": 2_000, "pipelined": 8_000, "handler": 8_000}


class Bench:
    """One run."""

    def __init__(self, pair: servers.Pair, python: Path) -> None:
        self.pair = pair
        self.python = python
        self.found: dict[tuple[str, str], list[Cost]] = {}
        self._number = 0

    def note(self, who: str, row: str, measured: dict[str, float]) -> None:
        """Remember a figure, and show it."""
        messages, seconds, cpu_s = (measured[key] for key in ("messages", "seconds", "cpu_s"))
        cost = Cost(cpu_s / messages * 1e6, messages / seconds)
        self.found.setdefault((who, row), []).append(cost)
        print(f"{row:17} {who:9} {cost.cpu_us:8.1f} us/message {cost.rate:9.0f} msgs/s", flush=True)

    def topic(self, queues: int = QUEUES) -> str:
        """A topic that is there, with queues, and nothing in it."""
        self._number += 1
        name = f"bench-client-{self._number}"
        servers.create_topic(self.pair, name, queues)
        return name

    def ours(self, row: Row) -> None:
        """A row by Roquette."""
        topic = self.topic()
        if row.official == "handler":
            self._load("fill", topic, row.count)
        self.note("roquette", row.verb, self._load(row.verb, topic, row.count))

    def _load(self, verb: str, topic: str, count: int) -> dict[str, float]:
        program = (str(self.python), str(HERE / "client_load.py"))
        return _run(*program, verb, self.pair.namesrv, topic, f"count={count}")

    def official(self, verb: str) -> None:
        """A row by Apache's Python client."""
        topic, count = self.topic(), OFFICIAL[verb]
        # -P: a folder with a module `grpc` of ours is not where the library looks for its own
        program = (str(python_peer()), "-P", str(HERE / "client_load_official.py"))
        if verb == "handler":
            create_group(self.pair, "bench-official")
            self._load("fill", topic, count)
        grpc: str = self.pair.grpc  # type: ignore[attr-defined]
        self.note("official", verb, _run(*program, verb, grpc, topic, f"count={count}"))

    def java(self, client: JavaClient) -> None:
        """Rows by Java's client, whose own process is measured."""
        verbs: dict[str, Callable[[str], dict[str, object]]] = {
            "one": lambda topic: vars(
                client.run(self.pair, "send", topic, warmup=2, seconds=4, pid=client.pid)
            ),
            "pipelined": lambda topic: vars(
                client.run(
                    self.pair, "async", topic, inflight=256, warmup=2, seconds=4, pid=client.pid
                )
            ),
        }
        for verb, run in verbs.items():
            measured = run(self.topic())
            self.note("java", verb, measured)  # type: ignore[arg-type]
        topic = self.topic()
        self._load("fill", topic, 200_000)
        measured = vars(client.run(self.pair, "push", topic, expect=200_000, pid=client.pid))
        self.note("java", "handler", measured)

    def median(self, who: str, row: str) -> Cost | None:
        """Of the repeats."""
        found = self.found.get((who, row))
        if not found:
            return None
        return Cost(*(statistics.median(values) for values in zip(*found, strict=True)))

    def table(self) -> Table:
        """Rows with their ratios."""
        table = Table(
            "row", "ours us", "official us", "java us", "CPU ratio", "limit", "rate ratio", "limit"
        )
        for row in ROWS:
            ours, official = (
                self.median("roquette", row.verb),
                self.median("official", row.official),
            )
            java = self.median("java", row.official)
            if ours is None or official is None:
                continue
            table.add_row(
                row.verb,
                f"{ours.cpu_us:.1f}",
                f"{official.cpu_us:.1f}",
                "" if java is None else f"{java.cpu_us:.1f}",
                f"{ours.cpu_us / official.cpu_us:.3f}",
                f"{row.cpu_limit}",
                f"{ours.rate / official.rate:.1f}",
                f"{row.rate_limit or ''}",
            )
        return table


def _run(*command: str) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"messages"')]
    if done.returncode or not lines:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-3000:]}")
    return dict(json.loads(lines[-1]))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", default="", help="only these, separated by commas")
    parser.add_argument(
        "--python", type=Path, default=servers.ENVIRONMENTS["compiled"] / "bin" / "python"
    )
    parser.add_argument("--no-java", action="store_true")
    given = parser.parse_args()
    wanted = given.rows.split(",") if given.rows else [row.verb for row in ROWS]
    rows = [row for row in ROWS if row.verb in wanted]
    pair = start_apache()
    try:
        bench = Bench(pair, given.python)
        with tempfile.TemporaryDirectory() as folder:
            java = None if given.no_java else JavaClient(Path(folder))
            bench._load("fill", bench.topic(), 400_000)  # the JVM of the servers gets warm
            for _ in range(given.repeats):
                for row in rows:
                    bench.ours(row)
                for verb in sorted({row.official for row in rows}):
                    bench.official(verb)
                if java is not None:
                    bench.java(java)
            if java is not None:
                java.stop()
        idle = bench._load("idle", bench.topic(IDLE_QUEUES), 1)
        share = idle["cpu_s"] / idle["seconds"]
        print(f"idle with {IDLE_QUEUES} queues: {share:.2%} of a core (limit 0.5 %)")
        Console().print(bench.table())
    finally:
        pair.stop()


if __name__ == "__main__":
    main()
