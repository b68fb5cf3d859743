"""A proxy before brokers of the other side: ours before Apache's, Apache's (CLUSTER mode) before ours, and ours before ours."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.peers import (
    OPENED,
    SMALL_JVM,
    START_TIMEOUT_S,
    Process,
    Server,
    call,
    class_path,
    free_port,
    require_java,
    start_broker,
    start_namesrv,
)
from tests.interop.proxies import _LOGBACK
from tests.proxy.v5_client import Code, V5Client

from roquette.wire.proto import definition_pb2 as d

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

BROKER = {
    "autoCreateTopicEnable": "false",
    "timerWheelEnable": "true",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "2000",
}
TOPICS = {
    "P_normal": "NORMAL",
    "P_delay": "DELAY",
    "P_transaction": "TRANSACTION",
    "P_dead": "NORMAL",
}


@dataclass(frozen=True)
class Yard:
    """Servers, and where clients find the proxy."""

    namesrv: Server
    broker: Server
    proxy: Process
    address: str


def start_apache_cluster_proxy(folder: Path, namesrv: str) -> tuple[Process, str]:
    """Apache's proxy 5.5.0 in CLUSTER mode."""
    require_java()
    grpc, remoting = free_port(), free_port()
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "rmq.proxy.logback.xml").write_text(_LOGBACK)
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "proxyMode": "CLUSTER",
        "grpcServerPort": grpc,
        "remotingListenPort": remoting,
        "localServeAddr": "127.0.0.1",
        "namesrvAddr": namesrv,
        "grpcThreadPoolNums": 8,
        "useEndpointPortFromRequest": True,
    }
    (folder / "proxy.json").write_text(json.dumps(settings))
    command = [
        *("java", *SMALL_JVM, "-Xmx512m", "-XX:MaxDirectMemorySize=256m", *OPENED),
        *(f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"),
        *("-cp", class_path("proxy55"), "org.apache.rocketmq.proxy.ProxyStartup"),
        *("-pm", "cluster", "-n", namesrv, "-pc", str(folder / "proxy.json")),
    ]
    process = Process(command, folder, {"ROCKETMQ_HOME": str(folder), "NAMESRV_ADDR": ""})
    try:
        process.line_with("rocketmq-proxy startup successfully", START_TIMEOUT_S)
    except BaseException:
        process.stop()
        raise
    return process, f"127.0.0.1:{grpc}"


def start_roquette_proxy(folder: Path, namesrv: str, port: int = 0) -> tuple[Process, str]:
    """Ours."""
    from tests.interop.peers import _roquette

    process = _roquette(
        "proxy", folder, "--namesrv", namesrv, "--listen", f"127.0.0.1:{port}",
        settings={"proxyStorePath": str(folder)},
    )  # fmt: skip
    try:
        line = process.line_with("ready ", START_TIMEOUT_S)
    except BaseException:
        process.stop()
        raise
    return process, line.rpartition("proxy=")[2]


def make_topics(broker: Server) -> None:
    for name, kind in TOPICS.items():
        fields = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
            "perm": "6", "order": "false", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
            "attributes": f"+message.type={kind}",
        }  # fmt: skip
        answer = call(broker.address, 17, fields, b"")
        assert answer is not None and answer[0]["code"] == 0, answer
    for name in ("P_group", "P_later", "P_ended", "P_buries", "P_more"):
        body = {"groupName": name, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 5}
        answer = call(broker.address, 200, {}, json.dumps(body).encode())
        assert answer is not None and answer[0]["code"] == 0, answer


def flavours() -> list[object]:
    pairs = [("roquette", "apache"), ("apache", "roquette"), ("roquette", "roquette")]
    slow = {pairs[2]: pytest.mark.long}  # tests/proxy has the same in virtual time
    return [
        pytest.param(pair, id="-before-".join(pair), marks=slow.get(pair, ())) for pair in pairs
    ]


@pytest.fixture(scope="module", params=flavours())
def yard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    proxy_of, broker_of = request.param
    folder = tmp_path_factory.mktemp("yard")
    namesrv = start_namesrv(broker_of, folder / "namesrv")
    try:
        broker = start_broker(broker_of, folder / "broker", namesrv.address, settings=BROKER)
        try:
            make_topics(broker)
            start = start_roquette_proxy if proxy_of == "roquette" else start_apache_cluster_proxy
            proxy, address = start(folder / "proxy", namesrv.address)
            try:
                yield Yard(namesrv, broker, proxy, address)
            finally:
                proxy.stop()
        finally:
            broker.discard()
    finally:
        namesrv.discard()


