"""A benchmark: several clients in one process that send or receive, and what is counted of it until it has had enough."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from roquette.base.clock import Clock
from roquette.base.options import counted
from roquette.client.consumer_options import StartFrom
from roquette.errors import RoquetteError

if TYPE_CHECKING:
    from roquette.admin.seek import QueuePlace
    from roquette.client.client import Client
    from roquette.client.producer import SendReceipt
    from roquette.client.reader import Reader
    from roquette.message.message import MessageQueue, ReceivedMessage

_STEPS: Final = 50.0  # buckets of 2 %: a percentile is at most so much too high
_UNKNOWN: Final = -1


class BenchRow(msgspec.Struct, frozen=True):
    """Result of a benchmark. Latencies are microseconds; -1: none was measured.

    Attributes:
        action: pub or sub. `bytes`: of bodies. `mb_per_s`: 1,000,000 bytes of bodies a second.
        cpu_s_per_100k: CPU seconds of this process for 100,000 messages.
        error: why it ended early.
    """

    action: str
    topic: str
    clients: int
    messages: int
    bytes: int
    seconds: float
    rate: float
    mb_per_s: float
    latency_p50_us: int
    latency_p99_us: int
    latency_max_us: int
    cpu_s_per_100k: float
    error: str = ""


class FigureRow(msgspec.Struct, frozen=True):
    """One figure of a BenchRow, for people."""

    figure: str
    value: str


class Latencies:
    """Many latencies in bounded memory: percentiles are exact to 2 %."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._count = 0
        self._max_us = _UNKNOWN

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a latency, `times` times."""
        us = max(1, int(seconds * 1e6))
        bucket = int(math.log(us) * _STEPS)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self._count += times
        self._max_us = max(self._max_us, us)

    def percentile(self, share: float) -> int:
        """Microseconds that `share` (0 to 1) of the latencies do not exceed; -1 without any; `percentile(1)` is the highest."""
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= share * self._count and seen < self._count:
                return min(self._max_us, math.ceil(math.exp((bucket + 1) / _STEPS)))
        return self._max_us


class Meter:
    """Counts what a benchmark does until it has done enough.

    Args:
        count: how many messages; 0: no limit.
        duration_s: for how long; 0: no limit.
        rate: how many messages to begin in a second, at most; 0: no limit.
        now: steady time in seconds. `cpu`: CPU seconds of this process.
    """

    def __init__(
        self,
        count: int,
        duration_s: float,
        rate: float,
        now: Callable[[], float],
        cpu: Callable[[], float],
    ) -> None:
        self.now = now
        self.latencies = Latencies()
        self.messages = self.bytes = 0
        self.error: BaseException | None = None
        self._left: float = count or math.inf
        self._begun = self._last = now()
        self._end = self._begun + duration_s if duration_s else math.inf
        self._rate = rate
        self._taken = 0
        self._cpu = cpu
        self._cpu_before = cpu()

    def left_s(self) -> float:
        """Return how long it may go on; 0: it has had enough."""
        return max(0.0, self._end - self.now()) if self._left else 0.0

    def take(self, most: int = 1) -> int:
        """Return how many messages may be begun now, of `most`; 0: it has had enough."""
        if not self._left or self.now() >= self._end:
            return 0
        taken = int(min(most, self._left))
        self._left -= taken
        self._taken += taken
        return taken

    def pause_s(self) -> float:
        """Return how long to wait before what was taken is begun, for the rate's sake."""
        if not self._rate:
            return 0.0
        return min(self._begun + self._taken / self._rate, self._end) - self.now()

    def done(self, messages: int, size: int) -> None:
        """Count messages with `size` bytes of bodies altogether."""
        self.messages += messages
        self.bytes += size
        self._last = self.now()

    def stop(self, error: BaseException | None = None) -> None:
        """Begin nothing more; the first error is kept."""
        self._left = 0
        self.error = self.error or error

    def progress(self) -> str:
        """A line about what was done so far."""
        seconds = max(1e-9, self.now() - self._begun)
        return (
            f"{counted(self.messages, 'message')} in {seconds:.0f} s: "
            f"{self.messages / seconds:.0f}/s, {self.bytes / seconds / 1e6:.2f} MB/s"
        )

    def result(self, action: str, topic: str, clients: int) -> BenchRow:
        """Return what was found; its time ends with the last message."""
        seconds = max(1e-9, self._last - self._begun)
        cpu = self._cpu() - self._cpu_before
        return BenchRow(
            action,
            topic,
            clients,
            self.messages,
            self.bytes,
            round(seconds, 3),
            round(self.messages / seconds, 1),
            round(self.bytes / seconds / 1e6, 3),
            self.latencies.percentile(0.5),
            self.latencies.percentile(0.99),
            self.latencies.percentile(1),
            round(cpu * 100_000 / self.messages, 2) if self.messages else -1.0,
            str(self.error) if self.error is not None else "",
        )


def figures(row: BenchRow) -> list[FigureRow]:
    """A result one figure a line."""

    def millis(us: int) -> str:
        return "-" if us < 0 else f"{us / 1000:.2f} ms"

    found = [
        FigureRow("messages", f"{row.messages}"),
        FigureRow("time", f"{row.seconds:.2f} s"),
        FigureRow("rate", f"{row.rate:.0f}/s"),
        FigureRow("bodies", f"{row.mb_per_s:.2f} MB/s"),
        FigureRow("latency p50", millis(row.latency_p50_us)),
        FigureRow("latency p99", millis(row.latency_p99_us)),
        FigureRow("latency max", millis(row.latency_max_us)),
    ]
    if row.cpu_s_per_100k >= 0:
        found.append(FigureRow("CPU here per 100,000", f"{row.cpu_s_per_100k:.2f} s"))
    if row.error:
        found.append(FigureRow("ended early", row.error))
    return found


