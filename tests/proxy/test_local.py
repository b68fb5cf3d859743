"""LOCAL: the backend over a real broker, alone and in a cluster, in virtual time; and gRPC's own client at a broker's port."""

import asyncio
import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.access.attackers import settings as closed
from tests.proxy.sim_v5 import SimV5
from tests.proxy.test_access import signed
from tests.remoting.tls_world import authority, pair

from roquette.apps.features import broker_features
from roquette.apps.local_backend import LocalBackend, endpoints_of
from roquette.apps.local_proxy import LocalProxy
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.service import Broker, Features
from roquette.errors import ConfigError
from roquette.proxy.backend import TopicFacts
from roquette.proxy.routes import out_of_reach
from roquette.proxy.service import SERVICE
from roquette.proxy.settings import ProxySettings
from roquette.remoting.certificates import TlsSettings, server_tls
from roquette.remoting.client import RemotingClient
from roquette.remoting.settings import Protection
from roquette.store.format.config import StoreConfig
from roquette.wire.bodies import TopicConfig
from roquette.wire.bodies.clients import ConsumerData, HeartbeatData, ProducerData
from roquette.wire.bodies.route import BrokerData
from roquette.wire.codes import RequestCode as R
from roquette.wire.headers import GetTopicConfigRequestHeader
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s
from roquette.wire.proto.definition_pb2 import AddressScheme, Code
from roquette_testing.cluster import SimCluster, simulate

NAMES, ONE, TWO = "10.0.0.1", "10.0.1.1", "10.0.1.2"
NONE = d.Endpoints()


def backend_of(broker: Any) -> LocalBackend:
    local = broker.feature(LocalProxy)
    local.sessions(broker._listeners._main)
    return local.made[0]  # type: ignore[no-any-return]


async def route(backend: LocalBackend, name: str) -> TopicFacts | None:
    done: asyncio.Future[TopicFacts | None] = asyncio.get_running_loop().create_future()
    backend.route(backend.own, name, NONE, done.set_result)
    return await asyncio.wait_for(done, 30)


async def topic(backend: LocalBackend, name: str) -> TopicFacts | None:
    done: asyncio.Future[TopicFacts | None] = asyncio.get_running_loop().create_future()
    backend.topic(backend.own, name, done.set_result)
    return await asyncio.wait_for(done, 30)


def two_brokers(scenario: Callable[[Any, Any], Awaitable[None]], **settings: Any) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMES)
        one = await cluster.add_broker(ONE, "broker-a", **settings)
        two = await cluster.add_broker(TWO, "broker-b", **settings)
        await scenario(one, two)

    simulate(main, seed=3)


def put(broker: Any, name: str, **attributes: str) -> None:
    config = TopicConfig(topic_name=name, read_queue_nums=2, write_queue_nums=2, perm=6)
    config.attributes = attributes
    broker.tables.topics.put(config, 1)


def test_a_topic_that_is_nowhere_is_made_everywhere_for_every_type() -> None:
    async def scenario(one: Any, two: Any) -> None:
        assert (await route(backend_of(one), "fresh")) is not None
        await asyncio.sleep(2)
        for broker in (one, two):
            made = broker.tables.topics.find("fresh")
            assert made.attributes == {"message.type": "MIXED"}
        found = await route(backend_of(two), "fresh")
        assert found is not None
        assert found.kind == "MIXED"
        assert {queue.broker_name for queue in found.route.queue_datas} == {"broker-a", "broker-b"}
        addresses = [data.broker_addrs[0] for data in found.route.broker_datas]
        assert sorted(addresses) == [f"{ONE}:10911", f"{TWO}:10911"]
        own = await topic(backend_of(one), "fresh")
        assert own is not None
        assert [queue.broker_name for queue in own.route.queue_datas] == ["broker-a"]

    two_brokers(scenario)


def test_what_an_operator_made_on_one_broker_stays_there() -> None:
    async def scenario(one: Any, two: Any) -> None:
        put(one, "orders", **{"message.type": "FIFO"})
        await asyncio.sleep(5)
        found = await route(backend_of(two), "orders")
        assert found is not None
        assert [queue.broker_name for queue in found.route.queue_datas] == ["broker-a"]
        assert await topic(backend_of(two), "orders") is None
        assert two.tables.topics.find("orders") is None
        assert one.tables.topics.find("orders").attributes == {"message.type": "FIFO"}

    two_brokers(scenario)


def test_without_auto_creation_nothing_is_made() -> None:
    async def scenario(one: Any, two: Any) -> None:
        assert await route(backend_of(one), "fresh") is None
        assert await topic(backend_of(one), "fresh") is None
        assert one.tables.topics.find("fresh") is None

    two_brokers(scenario, auto_create_topic_enable=False)


