"""`roquette proxy` before our brokers, in virtual time, with clients of the v5 protocol."""

import asyncio
import sys
from collections import Counter
from typing import Any

import pytest
from tests.proxy.sim_v5 import Code, Failed, Gone, SimV5
from tests.simulation.test_name_servers import create_topic, until

from roquette.access.model import OPEN_TO_ALL, AccessSettings
from roquette.apps.proxy import AllSettings, ProxyServer
from roquette.base.entropy import Entropy
from roquette.errors import ConfigError, ConnectError
from roquette.proxy.settings import ClusterSettings, ProxySettings
from roquette.remoting.client import RemotingClient
from roquette.remoting.settings import UNPROTECTED
from roquette.wire.header_codec import encode_dict
from roquette.wire.proto import definition_pb2 as d
from roquette_testing.cluster import SimCluster, simulate

NS, BROKER, OTHER = "10.0.0.1", "10.0.1.1", "10.0.1.2"
PROXIES = ("10.0.2.1", "10.0.2.2")
PORT = 8081
LOST = (Gone, Failed, OSError)


async def add_proxy(cluster: SimCluster, ip: str) -> ProxyServer:
    """A proxy on a host of its own, which `kill`, `stop` and `restart` treat as any server."""
    host = cluster.host(ip)
    names = cluster.name_servers

    async def begin() -> ProxyServer:
        config = ClusterSettings(bind_address=ip, namesrv_addr=names, proxy_store_path="/proxy")
        settings = AllSettings(config, ProxySettings(), UNPROTECTED, OPEN_TO_ALL)
        world: Any = {"files": host.files, "clock": host.clock, "entropy": Entropy(5, process_id=1)}
        server = ProxyServer(settings, ip, **world)
        await server.start()
        return server

    return await cluster._begin(host, begin)


async def begin(cluster: SimCluster, proxies: int = 1, **broker: Any) -> None:
    await cluster.add_namesrv(NS)
    await cluster.add_broker(BROKER, "broker-a", **broker)
    await create_topic(cluster, "orders", BROKER)
    for ip in PROXIES[:proxies]:
        await add_proxy(cluster, ip)


async def make_topic(cluster: SimCluster, name: str, kind: str) -> None:
    """A topic of a message type."""
    fields = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        "attributes": f"+message.type={kind}",
    }  # fmt: skip
    admin = RemotingClient(cluster.clock, local_host="10.0.9.9")
    answer = await admin.invoke(f"{BROKER}:10911", 17, encode_dict(fields))
    assert answer.code == 0, answer.remark
    await admin.close()


async def client(name: str, proxy: str = PROXIES[0]) -> SimV5:
    return await SimV5.connect(f"{proxy}:{PORT}", name, "10.0.4.1")


async def drain(consumer: SimV5, seen: Counter[bytes], topic: str = "orders") -> None:
    """Receive and ack once from every queue that is assigned."""
    for queue in await consumer.assignment("g", topic):
        got = await consumer.receive("g", queue)
        seen.update(one.body for one in got)
        if got:
            await consumer.ack("g", topic, got)


def test_a_message_goes_through_a_proxy_and_back() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await begin(cluster)
        sender = await client("p")
        await sender.produce("orders")
        for number in range(40):
            await sender.send("orders", b"%d" % number)
        consumer = await client("c")
        await consumer.consume("g", "orders")
        seen: Counter[bytes] = Counter()
        for _ in range(10):
            if len(seen) < 40:
                await drain(consumer, seen)
        assert seen == Counter({b"%d" % number: 1 for number in range(40)})
        for one in (sender, consumer):
            one.close()

    simulate(scenario)


def test_a_check_of_a_transaction_finds_its_client_through_the_proxy() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await begin(cluster, transaction_time_out=1_000, transaction_check_interval=1_000)
        await make_topic(cluster, "paid", "TRANSACTION")
        sender = await client("p")
        await sender.produce("paid")
        await sender.send("paid", b"half", message_type=d.MessageType.TRANSACTION)
        async with asyncio.timeout(60):
            command = await sender.commands.get()
        asked = command.recover_orphaned_transaction_command
        assert asked.message.body == b"half"
        await sender.end("paid", asked, commit=True)
        consumer = await client("c")
        await consumer.consume("g", "paid")
        seen: Counter[bytes] = Counter()
        for _ in range(10):
            if not seen:
                await drain(consumer, seen, "paid")
        assert seen == Counter({b"half": 1})

    simulate(scenario)


