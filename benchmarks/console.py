"""`python -m benchmarks.console`: what the web console costs `roquette dev` with very many topics: pages, searches, idling, memory.

CPU of the whole process by the kernel's own counter: name server, broker and console are one, so what a page asks of them is in it.
A second `roquette dev` without a console runs beside it: what that costs is not the console's. Prints a table, and JSON.

    --topics 60000   each with four queues, none with messages
    --seconds 90     how long each idling is watched: the broker registers every 30 s
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import report, servers
from roquette.base.form import form
from roquette.console.guard import RATE
from roquette.console.look import RAREST_S

SEARCHES = 30
RUN = "from roquette.apps.main import main; main()"
PORTS = ("--namesrv-port", "0", "--broker-port", "0")
SETTLED_S = 20.0


class Row(NamedTuple):
    """A figure, its unit, and the largest that is wanted."""

    name: str
    figure: float
    unit: str
    wanted: str


class Dev:
    """A running `roquette dev`, and its console's address (`/` without one)."""

    def __init__(self, popen: "subprocess.Popen[str]", address: str) -> None:
        self.popen = popen
        self.address = address

    def cpu_ms(self) -> float:
        """CPU that it has used, all its threads."""
        tasks = Path(f"/proc/{self.popen.pid}/task").iterdir()
        return sum(int((each / "schedstat").read_text().split()[0]) for each in tasks) / 1e6

    def memory_mb(self) -> float:
        """What it has that is no page of a file."""
        return servers.anonymous_kb(self.popen.pid) / 1024

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """The page, or "" when it is as it was; and its mark."""
        asked = urllib.request.Request(f"{self.address}c/dev{path}", headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return len(answer.read()), answer.headers["etag"]
        except urllib.error.HTTPError as error:
            if error.code != 304:
                raise
            return 0, headers["if-none-match"]

    def cost(self, work: Callable[[], object]) -> float:
        """CPU ms of something that is asked of it."""
        time.sleep(1 / RATE)  # a person asks no more often
        before = self.cpu_ms()
        work()
        return self.cpu_ms() - before


@contextmanager
def dev(folder: Path, topics: int, *arguments: str) -> Iterator[Dev]:
    """Start one whose broker has these topics already; it is ended at last."""
    names = (f"Team-{number % 97}.Orders-{number}" for number in range(topics))
    servers.write_topics(folder, names, 4)
    command = [sys.executable, "-c", RUN, "dev", *PORTS, "--store", str(folder), *arguments]
    popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert popen.stdout is not None
        wanted = "Web console: " if arguments else "ready "
        line = next(each for each in popen.stdout if each.startswith(wanted))
        yield Dev(popen, line.removeprefix(wanted).strip() if arguments else "/")
    finally:
        popen.terminate()
        popen.wait(60)


def idle(
    seconds: float, watched: list[Dev], look: Callable[[], None] = lambda: None
) -> list[float]:
    """Per cent of a core that each uses; `look` is called every half second."""
    before = [each.cpu_ms() for each in watched]
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        look()
        time.sleep(0.5)
    return [
        (each.cpu_ms() - used) / seconds / 10 for each, used in zip(watched, before, strict=True)
    ]


class OpenPage:
    """A page as a browser has it: its live part is asked for again and again."""

    def __init__(self, of: Dev, path: str, period_s: float) -> None:
        self._dev, self._path, self._period_s = of, path, period_s
        self._mark, self._next = "", 0.0

    def look(self) -> None:
        """Ask again when it is time."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._period_s
            mark = {"if-none-match": self._mark}
            _, self._mark = self._dev.get(self._path, **{"roquette-live": "1", **mark})


def measure(topics: int, seconds: float, folder: Path) -> list[Row]:
    """All figures."""
    with (
        dev(folder / "without", topics) as plain,
        dev(folder / "with", topics, "--console-port", str(servers.peers.free_port())) as mine,
    ):
        time.sleep(SETTLED_S)
        before_mb = mine.memory_mb() - plain.memory_mb()
        base, none_open = idle(seconds, [plain, mine])
        first = mine.cost(lambda: mine.get("/topics"))
        assert mine.get(f"/topics?q=Orders-{topics - 1}")[0] > 4_000
        number = count(17)
        words = [f"Orders-{next(number)}" for _ in range(SEARCHES)]
        found = [mine.cost(lambda word=word: mine.get(f"/topics?q={word}")) for word in words]
        nothing = [mine.cost(lambda word=word: mine.get(f"/topics?q=no-{word}")) for word in words]
        pages = [mine.cost(lambda at=at: mine.get(f"/topics?page={at}")) for at in range(100, 130)]
        topics_page = OpenPage(mine, "/topics", 5.0)
        base_topics, topics_open = idle(seconds, [plain, mine], topics_page.look)
        overview = OpenPage(mine, "/", 2.0)
        before = mine.cpu_ms()
        idle(SETTLED_S, [], overview.look)
        examined = mine.cpu_ms() - before - SETTLED_S * 10 * topics_open
        whole = max(seconds, RAREST_S)  # with its share of the next examination
        base_overview, overview_open = idle(whole, [plain, mine], overview.look)
        after_mb = mine.memory_mb() - plain.memory_mb()
    return [
        Row("the first page of topics, never asked before", first, "CPU ms", ""),
        Row("a page of 50 topics, with what it asks", statistics.median(pages), "CPU ms", "40"),
        Row("a search that finds 50 or fewer, with what it asks", statistics.median(found), "CPU ms", ""),
        Row("a search that finds none", statistics.median(nothing), "CPU ms", "25"),
        Row("the dearest of these searches", max(nothing), "CPU ms", ""),
        Row("dev without a console", base, "% of a core", ""),
        Row("the console with no page open", none_open - base, "% of a core", "0.3"),
        Row("the same with the topics open", topics_open - base_topics, "% of a core", "1"),
        Row("the doctor's first examination, about", examined, "CPU ms", ""),
        Row("the same with the overview open", overview_open - base_overview, "% of a core", "1"),
        Row("memory of the console before anybody looks", before_mb, "MB", ""),
        Row("the same after all this", after_mb, "MB", ""),
    ]  # fmt: skip


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks.console", description=__doc__)
    parser.add_argument("--topics", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=90.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquette-bench-console-") as folder:
        rows = measure(options.topics, options.seconds, Path(folder))
    table = Table("", "measured", "", "wanted", title=f"{options.topics:,} topics, {form()}")
    for row in rows:
        table.add_row(row.name, f"{row.figure:,.2f}", row.unit, row.wanted)
    Console().print(table)
    facts = {"topics": options.topics, "form": form(), "machine": report.machine()}
    print(json.dumps({**facts, "rows": [row._asdict() for row in rows]}))


if __name__ == "__main__":
    main()
