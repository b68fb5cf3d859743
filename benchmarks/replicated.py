"""`python -m benchmarks.replicated`: what a message costs a synchronous pair, beside Apache's pair in one run.

Master and replica with inSyncReplicas=2, asynchronous flush, 128 bytes a message; CPU seconds of both brokers together
per 100,000 messages. The kinds take turns, so that a machine whose speed drifts changes both.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.interop import peers
from tests.interop.copied_logs import change, log_range

from benchmarks import against, loads, servers
from benchmarks.__main__ import say

SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1", "flushDiskType": "ASYNC_FLUSH"}
ROWS = {
    "raw 1 x 1": {"connections": 1, "inflight": 1},
    "raw 32 x 1": {"connections": 32, "inflight": 1},
    "raw 4 x 32": {"connections": 4, "inflight": 32},
}
COUNTED_S = 60.0


@dataclass
class Replicated:
    """A master and its replica."""

    pair: servers.Pair
    replica: peers.Process

    def stop(self) -> None:
        """End all."""
        self.replica.stop()
        self.pair.stop()


def start(kind: str) -> Replicated:
    """A pair in step, of which both must have a message."""
    pair = servers.start(kind, SYNC)
    folder = Path(tempfile.mkdtemp(prefix="replica-", dir=pair.folder))
    settings = servers.SETTINGS | SYNC | {"brokerRole": "SLAVE", "brokerId": "1"}
    ports = int(pair.namesrv.split(":")[1]), peers.free_port()
    command = servers.commands(kind, folder, ports, settings)[1]
    environment = {"NAMESRV_ADDR": "", "PYTHONPATH": "", "ROCKETMQ_HOME": str(folder)}
    replica = peers.Process(command, folder / "broker", environment | servers.form_of(kind))
    found = Replicated(pair, replica)
    master = peers.Server(pair.processes[1], pair.broker, kind, "bench")
    slave = peers.Server(replica, f"127.0.0.1:{ports[1]}", kind, "bench")
    end = time.monotonic() + servers.START_LIMIT_S
    while True:
        try:
            if log_range(slave)[1] == log_range(master)[1] > 0:
                break
        except (AssertionError, OSError, ValueError):  # it is not up yet
            pass
        assert time.monotonic() < end, replica.tail()
        time.sleep(0.2)
    change(master, inSyncReplicas="2")
    servers.create_topic(pair, "BenchSend")
    return found


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="apache,compiled")
    parser.add_argument("--against", metavar="COMMIT", help="an earlier commit, beside them")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    if arguments.against:
        servers.ENVIRONMENTS[servers.BEFORE] = against.prepare(arguments.against)
        kinds.append(servers.BEFORE)
    if "compiled" in kinds:
        servers.build_compiled()
    running = {kind: start(kind) for kind in kinds}
    cpu: dict[tuple[str, str], list[tuple[float, float]]] = {}
    waits: dict[tuple[str, str], list[tuple[int, int, float]]] = {}
    try:
        for kind, pair in running.items():
            say(f"heat {kind}")
            loads.raw(
                pair.pair,
                "send",
                "BenchSend",
                connections=8,
                inflight=64,
                count=200_000,
                body=128,
                seconds=COUNTED_S,
            )
        for _ in range(arguments.repeats):
            for name, row in ROWS.items():
                for kind, pair in running.items():
                    words = {**row, "body": 128, "warmup": 1_000, "seconds": arguments.seconds}
                    pid = pair.replica.popen.pid
                    before = servers.cpu_s(pid)
                    found = loads.raw(pair.pair, "send", "BenchSend", **words)
                    time.sleep(0.3)
                    replica = (servers.cpu_s(pid) - before) / (found.messages + 1_000) * 100_000
                    assert not found.errors, found.first_error
                    cpu.setdefault((name, kind), []).append((found.cpu_per_100k, replica))
                    waits.setdefault((name, kind), []).append(
                        (found.p50_us, found.p99_us, found.rate)
                    )
    finally:
        for pair in running.values():
            pair.stop()
    table = Table(
        "row", "brokers", "master", "replica", "both", "of Apache's", "p50 us", "p99 us", "msgs/s"
    )
    for name in ROWS:
        whole = {kind: statistics.median(sum(pair) for pair in cpu[name, kind]) for kind in kinds}
        for kind in kinds:
            master, replica = (
                statistics.median(side) for side in zip(*cpu[name, kind], strict=True)
            )
            p50, p99, rate = (
                statistics.median(column) for column in zip(*waits[name, kind], strict=True)
            )
            ratio = f"{whole[kind] / whole['apache']:.2f}" if "apache" in whole else ""
            table.add_row(
                name,
                kind,
                f"{master:.2f}",
                f"{replica:.2f}",
                f"{whole[kind]:.2f}",
                ratio,
                f"{p50:.0f}",
                f"{p99:.0f}",
                f"{rate:.0f}",
            )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
