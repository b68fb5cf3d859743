"""Orderly consumers that come, go and die, and brokers that restart: every queue is consumed in order."""

import asyncio
from typing import Any

import pytest
from tests.simulation.test_name_servers import create_topic

from roquette import StartFrom
from roquette.client.client import Client
from roquette.errors import ClientError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NAME_SERVERS = ("10.0.0.1", "10.0.0.2")
BROKERS = ("10.0.1.1", "10.0.1.2")
PRODUCERS = ("10.0.2.1", "10.0.2.2")
TOPIC = "orders"
QUEUES = 4
MESSAGES = 100


class Order:
    """The scenario and its books.

    Args:
        restarts: brokers are killed and started again, too; their locks go with them, as Apache's do.
    """

    def __init__(self, *, restarts: bool, faults: int = 8) -> None:
        self.restarts = restarts
        self.faults = faults
        self.first: dict[MessageQueue, list[int]] = {}  # numbers in the order they first came
        self.last: dict[MessageQueue, int] = {}
        self.working: dict[MessageQueue, str] = {}
        self.overlaps: list[str] = []
        self.disorder: list[str] = []
        self.tries = 0
        self.members: dict[str, Client] = {}
        self.next_member = 1

    async def __call__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        for ip in NAME_SERVERS:
            await cluster.add_namesrv(ip)
        for ip in BROKERS:
            await cluster.add_broker(ip)
        await create_topic(cluster, TOPIC, *BROKERS, queues=QUEUES)
        await self._join()
        await self._join()
        queues = await self._queues()
        writers = []
        for place, queue in enumerate(queues):
            writer = self._write(cluster.hosts[PRODUCERS[place % 2]].service, queue)
            writers.append(cluster.loop.create_task(writer, name=f"write-{place}"))
        for _ in range(self.faults):
            await asyncio.sleep(cluster.loop.random.uniform(1, 12))
            await self._trouble()
        await asyncio.gather(*writers)
        wanted = list(range(MESSAGES))
        end = cluster.loop.time() + 400
        while any(self.first.get(queue, []) != wanted for queue in queues):
            assert not self.disorder
            assert cluster.loop.time() < end, {q: len(seen) for q, seen in self.first.items()}
            await asyncio.sleep(1)
        assert self.tries > MESSAGES * len(queues), "some failed and came again"
        if not self.restarts:
            assert not self.overlaps, "two members work on one queue"

    async def _queues(self) -> list[MessageQueue]:
        for ip in PRODUCERS:
            await self.cluster.client(ip)
        first: Client = self.cluster.hosts[PRODUCERS[0]].service
        queues = await first.queues(TOPIC)
        assert len(queues) == QUEUES * len(BROKERS)
        return queues

    async def _write(self, mq: Client, queue: MessageQueue) -> None:
        """Each number until it is acknowledged, so that the queue holds them in order."""
        for number in range(MESSAGES):
            while True:
                try:
                    await mq.send(TOPIC, b"%d" % number, queue=queue)
                    break
                except ClientError:
                    await asyncio.sleep(0.2)
            await asyncio.sleep(self.cluster.loop.random.uniform(0, 0.8))

    async def _trouble(self) -> None:
        rng = self.cluster.loop.random
        kinds = ["join", "leave", "kill"] + ["restart"] * 3 * self.restarts
        kind = rng.choice(kinds)
        if kind == "restart":
            victim = rng.choice(BROKERS)
            self.cluster.kill(victim)
            await asyncio.sleep(rng.uniform(0, 5))
            await self.cluster.restart(victim)
        elif kind == "join" or len(self.members) < 2:
            await self._join()
        else:
            ip = rng.choice(list(self.members))
            del self.members[ip]
            if kind == "leave":
                await self.cluster.stop(ip)
            else:
                self.cluster.kill(ip)
                for queue in [q for q, who in self.working.items() if who == ip]:
                    del self.working[queue]

    async def _join(self) -> None:
        ip = f"10.0.3.{self.next_member}"
        self.next_member += 1
        mq = self.members[ip] = await self.cluster.client(ip, orderly_suspend=0.1)

        async def handle(message: ReceivedMessage) -> bool:
            return await self._take(ip, message)

        joined = mq.subscribe(
            TOPIC, group="g", handler=handle, start_from=StartFrom.FIRST, orderly=True
        )
        await self.cluster.run_on(ip, joined)

    async def _take(self, ip: str, message: ReceivedMessage) -> bool:
        rng: Any = self.cluster.loop.random
        queue, number = message.queue, int(message.body)
        self.tries += 1
        other = self.working.get(queue)
        if other is not None:
            self.overlaps.append(f"{queue} {number}: {other} and {ip}")
        self.working[queue] = ip
        await asyncio.sleep(rng.uniform(0, 0.05))
        self.working.pop(queue, None)
        if rng.random() < 0.05:
            return False
        seen = self.first.setdefault(queue, [])
        if number not in seen:
            if number != len(seen):
                self.disorder.append(f"{queue}: {number} came before {len(seen)}")
            seen.append(number)
        return True


@pytest.mark.parametrize("seed", range(1, 5))
def test_order_through_members_that_come_go_and_die(seed: int) -> None:
    simulate(Order(restarts=False), seed)


@pytest.mark.parametrize("seed", range(1, 5))
def test_order_through_restarts_of_brokers(seed: int) -> None:
    simulate(Order(restarts=True), seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_many_seeds(seed: int) -> None:
    simulate(Order(restarts=seed % 2 == 0, faults=15), seed)
