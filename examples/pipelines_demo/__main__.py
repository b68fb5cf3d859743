"""The demo's data set through all seven pipelines, each with one command; totals are checked against the CSV.

    python -m examples.pipelines_demo [--flights N] [--output DIR]

A name server and a broker of our own, 336,776 messages of flights, then `roquette pipeline ...` as people would type
it. A difference ends it with status 1. Everything goes to demo-output/pipelines-NNN.
"""

import argparse
import asyncio
import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

from examples.demo.disk import output_option
from examples.demo.flights import Totals, read_flights, totals_of
from examples.demo.servers import ROQUETTE, DemoError, Processes, stop_on_signals
from examples.pipelines_demo import database, steps
from examples.pipelines_demo.run import TOPIC, Run, check, free_directory
from examples.pipelines_demo.topics import publish

from roquette.errors import RoquetteError

SMALL_FILES = {"mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 20 * 30_000}
LEAST = 2_000  # flights; with fewer there are no cancelled ones to speak of


def start_cluster(processes: Processes, directory: Path) -> str:
    """A name server and a broker with the topic; returns the name server's address."""
    processes.start_server("namesrv", "namesrv", "--listen", "127.0.0.1:0")
    namesrv = processes.ready_address("namesrv", "namesrv")
    settings = [w for key, value in SMALL_FILES.items() for w in ("--set", f"{key}={value}")]
    store = ["--store", str(directory / "store")]
    words = ["broker", "--listen", "127.0.0.1:0", "-n", namesrv, *store, *settings]
    processes.start_server("broker", *words)
    processes.ready_address("broker", "broker")
    command = [str(ROQUETTE), "topic", "create", TOPIC, "-n", namesrv]
    if subprocess.run(command, check=False).returncode:
        raise DemoError(f"the topic {TOPIC} could not be made")
    return namesrv


def run_all(run: Run) -> int:
    """Publish, then every pipeline; how many there were."""
    manifest = run.directory / "meant.jsonl"
    run.by_queue = asyncio.run(publish(run.namesrv, run.flights, manifest))
    check(
        "messages published, by the broker's receipts", sum(run.by_queue.values()), len(run.flights)
    )
    steps.consume(run)
    steps.archive(run)
    steps.current_state(run)
    steps.replay(run)
    steps.traffic(run)
    steps.audit(run)
    steps.dlq(run)
    return 6 + database.from_a_database(run)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m examples.pipelines_demo", description=__doc__)
    parser.add_argument(
        "--flights", type=int, default=None, help=f"only the first N, at least {LEAST:,}"
    )
    output_option(parser)
    given = parser.parse_args()
    wanted: int | None = given.flights
    if wanted is not None and wanted < LEAST:
        parser.error(f"--flights must be at least {LEAST:,}")
    begin = time.monotonic()
    try:
        directory = free_directory(given.output)
        flights = list(itertools.islice(read_flights(), wanted))
        totals: Totals = totals_of(flights)
        print(
            f"{totals.flights:,} flights, {totals.distance:,} miles; everything goes to {directory}"
        )
        with Processes(directory / "logs") as processes:
            run = Run(directory, start_cluster(processes, directory), flights)
            pipelines = run_all(run)
            processes.check_alive()
    except (DemoError, RoquetteError) as error:
        print(f"failed: {error}")
        return 1
    print("\nseconds of each command: " + ", ".join(f"{n} {s:.0f}" for n, s in run.seconds))
    agree = {
        6: "All six pipelines but ingest agree with the CSV",
        7: "All seven pipelines agree with the CSV and PostgreSQL",
    }[pipelines]
    print(f"{agree}. It took {time.monotonic() - begin:.0f} s.")
    print(f"Reports: {directory}/report-*/report.html")
    return 0


if __name__ == "__main__":
    stop_on_signals()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nStopped; every process the demo had started has ended.")
        sys.exit(128 + signal.SIGINT)
