"""Every public call of a client cut off at any of its awaits: no member stays behind, no message is lost, no task is left."""

import asyncio
import os
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.client.test_half_done import cut
from tests.simulation.test_name_servers import create_topic

from roquette import StartFrom
from roquette.client.client import Client
from roquette.client.consumer import Consumer
from roquette.client.push_consumer import PushConsumer
from roquette.errors import ClientError, ConfigError
from roquette.message.message import ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NAME_SERVER, BROKER, STAYS, COMES = "10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.2.2"
TOPIC, ASKED = "orders", "asked"
GROUPS: dict[str, dict[str, Any]] = {
    "shared": {"concurrency": 4},
    "ordered": {"orderly": True},
    "all": {"model": "broadcasting"},
}
CLIENT: dict[str, Any] = {"pull_hold": 0.5, "orderly_suspend": 0.05, "rebalance": 5}
SEEDS = int(os.environ.get("ROQUETTE_SEEDS", "400"))
CHAOS_SEEDS = int(os.environ.get("ROQUETTE_CHAOS_SEEDS", "20000"))
FIRST = int(os.environ.get("ROQUETTE_CHAOS_FIRST", "100000"))
PIECES = 10


class World:
    """A broker, and a member of each group that stays. Each seed is a client that comes, whose calls are cut off.

    Attributes:
        cuts: how many calls did not come to their end.
    """

    def __init__(self, seeds: range) -> None:
        self.seeds = seeds
        self.cuts = 0
        self.sent: set[bytes] = set()
        self.handled: dict[str, set[bytes]] = {group: set() for group in GROUPS}
        self.broadcast: set[bytes] = set()

    async def __call__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        await cluster.add_namesrv(NAME_SERVER)
        await cluster.add_broker(BROKER)
        for topic in (TOPIC, ASKED):
            await create_topic(cluster, topic, BROKER, queues=4)
        self.stays = await cluster.client(STAYS, **CLIENT)
        self.members: dict[str, Consumer] = {}
        for group, options in GROUPS.items():
            self.members[group] = await self.stays.subscribe(
                TOPIC,
                group=group,
                handler=self._handler(group, True),
                start_from=StartFrom.FIRST,
                **options,
            )
        await self.stays.serve(ASKED, group="servers", handler=lambda message: message.body)
        await asyncio.sleep(3)
        for seed in self.seeds:
            try:
                async with asyncio.timeout(120):
                    await self._seed(Random(seed))
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise

    async def _seed(self, rng: Random) -> None:
        self.random = rng
        before = self._tasks()
        client = await self.cluster.client(COMES, group="comers", **CLIENT)
        self.consumers: list[Consumer] = []
        calls = [getattr(self, name) for name in dir(self) if name.startswith("call_")]
        calls += [self.call_subscribe, self.call_anext]
        for _ in range(rng.randrange(2, 6)):
            await self._cut(rng.choice(calls)(client))
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.3)
        await self._until(lambda: self._ids() == self._joined(self.stays, client), "before the end")
        await self._cut(client.close())
        await client.close()
        self.cluster.host(COMES).service = None
        await self.stays.send(TOPIC, body := b"%d" % rng.getrandbits(60))
        self.sent.add(body)
        await self._until(lambda: self._ids() == self._joined(self.stays), "members")
        await self._until(lambda: not self._left_behind(), "members of what was read or popped")
        await self._until(lambda: all(self.sent <= h for h in self.handled.values()), "messages")
        await self._until(lambda: not self._tasks() - before, "tasks", before)

    # what may be cut off

    def _handler(self, group: str, stays: bool) -> Any:
        counts = stays or group != "all"  # who comes and goes need not have what was broadcast
        delay = self.random.random() * 0.02 if not stays and self.random.random() < 0.5 else 0

        async def handler(message: ReceivedMessage) -> None:
            if delay:
                await asyncio.sleep(delay)
            if counts:
                self.handled[group].add(message.body)

        return handler

    async def _cut(self, call: Coroutine[Any, Any, Any]) -> None:
        """At one of its suspensions, after some time, or not at all."""
        way, at = self.random.random(), int(self.random.random() ** 3 * 40)
        try:
            if way < 0.6:
                self.cuts += await cut(call, at)
            elif way < 0.9:
                await asyncio.wait_for(call, self.random.random() ** 3)
            else:
                async with asyncio.timeout(10):
                    await call
        except TimeoutError:
            self.cuts += 1
        except (ClientError, ConfigError):  # it has joined that group already
            pass

    async def call_subscribe(self, client: Client) -> None:
        group = self.random.choice(list(GROUPS))
        handler = self._handler(group, False)
        join = client.subscribe(
            TOPIC, group=group, handler=handler, start_from=StartFrom.FIRST, **GROUPS[group]
        )
        self.consumers.append(await join)

    async def call_leave(self, client: Client) -> None:
        if self.consumers:
            await self.random.choice(self.consumers).close()

    async def call_persist(self, client: Client) -> None:
        if self.consumers:
            await self.random.choice(self.consumers)._joined().persist()

    async def call_anext(self, client: Client) -> None:
        stream = client.consume(TOPIC, group="shared", start_from=StartFrom.FIRST)
        try:
            for _ in range(3):
                async with asyncio.timeout(1):
                    message = await anext(stream)
                if self.random.random() < 0.5:
                    message.ack()
                    self.handled["shared"].add(message.body)
        finally:
            if self.random.random() < 0.5:
                await stream.close()

    async def call_send(self, client: Client) -> None:
        body = b"%d" % self.random.getrandbits(60)
        await client.send(TOPIC, body)
        self.sent.add(body)

    async def call_send_nowait(self, client: Client) -> None:
        bodies = [b"%d" % self.random.getrandbits(60) for _ in range(5)]
        waiting = [await client.send_nowait(TOPIC, body) for body in bodies]
        await asyncio.gather(*waiting)
        self.sent.update(bodies)

    async def call_send_batch(self, client: Client) -> None:
        bodies = [b"%d" % self.random.getrandbits(60) for _ in range(5)]
        await client.send_batch(TOPIC, bodies)
        self.sent.update(bodies)

    async def call_send_oneway(self, client: Client) -> None:
        await client.send_oneway(TOPIC, b"oneway")

    async def call_look(self, client: Client) -> None:
        for queue in await client.queues(TOPIC):
            await client.min_offset(queue)

    async def call_pull(self, client: Client) -> None:
        puller = client.reader(group="reader")
        await puller.assign(await client.queues(TOPIC))
        await puller.poll(timeout=0.2)
        await puller.commit()
        if self.random.random() < 0.5:
            await puller.close()

    async def call_read(self, client: Client) -> None:
        reader = client.reader(group="readers")
        await reader.subscribe(TOPIC)
        await reader.poll(timeout=0.5)
        await reader.commit()
        if self.random.random() < 0.5:
            await reader.close()

    async def call_pop(self, client: Client) -> None:
        async with client.pop(
            TOPIC, group="poppers", start_from=StartFrom.FIRST, renew=self.random.random() < 0.5
        ) as jobs:
            for _ in range(3):
                async with asyncio.timeout(1):
                    job = await anext(jobs)
                settle = self.random.choice((job.ack, partial(job.extend, 30.0), job.retry))
                await settle()

    async def call_transaction(self, client: Client) -> None:
        body = b"%d" % self.random.getrandbits(60)
        async with client.transaction(TOPIC, body):
            await asyncio.sleep(self.random.random() * 0.1)
        self.sent.add(body)

    async def call_request(self, client: Client) -> None:
        body = b"%d" % self.random.getrandbits(60)
        reply = await client.request(ASKED, body, timeout=5.0)
        assert reply.body == body

    async def call_find(self, client: Client) -> None:
        await client.find(TOPIC, "nothing")

    # what must be

    def _left_behind(self) -> list[str]:
        """Groups of readers and of who pops that have members."""
        consumers = self.cluster.host(BROKER).service.tables.consumers
        found = {group: consumers.find(group) for group in ("readers", "reader", "poppers")}
        return [group for group, one in found.items() if one is not None and one.client_ids()]

    def _joined(self, *clients: Client) -> dict[str, list[str]]:
        """By group the ids of the clients whose calls to join came to their end and who have not left."""
        found: dict[str, list[str]] = {group: [] for group in GROUPS}
        for client in clients:
            for consumer in client._consumers:
                if consumer.group in GROUPS and consumer.started and not consumer._closing:
                    found[consumer.group].append(client.session.client_id)
        return {group: sorted(ids) for group, ids in found.items()}

    def _ids(self) -> dict[str, list[str]]:
        consumers = self.cluster.host(BROKER).service.tables.consumers
        found = {group: consumers.find(group) for group in GROUPS}
        return {g: [] if f is None else sorted(f.client_ids()) for g, f in found.items()}

    def _tasks(self) -> Counter[str]:
        here = asyncio.current_task()
        return Counter(
            f"{task.get_name().partition('-')[0]} {task.get_coro()}".partition(" at ")[0]
            for task in asyncio.all_tasks()
            if task is not here
        )

    async def _until(self, good: Any, what: str, before: Counter[str] | None = None) -> None:
        end_s = self.cluster.loop.time() + 20
        while not good():
            assert self.cluster.loop.time() < end_s, f"{what}: {self._left(before)}"
            await asyncio.sleep(0.05)

    def _left(self, before: Counter[str] | None) -> str:
        missing = {g: len(self.sent - h) for g, h in self.handled.items()}
        return f"{self._ids()} {missing} {self._tasks() - (before or self._tasks())}"


def run_seeds(first: int, count: int) -> int:
    world = World(range(first, first + count))
    simulate(world, first)
    return world.cuts


@pytest.mark.promise("The client", "a call that is cut off at any await leaves nothing half done")
@pytest.mark.parametrize("piece", range(PIECES))
def test_calls_that_are_cut_off_leave_nothing_behind(piece: int) -> None:
    count = -(-SEEDS // PIECES)
    assert run_seeds(1 + piece * count, count) > count // 2


def test_joins_that_are_not_taken_back_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PushConsumer, "start", PushConsumer._join)

    with pytest.raises(AssertionError, match="before the end"):
        run_seeds(1, 50)


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("piece", range(PIECES))
def test_many_calls_that_are_cut_off(piece: int) -> None:
    count = -(-CHAOS_SEEDS // PIECES)
    for first in range(FIRST + piece * count, FIRST + (piece + 1) * count, 50):
        run_seeds(first, 50)
