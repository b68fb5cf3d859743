"""Class H in the client: what applications name or servers tell is kept up to a bound, and asked for again."""

import asyncio

import pytest

from roquette import StartFrom
from roquette.client import producer, session
from roquette.client.core import route_cache
from roquette.client.core.route_cache import LatencyTable, TopicRoute, check_queues, keep
from roquette.errors import ClientError, RemoteProtocolError
from roquette.remoting.client import RemotingClient
from roquette.wire.bodies import (
    BrokerData,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
    encode_register_broker_body,
)
from roquette.wire.header_codec import encode_dict
from roquette_testing.cluster import SimCluster, simulate


def test_the_oldest_goes_unless_it_is_in_use() -> None:
    table: dict[int, str] = {}
    for number in range(30):
        keep(table, number, "x", 10, {0, 3})
        assert len(table) <= 10
    assert {0, 3, 29} < table.keys()
    keep(table, 29, "y", 10)
    assert len(table) == 10
    assert table[29] == "y"
    crowded = dict.fromkeys(range(10), "")
    keep(crowded, 10, "", 10, range(10))
    assert len(crowded) == 11, "what is in use stays, whatever the bound"


def test_brokers_that_are_avoided_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr("roquette.client.core.route_cache.BROKERS", 10)
    table = LatencyTable()
    for number in range(100):
        table.record(f"b{number}", 0, 0, failed=True)
    assert len(table._until) == 10
    assert table.available(["b99", "x"], 1) == ["x"]


@pytest.mark.promise("Bounds", "a full table refuses new names in words and serves what it has")
def test_a_client_that_sends_to_many_topics_keeps_few_routes(monkeypatch) -> None:
    for module in (session, producer):
        monkeypatch.setattr(module, "TOPICS", 10)

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1")
        await cluster.add_broker("10.0.1.1", "a")
        client = await cluster.client("10.0.2.1")
        got = []

        async def handle(message) -> None:
            got.append(message.body)

        await client.send("mine", b"0")
        consumer = await client.subscribe(
            "mine", group="g", handler=handle, start_from=StartFrom.FIRST
        )
        for number in range(40):
            await client.send(f"t{number}", b"x")
            assert len(client._session._routes) <= 11
        for number in (0, 39, 20):
            await client.send(f"t{number}", b"y")
        await client.send("mine", b"1")
        await asyncio.sleep(40)
        assert "mine" in client._session._routes
        assert got == [b"0", b"1"]
        await consumer.close()
        broker = cluster.hosts["10.0.1.1"].service
        assert sum(t.put_count for t in broker.tables.topics.all() if t.name.startswith("t")) == 43

    simulate(scenario)


def _data(count: int, order: str | None = None) -> TopicRouteData:
    return TopicRouteData(
        order_topic_conf=order,
        queue_datas=[QueueData(broker_name="a", read_queue_nums=count, write_queue_nums=1, perm=6)],
        broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={0: "h:1"})],
    )


@pytest.mark.parametrize(
    "data",
    [
        _data(2**31 - 1),
        _data(route_cache.QUEUES + 1),
        _data(1, "a:1000001"),
        _data(1, "a:" + "9" * 6_000),
        _data(1, "a:600000;b:600000"),
    ],
)
def test_a_route_that_no_broker_can_mean_is_refused_in_words(data: TopicRouteData) -> None:
    with pytest.raises(
        RemoteProtocolError, match=r"topic t names [0-9]+ queues, more than 1000000"
    ):
        TopicRoute("t", data)


def test_what_is_no_number_counts_nothing() -> None:
    assert TopicRoute("t", _data(1, "a:²;b:x;c:-1;:3;d:2")).publish[0].broker_name == "d"
    assert TopicRoute("t", _data(-5)).subscribe == []
    check_queues("t", [route_cache.QUEUES, -7])


def test_a_strangers_registration_costs_the_client_nothing() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1")
        await cluster.add_broker("10.0.1.1", "a")
        client = await cluster.client("10.0.2.1")
        await client.send("T", b"x")
        stranger = RemotingClient(cluster.clock, local_host="10.0.9.9")
        config = TopicConfig(topic_name="T", read_queue_nums=2**31 - 1, write_queue_nums=1)
        wrapper = TopicConfigAndMappingSerializeWrapper(
            topic_config_table={"T": config}, data_version=DataVersion(counter=1)
        )
        body = encode_register_broker_body(
            RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        )
        ext = {
            "brokerName": "z", "brokerAddr": "10.0.9.9:1", "clusterName": "c", "brokerId": "0",
            "haServerAddr": "", "enableActingMaster": "false",
        }  # fmt: skip
        for name in ("T", "U"):  # one topic alone is refused from an unknown broker
            wrapper.topic_config_table[name] = config
        body = encode_register_broker_body(
            RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        )
        reply = await stranger.invoke("10.0.0.1:9876", 103, encode_dict(ext), body)
        assert reply.code == 0
        other = await cluster.client("10.0.2.2")
        with pytest.raises(ClientError, match=r"names 2147483[0-9]+ queues, more than"):
            await other.send("T", b"x")
        await asyncio.sleep(60)
        await client.send("T", b"y")  # a route that was good stays
        await stranger.close()

    simulate(scenario)
