"""`python -m benchmarks.grpc`: the v5 gRPC protocol beside Apache's LOCAL proxy 5.5.0, in turn, in one run.

A figure is the median of the repeats: CPU microseconds of the server's process a message (Apache's has broker and proxy in
one JVM, as ours has them in one process), the same load program at both (benchmarks/grpc_load.py). With `--idle` and
`--held` the processor time of a server with one client, and of receives that wait, and their memory.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.interop import peers
from tools import workspace

from benchmarks import servers
from benchmarks.__main__ import PAGE_CACHE_SMALL, say, touch_memory
from benchmarks.loads import Measured
from roquette.wire.codes import RequestCode

LOAD = Path(__file__).resolve().parent / "grpc_load.py"
LOGBACK = """<configuration><appender name="out" class="org.apache.rocketmq.logging.ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %p %logger - %m%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="out"/></root></configuration>"""


@dataclass(frozen=True)
class Row:
    """One load."""

    key: str
    verb: str
    connections: int
    inflight: int


ROWS = [
    Row("send-1x1", "send", 1, 1),
    Row("send-1x32", "send", 1, 32),
    Row("send-8x32", "send", 8, 32),
    Row("receive-4", "receive", 1, 4),
]


def start_apache() -> servers.Pair:
    """A name server, and a broker with the proxy in one JVM, with the heap that Apache's broker has in the other rows."""
    folder = Path(tempfile.mkdtemp(prefix="roquette-bench-apache-proxy-"))
    namesrv, broker, grpc = (peers.free_port() for _ in range(3))
    wanted = {**servers.SETTINGS, "flushDiskType": "ASYNC_FLUSH"}
    name_server, as_broker = servers.commands("apache", folder, (namesrv, broker), wanted)
    conf = folder / "conf"
    conf.mkdir()
    (conf / "rmq.proxy.logback.xml").write_text(LOGBACK)
    proxy = {
        "rocketMQClusterName": "DefaultCluster",
        "grpcServerPort": grpc,
        "remotingListenPort": peers.free_port(),
        "localServeAddr": "127.0.0.1",
        "namesrvAddr": f"127.0.0.1:{namesrv}",
    }
    (folder / "proxy.json").write_text(json.dumps(proxy))
    place = as_broker.index("-cp")
    command = [
        *as_broker[: place + 1],
        peers.class_path("proxy55"),
        "org.apache.rocketmq.proxy.ProxyStartup",
        *("-pm", "local", "-n", f"127.0.0.1:{namesrv}"),
        *("-bc", as_broker[-1], "-pc", str(folder / "proxy.json")),
    ]
    environment = {"NAMESRV_ADDR": "", "PYTHONPATH": "", "ROCKETMQ_HOME": str(folder)}
    began = time.monotonic()
    processes = (
        peers.Process(name_server, folder / "namesrv", environment),
        peers.Process(command, folder / "broker", environment),
    )
    addresses = (f"127.0.0.1:{namesrv}", f"127.0.0.1:{broker}")
    pair = servers.Pair("apache", folder, *addresses, processes, 0.0)
    try:
        processes[1].line_with("rocketmq-proxy startup successfully", servers.START_LIMIT_S)
        pair.start_s = time.monotonic() - began
        while not peers.serves(pair.namesrv, "bench", pair.broker):
            time.sleep(0.05)
    except BaseException:
        pair.stop()
        raise
    pair.grpc = f"127.0.0.1:{grpc}"  # type: ignore[attr-defined]
    return pair


def start(kind: str) -> servers.Pair:
    """Servers of a kind; ours speak gRPC at the broker's port."""
    if kind == "apache":
        return start_apache()
    pair = servers.start(kind, {"flushDiskType": "ASYNC_FLUSH"})
    pair.grpc = pair.broker  # type: ignore[attr-defined]
    return pair


def load(pair: servers.Pair, verb: str, topic: str, **words: float) -> dict[str, float | str]:
    """One run of the load program; what it printed."""
    host, _, port = pair.grpc.partition(":")  # type: ignore[attr-defined]
    given = [f"{key}={value}" for key, value in {"pid": pair.broker_pid, **words}.items()]
    command = [sys.executable, str(LOAD), verb, host, port, topic, *given]
    environment = {**os.environ, "PYTHONPATH": workspace.python_path()}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"{verb} at {pair.kind}: {done.stderr[-3000:]}")
    return dict(json.loads(done.stdout))


