"""Name servers as a set: they know each other not, die, come back empty, disagree, and agree again."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from roquette import StartFrom
from roquette.admin.cluster import cluster_info
from roquette.client.client import Client
from roquette.client.consumer import Consumer
from roquette.message.message import ReceivedMessage
from roquette.remoting.client import RemotingClient
from roquette.wire.header_codec import encode_dict
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NS1, NS2, BA, BB = "10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.1.2"


async def two_of_each(cluster: SimCluster) -> None:
    await cluster.add_namesrv(NS1)
    await cluster.add_namesrv(NS2)
    await cluster.add_broker(BA, "broker-a")
    await cluster.add_broker(BB, "broker-b")


async def create_topic(cluster: SimCluster, topic: str, *brokers: str, queues: int = 4) -> None:
    admin = RemotingClient(cluster.clock, local_host="10.0.9.9")
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues),
        "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    for ip in brokers:
        answer = await admin.invoke(f"{ip}:10911", 17, encode_dict(fields))
        assert answer.code == 0, answer.remark
    await admin.close()


def known(cluster: SimCluster, ip: str, topic: str) -> list[str]:
    """The brokers a name server tells for a topic."""
    route = cluster.hosts[ip].service.core.routes.find_route(topic)
    return [] if route is None else sorted(data.broker_name for data in route.queue_datas)


async def until(cluster: SimCluster, condition: Callable[[], bool], seconds: float) -> float:
    """Wait in virtual time; returns how long it took."""
    start = cluster.loop.time()
    while not condition():
        assert cluster.loop.time() - start < seconds, "not in time"
        await asyncio.sleep(0.1)
    return cluster.loop.time() - start


def test_who_asks_at_the_outside_port_is_told_outside_addresses() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NS1, outside_listen_port=9877)
        fast = f"{BA}:10909"  # another way to the same broker
        await cluster.add_broker(BA, "broker-a", outside_addr=fast)
        await cluster.add_broker(BB, "broker-b")
        await create_topic(cluster, "orders", BA, BB)
        await asyncio.sleep(1)

        async def seen(port: int) -> tuple[dict[str, str], dict[str, str]]:
            words = {"name_servers": f"{NS1}:{port}"}
            client = await cluster.client(f"10.0.3.{port % 250}", **words)
            route = await client.session.route("orders", fresh=True)
            info = await client.session.run(cluster_info())
            for queue in await client.queues("orders"):
                assert (await client.send("orders", b"x", queue=queue)).queue == queue
            await cluster.stop(f"10.0.3.{port % 250}")
            table = info.broker_addr_table.items()
            return {n: a[0] for n, a in route.addresses.items()}, {
                n: d.broker_addrs[0] for n, d in table
            }

        inside = {"broker-a": f"{BA}:10911", "broker-b": f"{BB}:10911"}
        outside = inside | {"broker-a": fast}
        assert await seen(9876) == (inside, inside)
        assert await seen(9877) == (outside, outside)
        assert await seen(9876) == (inside, inside)
        await cluster.stop(BA)
        assert (await seen(9877))[1] == {"broker-b": f"{BB}:10911"}

    simulate(scenario)


def test_every_name_server_learns_every_broker_without_talking_to_the_other() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await two_of_each(cluster)
        cluster.partition(NS1, NS2)
        await create_topic(cluster, "orders", BA, BB)
        for ip in (NS1, NS2):
            assert known(cluster, ip, "orders") == ["broker-a", "broker-b"], (
                "registered before the reply"
            )

    simulate(scenario)


def test_a_name_server_restarted_empty_is_filled_and_nobody_notices() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await two_of_each(cluster)
        await create_topic(cluster, "orders", BA, BB)
        mq = await cluster.client("10.0.2.1")
        await mq.send("orders", b"before")
        cluster.kill(NS1)
        await mq.send("orders", b"while")
        fresh = await cluster.client("10.0.2.2")
        await fresh.send("orders", b"a client that starts now finds the other one")

        await cluster.restart(NS1)
        both = ["broker-a", "broker-b"]
        assert await until(cluster, lambda: known(cluster, NS1, "orders") == both, 35) <= 35
        cluster.kill(NS2)
        late = await cluster.client("10.0.2.3")
        await late.send("orders", b"after")

    simulate(scenario)


def test_the_loss_of_all_name_servers_stops_no_traffic() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await two_of_each(cluster)
        await create_topic(cluster, "orders", BA, BB)
        mq = await cluster.client("10.0.2.1")
        got: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            got.append(message.body)

        await mq.subscribe("orders", group="g", handler=handle, start_from=StartFrom.FIRST)
        await mq.send("orders", b"0")
        cluster.kill(NS1)
        cluster.kill(NS2)
        for minute in range(1, 6):
            await asyncio.sleep(60)
            await mq.send("orders", b"%d" % minute)
        await asyncio.sleep(1)
        assert sorted(got) == [b"%d" % i for i in range(6)]

    simulate(scenario)


def test_a_broker_that_stops_leaves_at_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await two_of_each(cluster)
        await create_topic(cluster, "orders", BA, BB)
        await cluster.stop(BA)
        assert known(cluster, NS1, "orders") == known(cluster, NS2, "orders") == ["broker-b"]

    simulate(scenario)


def test_a_broker_that_is_killed_leaves_when_its_connection_breaks() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await two_of_each(cluster)
        await create_topic(cluster, "orders", BA, BB)
        cluster.kill(BA)
        for ip in (NS1, NS2):
            assert (
                await until(cluster, lambda ip=ip: known(cluster, ip, "orders") == ["broker-b"], 1)
                < 0.2
            )
        await cluster.restart(BA)
        assert known(cluster, NS1, "orders") == ["broker-a", "broker-b"]

    simulate(scenario)


def test_a_broker_that_is_cut_off_leaves_after_120_s_and_is_back_soon_after_the_cut() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await two_of_each(cluster)
        await create_topic(cluster, "orders", BA, BB)
        cluster.partition(BA, NS1)
        took = await until(cluster, lambda: known(cluster, NS1, "orders") == ["broker-b"], 130)
        assert 85 < took < 126, "the last heartbeat was up to 30 s before the cut"
        assert known(cluster, NS2, "orders") == ["broker-a", "broker-b"]
        cluster.heal()
        both = ["broker-a", "broker-b"]
        assert await until(cluster, lambda: known(cluster, NS1, "orders") == both, 61) < 61

    simulate(scenario)


async def consumer(cluster: SimCluster, ip: str, namesrv: str) -> tuple[Client, Consumer]:
    mq = await cluster.client(ip, name_servers=f"{namesrv}:9876", instance_name="1")

    async def handle(message: ReceivedMessage) -> None: ...

    return mq, await mq.subscribe("orders", group="g", handler=handle)


def owned(member: Consumer) -> list[str]:
    return sorted(f"{q.broker_name[-1]}{q.queue_id}" for q in member.queues if q.topic == "orders")


def test_document_bs_example_of_name_servers_that_disagree(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """8 queues on 2 brokers, two consumers; one of them asks a name server that knows only broker-a.

    Each works out its half of what it sees: a2 and a3 go to both, b2 and b3 to nobody.
    """

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NS1)
        await cluster.add_namesrv(NS2)
        await cluster.add_broker(BA, "broker-a")
        cluster.partition(BB, NS2)
        await cluster.add_broker(BB, "broker-b")
        await create_topic(cluster, "orders", BA, BB)
        assert known(cluster, NS1, "orders") == ["broker-a", "broker-b"]
        assert known(cluster, NS2, "orders") == ["broker-a"]
        watcher = await cluster.client("10.0.2.9")
        await watcher.send("orders", b"it has a route to compare")

        _, one = await consumer(cluster, "10.0.2.1", NS1)
        _, two = await consumer(cluster, "10.0.2.2", NS2)
        await asyncio.sleep(50)
        assert owned(one) == ["a0", "a1", "a2", "a3"]
        assert owned(two) == ["a2", "a3"]
        cluster.heal()
        await until(cluster, lambda: known(cluster, NS2, "orders") == ["broker-a", "broker-b"], 60)
        await asyncio.sleep(60)
        assert owned(one) == ["a0", "a1", "a2", "a3"]
        assert owned(two) == ["b0", "b1", "b2", "b3"]

    with caplog.at_level(logging.WARNING, "roquette"):
        simulate(scenario)
    for room in ("roquette.client", "roquette.broker"):
        warned = [
            r.getMessage()
            for r in caplog.records
            if r.name.startswith(room) and "name servers disagree" in r.getMessage()
        ]
        of_topic = [line for line in warned if "topic=orders" in line]
        assert of_topic, room
        assert all(f"{NS1}:9876" in line and f"{NS2}:9876" in line for line in of_topic), room
    spoke = [line for line in warned if "topic=orders" in line]
    assert "broker-a(r4w4)+broker-b(r4w4)" in spoke[0], "who tells what"
    assert len(spoke) <= 4, "rate-limited"


def test_name_servers_that_agree_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await two_of_each(cluster)
        mq = await cluster.client("10.0.2.1")
        for number in range(60):
            await mq.send(f"topic-{number}", b"x")
            await asyncio.sleep(5)
        cluster.kill(NS1)  # one that is down is no contradiction
        await asyncio.sleep(100)

    with caplog.at_level(logging.WARNING, "roquette"):
        simulate(scenario)
    assert not [r for r in caplog.records if "disagree" in r.getMessage()]


def test_no_name_server_at_all(caplog: Any) -> None:
    async def scenario(cluster: SimCluster) -> None:
        broker = await cluster.add_broker(BA, "broker-a", name_servers=f"{NS1}:9876")
        assert broker.address == f"{BA}:10911"
        await cluster.add_namesrv(NS1)
        await until(cluster, lambda: known(cluster, NS1, "TBW102") == ["broker-a"], 35)

    simulate(scenario)
