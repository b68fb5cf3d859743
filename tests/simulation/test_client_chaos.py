"""What happens to a client's own process: its loop stands still, handlers storm with errors. No message is lost, no member stays dead."""

import asyncio
import contextlib
import itertools
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from roquette.client.client import Client
from roquette.errors import ClientError
from roquette.message.message import ReceivedMessage
from roquette.wire.command import Command
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NAMESRV, BROKER = "10.0.0.1", "10.0.1.1"
MEMBERS = ("10.0.2.1", "10.0.2.2")
SENDER = "10.0.2.9"


class World:
    """A topic of four queues, two members of a group, and what both have handled."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.handled: Counter[bytes] = Counter()
        self.by: dict[str, Counter[bytes]] = {ip: Counter() for ip in MEMBERS}
        self.storm = 0.0
        self.clients: dict[str, Client] = {}

    async def begin(self) -> Client:
        await self.cluster.add_namesrv(NAMESRV)
        await self.cluster.add_broker(BROKER, "broker-a")
        sender = await self.cluster.client(SENDER)
        await sender.send("orders", b"first")
        for ip in MEMBERS:
            await self._join(ip)
        return sender

    async def _join(self, ip: str) -> None:
        rng = random.Random(ip)

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(rng.uniform(0.0, 0.2))
            if rng.random() < self.storm:
                raise rng.choice((ValueError, RuntimeError, asyncio.CancelledError, TimeoutError))
            self.handled[message.body] += 1
            self.by[ip][message.body] += 1

        client = self.clients[ip] = await self.cluster.client(ip)
        await client.subscribe("orders", group="g", handler=handle, start_from=0)

    async def all_handled(self, sent: set[bytes], within_s: float) -> None:
        for _ in range(int(within_s * 10)):
            if sent <= set(self.handled):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"never handled: {sorted(sent - set(self.handled))}")


@pytest.mark.promise(
    "The client", "every acknowledged message is handled through pauses, partitions and restarts"
)
@pytest.mark.parametrize("seconds", [20, 60, 200])
def test_a_loop_that_stands_still_loses_nothing_and_comes_back(seconds: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        world = World(cluster)
        sender = await world.begin()
        sent = {b"first"}
        cluster.pause(MEMBERS[0], seconds)
        for n in range(40):
            await sender.send("orders", f"{n}")
            sent.add(b"%d" % n)
            await asyncio.sleep(seconds / 40)
        await world.all_handled(sent, seconds + 120)
        before = {ip: sum(world.by[ip].values()) for ip in MEMBERS}
        for n in range(40, 80):
            await sender.send("orders", f"{n}")
            sent.add(b"%d" % n)
        await asyncio.sleep(60)
        await world.all_handled(sent, 60)
        after = {ip: sum(world.by[ip].values()) for ip in MEMBERS}
        assert all(after[ip] > before[ip] for ip in MEMBERS), "both members work again"
        assert max(world.handled.values()) <= 2

    simulate(scenario, seconds)


@pytest.mark.parametrize("seed", range(2))
def test_a_storm_of_errors_ends_with_every_message_handled(seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        world = World(cluster)
        sender = await world.begin()
        world.storm = 0.6
        sent = {b"first"}
        for n in range(20):
            await sender.send("orders", f"{n}")
            sent.add(b"%d" % n)
        await asyncio.sleep(20)
        world.storm = 0.0
        await world.all_handled(sent, 3_600)
        tasks = {ip: len(client.session.tasks) for ip, client in world.clients.items()}
        await asyncio.sleep(120)
        for ip, client in world.clients.items():
            assert len(client.session.tasks) <= tasks[ip], "no task is left behind"

    simulate(scenario, seed)


GARBAGE = (b"\xff{[", b'{"nextBeginOffset": "x"}')  # a body and fields that are none


def garble(client: Client, chance: Callable[[], bool]) -> None:
    """Some answers to a client cannot be decoded."""
    remoting = client.session.remoting
    real = remoting.invoke

    async def invoke(address: str, code: int, *rest: Any, **settings: Any) -> Command:
        answer = await real(address, code, *rest, **settings)
        if answer.code == 0 and chance():
            answer.body, answer.ext = GARBAGE
        return answer

    remoting.invoke = invoke  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(int(os.environ.get("ROQUETTE_SEEDS", "2"))))
def test_all_of_it_at_once_while_servers_come_and_go(seed: int) -> None:
    """Loops that stand still, handlers that fail, answers that do not decode, killed servers, in any order."""

    async def scenario(cluster: SimCluster) -> None:
        world = World(cluster)
        sender = await world.begin()
        rng, quiet = cluster.loop.random, False
        for ip in (*MEMBERS, SENDER):
            client = sender if ip == SENDER else world.clients[ip]
            garble(client, lambda: not quiet and rng.random() < 0.05)
        sent = {b"first"}

        async def send() -> None:
            for number in itertools.count():
                if quiet:
                    return
                with contextlib.suppress(ClientError):
                    await sender.send("orders", f"{number}")
                    sent.add(b"%d" % number)
                await asyncio.sleep(rng.uniform(0.0, 1.0))

        sending = cluster.loop.create_task(send())
        for _ in range(15):
            await asyncio.sleep(rng.uniform(1.0, 15.0))
            kind = rng.choice(("pause", "storm", "broker", "name server", "reset", "partition"))
            member = rng.choice(MEMBERS)
            if kind == "pause":
                cluster.pause(member, rng.choice((5.0, 60.0)))
            elif kind == "storm":
                world.storm = rng.choice((0.0, 0.5))
            elif kind == "reset":
                cluster.reset(member)
            elif kind == "partition":
                cluster.partition(member, BROKER)
                await asyncio.sleep(rng.uniform(0.0, 90.0))
                cluster.heal()
            else:
                server = BROKER if kind == "broker" else NAMESRV
                cluster.kill(server)
                await asyncio.sleep(rng.uniform(0.0, 20.0))
                await cluster.restart(server)
        world.storm, quiet = 0.0, True
        await sending
        assert len(sent) > 50, "the run must have done something"
        await world.all_handled(sent, 2 * 3_600)
        await asyncio.sleep(120)
        found = cluster.host(BROKER).service.tables.consumers.find("g")
        living = sorted(client.session.client_id for client in world.clients.values())
        assert sorted(found.client_ids()) == living, "no zombie members"
        for ip in MEMBERS:
            session = world.clients[ip].session
            await cluster.run_on(ip, world.clients[ip].close())
            assert len(session.tasks) == 0, "no task is left behind"
        await asyncio.sleep(1)
        found = cluster.host(BROKER).service.tables.consumers.find("g")
        assert found is None or not found.client_ids()

    simulate(scenario, seed)
