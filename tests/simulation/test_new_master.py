"""A group gets another master: how soon our clients send to it, read from it, and whom they ask meanwhile.

Two brokers of one name with stores of their own (nothing is copied here): what counts is who is asked, and when.
Java's client keeps its route for pollNameServerInterval, 30 s if nobody changed it.
"""

import asyncio
import contextlib
from typing import Any

import pytest
from tests.simulation.test_name_servers import create_topic

from roquette import StartFrom
from roquette.broker.cluster.feature import ClusterFeature
from roquette.broker.service import Broker
from roquette.client import calls
from roquette.client.client import Client
from roquette.errors import ClientError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.remoting.client import RemotingClient
from roquette.wire.headers import SendMessageRequestHeaderV2
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NS, NS2, A, B, OTHER, CLIENT = (
    "10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.2.1",
)  # fmt: skip
ELECTED_S = 3.0


def become(broker: Broker, broker_id: int, epoch: int) -> None:
    broker.core.identity.broker_id, broker.core.identity.epoch = broker_id, epoch
    broker.feature(ClusterFeature).registration.identity_changed()


async def group(cluster: SimCluster, *, queues: int = 4) -> tuple[Broker, Broker]:
    a = await cluster.add_broker(A, "broker-a")
    become(a, 0, 5)
    b = await cluster.add_broker(B, "broker-a", broker_id=2)
    become(b, 2, 5)
    await create_topic(cluster, "T", A, B, queues=queues)
    await asyncio.sleep(0.5)
    return a, b


async def copy(cluster: SimCluster, body: bytes) -> None:
    """What replication would do with the first message."""
    header = SendMessageRequestHeaderV2(
        producer_group="p", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
        sys_flag=0, born_timestamp=0, flag=0, properties="", batch=False, bname="broker-a",
    )  # fmt: skip
    call = calls.send(header, body)
    remoting = RemotingClient(cluster.clock, local_host="10.0.9.8")
    assert (await remoting.invoke(f"{B}:10911", call.code, call.ext, call.body)).code == 0
    await remoting.close()


async def elect(cluster: SimCluster, broker: Broker) -> float:
    """The second broker is master, all name servers that can be reached know it; returns when."""
    await asyncio.sleep(ELECTED_S)
    become(broker, 0, 6)
    await broker.feature(ClusterFeature).registration.settled()
    return cluster.loop.time()


def lose(cluster: SimCluster, how: str) -> None:
    if how == "killed":
        cluster.kill(A)
    else:
        cluster.isolate(A)  # SIGSTOP, a cut cable: every connection stays open and says nothing


class Sends:
    """One message after the other; when each was acknowledged, and what failed."""

    def __init__(self, cluster: SimCluster, mq: Client, **more: Any) -> None:
        self.loop, self.mq, self.more = cluster.loop, mq, more
        self.acknowledged: list[tuple[float, str]] = []
        self.failed: list[str] = []

    async def run(self) -> None:
        number = 0
        while True:
            number += 1
            try:
                receipt = await self.mq.send("T", str(number), **self.more)
                self.acknowledged.append((self.loop.time(), receipt.queue.broker_name))
            except ClientError as error:
                self.failed.append(str(error))
            await asyncio.sleep(0.01)

    def first_after(self, at: float) -> float:
        return next(when for when, _ in self.acknowledged if when >= at) - at


@pytest.mark.promise(
    "Groups of brokers", "our client waits for the new master; Apache's at its next look at routes"
)
@pytest.mark.parametrize("how", ["killed", "silent"])
@pytest.mark.parametrize("more", [{}, {"shard_key": "k"}], ids=["any queue", "a key's queue"])
def test_a_send_goes_on_at_the_new_master_at_once(how: str, more: dict[str, Any]) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NS)
        _, b = await group(cluster)
        mq = await cluster.client(CLIENT, send_timeout=10)
        sends = Sends(cluster, mq, **more)
        task = asyncio.ensure_future(cluster.run_on(CLIENT, sends.run()))
        await asyncio.sleep(1)
        lose(cluster, how)
        at = await elect(cluster, b)
        await asyncio.sleep(1)
        task.cancel()
        assert sends.failed == []
        assert sends.first_after(at) <= 0.2

    simulate(scenario, 1)


