"""The demo's data set through the pipelines, each with one command; totals are checked against the CSV.

    python -m examples.pipelines_demo [--flights N]

A name server and a broker of our own, 336,776 messages of flights, then `roquette pipeline ...` as people would type
it. A difference ends it with status 1. Everything goes to demo-output/pipelines-NNN.
"""

import argparse
import asyncio
import itertools
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from examples.demo.flights import SPARK_SCHEMA, Flight, Totals, encode, read_flights, totals_of
from examples.demo.servers import ROQUETTE, DemoError, Processes

from roquette import Client

TOPIC = "flights"
SMALL_FILES = {"mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 20 * 30_000}


def check(what: str, found: object, expected: object) -> None:
    """Equal, or it fails."""
    if found != expected:
        raise DemoError(f"{what} differs\n  found:    {found}\n  expected: {expected}")
    print(f"  equal: {what}", flush=True)


def run_directory() -> Path:
    """The next free demo-output/pipelines-NNN."""
    for number in itertools.count(1):
        path = Path("demo-output") / f"pipelines-{number:03}"
        if not path.exists():
            path.mkdir(parents=True)
            return path
    raise AssertionError


async def publish(namesrv: str, flights: list[Flight]) -> None:
    """One message per flight: the airline as tag, the tail number as key."""
    async with Client(namesrv) as mq:
        sending = []
        for flight in flights:
            tail = flight["tailnum"]
            key = None if tail is None else str(tail)
            sending.append(
                await mq.send_soon(TOPIC, encode(flight), tag=str(flight["carrier"]), key=key)
            )
            if len(sending) == 20_000:
                await asyncio.gather(*sending)
                sending.clear()
        await asyncio.gather(*sending)


def pipeline(run: Path, namesrv: str, name: str, *words: str) -> dict[str, Any]:
    """One command; returns its summary's result."""
    report = run / f"report-{name}"
    command = [str(ROQUETTE), "pipeline", name, "-n", namesrv, "--report", str(report), *words]
    print("$ " + shlex.join(["roquette", *command[1:]]), flush=True)
    begin = time.monotonic()
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise DemoError(f"{name} ended with status {done.returncode}")
    print(f"  {time.monotonic() - begin:.0f} s", flush=True)
    found: dict[str, Any] = json.loads((report / "summary.json").read_text())["result"]
    return found


def table_rows(root: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of a table, by pyarrow."""
    import pyarrow.parquet as pq

    from roquette.spark.pipelines.table import live_files

    for path in live_files(str(root)):
        yield from pq.ParquetFile(path).read(columns=columns).to_pylist()


def archive(run: Path, namesrv: str, flights: list[Flight]) -> None:
    """The topic as a table: totals, and nothing missing or twice."""
    lake = run / "lake"
    found = pipeline(
        run, namesrv, "archive", "--topics", TOPIC, "--to", str(lake), "--schema", SPARK_SCHEMA
    )
    names = ["id", "distance", "dep_delay", "arr_delay", "tailnum"]
    rows = list(table_rows(lake / TOPIC, names))
    check("the table's totals with the CSV's", totals_of(rows), totals_of(flights))
    check("distinct flights", len({row["id"] for row in rows}), len(flights))
    check("rows by the summary", found["rows"], len(flights))
    topic = found["topics"][TOPIC]
    check("missing and twice, by its own check", (topic["missing"], topic["twice"]), (0, 0))
    print(f"  {topic['this_run']['rows_per_second']:,} rows/s in batches")


def current_state(run: Path, namesrv: str, flights: list[Flight]) -> None:
    """The last flight of each aircraft."""
    to = run / "state"
    words = ["--topic", TOPIC, "--to", str(to), "--key", "tailnum", "--version", "id"]
    found = pipeline(run, namesrv, "current-state", *words, "--schema", SPARK_SCHEMA)
    last = {flight["tailnum"]: flight["id"] for flight in flights if flight["tailnum"] is not None}
    rows = {row["tailnum"]: row["id"] for row in table_rows(to, ["tailnum", "id"])}
    check("the last flight of each aircraft", rows, last)
    without = sum(flight["tailnum"] is None for flight in flights)
    check("flights without a tail number, in quarantine", found["quarantined"], without)


def main() -> int:
    """Publish, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flights", type=int, default=None, help="only the first N")
    wanted = parser.parse_args().flights
    run = run_directory()
    flights = list(itertools.islice(read_flights(), wanted))
    totals: Totals = totals_of(flights)
    print(f"{totals.flights:,} flights, {totals.distance:,} miles; everything goes to {run}")
    try:
        with Processes(run / "logs") as processes:
            processes.start_server("namesrv", "namesrv", "--listen", "127.0.0.1:0")
            namesrv = processes.ready_address("namesrv", "namesrv")
            settings = [
                w for key, value in SMALL_FILES.items() for w in ("--set", f"{key}={value}")
            ]
            store = ["--store", str(run / "store")]
            words = ["broker", "--listen", "127.0.0.1:0", "-n", namesrv, *store, *settings]
            processes.start_server("broker", *words)
            processes.ready_address("broker", "broker")
            asyncio.run(publish(namesrv, flights))
            print("published", flush=True)
            archive(run, namesrv, flights)
            current_state(run, namesrv, flights)
    except DemoError as error:
        print(f"failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
