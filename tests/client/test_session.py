"""Name servers that fail, routes that change, name servers that disagree: in virtual time."""

import asyncio
import logging

import pytest

from roquette import Client, StartFrom
from roquette.client import calls
from roquette.client.config import parse_name_servers
from roquette.errors import ClientClosed, ConfigError, ConnectError, RequestTimeout, RouteNotFound
from roquette_testing.cluster import SimCluster, simulate

NAME_SERVERS = ("10.0.0.1", "10.0.0.2")
BROKER = "10.0.1.1"
CLIENT = "10.0.2.1"


async def small(cluster: SimCluster) -> None:
    for ip in NAME_SERVERS:
        await cluster.add_namesrv(ip)
    await cluster.add_broker(BROKER, "broker-a")


@pytest.mark.parametrize(
    "text", ["a:1;b:2", "a:1,b:2", " a:1 ; b:2;", "rocketmq://a:1;rocketmq://b:2/"]
)
def test_name_server_addresses_in_every_spelling(text: str) -> None:
    assert parse_name_servers(text) == ["a:1", "b:2"]


@pytest.mark.parametrize("text", ["a:0", "", ";", "a", "a:b", ":9876"])
def test_wrong_name_server_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_name_servers(text)


@pytest.mark.parametrize("victim", NAME_SERVERS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_name_server_is_enough_for_any_number_of_callers(victim: str, seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        cluster.kill(victim)
        mq = await cluster.client(CLIENT, name_servers="10.0.0.1:9876;10.0.0.2:9876")
        receipts = await asyncio.gather(*(mq.send(f"topic{n}", b"x") for n in range(20)))
        assert len(receipts) == 20

    simulate(scenario, seed)


def test_no_name_server_at_all_is_said_by_name() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await cluster.client(CLIENT, name_servers="10.0.0.1:9876;10.0.0.2:9876")
        with pytest.raises(ConnectError, match=r"10\.0\.0\.1:9876;10\.0\.0\.2:9876"):
            await mq.send("orders", b"x")

    simulate(scenario)


def test_concurrent_questions_for_one_topic_are_one_request() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client(CLIENT)
        await mq.send("orders", b"x")
        first = await asyncio.gather(*(mq.session.route("orders", fresh=True) for _ in range(50)))
        assert len({id(route) for route in first}) == 1

    simulate(scenario)


def test_a_caller_that_gives_up_does_not_spoil_it_for_the_others() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client(CLIENT)
        await mq.send("orders", b"x")
        impatient = asyncio.ensure_future(mq.session.route("orders", fresh=True))
        patient = asyncio.ensure_future(mq.session.route("orders", fresh=True))
        await asyncio.sleep(0)
        impatient.cancel()
        assert (await patient).publish

    simulate(scenario)


def test_a_broker_that_joins_a_topic_is_used_without_a_restart() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client(CLIENT)
        await mq.send("orders", b"x")
        await mq.send("orders", b"x")
        await cluster.add_broker("10.0.1.2", "broker-b")
        await mq.session.api.call("10.0.1.2:10911", calls.create_topic("orders", queues=4))
        await asyncio.sleep(35)
        names = {(await mq.send("orders", b"x")).queue.broker_name for _ in range(8)}
        assert names == {"broker-a", "broker-b"}

    simulate(scenario)


def test_a_deleted_topic_is_said_to_be_unknown() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client(CLIENT)
        await mq.send("orders", b"x")
        for ip in NAME_SERVERS:
            cluster.hosts[ip].service.core.routes.delete_topic("orders")
        await mq.session.refresh_routes()
        with pytest.raises(RouteNotFound):
            await mq.queues("orders")

    simulate(scenario)


def test_a_name_server_that_restarts_empty_does_not_stop_senders() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1")
        await cluster.add_broker(BROKER, "broker-a")
        mq = await cluster.client(CLIENT)
        await mq.send("orders", b"x")
        cluster.kill("10.0.0.1")
        cluster.partition("10.0.0.1", BROKER)  # brokers of Apache register again after up to 30 s
        await cluster.restart("10.0.0.1")
        await asyncio.sleep(35)
        await mq.send("orders", b"x")

    simulate(scenario)


def test_name_servers_that_disagree_are_named_in_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client(CLIENT)
        await mq.send("orders", b"x")
        await asyncio.sleep(40)
        assert "disagree" not in caplog.text
        cluster.hosts["10.0.0.2"].service.core.routes.delete_topic("orders")
        await mq.session.compare_name_servers()

    caplog.set_level(logging.WARNING, "roquette.client")
    simulate(scenario)
    (line,) = [r.getMessage() for r in caplog.records if "disagree" in r.getMessage()]
    assert "topic=orders" in line
    assert "10.0.0.1:9876" in line
    assert "10.0.0.2:9876" in line


def test_a_name_server_that_is_down_is_no_contradiction(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client(CLIENT)
        await mq.send("orders", b"x")
        cluster.kill("10.0.0.2")
        await mq.session.compare_name_servers()

    caplog.set_level(logging.WARNING, "roquette.client")
    simulate(scenario)
    assert "disagree" not in caplog.text


def test_producers_are_known_to_brokers_and_leave_when_closed() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client(CLIENT, group="makers")
        await mq.send("orders", b"x")
        await asyncio.sleep(1)
        broker = cluster.hosts[BROKER].service
        assert broker.tables.producers.channels("makers")
        await cluster.stop(CLIENT)
        await asyncio.sleep(1)
        assert not broker.tables.producers.channels("makers")

    simulate(scenario)


def test_a_closed_client_says_so() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client(CLIENT)
        await mq.close()
        await mq.close()
        with pytest.raises(ClientClosed):
            await mq.send("orders", b"x")

    simulate(scenario)


def test_closing_ends_what_is_under_way() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client(CLIENT)
        await mq.send("orders", b"x")
        cluster.isolate(BROKER)
        pending = [await mq.send_nowait("orders", b"y") for _ in range(10)]
        waiting = asyncio.ensure_future(mq.send("orders", b"z"))
        await asyncio.sleep(0.1)
        started = cluster.loop.time()
        await mq.close()
        results = await asyncio.gather(*pending, waiting, return_exceptions=True)
        assert {type(result) for result in results} <= {ClientClosed, ConnectError, RequestTimeout}
        assert cluster.loop.time() - started < 10

    simulate(scenario)


def test_a_connection_to_a_broker_in_no_route_is_closed() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client(CLIENT)
        await mq.send("orders", b"x")
        await cluster.add_broker("10.0.1.9", "broker-z")
        stranger, known = "10.0.1.9:10911", f"{BROKER}:10911"
        await mq.session.remoting.connect(stranger)
        del mq.session._routes["TBW102"]  # the one route that names every broker

        await mq.session.refresh_routes()
        await asyncio.sleep(1)

        assert stranger not in mq.session.remoting.addresses()
        assert known in mq.session.remoting.addresses()

    simulate(scenario)


def test_a_handler_that_was_cancelled_counts_as_failed_and_work_goes_on() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client(CLIENT)
        await mq.send("orders", b"0")
        seen: list[bytes] = []

        async def handle(message: object) -> None:
            seen.append(message.body)  # type: ignore[attr-defined]
            if len(seen) == 1:
                raise asyncio.CancelledError

        consumer = await mq.subscribe(
            "orders", group="g", handler=handle, start_from=StartFrom.FIRST, concurrency=1
        )
        await mq.send("orders", b"1")
        await asyncio.sleep(20)

        assert sorted(seen) == [b"0", b"0", b"1"]
        await consumer.close()

    simulate(scenario)


def test_the_environment_tells_the_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.7:9876;10.0.0.8:9876")
    assert Client().config.name_servers == "10.0.0.7:9876;10.0.0.8:9876"
    assert Client("10.0.0.1:9876").config.name_servers == "10.0.0.1:9876"
    assert Client("10.0.0.2:9876").config.name_servers == "10.0.0.2:9876"
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match="set NAMESRV_ADDR"):
        asyncio.run(Client().start())
