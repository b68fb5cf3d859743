"""The story, step by step. Everything is checked against the CSV; a difference ends it loudly."""

import argparse
import asyncio
import itertools
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.demo.analyse import Analysis
from examples.demo.disk import check_disk, output_option
from examples.demo.flights import Totals, airline_names, read_flights, totals_of
from examples.demo.journey import CONSUMERS, GROUP, VICTIM, Journey
from examples.demo.report import Story, write_report
from examples.demo.servers import DemoError, Processes, stop_on_signals
from rich.console import Console
from rich.padding import Padding

from roquette import RoquetteError, __version__
from roquette.base.form import form
from roquette.console.app import ConsoleSettings

TOPIC = "flights"
SUMMARY_TOPIC = "flights-summary"
NAMESRVS = ("namesrv-1", "namesrv-2")
BROKERS = ("broker-a", "broker-b")
SMALL_FILES = {  # the demo's disk use stays modest; without these, sizes are Apache's: 1 GiB a file
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 30_000,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
}

out = Console(highlight=False)


def say(text: str) -> None:
    """One paragraph."""
    out.print(text)


def tell(text: str) -> None:
    """A fact below a paragraph, indented."""
    out.print(Padding(text, (0, 0, 0, 2), expand=False))


def heading(text: str) -> None:
    """One step begins."""
    out.print()
    out.rule(f"[bold]{text}", align="left")


def check(what: str, found: object, expected: object) -> None:
    """The demo's promise: equal, or it fails."""
    if found != expected:
        raise DemoError(
            f"{what}: that differs from the CSV.\n  found:    {found}\n  expected: {expected}"
        )
    tell(f"[green]equal[/]  {what}")


@contextmanager
def measured(times: dict[str, float], name: str) -> Iterator[None]:
    """Note how long a step took."""
    start = time.monotonic()
    yield
    times[name] = time.monotonic() - start


def new_run_directory(base: Path) -> Path:
    """The next free run-NNN; message stores of earlier runs are removed, the rest is kept. Raises DemoError: the disk is too full."""
    for old in base.glob("run-*/store-*"):
        shutil.rmtree(old, ignore_errors=True)
    check_disk(base, "make demo OUTPUT=DIR")
    for number in itertools.count(1):
        run = base / f"run-{number:03}"
        if not run.exists():
            run.mkdir()
            return run
    raise AssertionError


def start_cluster(processes: Processes, run: Path) -> str:
    """Two name servers that do not know each other, and two brokers that register with both."""
    for name in NAMESRVS:
        processes.start_server(name, "namesrv", "--listen", "127.0.0.1:0")
    addresses = [processes.ready_address(name, "namesrv") for name in NAMESRVS]
    for name, address in zip(NAMESRVS, addresses, strict=True):
        tell(f"{name}  {address}")
    namesrvs = ";".join(addresses)
    for name in BROKERS:
        settings = {"brokerName": name, **SMALL_FILES}
        processes.start_server(
            name,
            *("broker", "--listen", "127.0.0.1:0", "-n", namesrvs),
            *("--store", str(run / f"store-{name}")),
            *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
        )
    for name in BROKERS:
        tell(f"{name}   {processes.ready_address(name, 'broker')}")
    return namesrvs


def publish_and_consume(
    processes: Processes, run: Path, namesrvs: str, expected: Totals
) -> tuple[Journey, Totals]:
    """The journey, and the check of what the consumers wrote."""
    say(
        "A producer publishes each flight as one message: its columns as JSON, the airline as tag, the tail "
        "number as key. The first messages create the topic, on both brokers. Three consumer processes form "
        f"the group {GROUP} and share its queues. Each appends a flight to its own file, and only then "
        "acknowledges it."
    )
    journey = Journey(run, namesrvs, TOPIC, processes, expected.flights, out)
    asyncio.run(journey.travel())
    for name in CONSUMERS:
        if name != VICTIM:
            processes.stop(name)
    received = journey.received
    received.update()
    for name, rows in zip(CONSUMERS, received.rows.values(), strict=True):
        tell(f"{name}  {rows:>9,} rows" + ("  (killed)" if name == VICTIM else ""))
    before = journey.duplicates_before_kill
    tell(
        f"{received.duplicates:,} rows are duplicates: {before:,} from before the kill, when members joined "
        f"one after another and queues changed hands, and {received.duplicates - before:,} since. When a "
        "queue gets a new owner, the broker may not have heard yet what the old one has done, and delivers "
        "that again. RocketMQ promises at least once: some may come twice, none may be missing."
    )
    found = totals_of(received.read_distinct())
    check("the consumers' files, each flight counted once", found, expected)
    return journey, found


