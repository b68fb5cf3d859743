"""A cluster in trouble under one seed, its clocks set both ways, and what must be true of it afterwards.

Its own file, so that other processes can run it: `python -c "from tests.simulation.chaos import ..."`.
"""

import asyncio
import itertools
from typing import Any

from roquette import StartFrom
from roquette.client.client import Client
from roquette.errors import ClientError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.store.format.config import FlushDiskType
from roquette_testing.cluster import SimCluster

NAME_SERVERS = ("10.0.0.1", "10.0.0.2")
BROKERS = ("10.0.1.1", "10.0.1.2")
PRODUCERS = ("10.0.2.1", "10.0.2.2")
CONSUMERS = ("10.0.3.1", "10.0.3.2")
TOPIC = "orders"
QUIET_S = 150.0


class Chaos:
    """The scenario and its books.

    Args:
        power_loss: brokers lose what was not synced, and so run with synchronous flush.
    """

    def __init__(self, *, power_loss: bool = False, faults: int = 12) -> None:
        self.power_loss = power_loss
        self.faults = faults
        self.acknowledged: dict[bytes, tuple[MessageQueue, int]] = {}
        self.consumed: dict[bytes, int] = {}
        self.producing = True

    async def __call__(self, cluster: SimCluster) -> None:
        await self._build(cluster)
        producers = [
            cluster.loop.create_task(self._produce(cluster, ip), name=f"produce-{ip}")
            for ip in PRODUCERS
        ]
        clocks = cluster.loop.create_task(cluster.move_clocks(tuple(cluster.hosts)))
        await self._trouble(cluster)
        clocks.cancel()
        self.producing = False
        await asyncio.gather(*producers)
        await asyncio.sleep(QUIET_S)
        await self._check(cluster)

    async def _build(self, cluster: SimCluster) -> None:
        for ip in NAME_SERVERS:
            await cluster.add_namesrv(ip)
        store: dict[str, Any] = {}
        if self.power_loss:
            store["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
        for ip in BROKERS:
            await cluster.add_broker(ip, store=store)
        for ip in CONSUMERS:
            mq = await cluster.client(ip)
            await mq.subscribe(TOPIC, group="g", handler=self._take, start_from=StartFrom.FIRST)

    async def _take(self, message: ReceivedMessage) -> None:
        self.consumed[message.body] = self.consumed.get(message.body, 0) + 1

    async def _produce(self, cluster: SimCluster, ip: str) -> None:
        mq = await cluster.client(ip)
        for number in itertools.count():
            if not self.producing:
                return
            body = f"{ip}-{number}".encode()
            try:
                receipt = await mq.send(TOPIC, body)
            except ClientError:
                await asyncio.sleep(0.2)
                continue
            if receipt.status == "SEND_OK":
                self.acknowledged[body] = (receipt.queue, receipt.queue_offset)
            await asyncio.sleep(cluster.loop.random.uniform(0.0, 0.2))

    async def _trouble(self, cluster: SimCluster) -> None:
        rng = cluster.loop.random
        for _ in range(self.faults):
            await asyncio.sleep(rng.uniform(1, 8))
            kind = rng.choice(("kill-broker", "kill-namesrv", "partition", "isolate", "reset"))
            victim = rng.choice(NAME_SERVERS if kind == "kill-namesrv" else BROKERS)
            cluster.loop.trace("fault", kind, victim)
            if kind.startswith("kill"):
                cluster.kill(victim, power_loss=self.power_loss and kind == "kill-broker")
                await asyncio.sleep(rng.uniform(0, 5))
                await cluster.restart(victim)
            elif kind == "partition":
                cluster.partition(victim, rng.choice(PRODUCERS + CONSUMERS + NAME_SERVERS))
                await asyncio.sleep(rng.uniform(0, 40))
                cluster.heal()
            elif kind == "isolate":
                cluster.isolate(victim)
                await asyncio.sleep(rng.uniform(0, 40))
                cluster.heal()
            else:
                cluster.reset(victim)

    async def _check(self, cluster: SimCluster) -> None:
        reader = await cluster.client("10.0.9.1")
        stored: dict[tuple[MessageQueue, int], bytes] = {}
        queues = await reader.queues(TOPIC)
        for queue in queues:
            for message in await read_queue(reader, queue):
                stored[(queue, message.queue_offset)] = message.body
        assert len(self.acknowledged) > 50, "the run must have done something"
        for body, place in self.acknowledged.items():
            assert stored.get(place) == body, f"acknowledged and not at its place: {body!r} {place}"
        by_queue: dict[tuple[MessageQueue, bytes], list[tuple[int, int]]] = {}
        for body, (queue, offset) in self.acknowledged.items():
            producer, number = body.rsplit(b"-", 1)
            by_queue.setdefault((queue, producer), []).append((int(number), offset))
        for order in by_queue.values():
            offsets = [offset for _, offset in sorted(order)]
            assert offsets == sorted(offsets), "a producer's messages keep their order in a queue"
        missing = [body for body in self.acknowledged if body not in self.consumed]
        assert not missing, f"never consumed: {missing[:5]}"
        names = {queue.broker_name for queue in queues}
        for ip in NAME_SERVERS:
            route = cluster.hosts[ip].service.core.routes.find_route(TOPIC)
            assert {q.broker_name for q in route.queue_datas} == names, "routes converge"


async def read_queue(client: Client, queue: MessageQueue) -> list[ReceivedMessage]:
    """Every message of a queue, from its first to its last."""
    puller = client.reader(group="auditor")
    first, end = await client.min_offset(queue), await client.max_offset(queue)
    puller.seek(queue, first)
    found: list[ReceivedMessage] = []
    while first + len(found) < end:
        batch = await puller.poll(timeout=10)
        assert batch, f"{queue} ends at {first + len(found)} of {end}"
        found += batch
    await puller.close()
    assert [m.queue_offset for m in found] == list(range(first, end)), "no gap, none twice"
    return found
