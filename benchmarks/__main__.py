"""`python -m benchmarks`: the same loads on Apache's servers and on ours, in turn, in one run."""

import argparse
import dataclasses
import json
import mmap
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import loads, report, servers
from benchmarks.rows import FILL_TOPIC, Row, chosen

ROOT = servers.ROOT
OUTPUT = ROOT / "bench-output"
PAGE_CACHE_LARGE, PAGE_CACHE_SMALL = 1536 << 20, 512 << 20  # more than the log of one run


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured. Times in seconds, the rest in messages."""

    seconds: float
    repeats: int
    heat: int
    warmup: int
    fill: int
    starts: int
    idle_s: float


FULL = Plan(
    seconds=4.0, repeats=5, heat=400_000, warmup=20_000, fill=300_000, starts=5, idle_s=10.0
)
QUICK = Plan(seconds=1.5, repeats=1, heat=100_000, warmup=3_000, fill=100_000, starts=1, idle_s=2.0)


class Bench:
    """One run: servers, the Java client and what they found."""

    def __init__(self, kinds: list[str], rows: list[Row], plan: Plan) -> None:
        self.kinds = kinds
        self.rows = rows
        self.plan = plan
        self.samples: list[dict[str, Any]] = []
        self.facts: dict[str, dict[str, float]] = {kind: {} for kind in kinds}
        self.folder = Path(tempfile.mkdtemp(prefix="roquette-bench-client-"))
        self._java: loads.JavaClient | None = None

    @property
    def java(self) -> loads.JavaClient:
        """The JVM of the client, started when first used."""
        if self._java is None:
            self._java = loads.JavaClient(self.folder)
        return self._java

    def run(self) -> None:
        """Everything; asynchronous flush first, then servers of their own for synchronous flush."""
        try:
            usual = [row for row in self.rows if not row.sync_flush]
            if usual:
                self._phase(usual, {"flushDiskType": "ASYNC_FLUSH"})
            durable = [row for row in self.rows if row.sync_flush]
            if durable:
                self._phase(durable, {"flushDiskType": "SYNC_FLUSH"})
        finally:
            if self._java is not None:
                self._java.stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def measure_starts(self) -> None:
        """Name server and broker started together, to the first accepted send; servers in turn."""
        found: dict[str, list[float]] = {kind: [] for kind in self.kinds}
        for _ in range(self.plan.starts):
            for kind in self.kinds:
                pair = servers.start(kind)
                found[kind].append(pair.start_s)
                pair.stop()
        for kind in self.kinds:
            self.facts[kind]["start_s"] = statistics.median(found[kind])
            say(f"start {kind}: {self.facts[kind]['start_s']:.2f} s")

    def _phase(self, rows: list[Row], settings: dict[str, str]) -> None:
        pairs: list[servers.Pair] = []
        try:
            for kind in self.kinds:
                pairs.append(servers.start(kind, settings))
            for pair in pairs:
                idle_mb = servers.anonymous_kb(pair.broker_pid) / 1024
                self.facts[pair.kind].setdefault("idle_anonymous_mb", idle_mb)
            for pair in pairs:
                self._heat(pair, rows)
            for repeat in range(self.plan.repeats):
                for row in rows:
                    for pair in pairs[repeat % len(pairs) :] + pairs[: repeat % len(pairs)]:
                        self._measure(row, pair, repeat)
            if settings["flushDiskType"] == "ASYNC_FLUSH":
                self._idle(pairs)
                for pair in pairs:
                    self.facts[pair.kind]["anonymous_mb"] = (
                        servers.anonymous_kb(pair.broker_pid) / 1024
                    )
        finally:
            for pair in pairs:
                pair.stop()

    def _idle(self, pairs: list[servers.Pair]) -> None:
        time.sleep(self.plan.idle_s)  # what the load left to do is no idling
        before = [servers.cpu_s(pair.broker_pid) for pair in pairs]
        time.sleep(self.plan.idle_s)
        for pair, used in zip(pairs, before):
            spent = servers.cpu_s(pair.broker_pid) - used
            self.facts[pair.kind]["idle_cpu_percent"] = 100 * spent / self.plan.idle_s

    def _heat(self, pair: servers.Pair, rows: list[Row]) -> None:
        """The JIT has seen every path before anything counts; the same for ours, for fairness."""
        for topic in ("BenchSend", FILL_TOPIC):
            servers.create_topic(pair, topic)
        say(f"heat {pair.kind}")
        plan = self.plan
        wide = {"connections": 8, "inflight": 64, "seconds": 60.0}
        loads.raw(pair, "send", "BenchSend", count=plan.heat, body=128, **wide)
        if any(row.drains for row in rows):
            loads.raw(pair, "send", FILL_TOPIC, count=plan.fill, body=128, **wide)
        if any(row.client == "java" for row in rows):
            self.java.run(pair, "send", "BenchSend", threads=32, body=128, seconds=plan.seconds)
        for row in rows:
            if row.drains:
                time.sleep(1.0)  # Apache's consume queues follow its log
                self._once(row, pair)

    def _once(self, row: Row, pair: servers.Pair) -> loads.Measured:
        settings: dict[str, int | float] = dict(row.settings)
        if row.client == "raw":
            if row.drains:
                return loads.raw(pair, row.verb, FILL_TOPIC, **settings)
            settings |= {"warmup": self.plan.warmup // 4, "seconds": self.plan.seconds}
            return loads.raw(pair, row.verb, "BenchSend", **settings)
        if row.drains:
            return self.java.run(pair, row.verb, FILL_TOPIC, expect=self.plan.fill, **settings)
        warmup = self.plan.warmup // (10 if row.settings.get("threads") == 1 else 2)
        settings |= {"warmup": warmup, "seconds": self.plan.seconds}
        return self.java.run(pair, row.verb, "BenchSend", **settings)

    def _measure(self, row: Row, pair: servers.Pair, repeat: int) -> None:
        if not row.drains:
            touch_memory(PAGE_CACHE_LARGE if row.settings["body"] >= 1024 else PAGE_CACHE_SMALL)
        found = self._once(row, pair)
        sample = {"row": row.key, "kind": pair.kind, "repeat": repeat, **dataclasses.asdict(found)}
        self.samples.append(sample)
        say(
            f"{row.key:18} {pair.kind:12} {found.cpu_per_100k:7.2f} CPU s/100k {found.rate:9.0f} msgs/s"
            f"  p50 {found.p50_us} p99 {found.p99_us} us"
            + (f"  ERRORS {found.errors} {found.first_error}" if found.errors else "")
        )


def touch_memory(size: int) -> None:
    """Use `size` bytes of memory and give them back.

    In a virtual machine the host backs memory when it is first touched, and takes it away when it is free for
    long. Without this, the server whose log happens to grow into such pages pays the host's microseconds (up
    to 10 per page: as much as the rest of a message), which is no property of the server.
    """
    memory = mmap.mmap(-1, size)
    for start in range(0, size, mmap.PAGESIZE):
        memory[start] = 1
    memory.close()


def say(text: str) -> None:
    """Progress, for whoever watches."""
    print(text, flush=True)


def main() -> None:
    """Parse the flags, measure, write."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument(
        "--rows", default="", help="words; only rows whose key contains one of them"
    )
    parser.add_argument("--servers", default="apache,compiled,interpreted", help="kinds, by commas")
    parser.add_argument("--repeats", type=int, help="runs of every row on every server")
    parser.add_argument("--seconds", type=float, help="length of one send run")
    parser.add_argument("--quick", action="store_true", help="short and noisy: for development")
    parser.add_argument("--no-start", action="store_true", help="leave the start-up times out")
    parser.add_argument("--no-micro", action="store_true", help="leave codec and store out")
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="put the table into docs/reference/benchmarks-linux-2-cores.md",
    )
    arguments = parser.parse_args()
    plan = QUICK if arguments.quick else FULL
    plan = dataclasses.replace(
        plan,
        repeats=arguments.repeats or plan.repeats,
        seconds=arguments.seconds or plan.seconds,
    )
    kinds = arguments.servers.split(",")
    if unknown := set(kinds) - set(servers.KINDS):
        raise SystemExit(
            f"no such server: {', '.join(unknown)}; there are {', '.join(servers.KINDS)}"
        )
    if "compiled" in kinds:
        servers.build_compiled()
    bench = Bench(kinds, chosen(arguments.rows), plan)
    if not arguments.no_start:
        bench.measure_starts()
    bench.run()
    micro = {} if arguments.no_micro else measure_micro(kinds)
    OUTPUT.mkdir(exist_ok=True)
    results = {
        "machine": report.machine(),
        "plan": dataclasses.asdict(plan),
        "kinds": kinds,
        "samples": bench.samples,
        "facts": bench.facts,
        "micro": micro,
    }
    (OUTPUT / "results.json").write_text(json.dumps(results, indent=1))
    report.show(results)
    if arguments.write_docs:
        report.write_docs(results)
    say(f"written: {(OUTPUT / 'results.json').relative_to(ROOT)}")


def measure_micro(kinds: list[str]) -> dict[str, Any]:
    """Codec and store figures of every build of ours that takes part."""
    return {kind: servers.micro(kind) for kind in kinds if kind != "apache"}


if __name__ == "__main__":
    sys.exit(main())