def create_group(pair: servers.Pair, name: str = "bench-group") -> None:
    """A consumer group: Apache's proxy makes none."""
    body = json.dumps({"groupName": name}).encode()
    answer = peers.call(pair.broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer is not None, pair.kind
    assert answer[0]["code"] == 0, answer


class Bench:
    """One run over servers of some kinds."""

    def __init__(self, rows: list[Row], repeats: int, seconds: float) -> None:
        self.rows = rows
        self.repeats = repeats
        self.seconds = seconds
        self.found: dict[tuple[str, str], list[float]] = {}

    def run(self, pairs: list[servers.Pair]) -> None:
        """Warm up, then all rows in turn, `repeats` times."""
        for pair in pairs:
            servers.create_topic(pair, "BenchGrpc")
            create_group(pair)
            for row in self.rows:  # the JIT has seen all of it
                self._once(row, pair, 4 * self.seconds)
        for repeat in range(self.repeats):
            for row in self.rows:
                for pair in pairs[repeat % len(pairs) :] + pairs[: repeat % len(pairs)]:
                    touch_memory(PAGE_CACHE_SMALL)
                    found = self._once(row, pair, self.seconds)
                    spent = found.cpu_s / found.messages * 1e6
                    self.found.setdefault((row.key, pair.kind), []).append(spent)
                    say(
                        f"{row.key:12} {pair.kind:11} {spent:7.2f} us/message {found.rate:8.0f} msgs/s  p50 "
                        f"{found.p50_us} p99 {found.p99_us} us"
                        + (f"  ERRORS {found.errors} {found.first_error}" if found.errors else "")
                    )

    def _once(self, row: Row, pair: servers.Pair, seconds: float) -> Measured:
        words = {"connections": row.connections, "inflight": row.inflight, "seconds": seconds}
        if row.verb == "receive":  # something to receive, enough for the run
            load(
                pair, "send", "BenchGrpc", connections=4, inflight=64, warmup=0, seconds=2 * seconds
            )
        return Measured(**load(pair, row.verb, "BenchGrpc", **words))  # type: ignore[arg-type]

    def show(self, kinds: list[str]) -> None:
        """Medians, and ours over Apache's turn by turn."""
        table = Table("row", *kinds, "ours / Apache's", "least", "most")
        for row in self.rows:
            spent = {kind: self.found.get((row.key, kind), []) for kind in kinds}
            medians = [f"{statistics.median(each):.2f}" for each in spent.values()]
            ratios = [a / b for a, b in zip(spent.get("compiled", ()), spent.get("apache", ()))]
            shares = [statistics.median(ratios), min(ratios), max(ratios)] if ratios else []
            table.add_row(row.key, *medians, *(f"{share:.2f}" for share in shares))
        Console(width=120).print(table)


def held(pair: servers.Pair, connections: int, inflight: int) -> None:
    """Memory and processor time of receives that wait."""
    servers.create_topic(pair, "BenchHeld")
    time.sleep(1)
    before = servers.anonymous_kb(pair.broker_pid)
    found = load(
        pair, "hold", "BenchHeld", connections=connections, inflight=inflight, seconds=5,
    )  # fmt: skip
    many = int(found["held"])
    each = (float(found["anonymous_kb"]) - before) * 1024 / max(1, many)
    say(
        f"held {many:6} {pair.kind:11} {each:7.0f} B each, idle {float(found['cpu_s']) / 5 * 100:.2f} % of a core"
        f" {found['first'] if many != connections * inflight else ''}"
    )


def idle(pair: servers.Pair) -> None:
    """Processor time of a server with one client connected before, over 20 s."""
    before = servers.cpu_s(pair.broker_pid)
    time.sleep(20)
    spent = (servers.cpu_s(pair.broker_pid) - before) / 20 * 100
    memory = servers.anonymous_kb(pair.broker_pid) / 1024
    say(f"idle {pair.kind:11} {spent:.2f} % of a core, {memory:.0f} MiB anonymous")


def main() -> None:
    """Parse the flags, build, measure, print."""
    parser = argparse.ArgumentParser(prog="benchmarks.grpc", description=__doc__)
    parser.add_argument("--rows", default=",".join(row.key for row in ROWS))
    parser.add_argument("--servers", default="apache,compiled", help="kinds, by commas")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one run")
    parser.add_argument("--held", default="100x100", help="connections x receives; empty: none")
    parser.add_argument("--idle", action="store_true")
    arguments = parser.parse_args()
    kinds = arguments.servers.split(",")
    if "compiled" in kinds:
        servers.build_compiled()
    bench = Bench(
        [row for row in ROWS if row.key in arguments.rows.split(",")],
        arguments.repeats,
        arguments.seconds,
    )
    pairs: list[servers.Pair] = []
    try:
        pairs += [start(kind) for kind in kinds]
        bench.run(pairs)
        for pair in pairs:
            if arguments.idle:
                idle(pair)
            if arguments.held and pair.kind != "apache":
                connections, _, inflight = arguments.held.partition("x")
                held(pair, int(connections), int(inflight))
    finally:
        for pair in pairs:
            pair.stop()
            shutil.rmtree(pair.folder, ignore_errors=True)
    bench.show(kinds)


if __name__ == "__main__":
    main()