def test_names_that_no_client_may_make_are_not_made() -> None:
    async def scenario(one: Any, two: Any) -> None:
        for name in ("rmq_sys_x", "a b", "x" * 300, ""):
            assert await topic(backend_of(one), name) is None, name

    two_brokers(scenario)


def test_requests_answers_and_brokers_that_are_not_this_one() -> None:
    async def scenario(one: Any, two: Any) -> None:
        put(one, "orders")
        backend, got = backend_of(one), []
        header = GetTopicConfigRequestHeader(topic="orders")
        backend.ask(backend.own, "broker-a", R.GET_TOPIC_CONFIG, header, b"", got.append)
        backend.ask(backend.own, "broker-a", R.GET_TOPIC_CONFIG, header, b"", got.append).cancel()
        await asyncio.sleep(0.1)
        assert [answer.code for answer in got] == [0]
        backend.ask(backend.own, "broker-b", R.GET_TOPIC_CONFIG, header, b"", got.append)
        assert got[1].code == 16
        assert got[1].remark == "broker broker-b is not served here, this is broker-a"
        assert len(backend.own.asks) == 0

    two_brokers(scenario)


def test_clients_come_into_the_tables_of_the_broker_and_leave_them() -> None:
    async def scenario(one: Any, two: Any) -> None:
        backend = backend_of(one)
        beat = HeartbeatData(
            client_id="c1",
            producer_data_set=[ProducerData(group_name="orders")],
            consumer_data_set=[ConsumerData(group_name="billing")],
        )
        backend.register(backend.own, beat)
        await asyncio.sleep(0.1)
        assert one.tables.consumers.find("billing").client_ids() == ["c1"]
        assert one.tables.groups.known("billing") is not None
        backend.unregister(backend.own, "c1", "billing", producer=False)
        backend.unregister(backend.own, "c1", "orders", producer=True)
        await asyncio.sleep(0.1)
        assert one.tables.consumers.find("billing") is None
        assert len(backend.own.asks) == 0

    two_brokers(scenario)


def test_this_broker_is_where_the_client_reached_it_and_others_where_they_say() -> None:
    async def scenario(one: Any, two: Any) -> None:
        backend, caller = backend_of(one), backend_of(one).own

        def shown(name: str, address: str, used: d.Endpoints, authority: str) -> str:
            caller.authority = authority
            found = backend.endpoints(caller, BrokerData("c", name, {0: address}), 0, used)
            parts = [f"{one.host}:{one.port}" for one in found.addresses]
            return f"{AddressScheme.Name(found.scheme)} {','.join(parts)}"

        here, there = f"{ONE}:10911", f"{TWO}:10911"
        mapped = endpoints_of("broker.example:31911")
        several = d.Endpoints(scheme=AddressScheme.IPv4)
        several.addresses.add(host="1.1.1.1", port=1)
        several.addresses.add(host="2.2.2.2", port=2)
        assert shown("broker-a", here, mapped, "x:1") == "DOMAIN_NAME broker.example:31911"
        assert shown("broker-a", here, NONE, "192.168.0.9:8081") == "IPv4 192.168.0.9:8081"
        assert shown("broker-a", here, NONE, "[::1]:8081") == "IPv6 ::1:8081"
        assert shown("broker-a", here, several, "2.2.2.2:2") == "IPv4 2.2.2.2:2"
        for odd in ("", "no port", "host:0", "host:99999", ":8081"):
            assert shown("broker-a", here, NONE, odd) == f"IPv4 {here}", odd
        assert shown("broker-b", there, mapped, "x:1") == f"IPv4 {there}"

    two_brokers(scenario)


def test_ports_that_do_not_speak_are_named_to_nobody() -> None:
    """Beside Apache's brokers: before, v5 clients were sent to their remoting ports."""

    async def main(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMES)
        one = await cluster.add_broker(ONE, "broker-a")
        off = partial(broker_features, proxy=ProxySettings(grpc_enable=False))
        two = await cluster.add_broker(TWO, "broker-b", features=off)
        three = await cluster.add_broker("10.0.1.3", "broker-c")
        for broker, name in ((one, "both"), (two, "both"), (three, "both"), (two, "theirs")):
            put(broker, name)
        await asyncio.sleep(60)
        backend = backend_of(one)
        found = await route(backend, "both")
        assert found is not None
        assert {one.broker_name for one in found.route.queue_datas} == {"broker-a", "broker-c"}
        shown = {data.broker_name: data.broker_addrs for data in found.route.broker_datas}
        assert shown["broker-b"] == {}
        theirs = await route(backend, "theirs")
        assert theirs is not None and not theirs.route.queue_datas
        assert one.tables.topics.find("theirs") is None, "it is not made here either"
        assert "at brokers that do not speak the v5 protocol (broker-b)" in out_of_reach(theirs)
        cluster.kill(TWO)
        await cluster.restart(TWO)
        assert await route(backend, "both") is not None

    simulate(main, seed=3)


