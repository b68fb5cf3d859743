"""An application's own asynchronous test under many seeds: a cluster in virtual time, and faults that each seed chooses.

    async def test_orders(roquette_world: World) -> None:
        shop = await roquette_world.client("shop")
        await shop.subscribe("orders", group="shop", handler=handle)
        ...
        await roquette_world.calm()
        assert ...

`pytest --roquette-seeds 1000` runs it a thousand times, each time other delays and other faults, in virtual time: a sleep
of an hour takes no time. The first seed that fails is named, and `--roquette-seed K` runs that very run again. A test is
the same each time only if it takes its time and its chance from the world, not from the machine.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from roquette.broker.service import Broker
from roquette.client.client import Client
from roquette.message.message import ReceivedMessage, received
from roquette.message.record import decode_records
from roquette.store.queue_read import ReadRequest
from roquette_testing.cluster import SimCluster, simulate

_NAMESRV: Final = "10.0.0.1"
_BROKER: Final = "10.0.1.1"
_PAUSE_S: Final = (0.05, 4.0)  # between two faults


class World:
    """A name server, a broker and the application's clients, each a process on a machine of its own.

    Attributes:
        random: chance that the seed decides; use it instead of the module `random`.
        cluster: all that can be done to it (SimCluster).
    """

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.random: random.Random = cluster.loop.random
        self._hosts: dict[str, str] = {}
        self._trouble: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start the servers and the trouble."""
        await self.cluster.add_namesrv(_NAMESRV)
        await self.cluster.add_broker(
            _BROKER, "broker-a", recall_message_enable=True, enable_property_filter=True
        )
        self._trouble = asyncio.get_running_loop().create_task(self._make_trouble())

    async def client(self, name: str, *, group: str | None = None, **settings: Any) -> Client:
        """A started client, in a process of its own; `settings` are ClientSettings."""
        ip = self._hosts.setdefault(name, f"10.0.2.{len(self._hosts) + 1}")
        return await self.cluster.client(ip, group=group, **settings)

    async def run(self, name: str, work: Awaitable[Any]) -> Any:
        """Run something in the process of a client."""

        async def step() -> Any:
            return await work

        return await self.cluster.run_on(self._hosts[name], step())

    def now(self) -> float:
        """Seconds of virtual time since the begin."""
        return self.cluster.loop.time()

    async def calm(self) -> None:
        """No more faults from now on, and those there are end: call it before the final assertions."""
        if self._trouble is not None:
            self._trouble.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._trouble
            self._trouble = None
        self.cluster.heal()

    async def until(self, done: Callable[[], bool], within_s: float = 600.0) -> None:
        """Wait until something is true; raises AssertionError after so many seconds of virtual time."""
        deadline = self.now() + within_s
        while not done():
            assert self.now() < deadline, (
                f"it did not become true within {within_s} virtual seconds"
            )
            await asyncio.sleep(0.05)

    async def _make_trouble(self) -> None:
        """Connections break, machines stand still or cannot reach each other, for a while; nobody dies."""
        while True:
            await asyncio.sleep(self.random.uniform(*_PAUSE_S))
            hosts = [_BROKER, *self._hosts.values()]
            host = self.random.choice(hosts)
            kind = self.random.randrange(4)
            if kind == 0:
                self.cluster.reset(host)
            elif kind == 1:
                self.cluster.pause(host, self.random.uniform(0.05, 2.0))
            elif kind == 2 and host != _BROKER:
                self.cluster.cut_way(*self.random.sample((host, _BROKER), 2))
                await asyncio.sleep(self.random.uniform(0.05, 3.0))
                self.cluster.heal()
            elif host != _BROKER:
                self.cluster.partition(host, _BROKER)
                await asyncio.sleep(self.random.uniform(0.05, 3.0))
                self.cluster.heal()

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """All messages stored in a topic, by queue and offset."""
        broker: Broker = self.cluster.hosts[_BROKER].service
        return stored(broker, topic)


def stored(
    broker: Broker, topic: str, begins: Mapping[int, int] | None = None
) -> list[ReceivedMessage]:
    """All messages of a topic that a broker has, by queue and offset; none when there is no such topic.

    `begins`: of a queue only those from an offset on.
    """
    store = broker.store
    found: list[ReceivedMessage] = []
    for queue_id in sorted(store.queues_of(topic)):
        offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        offset = max(offset, (begins or {}).get(queue_id, offset))
        while offset < end:
            part = store.read_queue(ReadRequest(topic, queue_id, offset, 64, 4 << 20))
            for run in part.runs:
                found += [received(each, broker.name) for each in decode_records(bytes(run))]
            if part.next_begin_offset <= offset:
                break
            offset = part.next_begin_offset
    return found


def run_seed(test: Callable[[World], Awaitable[None]], seed: int) -> str:
    """Run a test under one seed; returns the fingerprint of all that happened.

    Raises:
        Exception: the test's own.
    """

    async def scenario(cluster: SimCluster) -> None:
        world = World(cluster)
        await world.begin()
        try:
            await test(world)
        finally:
            await world.calm()

    return simulate(scenario, seed).fingerprint()
