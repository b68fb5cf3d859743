"""The story, step by step. Everything is checked against the CSV; a difference ends it loudly."""

import asyncio
import itertools
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.demo import analyse as spark_job
from examples.demo.flights import Totals, airline_names, encode, read_flights, totals_of
from examples.demo.received import ReceivedFlights
from examples.demo.report import Story, write_report
from examples.demo.servers import DemoError, Processes
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from roquette import Client

TOPIC = "flights"
SUMMARY_TOPIC = "flights-summary"
GROUP = "flight-archivists"
IN_FLIGHT = 256  # sends that wait for their answer at the same time
STALLED_AFTER_S = 60
SMALL_FILES = (  # the demo's disk use stays modest; production keeps Apache's sizes
    *("--set", "mappedFileSizeCommitLog=67108864"),
    *("--set", "mappedFileSizeConsumeQueue=600000"),
    *("--set", "maxHashSlotNum=100000"),
    *("--set", "maxIndexNum=400000"),
)

out = Console(highlight=False)


def say(text: str) -> None:
    """One paragraph."""
    out.print(text, soft_wrap=False)


def heading(text: str) -> None:
    """One step begins."""
    out.print()
    out.rule(f"[bold]{text}", align="left")


def check(what: str, found: object, expected: object) -> None:
    """The demo's promise: equal, or it fails."""
    if found != expected:
        raise DemoError(
            f"{what} differs from the CSV.\n  found:    {found}\n  expected: {expected}"
        )
    out.print(f"  [green]equal[/]  {what}")


@contextmanager
def measured(times: dict[str, float], name: str) -> Iterator[None]:
    """Note how long a step took."""
    start = time.monotonic()
    yield
    times[name] = time.monotonic() - start


def new_run_directory() -> Path:
    """The next free demo-output/run-NNN; message stores of earlier runs are removed, the rest is kept."""
    base = Path("demo-output")
    base.mkdir(exist_ok=True)
    for old in base.glob("run-*/store-*"):
        shutil.rmtree(old, ignore_errors=True)
    for number in itertools.count(1):
        run = base / f"run-{number:03}"
        if not run.exists():
            run.mkdir()
            return run
    raise AssertionError


def start_cluster(processes: Processes, run: Path) -> str:
    """Two name servers that do not know each other, and two brokers that register with both."""
    first, second = (
        processes.start_server(name, "namesrv", "--listen", "127.0.0.1:0")
        for name in ("namesrv-1", "namesrv-2")
    )
    namesrvs = f"{first};{second}"
    say(f"  name servers  {first}  {second}")
    for name in ("broker-a", "broker-b"):
        arguments = [
            "--listen",
            "127.0.0.1:0",
            "-n",
            namesrvs,
            "--store",
            str(run / f"store-{name}"),
        ]
        address = processes.start_server(
            name, "broker", *arguments, "--set", f"brokerName={name}", *SMALL_FILES
        )
        say(f"  {name}      {address}")
    return namesrvs