# gRPC's own client at a broker's port


def served(
    root: Path,
    work: Callable[[int], None],
    access: bool = False,
    tls: TlsSettings | None = None,
    features: Features = broker_features,
) -> None:
    """Run `work` in a thread beside a broker with real files and sockets."""

    async def main() -> None:
        config = BrokerConfig(broker_name="broker-a", bind_address="127.0.0.1", listen_port=0)
        sizes: dict[str, Any] = {
            "segment_size": 1 << 20, "queue_file_size": 20_000, "max_hash_slots": 100,
            "max_index_entries": 1000, "timer_log_file_size": 1 << 16,
        }  # fmt: skip
        store = StoreConfig(root_dir=str(root), **sizes)
        broker = Broker(
            config, store, features, files=OsFiles(), clock=SystemClock(), entropy=Entropy()
        )
        if access:
            broker.access = closed()
        if tls is not None:
            made = server_tls(tls, str(root / "tls"), ["127.0.0.1"], SystemClock())
            broker.protection = Protection(tls=made)
        await broker.start()
        try:
            await asyncio.to_thread(work, broker.core.address.port)
        finally:
            await broker.stop()

    asyncio.run(main())


def send(
    port: int,
    name: str,
    fields: dict[bytes, bytes],
    *,
    secret: grpc.ChannelCredentials | None = None,
    **system: Any,
) -> s.SendMessageResponse:
    properties = d.SystemProperties(message_id="01" + "0" * 32, body_encoding="IDENTITY", **system)
    properties.born_timestamp.GetCurrentTime()
    message = d.Message(topic=d.Resource(name=name), body=b"x", system_properties=properties)
    meta = [(key.decode(), value.decode()) for key, value in fields.items()]
    place = f"127.0.0.1:{port}"
    with grpc.secure_channel(place, secret) if secret else grpc.insecure_channel(place) as channel:
        call = channel.unary_unary(
            SERVICE + "SendMessage",
            lambda request: request.SerializeToString(),
            s.SendMessageResponse.FromString,
        )
        found: s.SendMessageResponse = call(
            s.SendMessageRequest(messages=[message]),
            metadata=[("x-mq-client-id", "c1"), *meta],
            timeout=10,
        )
        return found


@pytest.mark.parametrize("kind", ["NORMAL", "FIFO"])
def test_a_first_message_of_any_type_makes_its_topic(tmp_path: Path, kind: str) -> None:
    system = {"message_group": "g"} if kind == "FIFO" else {}

    def work(port: int) -> None:
        for offset in range(2):
            reply = send(port, "fresh", {}, message_type=kind, **system)
            assert reply.status.code == Code.OK, reply
            assert kind == "NORMAL" or reply.entries[0].offset == offset

    served(tmp_path, work)


def test_who_is_not_proven_sends_nothing(tmp_path: Path) -> None:
    def work(port: int) -> None:
        reply = send(port, "fresh", {}, message_type="NORMAL")
        assert (reply.status.code, reply.status.message) == (
            Code.UNAUTHORIZED, "username cannot be null.",
        )  # fmt: skip
        wrong = signed("admin", "guessed")
        assert send(port, "fresh", wrong, message_type="NORMAL").status.code == Code.UNAUTHORIZED
        good = signed("admin", "the-secret-of-admin")
        assert send(port, "fresh", good, message_type="NORMAL").status.code == Code.OK

    served(tmp_path, work, access=True)


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_calls_over_tls(tmp_path: Path, mode: str) -> None:
    ours = pair()
    tls = TlsSettings(mode=mode, certificate=str(ours.cert), key=str(ours.key))
    secret = grpc.ssl_channel_credentials(authority().cert.read_bytes())

    def work(port: int) -> None:
        assert send(port, "fresh", {}, secret=secret, message_type="NORMAL").status.code == Code.OK
        if mode == "permissive":
            assert send(port, "fresh", {}, message_type="NORMAL").status.code == Code.OK
        else:
            with pytest.raises(grpc.RpcError):
                send(port, "fresh", {}, message_type="NORMAL")

    served(tmp_path, work, tls=tls)