def test_a_broker_that_dies_is_an_error_in_words_and_serves_again_when_it_is_back() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await begin(cluster)
        sender = await client("p")
        await sender.produce("orders")
        await sender.send("orders", b"1")
        cluster.kill(BROKER)
        with pytest.raises(Failed, match=BROKER) as told:
            await sender.send("orders", b"2")
        assert told.value.code == Code.INTERNAL_SERVER_ERROR
        await cluster.restart(BROKER)
        await asyncio.sleep(1)
        await sender.send("orders", b"3")

    simulate(scenario)


@pytest.mark.parametrize("clean", [False, True])
def test_clients_go_on_while_one_of_two_proxies_is_restarted_again_and_again(clean: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await begin(cluster, proxies=2)
        sent: set[bytes] = set()
        seen: Counter[bytes] = Counter()
        gaps: list[float] = []
        stop = False

        async def send(number: int) -> None:
            proxy, count = PROXIES[number % 2], 0
            connected: SimV5 | None = None
            while not stop:
                try:
                    if connected is None:
                        connected = await client(f"p{number}", proxy)
                        await connected.produce("orders")
                    body = b"%d-%d" % (number, count)
                    count += 1
                    await connected.send("orders", body)
                    sent.add(body)
                    await asyncio.sleep(0.05)
                except LOST:
                    connected = None
                    await asyncio.sleep(0.2)

        async def receive(number: int) -> None:
            proxy = PROXIES[number % 2]
            connected: SimV5 | None = None
            last = cluster.loop.time()
            while not stop:
                try:
                    if connected is None:
                        connected = await client(f"c{number}", proxy)
                        await connected.consume("g", "orders")
                    before = sum(seen.values())
                    await drain(connected, seen)
                    now = cluster.loop.time()
                    if sum(seen.values()) > before:
                        gaps.append(now - last)
                        last = now
                except LOST:
                    connected = None
                    await asyncio.sleep(0.2)

        work = [send(0), send(1), receive(0), receive(1)]
        tasks = [asyncio.ensure_future(one) for one in work]
        for _ in range(3):
            await asyncio.sleep(5)
            if clean:
                start = cluster.loop.time()
                await cluster.stop(PROXIES[0])
                assert cluster.loop.time() - start < 30
                await asyncio.sleep(1)
            else:
                cluster.kill(PROXIES[0])
                await asyncio.sleep(3)
            await cluster.restart(PROXIES[0])
        await asyncio.sleep(5)
        missing = lambda: sent - set(seen)  # noqa: E731
        await until(cluster, lambda: not missing(), 90)
        stop = True
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(sent) > 300 and max(gaps) < 10
        if clean:
            assert {body for body, count in seen.items() if count > 1} == set()

    simulate(scenario)


def test_a_client_of_the_remoting_protocol_is_told_where_to_go() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await begin(cluster)
        remoting = RemotingClient(cluster.clock, local_host="10.0.5.1")
        answer = await remoting.invoke(f"{PROXIES[0]}:{PORT}", 105)
        assert answer.code == 3 and f"name server {NS}:9876" in (answer.remark or "")
        await remoting.close()

    simulate(scenario)


def test_a_proxy_without_http2_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ngh2", None)

    async def scenario(cluster: SimCluster) -> None:
        with pytest.raises(ConfigError, match="a proxy cannot start: gRPC needs the package ngh2"):
            await add_proxy(cluster, PROXIES[0])

    simulate(scenario)


def test_a_proxy_without_brokers_says_so() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NS)
        await add_proxy(cluster, PROXIES[0])
        sender = await client("p")
        with pytest.raises((Failed, Gone)):
            await sender.send("orders", b"1")
        await cluster.stop(PROXIES[0])
        with pytest.raises((OSError, ConnectError)):
            await client("p")

    simulate(scenario)


def test_a_closed_proxy_knows_whose_its_clients_are() -> None:
    async def scenario(cluster: SimCluster) -> None:
        host = cluster.host(PROXIES[0])
        access = AccessSettings(authentication_enabled=True, authorization_enabled=True)
        config = ClusterSettings(
            bind_address=host.ip, namesrv_addr=f"{NS}:9876", proxy_store_path="/proxy"
        )
        settings = AllSettings(config, ProxySettings(), UNPROTECTED, access)
        world: Any = {"files": host.files, "clock": host.clock, "entropy": Entropy(5, process_id=1)}
        server = ProxyServer(settings, host.ip, **world)
        assert server._calls is not None
        assert server._calls.clients in server.proxy.parts

    simulate(scenario)