@pytest.fixture
def client(yard: Yard) -> Iterator[V5Client]:
    made = V5Client(yard.address)
    yield made
    made.close()


def retried(yard: Yard, work: object, seconds: float = 30) -> object:
    """The route of a new topic takes a while to be everywhere."""
    end = time.monotonic() + seconds
    while True:
        try:
            return work()  # type: ignore[operator]
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def test_messages_are_sent_received_and_acked(yard: Yard, client: V5Client) -> None:
    settings = client.produce("P_normal")
    assert settings.publishing.max_body_size == 4 << 20
    retried(yard, lambda: client.route("P_normal"))
    (queue,) = client.route("P_normal")
    assert queue.broker.name == "broker-a"
    address = queue.broker.endpoints.addresses[0]
    assert f"{address.host}:{address.port}" == yard.address
    sent = {client.send("P_normal", b"%d" % number, tag="t").message_id for number in range(20)}
    consumer = V5Client(yard.address)
    consumer.consume("P_group", "P_normal")
    assert consumer.heartbeat("P_group") == Code.OK
    got = consumer.drain("P_group", "P_normal", 20, 60)
    assert {one.system_properties.message_id for one in got} == sent
    assert {one.body for one in got} == {b"%d" % number for number in range(20)}
    assert {one.system_properties.tag for one in got} == {"t"}
    host = {one.system_properties.born_host.rpartition(":")[0] for one in got}
    assert host == {"127.0.0.1"}
    (queue,) = consumer.assignment("P_group", "P_normal")
    assert consumer.receive("P_group", queue) == []
    consumer.close()


def test_a_delayed_message_comes_in_time_and_one_is_given_back(
    yard: Yard, client: V5Client
) -> None:
    client.produce("P_delay")
    due = time.time() + 3
    stamp = {"seconds": int(due), "nanos": 0}
    client.send("P_delay", b"later", message_type=d.MessageType.DELAY, delivery_timestamp=stamp)
    consumer = V5Client(yard.address)
    consumer.consume("P_later", "P_delay")
    (message,) = consumer.drain("P_later", "P_delay", 1, 60, ack=False)
    assert time.time() >= int(due) - 0.1 and message.body == b"later"
    handle = consumer.change("P_later", "P_delay", message, 1)
    assert handle and handle != message.system_properties.receipt_handle
    (again,) = consumer.drain("P_later", "P_delay", 1, 60)
    assert again.body == b"later" and again.system_properties.delivery_attempt == 2
    consumer.close()


def test_transactions_are_committed_rolled_back_and_checked(yard: Yard, client: V5Client) -> None:
    client.produce("P_transaction")
    kind = d.MessageType.TRANSACTION
    names = (b"commit", b"rollback", b"checked")
    half = {name: client.send("P_transaction", name, message_type=kind) for name in names}
    for name, commit in ((b"commit", True), (b"rollback", False)):
        entry = half[name]
        client.end("P_transaction", entry.message_id, entry.transaction_id, commit=commit)
    seen = set()
    end = time.monotonic() + 60
    while b"checked" not in seen and time.monotonic() < end:
        command = client.commands.get(timeout=max(0.1, end - time.monotonic()))
        if command.HasField("recover_orphaned_transaction_command"):
            asked = command.recover_orphaned_transaction_command
            seen.add(asked.message.body)
            if asked.message.body == b"checked":
                client.end(
                    "P_transaction", asked.message.system_properties.message_id,
                    asked.transaction_id, commit=True, checked=True,
                )  # fmt: skip
    consumer = V5Client(yard.address)
    consumer.consume("P_ended", "P_transaction")
    got = consumer.drain("P_ended", "P_transaction", 2, 60)
    assert {one.body for one in got} == {b"commit", b"checked"}
    consumer.close()


def test_a_message_is_buried(yard: Yard, client: V5Client) -> None:
    client.produce("P_dead")
    client.send("P_dead", b"bad")
    consumer = V5Client(yard.address)
    consumer.consume("P_buries", "P_dead")
    (message,) = consumer.drain("P_buries", "P_dead", 1, 60, ack=False)
    consumer.bury("P_buries", "P_dead", message)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        answer = call(yard.broker.address, 30, {"topic": "%DLQ%P_buries", "queueId": "0"}, b"")
        if (
            answer is not None
            and answer[0]["code"] == 0
            and answer[0]["extFields"]["offset"] == "1"
        ):
            break
        time.sleep(0.5)
    else:
        raise AssertionError("nothing is in the dead letter queue")
    consumer.close()
