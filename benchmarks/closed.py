"""`python -m benchmarks.closed`: what TLS and access control cost the broker, ours and Apache's in turn, in one run.

Doors are open (plain, everybody may all), tls (TLS 1.3, enforced), signed (ACL 2.0: every request is signed by one
super user, and checked) and user (the same with a normal user, whose eleven rules decide). Apache's broker has BoringSSL on its class path, as in Apache's distribution. A figure is
the median of the repeats: the broker's CPU microseconds a message.
"""

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import loads, servers
from benchmarks.__main__ import PAGE_CACHE_SMALL, say, touch_memory
from benchmarks.rows import Row, chosen

DOORS = ("open", "tls", "signed", "user")
CLOSED = {"open": "", "user": "signed"}


class Bench:
    """One run: pairs of servers of two kinds behind one door at a time."""

    def __init__(self, rows: list[Row], repeats: int, seconds: float, kinds: list[str]) -> None:
        self.rows = rows
        self.repeats = repeats
        self.seconds = seconds
        self.kinds = kinds
        self.found: dict[tuple[str, str, str], list[float]] = {}  # row, kind, door
        self.folder = Path(tempfile.mkdtemp(prefix="roquette-bench-client-"))
        self.java = loads.JavaClient(self.folder)

    def run(self, doors: list[str]) -> None:
        """In turn the kinds behind each door, or one kind behind all doors."""
        try:
            if len(self.kinds) == 1:
                self._turns([(self.kinds[0], door) for door in doors])
            else:
                for door in doors:
                    self._turns([(kind, door) for kind in self.kinds])
        finally:
            self.java.stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _turns(self, who: list[tuple[str, str]]) -> None:
        settings = {"flushDiskType": "ASYNC_FLUSH"}
        pairs: list[tuple[str, servers.Pair]] = []
        try:
            for kind, door in who:
                pairs.append((door, servers.start(kind, settings, CLOSED.get(door, door))))
            for door, pair in pairs:
                servers.create_topic(pair, "BenchSend")
                if door == "user":
                    servers.let_in(pair, "BenchSend")
                for row in self.rows:  # the JIT has seen all of it
                    self._once(row, pair, 4 * self.seconds)
            for repeat in range(self.repeats):
                for row in self.rows:
                    for door, pair in pairs[repeat % len(pairs) :] + pairs[: repeat % len(pairs)]:
                        self._measure(row, door, pair)
        finally:
            for _, pair in pairs:
                pair.stop()

    def _once(self, row: Row, pair: servers.Pair, seconds: float) -> loads.Measured:
        settings = {**row.settings, "warmup": 5_000, "seconds": seconds}
        run = loads.raw if row.client == "raw" else self.java.run
        return run(pair, row.verb, "BenchSend", **settings)

    def _measure(self, row: Row, door: str, pair: servers.Pair) -> None:
        touch_memory(PAGE_CACHE_SMALL)
        found = self._once(row, pair, self.seconds)
        spent = found.cpu_s / found.messages * 1e6
        self.found.setdefault((row.key, pair.kind, door), []).append(spent)
        say(
            f"{row.key:14} {pair.kind:11} {door:7} {spent:7.2f} us/message {found.rate:8.0f} msgs/s"
            f"  p50 {found.p50_us} p99 {found.p99_us} us"
            + (f"  ERRORS {found.errors} {found.first_error}" if found.errors else "")
        )

    def show(self) -> None:
        """Medians, and ours over Apache's pair by pair."""
        table = Table("row", "door", *self.kinds, "ours / Apache's", "least", "most")
        for row in self.rows:
            for door in DOORS:
                spent = {kind: self.found.get((row.key, kind, door), []) for kind in self.kinds}
                if not any(spent.values()):
                    continue
                medians = [f"{statistics.median(each):.2f}" for each in spent.values()]
                ratios = [
                    ours / apache
                    for ours, apache in zip(spent.get("compiled", ()), spent.get("apache", ()))
                ]
                shares = (
                    [
                        f"{value:.2f}"
                        for value in (statistics.median(ratios), min(ratios), max(ratios))
                    ]
                    if ratios
                    else []
                )
                table.add_row(row.key, door, *medians, *shares)
        Console(width=120).print(table)


def main() -> None:
    """Parse the flags, build, measure, print."""
    parser = argparse.ArgumentParser(prog="benchmarks.closed", description=__doc__)
    parser.add_argument("--rows", default="raw-4x32-128,java-32-128")
    parser.add_argument("--doors", default=",".join(DOORS))
    parser.add_argument("--servers", default="apache,compiled", help="kinds, by commas")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one run")
    arguments = parser.parse_args()
    kinds = arguments.servers.split(",")
    if "compiled" in kinds:
        servers.build_compiled()
    bench = Bench(chosen(arguments.rows), arguments.repeats, arguments.seconds, kinds)
    bench.run(arguments.doors.split(","))
    bench.show()


if __name__ == "__main__":
    main()
