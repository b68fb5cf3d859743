"""One run: its directory, its cluster, the flights, and commands as people would type them."""

import itertools
import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.demo.disk import check_disk
from examples.demo.flights import Flight
from examples.demo.servers import ROQUETTE, DemoError

TOPIC = "flights"
BY_AIRCRAFT = "flights-by-aircraft"  # what replay makes
GROUP = "refunds"


@dataclass(slots=True)
class Run:
    """What every step works with.

    Attributes:
        by_queue: messages of the topic by queue, as the broker's receipts said.
        seconds: of each command, in order: (name, seconds).
    """

    directory: Path
    namesrv: str
    flights: list[Flight]
    by_queue: dict[int, int] = field(default_factory=dict)
    seconds: list[tuple[str, float]] = field(default_factory=list)

    @property
    def cancelled(self) -> list[Flight]:
        """Flights that never departed."""
        return [flight for flight in self.flights if is_cancelled(flight)]

    def pipeline(self, name: str, *words: str, report: str = "", status: int = 0) -> dict[str, Any]:
        """Run one command; returns its summary's result.

        Args:
            report: the name of its report's directory, if not the pipeline's.
            status: the exit status there must be.
        """
        folder = self.directory / f"report-{report or name}"
        command = [str(ROQUETTE), "pipeline", name, "-n", self.namesrv, "--report", str(folder)]
        command += words
        print("\n$ " + shlex.join(["roquette", *command[1:]]), flush=True)
        begin = time.monotonic()
        done = subprocess.run(command, check=False)
        took = time.monotonic() - begin
        self.seconds.append((report or name, took))
        if done.returncode != status:
            raise DemoError(f"{name} ended with status {done.returncode}, not {status}")
        print(f"  {took:.0f} s", flush=True)
        check_report(folder / "report.html")
        found: dict[str, Any] = json.loads((folder / "summary.json").read_text())["result"]
        return found


def is_cancelled(flight: Flight) -> bool:
    """It never departed."""
    return flight["dep_time"] is None


def check(what: str, found: object, expected: object) -> None:
    """Equal, or it fails."""
    if found != expected:
        shown = [
            text if len(text) < 600 else text[:600] + "..." for text in map(repr, (found, expected))
        ]
        raise DemoError(f"{what} differs\n  found:    {shown[0]}\n  expected: {shown[1]}")
    print(f"  equal: {what}", flush=True)


def check_report(path: Path) -> None:
    """Every pipeline leaves one page that loads nothing from elsewhere."""
    if not path.is_file() or "</html>" not in (page := path.read_text()) or "http://" in page:
        raise DemoError(f"{path} is not there, not whole, or loads something from elsewhere")


def free_directory(base: Path) -> Path:
    """The next free pipelines-NNN. Raises DemoError: the disk is too full."""
    check_disk(base, "make pipelines OUTPUT=DIR")
    for number in itertools.count(1):
        path = base / f"pipelines-{number:03}"
        if not path.exists():
            path.mkdir(parents=True)
            return path
    raise AssertionError


def table_rows(root: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of a table, by delta-rs."""
    from deltalake import DeltaTable

    for batch in DeltaTable(str(root)).to_pyarrow_table(columns=columns).to_batches():
        yield from batch.to_pylist()