def run_spark(processes: Processes, run: Path, namesrvs: str, expected: Totals) -> Analysis:
    """The Spark job in a process of its own, and the checks of what it found."""
    say(
        "PySpark reads the same topic, first as a table, then as a stream that ends when it has caught up "
        "(Trigger.AvailableNow), into Parquet. It sums up delays by airline and hour, and our producer "
        f"publishes that to the topic {SUMMARY_TOPIC}. Starting its JVM takes a moment."
    )
    paths = [str(run / name) for name in ("flights.parquet", "checkpoint", "spark.json")]
    module = "examples.demo.analyse"
    start = time.monotonic()
    with out.status("  Spark is at work"):
        for line in processes.run_python("spark", module, namesrvs, TOPIC, SUMMARY_TOPIC, *paths):
            tell(f"{time.monotonic() - start:4.0f} s  {line}")
    found = Analysis.load(Path(paths[2]))
    check("Spark's table, each flight counted once", found.batch, expected)
    check("the Parquet table, each flight counted once", found.parquet, expected)
    if found.batch_rows != found.parquet_rows:
        raise DemoError(
            f"the table has {found.batch_rows} rows, its copy in Parquet {found.parquet_rows}"
        )
    check(f"messages in {SUMMARY_TOPIC}", found.summary_messages, len(found.summary))
    check(
        f"flights and minutes of delay, added up from {SUMMARY_TOPIC}",
        found.summary_totals,
        (expected.flights, expected.departure_delay_minutes),
    )
    return found


def tell_the_end(
    run: Path,
    expected: Totals,
    journey: Journey,
    received: Totals,
    analysis: Analysis,
    times: dict[str, float],
) -> None:
    """The report, and where to look."""
    rate = f"{expected.flights / journey.publish_s:,.0f}"
    story = Story(
        facts=[
            (f"{expected.flights:,}", "flights, one message each"),
            (f"{rate}/s", "published, and consumed meanwhile"),
            (
                f"{journey.received.duplicates:,}",
                f"delivered twice; {journey.duplicates_before_kill:,} of them before the kill",
            ),
            ("0", "missing"),
            (f"{times['travel'] + times['spark']:.0f} s", "for messages and Spark"),
        ],
        totals={
            "the CSV": expected,
            "consumers' files": received,
            "Spark, batch": analysis.batch,
            "Spark, Parquet": analysis.parquet,
        },
        consumers=list(zip(CONSUMERS, journey.received.rows.values(), strict=True)),
        summary=analysis.summary,
        airlines=airline_names(),
    )
    write_report(run / "report.html", story)
    say(f"Nothing is missing. Published at {rate} flights a second. Where to look:")
    for name, what in (
        ("report.html", "plots and totals; open it in a browser"),
        ("flights.parquet", "the topic as a table, for Spark, pandas, DuckDB ..."),
        ("consumer-*.jsonl", "what each consumer wrote, one flight a line"),
        ("store-broker-*", "the brokers' files, in Apache RocketMQ's own layout"),
        ("logs", "what each process had to say"),
    ):
        tell(f"[bold]{run}/{name}[/]  {what}")
    say("The cluster has been stopped.")


def tell_the_way_on() -> None:
    """A cluster of one's own, and where one sees it."""
    say("For a cluster of your own: [bold].venv/bin/roquette dev[/]; then its web console is at")
    tell(f"[bold]http://{ConsoleSettings().listen}/[/]")


def main() -> None:
    """All steps, in order."""
    times: dict[str, float] = {}
    begin = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    output_option(parser)
    run = new_run_directory(parser.parse_args().output)
    say(
        "[bold]Roquette: real data through RocketMQ's protocol, end to end.[/]\n"
        f"Version {__version__}, {form()}. Everything this run writes goes to [bold]{run}/[/]. "
        "It takes about two minutes."
    )

    heading("1  The data")
    say("Every flight that left New York City in 2013. First we count it, straight from the CSV:")
    expected = totals_of(read_flights())
    tell(
        f"{expected.flights:,} flights, {expected.distance:,} miles; "
        f"{expected.flights - expected.departure_delays:,} never left, "
        f"{expected.without_tail_number:,} have no tail number"
    )

    with Processes(run / "logs") as processes:
        heading("2  A cluster")
        say(
            "Brokers keep messages. Name servers tell clients which broker has which topic. Two of each, "
            "every one a process of its own:"
        )
        with measured(times, "start"):
            namesrvs = start_cluster(processes, run)
        say(f"They accept after {times['start']:.1f} s. Look inside while the demo runs:")
        look = "[bold].venv/bin/roquette"
        for verb in ("topic list", f"group lag {GROUP}"):
            out.print(f"  {look} {verb} -n '{namesrvs}'[/]", soft_wrap=True)

        heading("3  Publish and consume")
        with measured(times, "travel"):
            journey, received = publish_and_consume(processes, run, namesrvs, expected)

        heading("4  Spark")
        with measured(times, "spark"):
            analysis = run_spark(processes, run, namesrvs, expected)

    heading("5  The report")
    tell_the_end(run, expected, journey, received, analysis, times)
    say(f"All of it took {time.monotonic() - begin:.0f} s.")
    tell_the_way_on()


if __name__ == "__main__":
    stop_on_signals()
    try:
        main()
    except (DemoError, RoquetteError) as error:
        out.print("\n[bold red]The demo failed:[/]", str(error), markup=True)
        sys.exit(1)
    except KeyboardInterrupt:
        out.print("\nStopped; every process the demo had started has ended.")
        sys.exit(128 + signal.SIGINT)
