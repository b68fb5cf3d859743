"""The loads of `roquette bench`: several clients in one process that send, or receive."""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from roquette.base.clock import Clock
from roquette.cli.bench_meter import Meter
from roquette.client.consumer_options import StartFrom
from roquette.errors import RoquetteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquette.admin.places import Place
    from roquette.client.client import Client
    from roquette.client.producer import SendReceipt
    from roquette.client.reader import Reader
    from roquette.message.message import MessageQueue, ReceivedMessage


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
    """What to receive, and where from.

    Attributes:
        group: consume as its members, acknowledging; None: read without any group.
        place: where readers begin; members of a group: where a new group begins.
        follow: readers wait for more at the end.
    """

    topic: str
    group: str | None
    place: "Place"
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
    received: "Callable[[Sequence[ReceivedMessage]], None]",
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
    received: "Callable[[Sequence[ReceivedMessage]], None]",
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


async def _start(client: "Client", queue: "MessageQueue", place: "Place", end: int) -> int:
    if place.kind == "time":
        return await client.offset_by_time(queue, place.number)
    return place.at(await client.min_offset(queue), end)


async def with_progress(work: Awaitable[None], meter: Meter, tell: "Callable[[str], None]") -> None:
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