async def publish(
    clients: Sequence["Client"], meter: Meter, topic: str, body: bytes, batch: int, in_flight: int
) -> None:
    """Send `body` until the meter has enough, or a send fails for good (the meter has the error).

    Args:
        batch: 1 pipelines single messages (the clients' `max_in_flight` bounds them); more are sent as batches.
        in_flight: of each client, how many messages may be unanswered.
    """
    if batch == 1:
        work = [_pipeline(client, meter, topic, body) for client in clients]
    else:
        senders = max(1, in_flight // batch)
        work = [
            _batches(client, meter, topic, body, batch)
            for client in clients
            for _ in range(senders)
        ]
    await asyncio.gather(*work)


async def _pipeline(client: "Client", meter: Meter, topic: str, body: bytes) -> None:
    waiting: set[asyncio.Future[SendReceipt]] = set()

    def answered(begun: float, future: "asyncio.Future[SendReceipt]") -> None:
        waiting.discard(future)
        if future.cancelled():
            return
        if error := future.exception():
            meter.stop(error)
            return
        meter.latencies.add(meter.now() - begun)
        meter.done(1, len(body))

    while meter.take():
        if (pause := meter.pause_s()) > 0:
            await asyncio.sleep(pause)
        try:
            future = await client.send_nowait(topic, body)
        except RoquetteError as error:
            meter.stop(error)
            break
        waiting.add(future)
        future.add_done_callback(partial(answered, meter.now()))
    if waiting:
        await asyncio.wait(waiting)


async def _batches(client: "Client", meter: Meter, topic: str, body: bytes, batch: int) -> None:
    while taken := meter.take(batch):
        if (pause := meter.pause_s()) > 0:
            await asyncio.sleep(pause)
        begun = meter.now()
        try:
            await client.send_batch(topic, [body] * taken)
        except RoquetteError as error:
            meter.stop(error)
            return
        meter.latencies.add(meter.now() - begun, taken)
        meter.done(taken, taken * len(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Options of a receiver: what to receive, and where from.

    Attributes:
        group: consume as its members, acknowledging; None: read without any group.
        place: where readers begin; members of a group: where a new group begins.
        follow: readers wait for more at the end.
    """

    topic: str
    group: str | None
    place: "QueuePlace"
    follow: bool


async def receive(
    clients: Sequence["Client"], meter: Meter, reading: Reading, clock: Clock
) -> None:
    """Receive until the meter has enough, or, without `follow`, until the end that the queues had at the beginning.

    The latency of a message is its age when it arrives; messages born before the beginning have none.
    """
    born_since = clock.now_ms()

    def received(messages: Sequence["ReceivedMessage"]) -> None:
        now_ms = clock.now_ms()
        wanted = messages[: meter.take(len(messages))]
        for message in wanted:
            if message.born_timestamp_ms >= born_since:
                meter.latencies.add(max(0, now_ms - message.born_timestamp_ms) / 1000)
        if wanted:
            meter.done(len(wanted), sum(len(message.body) for message in wanted))

    if reading.group is not None:
        await _as_members(clients, meter, reading, reading.group, received)
        return
    queues = await clients[0].queues(reading.topic)
    await asyncio.gather(
        *(
            _read(client, queues[at :: len(clients)], meter, reading, received)
            for at, client in enumerate(clients)
        )
    )


async def _as_members(
    clients: Sequence["Client"],
    meter: Meter,
    reading: Reading,
    group: str,
    received: Callable[[Sequence["ReceivedMessage"]], None],
) -> None:
    start: StartFrom | int = reading.place.number
    if reading.place.kind != "time":
        start = StartFrom.FIRST if reading.place.kind == "start" else StartFrom.LAST
    consumers = [
        await client.subscribe(
            reading.topic,
            group=group,
            handler=lambda message: received([message]),
            start_from=start,
        )
        for client in clients
    ]
    while (left := meter.left_s()) > 0:
        await asyncio.sleep(min(0.05, left))
    for consumer in consumers:
        await consumer.close()


async def _read(
    client: "Client",
    queues: Sequence["MessageQueue"],
    meter: Meter,
    reading: Reading,
    received: Callable[[Sequence["ReceivedMessage"]], None],
) -> None:
    reader = client.reader(group="TOOLS_CONSUMER")
    ends: dict[MessageQueue, int] = {}
    for queue in queues:
        end = ends[queue] = await client.max_offset(queue)
        start = await _start(client, queue, reading.place, end)
        if reading.follow or start < end:
            reader.seek(queue, start)
    while (left := meter.left_s()) > 0 and (reading.follow or _unread(reader, ends)):
        received(await reader.poll(timeout=min(0.2, left)))


def _unread(reader: "Reader", ends: "dict[MessageQueue, int]") -> bool:
    return any(reader.position(queue) < ends[queue] for queue in reader.assigned())


async def _start(client: "Client", queue: "MessageQueue", place: "QueuePlace", end: int) -> int:
    if place.kind == "time":
        return await client.offset_by_time(queue, place.number)
    return place.at(await client.min_offset(queue), end)


async def with_progress(work: Awaitable[None], meter: Meter, tell: Callable[[str], None]) -> None:
    """Do the work; each second `tell` what it has done so far."""
    ended = asyncio.Event()

    async def whole() -> None:
        try:
            await work
        finally:
            ended.set()

    async def progress() -> None:
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await ended.wait()
            if not ended.is_set():
                tell(meter.progress())

    await asyncio.gather(whole(), progress())