def test_calls_over_mutual_tls(tmp_path: Path) -> None:
    ours, theirs, trusted = pair(), pair("client"), authority().cert
    tls = TlsSettings(
        mode="enforcing", certificate=str(ours.cert), key=str(ours.key), trusted=str(trusted),
        verify_clients=True,
    )  # fmt: skip
    root = trusted.read_bytes()
    known = grpc.ssl_channel_credentials(root, theirs.key.read_bytes(), theirs.cert.read_bytes())

    def work(port: int) -> None:
        assert send(port, "fresh", {}, secret=known, message_type="NORMAL").status.code == Code.OK
        with pytest.raises(grpc.RpcError):
            nameless = grpc.ssl_channel_credentials(root)
            send(port, "fresh", {}, secret=nameless, message_type="NORMAL")

    served(tmp_path, work, tls=tls)


def test_a_broker_without_grpc_says_so(tmp_path: Path) -> None:
    def work(port: int) -> None:
        with pytest.raises(grpc.RpcError):
            send(port, "fresh", {}, message_type="NORMAL")

    off = partial(broker_features, proxy=ProxySettings(grpc_enable=False))
    served(tmp_path, work, features=off)


def test_a_broker_without_http2_serves_remoting_and_says_why_not_grpc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a system for which ngh2 has no wheel."""
    monkeypatch.setitem(sys.modules, "ngh2", None)

    def work(port: int) -> None:
        with pytest.raises(grpc.RpcError) as error:
            send(port, "fresh", {}, message_type="NORMAL")
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        asyncio.run(asks(port))

    async def asks(port: int) -> None:
        remoting = RemotingClient(SystemClock())
        try:
            assert (await remoting.invoke(f"127.0.0.1:{port}", R.GET_BROKER_RUNTIME_INFO)).code == 0
        finally:
            await remoting.close()

    served(tmp_path / "warned", work)
    assert "v5 clients are not served: gRPC needs the package ngh2" in caplog.text

    asked = partial(broker_features, proxy=ProxySettings(grpc_server_port=9))
    words = r"grpcServerPort=9 \(0 serves remoting alone\): gRPC needs the package ngh2"
    with pytest.raises(ConfigError, match=words):
        served(tmp_path / "refused", work, features=asked)


def test_a_broker_that_stops_ends_its_streams_in_order(tmp_path: Path) -> None:
    ended: list[grpc.StatusCode] = []
    took: list[float] = []

    def work(port: int) -> None:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        wanted = d.Publishing(topics=[d.Resource(name="fresh")])
        settings = d.Settings(client_type=d.ClientType.PRODUCER, publishing=wanted)
        asked: queue.Queue[s.TelemetryCommand | None] = queue.Queue()
        asked.put(s.TelemetryCommand(settings=settings))
        stream = channel.stream_stream(
            SERVICE + "Telemetry",
            lambda request: request.SerializeToString(),
            s.TelemetryCommand.FromString,
        )(iter(asked.get, None), metadata=[("x-mq-client-id", "c1")])
        assert next(stream).status.code == Code.OK

        def wait() -> None:
            with pytest.raises(grpc.RpcError) as error:
                next(stream)
            ended.append(error.value.code())
            took.append(time.monotonic())
            asked.put(None)
            channel.close()

        waiting.append(threading.Thread(target=wait))
        waiting[0].start()
        took.append(time.monotonic())

    waiting: list[threading.Thread] = []
    served(tmp_path, work)
    waiting[0].join(30)
    assert ended == [grpc.StatusCode.UNAVAILABLE]
    assert took[1] - took[0] < 15, "grpcShutdownTimeSeconds is for calls that are being served"


def test_who_comes_from_outside_is_told_where_others_are_reached_from_there() -> None:
    """Two ways to each broker: its port, and the other one, which stands for a forwarded one."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMES)
        for ip, name in ((ONE, "broker-a"), (TWO, "broker-b")):
            broker = await cluster.add_broker(ip, name, outside_addr=f"{ip}:10909")
            put(broker, "orders")
        await asyncio.sleep(40)

        async def told(port: int) -> set[str]:
            client = await SimV5.connect(f"{ONE}:{port}", "c", f"10.0.3.{port % 250}")
            asked = s.QueryRouteRequest(topic=d.Resource(name="orders"), endpoints=client.endpoints)
            reply = await client.call("QueryRoute", asked)
            queues = [*reply.message_queues, *await client.assignment("g", "orders")]
            client.close()
            found = {one.broker.name: one.broker.endpoints.addresses for one in queues}
            assert len(found) == 2
            for name, (place,) in found.items():
                other = await SimV5.connect(f"{place.host}:{place.port}", "c", "10.0.3.1")
                await other.produce("orders")
                assert (await other.send("orders", name.encode())).status.code == Code.OK
                other.close()
            return {f"{one.host}:{one.port}" for places in found.values() for one in places}

        assert await told(10911) == {f"{ONE}:10911", f"{TWO}:10911"}
        assert await told(10909) == {f"{ONE}:10909", f"{TWO}:10909"}

    simulate(scenario)
