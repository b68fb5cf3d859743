"""The applications around the pipelines: a producer, a consumer that refuses some flights, a plain reader."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
from examples.demo.flights import Flight, encode
from examples.demo.servers import DemoError
from examples.pipelines_demo.run import GROUP, TOPIC

from roquette import Client, ReceivedMessage, StartFrom

TRIES = 2  # of each flight before it is a dead letter: the first, and one again after 10 seconds
WITHIN_S = 600
LINGER_S = 3.0  # how long to look whether more comes than should


async def publish(namesrv: str, flights: list[Flight], manifest: Path) -> dict[int, int]:
    """One message per flight: the airline as tag, the aircraft as key and shard key, so that its flights keep order.

    Args:
        manifest: gets a line for each flight that is meant to be there, for `audit`.

    Returns:
        Messages by queue, as the broker's receipts say.
    """
    by_queue: Counter[int] = Counter()
    async with Client(namesrv) as mq:
        sending = []
        for number, flight in enumerate(flights, 1):
            tail = flight["tailnum"]
            aircraft = None if tail is None else str(tail)
            sending.append(
                await mq.send_nowait(
                    TOPIC,
                    encode(flight),
                    tag=str(flight["carrier"]),
                    key=aircraft,
                    shard_key=aircraft,
                )
            )
            if len(sending) == 20_000 or number == len(flights):
                receipts = await asyncio.gather(*sending)
                by_queue.update(receipt.queue.queue_id for receipt in receipts)
                sending.clear()
    with manifest.open("w") as file:
        file.writelines(f'{{"id": {flight["id"]}}}\n' for flight in flights)
    return dict(sorted(by_queue.items()))


class Desk:
    """A consumer of the group: what it accepted and refused, by flight."""

    def __init__(self, refuses: Callable[[Flight], bool]) -> None:
        self._refuses = refuses
        self.accepted: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()

    def handle(self, message: ReceivedMessage) -> bool:
        """False refuses: the message comes again, and in the end is a dead letter."""
        flight: Flight = msgspec.json.decode(message.body)
        counts = self.refused if self._refuses(flight) else self.accepted
        counts[int(str(flight["id"]))] += 1
        return counts is self.accepted

    async def work(self, namesrv: str, *, accepted: int, refused: int = 0) -> None:
        """Consume until so many flights have been accepted and so many refusals made, and a moment longer."""
        deadline = time.monotonic() + WITHIN_S
        async with Client(namesrv) as mq:
            await mq.subscribe(
                TOPIC,
                group=GROUP,
                handler=self.handle,
                start_from=StartFrom.FIRST,
                max_reconsume_times=TRIES - 1,
            )
            while self.accepted.total() < accepted or self.refused.total() < refused:
                if time.monotonic() > deadline:
                    raise DemoError(
                        f"after {WITHIN_S} s the consumer has accepted {self.accepted.total():,} of {accepted:,} "
                        f"flights and refused {self.refused.total():,} of {refused:,}"
                    )
                await asyncio.sleep(0.2)
            await asyncio.sleep(LINGER_S)


async def read_topic(namesrv: str, topic: str) -> list[tuple[int, Flight]]:
    """(queue, flight) of every message; those of one queue in its order."""
    found: list[tuple[int, Flight]] = []
    async with Client(namesrv) as mq:
        queues = await mq.queues(topic)
        count = sum([await mq.max_offset(queue) for queue in queues])
        puller = mq.reader(group="pipelines-demo", batch=1000)
        await puller.assign(queues)
        while len(found) < count:
            messages = await puller.poll(timeout=60)
            if not messages:
                raise DemoError(f"{topic} gave {len(found):,} of {count:,} messages, then no more")
            found += [
                (message.queue.queue_id, msgspec.json.decode(message.body)) for message in messages
            ]
        await puller.close()
    return found


async def queue_count(namesrv: str, topic: str) -> int:
    """How many queues a topic has."""
    async with Client(namesrv) as mq:
        return len(await mq.queues(topic))
