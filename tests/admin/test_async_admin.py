"""`roquette.Admin`: what operators do, awaited by applications."""

import asyncio
import subprocess
import sys
from datetime import datetime

import pytest
from tests.client.test_push_consumer import NAMESRV, A, B, Inbox, until

import roquette
from roquette import Admin, StartFrom
from roquette.errors import ClientError, ConfigError, RouteNotFound
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.embedded import EmbeddedBroker


async def two_brokers(cluster: SimCluster) -> None:
    await cluster.add_namesrv(NAMESRV)
    for ip, name in ((A, "broker-a"), (B, "broker-b")):
        await cluster.add_broker(ip, name, auto_create_topic_enable=False)


@pytest.mark.parametrize("namespace", ["", "red"])
def test_an_application_makes_topics_and_moves_its_group(namespace: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await two_brokers(cluster)
        mq = await cluster.client("10.0.2.1", namespace=namespace)
        other = Admin(await cluster.client("10.0.2.2", namespace="other"))
        admin = Admin(mq)
        await other.create_topic("theirs")

        assert await admin.create_topic("orders", queues=2) == ["broker-a", "broker-b"]
        for number in range(12):  # usable at once
            await mq.send("orders", b"%d" % number)
        shown = await admin.describe_topic("orders")
        assert shown.topic == "orders" and shown.messages == 12
        assert len(shown.queues) == 4
        expected = ["orders"] if namespace else ["orders", "other%theirs"]
        assert await admin.list_topics() == expected

        inbox = Inbox()
        consumer = await mq.subscribe(
            "orders", group="g", handler=inbox, start_from=StartFrom.FIRST
        )
        await until(lambda: len(inbox.messages) == 12)
        (member,) = await admin.members("g")
        assert member.queues == 4 + 2  # two of its retries
        await consumer.close()
        (group,) = await admin.list_groups()
        assert (group.group, group.lag) == ("g", 0)
        rows = await admin.lag("g", "orders")
        assert {row.topic for row in rows} == {"orders"}
        assert sum(row.consumer_offset for row in rows) == 12

        planned = await admin.seek("g", "orders", StartFrom.FIRST, dry_run=True)
        assert sum(row.delta for row in planned) == -12
        assert sum(row.lag for row in await admin.lag("g", "orders")) == 0
        done = await admin.seek("g", "orders", "-1")
        assert {row.topic for row in done} == {"orders"}
        assert sum(row.lag for row in await admin.lag("g", "orders")) == 4
        assert await admin.delete_group("g") == ["broker-a", "broker-b"]
        assert await admin.list_groups() == []
        assert await admin.delete_topic("orders") == ["broker-a", "broker-b"]
        with pytest.raises(RouteNotFound):
            await admin.describe_topic("orders")

    simulate(scenario)


def test_what_was_not_done_everywhere_is_an_error() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await two_brokers(cluster)
        admin = Admin(await cluster.client("10.0.2.1"))
        await admin.create_topic("orders")
        cluster.isolate(B)
        with pytest.raises(ClientError, match="not done on broker-b"):
            await admin.create_topic("bills")
        with pytest.raises(ClientError, match="not done on broker-b"):
            await admin.delete_topic("orders")

    simulate(scenario)


def test_what_is_not_there_is_said() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await two_brokers(cluster)
        mq = await cluster.client("10.0.2.1")
        admin = Admin(mq)
        await admin.create_topic("orders")
        for call in (
            admin.delete_topic("absent"),
            admin.describe_topic("absent"),
            admin.seek("g", "absent", "first"),
        ):
            with pytest.raises(RouteNotFound, match="absent"):
                await call
        for refused in (
            admin.create_topic("a b"),
            admin.create_topic("bills", broker="absent"),
            admin.lag("absent"),
            admin.members("absent"),
            admin.delete_group("absent"),
            admin.seek("g", "orders", "first", queue=99),
            admin.seek("g", "orders", "yesterday"),
            admin.seek("g", "orders", datetime(2026, 9, 1)),
        ):
            with pytest.raises(ConfigError):
                await refused
        await mq.close()
        with pytest.raises(roquette.ClientClosed):
            await admin.list_topics()

    simulate(scenario)


def test_the_blocking_twin_does_the_same() -> None:
    with EmbeddedBroker() as broker, broker.sync_client() as mq:
        admin = roquette.sync.Admin(mq)
        assert len(admin.create_topic("orders", queues=1)) == 1
        mq.send("orders", b"1")
        assert admin.describe_topic("orders").messages == 1
        with pytest.raises(RouteNotFound):
            admin.describe_topic("absent")
        mq.close()
        with pytest.raises(roquette.ClientClosed):
            admin.list_topics()
        with mq:
            assert "orders" in admin.list_topics()


def test_a_client_loads_nothing_of_it() -> None:
    code = (
        "import sys, roquette, roquette.sync; roquette.Client('127.0.0.1:1'), roquette.sync.Client('127.0.0.1:1')\n"
        "assert not [name for name in sys.modules if name.startswith('roquette.admin')]\n"
        "roquette.Admin, roquette.sync.Admin"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_a_topic_is_told_to_the_name_servers_when_it_is_made() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await two_brokers(cluster)
        mq = await cluster.client("10.0.2.1")
        cluster.partition(A, NAMESRV)
        making = asyncio.create_task(Admin(mq).create_topic("orders"))
        await asyncio.sleep(5)
        assert not making.done()
        cluster.heal()
        assert await making == ["broker-a", "broker-b"]

    simulate(scenario)
