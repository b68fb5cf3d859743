"""v5 clients at a broker's own port in virtual time: receives that are reset, time out or lose their connection at any
moment, acks whose answers are lost, a broker that is killed. Nothing sent is lost, and what was acknowledged stays so.
"""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from tests.proxy.sim_v5 import Failed, Gone, SimV5
from tests.proxy.v5_client import consumer, producer
from tests.simulation.test_name_servers import create_topic

from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s
from roquette_testing.cluster import SimCluster, simulate

NS, BROKER, PRODUCER = "10.0.0.1", "10.0.1.1", "10.0.2.1"
ADDRESS = f"{BROKER}:10911"
INVISIBLE_S = 10
QUEUE = d.MessageQueue(topic=d.Resource(name="orders"), broker=d.Broker(name="broker-a"), id=-1)


class Story:
    """What was sent, received and acknowledged.

    Attributes:
        sent: bodies whose sends were answered OK. done: bodies whose acks were. begun: those that may have been: an answer may be lost.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.sent: set[bytes] = set()
        self.seen: Counter[bytes] = Counter()
        self.begun: set[bytes] = set()
        self.done: set[bytes] = set()
        self.wrong: list[str] = []
        self.cancelled = self.lost = 0
        self.calm = self.over = False

    async def produce(self, count: int) -> None:
        client: SimV5 | None = None
        for number in range(count):
            body, attempt = b"", 0
            while body not in self.sent:
                body = b"m%d-%d" % (number, attempt)  # one whose answer was lost may be there
                attempt += 1
                try:
                    if client is None or client.lost:
                        client = await connected("producer", PRODUCER)
                        await client.settings(producer(client.endpoints, "orders"))
                    await client.send("orders", body)
                    self.sent.add(body)
                except (Gone, Failed, OSError):
                    await asyncio.sleep(0.5)
            await asyncio.sleep(self.dice.random() * 0.3)
        assert client is not None
        client.close()

    async def consume(self, name: str, host: str) -> None:
        """Receive and acknowledge until it is over; until `calm`, badly."""
        client: SimV5 | None = None
        while not self.over:
            try:
                if client is None or client.lost:
                    client = await connected(name, host)
                    await client.settings(consumer(client.endpoints, "g", "orders"))
                await self.receive(client)
            except (Gone, Failed, OSError):
                await asyncio.sleep(0.3)
        if client is not None:
            client.close()

    async def receive(self, client: SimV5) -> None:
        dice = self.dice
        request = s.ReceiveMessageRequest(
            group=d.Resource(name="g"), message_queue=QUEUE, batch_size=dice.choice((1, 3, 32))
        )
        request.filter_expression.type = d.FilterType.TAG
        request.filter_expression.expression = "*"
        request.invisible_duration.seconds = INVISIBLE_S
        request.long_polling_timeout.seconds = 5
        number, call = client.begin("ReceiveMessage", request, s.ReceiveMessageResponse)
        fate = 1.0 if self.calm else dice.random()
        if fate < 0.3:  # it is given up at any moment, often with a message on its way
            await asyncio.sleep(dice.choice((0.0, 0.001, 0.01, 0.1, 1.0)) * dice.random())
            client.reset(number)
            self.cancelled += 1
            return
        if fate < 0.4:
            await asyncio.sleep(dice.choice((0.001, 0.1, 1.0)) * dice.random())
            client._transport.abort()
            self.lost += 1
            return
        messages = []
        async with asyncio.timeout(40):
            while (part := await call.parts.get()) is not None:
                if part.HasField("message"):
                    messages.append(part.message)
        for message in messages:
            self.seen[message.body] += 1
            if message.body in self.done:
                self.wrong.append(f"{message.body!r} came again after its ack was answered")
        kept = [one for one in messages if self.calm or dice.random() < 0.8]
        await asyncio.gather(*(self.ack(client, one) for one in kept))

    async def ack(self, client: SimV5, message: d.Message) -> None:
        self.begun.add(message.body)
        await client.ack("g", "orders", [message])
        self.done.add(message.body)


async def connected(name: str, host: str) -> SimV5:
    async with asyncio.timeout(10):
        return await SimV5.connect(ADDRESS, name, host)


async def story(cluster: SimCluster, seed: int, kills: int) -> Story:
    told = Story(seed)
    await cluster.add_namesrv(NS)
    # Every answer waits for the disk where the broker is killed: what was answered must survive.
    store: dict[str, Any] = {"flush_disk_type": "SYNC_FLUSH"} if kills else {}
    await cluster.add_broker(BROKER, "broker-a", store=store)
    await create_topic(cluster, "orders", BROKER)
    first = await connected("first", PRODUCER)  # the group begins before the first message
    await first.settings(consumer(first.endpoints, "g", "orders"))
    await first.receive("g", QUEUE, invisible_s=INVISIBLE_S)
    first.close()
    work = [told.consume(f"consumer-{n}", f"10.0.3.{n}") for n in range(1, 4)]
    tasks = [asyncio.ensure_future(one) for one in work]
    sending = asyncio.ensure_future(told.produce(40))
    for _ in range(kills):
        await asyncio.sleep(2 + told.dice.random() * 4)
        cluster.kill(BROKER)
        await asyncio.sleep(1)
        await cluster.restart(BROKER)
    await sending
    told.calm = True
    async with asyncio.timeout(600):
        while not told.sent <= told.begun:
            await asyncio.sleep(0.5)
        await asyncio.sleep(2 * INVISIBLE_S)  # whatever comes again comes now
        told.over = True
        await asyncio.gather(*tasks)
    return told


def run(seed: int, kills: int = 0) -> Story:
    found: list[Story] = []

    async def scenario(cluster: SimCluster) -> None:
        found.append(await story(cluster, seed, kills))

    simulate(scenario, seed=seed)
    (told,) = found
    assert told.wrong == []
    assert told.sent <= told.begun
    return told


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(1, 7))
def test_nothing_is_lost_whatever_becomes_of_receives(seed: int) -> None:
    told = run(seed)
    assert told.cancelled + told.lost > 3


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(20, 23))
def test_nor_when_the_broker_is_killed(seed: int) -> None:
    run(seed, kills=2)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_seeds() -> None:
    for seed in range(100, 400):
        run(seed, kills=seed % 3)
