"""The flights' way from the CSV through the brokers into the consumers' files."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from examples.demo.flights import Flight, encode, read_flights
from examples.demo.received import ReceivedFlights
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

from roquette import Client, SendReceipt

GROUP = "flight-archivists"
CONSUMERS = ("consumer-1", "consumer-2", "consumer-3")
VICTIM = "consumer-2"
BROKERS = {"broker-a", "broker-b"}
STALLED_AFTER_S = 60
ROUTE_WITHIN_S = 15
PATIENCE_MS = 20_000  # with a send: a busy laptop is not a broken broker


class Journey:
    """Publishes and consumes at the same time, and kills a consumer half way."""

    def __init__(
        self,
        run: Path,
        namesrvs: str,
        topic: str,
        processes: Processes,
        expected: int,
        console: Console,
    ) -> None:
        self.files = [run / f"{name}.jsonl" for name in CONSUMERS]
        self.received = ReceivedFlights(self.files, expected)
        self.published = 0  # sent, and acknowledged by a broker
        self.publish_s = 0.0
        self.consume_s = 0.0
        self.killed_at = 0
        self.duplicates_before_kill = 0
        self._failure: BaseException | None = None
        self._expected = expected
        self._namesrvs = namesrvs
        self._topic = topic
        self._processes = processes
        self._console = console

    async def travel(self) -> None:
        """All of it. Raises DemoError when something fails or stands still."""
        columns = (
            TextColumn("  {task.description:<10}"),
            BarColumn(None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>9} /s"),
            TimeElapsedColumn(),
        )
        async with Client(self._namesrvs, send_timeout=PATIENCE_MS / 1000) as mq:
            flights = read_flights()
            await self._create_topic(mq, [next(flights) for _ in range(16)])
            for name, file in zip(CONSUMERS, self.files, strict=True):
                self._processes.start_python(
                    name, "examples.demo.consume", self._namesrvs, self._topic, GROUP, str(file)
                )
            with Progress(*columns, console=self._console) as progress:
                sent = progress.add_task("published", total=self._expected, rate="")
                kept = progress.add_task("consumed", total=self._expected, rate="")
                watching = asyncio.create_task(self._watch(progress, kept))
                try:
                    await asyncio.gather(self._publish(mq, flights, progress, sent), watching)
                finally:
                    watching.cancel()

    async def _create_topic(self, mq: Client, flights: list[Flight]) -> None:
        """The first sends create the topic: one to each queue, so that both brokers have it."""
        for sending in [await self._send(mq, flight) for flight in flights]:
            await sending
        deadline = time.monotonic() + ROUTE_WITHIN_S
        while {queue.broker_name for queue in await mq.queues(self._topic)} != BROKERS:
            if time.monotonic() > deadline:
                raise DemoError(f"topic {self._topic} did not appear on both brokers")
            await asyncio.sleep(0.1)
        queues = await mq.queues(self._topic)
        self._console.print(
            f"  topic {self._topic} now has {len(queues)} queues: "
            + ", ".join(
                f"{sum(queue.broker_name == name for queue in queues)} on {name}"
                for name in sorted(BROKERS)
            )
        )

    async def _send(self, mq: Client, flight: Flight) -> "asyncio.Future[SendReceipt]":
        tail_number = flight["tailnum"]
        sending = await mq.send_nowait(
            self._topic,
            encode(flight),
            tag=str(flight["carrier"]),
            key=None if tail_number is None else str(tail_number),
        )
        sending.add_done_callback(self._sent)
        return sending

    def _sent(self, sending: "asyncio.Future[SendReceipt]") -> None:
        if sending.cancelled():
            return
        error = sending.exception()
        if error is None:
            self.published += 1
        elif self._failure is None:
            self._failure = error

    async def _publish(
        self, mq: Client, flights: Iterator[Flight], progress: Progress, bar: TaskID
    ) -> None:
        """As fast as it goes: the client keeps up to a thousand sends under way."""
        start = time.monotonic()

        def show() -> None:
            if self._failure is not None:
                raise DemoError(f"a flight could not be published: {self._failure}")
            self.publish_s = time.monotonic() - start
            rate = f"{self.published / self.publish_s:,.0f}"
            progress.update(bar, completed=self.published, rate=rate)

        for number, flight in enumerate(flights):
            await self._send(mq, flight)
            if number % 1000 == 0:
                show()
                await asyncio.sleep(0)
        while self.published < self._expected:
            await asyncio.sleep(0.01)
            show()
        show()

    async def _watch(self, progress: Progress, bar: TaskID) -> None:
        """Follow the consumers' files; kill one of the consumers when half has arrived."""
        start = moved_at = time.monotonic()
        received = self.received
        while received.distinct < self._expected:
            await asyncio.sleep(0.25)
            self._processes.check_alive()
            before = received.distinct
            received.update()
            now = time.monotonic()
            rate = f"{received.distinct / (now - start):,.0f}"
            progress.update(bar, completed=received.distinct, rate=rate)
            if received.distinct > before:
                moved_at = now
            elif now - moved_at > STALLED_AFTER_S:
                missing = self._expected - received.distinct
                raise DemoError(f"{missing:,} flights have not arrived, and nothing moves any more")
            if not self.killed_at and received.distinct >= self._expected // 2:
                self._processes.kill(VICTIM)
                self.killed_at = received.distinct
                self.duplicates_before_kill = received.duplicates
                progress.console.print(
                    f"  [bold red]{VICTIM} gets SIGKILL[/] after {received.distinct:,} flights: "
                    "it cannot say goodbye.\n  The other two take over its queues."
                )
        self.consume_s = time.monotonic() - start