class Journey:
    """The flights' way from the CSV through the brokers into the consumers' files."""

    def __init__(self, run: Path, namesrvs: str, processes: Processes, expected: int) -> None:
        self.names = [f"consumer-{number}" for number in (1, 2, 3)]
        self.files = [run / f"{name}.jsonl" for name in self.names]
        self.received = ReceivedFlights(self.files, expected)
        self.published = 0
        self.publish_s = 0.0
        self.killed_at = 0
        self._expected = expected
        self._namesrvs = namesrvs
        self._processes = processes

    async def travel(self) -> None:
        """Publish and consume at the same time; kill a consumer half way."""
        columns = (
            TextColumn("  {task.description:<10}"),
            BarColumn(None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>9} /s"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=out) as progress:
            sent = progress.add_task("published", total=self._expected, rate="")
            kept = progress.add_task("consumed", total=self._expected, rate="")
            await asyncio.gather(self._publish(progress, sent), self._watch(progress, kept))

    async def _publish(self, progress: Progress, bar: TaskID) -> None:
        flights = read_flights()
        start = time.monotonic()
        async with Client(self._namesrvs) as mq:

            async def send_some() -> None:
                for flight in flights:  # shared by all senders: each takes the next one
                    tail_number = flight["tailnum"]
                    await mq.send(
                        TOPIC,
                        encode(flight),
                        tag=str(flight["carrier"]),
                        key=None if tail_number is None else str(tail_number),
                    )
                    self.published += 1
                    if self.published % 500 == 0:
                        rate = f"{self.published / (time.monotonic() - start):,.0f}"
                        progress.update(bar, completed=self.published, rate=rate)

            await asyncio.gather(*(send_some() for _ in range(IN_FLIGHT)))
        self.publish_s = time.monotonic() - start
        progress.update(bar, completed=self.published)

    async def _watch(self, progress: Progress, bar: TaskID) -> None:
        while not self.published:  # the first message creates the topic
            await asyncio.sleep(0.05)
        for name, file in zip(self.names, self.files, strict=True):
            self._processes.start_python(
                name, "examples.demo.consume", self._namesrvs, TOPIC, GROUP, str(file)
            )
        start = moved_at = time.monotonic()
        received = self.received
        while received.distinct < self._expected:
            await asyncio.sleep(0.25)
            before = received.distinct
            received.update()
            now = time.monotonic()
            progress.update(
                bar, completed=received.distinct, rate=f"{received.distinct / (now - start):,.0f}"
            )
            if received.distinct > before or self.published < self._expected:
                moved_at = now
            elif now - moved_at > STALLED_AFTER_S:
                missing = self._expected - received.distinct
                raise DemoError(f"{missing:,} flights have not arrived, and nothing moves any more")
            if not self.killed_at and received.distinct >= self._expected // 2:
                self._processes.kill(self.names[1])
                self.killed_at = received.distinct
                progress.console.print(
                    f"  [bold red]{self.names[1]} gets SIGKILL[/] after {received.distinct:,} flights: "
                    "it cannot say goodbye. The other two take over its queues."
                )
            self._processes.check_alive()


def tell_consumption(journey: Journey, expected: Totals) -> Totals:
    """What arrived, per consumer, and whether it is all."""
    received = journey.received
    for name, rows in zip(journey.names, received.rows.values(), strict=True):
        say(f"  {name}  {rows:>9,} rows" + ("  (killed)" if name == journey.names[1] else ""))
    say(
        f"  {received.duplicates:,} rows are duplicates: written by the killed consumer, not yet acknowledged, "
        "delivered again to another. RocketMQ promises at least once; nothing may be missing."
    )
    totals = totals_of(received.read_distinct())
    check("the consumers' files, over distinct flights", totals, expected)
    return totals


async def publish_summary(namesrvs: str, rows: list[dict[str, object]]) -> None:
    """One message per airline and hour."""
    async with Client(namesrvs) as mq:
        for row in rows:
            body = json.dumps(row, separators=(",", ":"))
            await mq.send(
                SUMMARY_TOPIC, body, tag=str(row["carrier"]), key=f"{row['carrier']}-{row['hour']}"
            )


def run_spark(namesrvs: str, run: Path, expected: Totals) -> spark_job.Analysis:
    """The Spark job and its checks."""
    found = spark_job.analyse(namesrvs, TOPIC, run / "flights.parquet", run / "checkpoint")
    check("the topic, read by Spark as a table", found.batch, expected)
    check(
        f"the Parquet table, written by a stream of {found.micro_batches} micro-batches",
        found.parquet,
        expected,
    )
    if found.batch_rows != found.parquet_rows:
        raise DemoError(
            f"the table has {found.batch_rows} rows, its copy in Parquet {found.parquet_rows}"
        )
    asyncio.run(publish_summary(namesrvs, found.summary))
    check(
        f"messages in topic {SUMMARY_TOPIC}",
        spark_job.count_messages(namesrvs, SUMMARY_TOPIC),
        len(found.summary),
    )
    spark_job.stop_spark()
    return found


def main() -> None:
    """All steps, in order."""
    times: dict[str, float] = {}
    begin = time.monotonic()
    run = new_run_directory()
    say(
        "[bold]Roquette: real data through RocketMQ's protocol, end to end.[/]\n"
        f"Everything this run writes is in [bold]{run}/[/]: logs, consumers' files, Parquet, report."
    )

    heading("1  The data")
    say("Every flight that left New York City in 2013. First we count it, straight from the CSV:")
    expected = totals_of(read_flights())
    say(
        f"  {expected.flights:,} flights, {expected.distance:,} miles, "
        f"{expected.flights - expected.departure_delays:,} never left, "
        f"{expected.without_tail_number:,} have no tail number"
    )

    with Processes(run / "logs") as processes:
        heading("2  A cluster")
        say("Name servers tell clients where topics live. Brokers store messages. Four processes:")
        with measured(times, "start"):
            namesrvs = start_cluster(processes, run)
        say(
            f"  accepting after {times['start']:.1f} s. Try in another terminal: "
            f"[bold].venv/bin/roquette topic list -n '{namesrvs}'[/]"
        )

        heading("3  Publish and consume")
        say(
            "A producer publishes each flight as one message (JSON; tag: airline, key: tail number). The first\n"
            "one creates the topic, on both brokers. Three consumer processes of one group share its queues;\n"
            "each writes a flight to its own file before it acknowledges it."
        )
        journey = Journey(run, namesrvs, processes, expected.flights)
        with measured(times, "travel"):
            asyncio.run(journey.travel())
        for name in (journey.names[0], journey.names[2]):
            processes.stop(name)
        journey.received.update()
        from_consumers = tell_consumption(journey, expected)

        heading("4  Spark")
        say(
            "PySpark reads the same topic: once as a table, once as a stream (Trigger.AvailableNow) into Parquet.\n"
            "Then it sums up delays by airline and hour. Starting its JVM takes a moment."
        )
        with measured(times, "spark"):
            analysis = run_spark(namesrvs, run, expected)

    heading("5  The report")
    rate = journey.published / journey.publish_s
    facts = [
        (f"{expected.flights:,}", "flights, one message each"),
        (f"{rate:,.0f}/s", "published, while being consumed"),
        (f"{journey.received.duplicates:,}", "delivered twice after the kill"),
        ("0", "missing"),
        (f"{time.monotonic() - begin:.0f} s", "for the whole demo"),
    ]
    story = Story(
        facts=facts,
        totals={
            "the CSV": expected,
            "consumers' files": from_consumers,
            "Spark, batch": analysis.batch,
            "Spark, Parquet": analysis.parquet,
        },
        consumers=list(zip(journey.names, journey.received.rows.values(), strict=True)),
        summary=analysis.summary,
        airlines=airline_names(),
    )
    write_report(run / "report.html", story)
    say(
        f"  Open [bold]{run}/report.html[/] in a browser.\n"
        f"  Published {journey.published:,} flights in {journey.publish_s:.1f} s; all steps took "
        f"{time.monotonic() - begin:.0f} s (Spark {times['spark']:.0f} s)."
    )


if __name__ == "__main__":
    try:
        main()
    except DemoError as error:
        out.print(f"\n[bold red]The demo failed:[/] {error}", markup=True)
        sys.exit(1)
