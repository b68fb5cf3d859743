"""A topic made by its first message is on every writable master at once, whoever is slow, dead or draining."""

import asyncio
import logging
from typing import Any

import pytest

from roquette.message.properties import encode_properties
from roquette.remoting.client import RemotingClient
from roquette.wire.header_codec import encode_dict
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NAME_SERVERS = ("10.0.0.1", "10.0.0.2")
BROKERS = ("10.0.1.1", "10.0.1.2", "10.0.1.3")


async def build(cluster: SimCluster, **settings: Any) -> None:
    for ip in NAME_SERVERS:
        await cluster.add_namesrv(ip)
    for ip in BROKERS:
        await cluster.add_broker(ip, **settings)


async def first_send(client: RemotingClient, ip: str, topic: str, queues: int = 4) -> int:
    """A send as a producer makes it that knows only TBW102's route; the answer's code."""
    fields = {
        "a": "pg", "b": topic, "c": "TBW102", "d": str(queues), "e": "0", "f": "0", "g": "1", "h": "0",
        "i": encode_properties({"UNIQ_KEY": "1", "WAIT": "true"}), "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    reply = await client.invoke(f"{ip}:10911", 310, encode_dict(fields), b"x")
    return reply.code


def counts(cluster: SimCluster, topic: str) -> list[tuple[int, int] | None]:
    """Read and write queues of the topic on each running broker."""
    found = (cluster.hosts[ip].service.tables.topics.find(topic) for ip in BROKERS)
    return [None if t is None else (t.read_queues, t.write_queues) for t in found]


def known(cluster: SimCluster, topic: str) -> list[int]:
    """On how many brokers each name server knows the topic with as many queues as the first broker has."""
    wanted = cluster.hosts[BROKERS[0]].service.tables.topics.find(topic)
    assert wanted is not None
    return [
        sum(
            (q.read_queue_nums, q.write_queue_nums) == (wanted.read_queues, wanted.write_queues)
            for q in cluster.hosts[ip].service.core.routes.find_route(topic).queue_datas
        )
        for ip in NAME_SERVERS
    ]


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_hundred_producers_and_one_new_topic(seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await build(cluster)
        rng = cluster.loop.random
        clients = [RemotingClient(cluster.clock, local_host=f"10.0.2.{i}") for i in range(1, 101)]
        first = cluster.hosts[BROKERS[0]].service.tables.topics.data_version.counter
        for number in range(3):
            topic = f"T{number}"
            sends = [
                first_send(client, rng.choice(BROKERS), topic, rng.choice((2, 4, 8)))
                for client in clients
            ]

            assert set(await asyncio.gather(*sends)) == {0}
            assert counts(cluster, topic) == [counts(cluster, topic)[0]] * 3
            assert known(cluster, topic) == [3, 3]
        steps = cluster.hosts[BROKERS[0]].service.tables.topics.data_version.counter - first
        assert steps <= 3 * 4, "each topic changes a few times at most: no storm"
        for client in clients:
            await client.close()

    simulate(scenario, seed)


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_cut_off_broker_costs_half_a_second_once_and_gets_the_topic_when_back(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await build(cluster)
        client = RemotingClient(cluster.clock, local_host="10.0.2.1")
        assert await first_send(client, BROKERS[0], "before") == 0
        cluster.isolate(BROKERS[2])
        start = cluster.loop.time()
        assert await first_send(client, BROKERS[0], "orders") == 0
        assert 0.45 < cluster.loop.time() - start < 0.7
        assert counts(cluster, "orders") == [(4, 4), (4, 4), None]
        start = cluster.loop.time()
        assert await first_send(client, BROKERS[0], "more") == 0
        assert cluster.loop.time() - start < 0.2, "nobody waits for it again"
        assert counts(cluster, "more")[:2] == [(4, 4), (4, 4)]
        cluster.heal()
        await asyncio.sleep(3)
        assert counts(cluster, "orders") == counts(cluster, "more") == [(4, 4)] * 3
        await client.close()

    with caplog.at_level(logging.WARNING, "roquette.broker.cluster.auto_creation"):
        simulate(scenario, seed)
    assert any(
        "topic=orders is late at broker-10.0.1.3" in r.getMessage() for r in caplog.records
    ), "who missed is logged"


@pytest.mark.parametrize("victim", ["broker", "namesrv"])
def test_a_dead_peer_delays_nobody(victim: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await build(cluster)
        client = RemotingClient(cluster.clock, local_host="10.0.2.1")
        cluster.kill(BROKERS[2] if victim == "broker" else NAME_SERVERS[0])
        await asyncio.sleep(1)
        start = cluster.loop.time()
        assert await first_send(client, BROKERS[0], "orders") == 0
        assert cluster.loop.time() - start < 0.3
        up = BROKERS[:2] if victim == "broker" else BROKERS
        for ip in up:
            assert cluster.hosts[ip].service.tables.topics.find("orders").write_queues == 4
        await client.close()

    simulate(scenario)


def test_only_writable_masters_that_create_topics_are_asked() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await build(cluster)
        await cluster.add_broker("10.0.1.4", auto_create_topic_enable=False)
        await cluster.add_broker("10.0.1.5", broker_cluster_name="Other")
        client = RemotingClient(cluster.clock, local_host="10.0.2.1")
        cluster.hosts[BROKERS[1]].service.live.update({"brokerPermission": "4"})
        await asyncio.sleep(1)
        assert await first_send(client, BROKERS[0], "orders") == 0
        assert await first_send(client, BROKERS[0], "%RETRY%group") == 0
        await asyncio.sleep(5)
        assert counts(cluster, "orders") == [(4, 4), None, (4, 4)]
        assert counts(cluster, "%RETRY%group")[1:] == [None, None]
        for other in ("10.0.1.4", "10.0.1.5"):
            assert cluster.hosts[other].service.tables.topics.find("orders") is None
        await client.close()

    simulate(scenario)


def test_what_an_operator_made_stays_as_it_is() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await build(cluster)
        client = RemotingClient(cluster.clock, local_host="10.0.2.1")
        fields = {
            "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        assert (await client.invoke(f"{BROKERS[1]}:10911", 17, encode_dict(fields))).code == 0
        assert await first_send(client, BROKERS[0], "orders") == 0
        assert counts(cluster, "orders") == [(4, 4), (1, 1), (4, 4)]
        await client.close()

    simulate(scenario)


def test_the_setting_switches_it_off() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await build(cluster, auto_create_topic_on_all_brokers=False)
        client = RemotingClient(cluster.clock, local_host="10.0.2.1")
        assert await first_send(client, BROKERS[0], "orders") == 0
        await asyncio.sleep(5)
        assert counts(cluster, "orders") == [(4, 4), None, None]
        await client.close()

    simulate(scenario)
