"""A replica stands in for a dead master: reads, commits, and with enableRemoteEscape what is due in the delay levels."""

import asyncio
from collections import Counter

import pytest
from tests.simulation.test_name_servers import create_topic, until

from roquette import StartFrom
from roquette.apps.features import replica_features
from roquette.broker.replication.acting import ActingMaster
from roquette.broker.service import Broker
from roquette.message.message import ReceivedMessage
from roquette.testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NAME_SERVER, MASTER, REPLICA, OTHER = "10.0.0.1", "10.0.1.1", "10.0.1.2", "10.0.1.3"
STORE: dict[str, object] = {}
ACTING = {
    "enable_slave_acting_master": True,
    "enable_remote_escape": True,
    "broker_not_active_timeout_millis": 5_000,
}
DELAYED, PLAIN = 700, 30
TEN_S = 3  # level


async def begin(cluster: SimCluster, **settings: object) -> Broker:
    """Name server, master and replica; returns the replica."""
    await cluster.add_namesrv(NAME_SERVER, support_acting_master=True)
    await cluster.add_broker(MASTER, "broker-a", store=STORE, **ACTING | settings)
    replica = await cluster.add_broker(
        REPLICA, "broker-a", store=STORE, features=replica_features,
        broker_id=1, broker_role="SLAVE", **ACTING | settings,
    )  # fmt: skip
    await create_topic(cluster, "orders", MASTER)
    return replica


@pytest.mark.parametrize("seed", range(4))
def test_delayed_messages_come_once_while_and_after_a_master_is_dead(seed: int) -> None:
    seen: Counter[bytes] = Counter()

    async def handle(message: ReceivedMessage) -> bool:
        seen[message.body] += 1
        return True

    async def scenario(cluster: SimCluster) -> None:
        replica = await begin(cluster)
        producer = await cluster.client("10.0.2.1")
        for number in range(DELAYED):
            await producer.send("orders", b"d%d" % number, delay_level=TEN_S)
        for number in range(PLAIN):
            await producer.send("orders", b"p%d" % number)
        await cluster.add_broker(OTHER, "broker-b")
        await create_topic(cluster, "orders", OTHER)
        await asyncio.sleep(5)
        cluster.kill(MASTER, power_loss=bool(seed % 2))
        consumer = await cluster.client("10.0.3.1")
        join = consumer.subscribe("orders", group="g", handler=handle, start_from=StartFrom.FIRST)
        await cluster.run_on("10.0.3.1", join)
        await until(cluster, lambda: len(seen) == DELAYED + PLAIN, 60)
        assert replica.feature(ActingMaster).delivered == DELAYED
        await asyncio.sleep(15)  # offsets are committed at the replica
        await cluster.restart(MASTER)
        await asyncio.sleep(90)
        assert {body: count for body, count in seen.items() if count > 1} == {}
        await producer.send("orders", b"late", delay_level=TEN_S)
        await until(cluster, lambda: seen[b"late"] == 1, 40)

    simulate(scenario, seed)


def test_what_no_master_takes_waits_for_its_own() -> None:
    async def scenario(cluster: SimCluster) -> None:
        replica = await begin(cluster)
        producer = await cluster.client("10.0.2.1")
        for number in range(10):
            await producer.send("orders", b"%d" % number, delay_level=1)
        await asyncio.sleep(0.2)
        cluster.kill(MASTER)
        await asyncio.sleep(60)
        assert replica.feature(ActingMaster).delivered == 0
        master = await cluster.restart(MASTER)
        await asyncio.sleep(20)
        assert sum(master.store.max_offset("orders", queue) for queue in range(4)) == 10

    simulate(scenario)


def test_a_restart_and_a_replica_with_a_smaller_id_keep_it_silent() -> None:
    async def scenario(cluster: SimCluster) -> None:
        first = await begin(cluster)
        second = await cluster.add_broker(
            "10.0.1.4", "broker-a", store=STORE, features=replica_features,
            broker_id=2, broker_role="SLAVE", **ACTING,
        )  # fmt: skip
        await cluster.add_broker(OTHER, "broker-b")
        await create_topic(cluster, "orders", OTHER)
        producer = await cluster.client("10.0.2.1")
        queues = [
            queue for queue in await producer.queues("orders") if queue.broker_name == "broker-a"
        ]
        for number in range(10):
            await producer.send("orders", b"%d" % number, delay_level=TEN_S, queue=queues[0])
        await asyncio.sleep(1)
        cluster.kill(MASTER)
        await asyncio.sleep(1)
        await cluster.restart(MASTER)
        await asyncio.sleep(20)
        for number in range(10):
            await producer.send("orders", b"%d" % number, delay_level=TEN_S, queue=queues[0])
        assert first.feature(ActingMaster).delivered == 0
        cluster.kill(MASTER)
        await asyncio.sleep(30)
        assert first.feature(ActingMaster).delivered == 10
        assert second.feature(ActingMaster).delivered == 0

    simulate(scenario)