@pytest.mark.parametrize("pipelined", [False, True])
def test_it_goes_on_when_a_name_server_is_silent_and_another_knows(pipelined: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NS)
        await cluster.add_namesrv(NS2)
        _, b = await group(cluster)
        for seed_try in range(2):  # whichever of the two this client asks first
            ip = f"10.0.2.{seed_try + 1}"
            mq = await cluster.client(ip, send_timeout=10)
            await mq.send("T", b"0")
            mq.session._current = seed_try
        cluster.isolate(NS)
        cluster.kill(A)
        if pipelined:
            futures = [await mq.send_nowait("T", str(n), shard_key="k") for n in range(200)]
        else:
            futures = [asyncio.ensure_future(mq.send("T", b"1"))]
        await asyncio.sleep(ELECTED_S)
        become(b, 0, 6)
        at = cluster.loop.time()
        await asyncio.gather(*futures)
        assert cluster.loop.time() - at <= 0.5

    simulate(scenario, 1)


def test_other_brokers_take_what_may_go_there() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NS)
        await group(cluster)
        await cluster.add_broker(OTHER, "broker-b")
        await create_topic(cluster, "T", OTHER)
        mq = await cluster.client(CLIENT)
        await mq.send("T", b"0")
        cluster.kill(A)
        began = cluster.loop.time()
        for number in range(20):
            assert (await mq.send("T", str(number))).queue.broker_name == "broker-b"
        assert cluster.loop.time() - began < 0.5

    simulate(scenario, 1)


def test_without_a_new_master_a_send_ends_with_its_own_time() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NS)
        await group(cluster)
        mq = await cluster.client(CLIENT)
        await mq.send("T", b"0")
        server = cluster.hosts[NS].service
        find, asked = server.core.routes.find_route, []

        def counted(topic: str, **more: Any) -> Any:
            asked.append(topic)
            server.core.routes.revision += 1  # not from the kept answers
            return find(topic, **more)

        server.core.routes.find_route = counted
        cluster.kill(A)
        began = cluster.loop.time()
        results = await asyncio.gather(
            *(mq.send("T", str(n)) for n in range(50)), return_exceptions=True
        )
        assert all(isinstance(result, ClientError) for result in results)
        assert 2.5 <= cluster.loop.time() - began <= 3.5
        assert len(asked) <= 40, "some questions in each 150 ms, whoever waits"

    simulate(scenario, 1)


@pytest.mark.parametrize("how", ["killed", "silent"])
@pytest.mark.parametrize("orderly", [False, True])
def test_consumers_go_on_at_the_new_master_at_once(how: str, orderly: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NS)
        _, b = await group(cluster, queues=1)
        got: list[tuple[float, str]] = []
        mq = await cluster.client(CLIENT, send_timeout=10)
        reader = await cluster.client("10.0.2.2")

        async def handle(message: ReceivedMessage) -> None:
            got.append((cluster.loop.time(), message.body.decode()))

        async def join() -> None:
            await reader.subscribe(
                "T", group="g", handler=handle, start_from=StartFrom.FIRST, orderly=orderly
            )

        await cluster.run_on("10.0.2.2", join())
        await mq.send("T", b"before")
        await copy(cluster, b"before")
        await asyncio.sleep(2)
        assert [body for _, body in got] == ["before"]
        lose(cluster, how)
        await elect(cluster, b)
        await mq.send("T", b"after")
        at = cluster.loop.time()
        await asyncio.sleep(2)
        assert [body for _, body in got] == ["before", "after"]
        assert got[-1][0] - at <= 0.5

    simulate(scenario, 1)


def test_readers_go_on_at_a_replica_while_nobody_is_master() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NS)
        _, b = await group(cluster, queues=1)
        mq = await cluster.client(CLIENT)
        reader = await (await cluster.client("10.0.2.2")).reader(group="g")
        queue = MessageQueue("T", "broker-a", 0)
        await mq.send("T", b"1")
        await copy(cluster, b"1")
        await cluster.run_on("10.0.2.2", reader.assign([queue]))
        assert [m.body for m in await reader.poll()] == [b"1"]
        lose(cluster, "killed")
        with contextlib.suppress(TimeoutError):
            await elect(cluster, b)
        await mq.send("T", b"2")
        assert [m.body for m in await reader.poll(timeout=2)] == [b"2"]

    simulate(scenario, 1)
