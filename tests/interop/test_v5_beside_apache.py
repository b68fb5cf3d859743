"""Apache's Go v5 client at our broker (LOCAL), beside Apache's broker in one cluster: it is never sent to a port of remoting."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.golden.grpc_steps import Bench, endpoints, resource
from tests.interop.bench import until
from tests.interop.conftest import SETTINGS
from tests.interop.driver import LineClient
from tests.interop.peers import start_apache_broker, start_namesrv, start_roquette_broker
from tests.interop.proxies import Door
from tests.interop.test_v5 import QUICK, Scene, make_topic
from tests.interop.v5 import peers
from tests.interop.v5.peers import GO
from tests.interop.ways import authority, property_file

from roquette.wire.proto.service_pb2 import QueryRouteRequest

pytestmark = [pytest.mark.interop, pytest.mark.long]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Door, Door]]:
    """Our broker and Apache's at one name server."""
    folder = tmp_path_factory.mktemp("v5-beside")
    with ExitStack() as servers:  # those that run are ended when the next one does not start
        namesrv = start_namesrv("roquette", folder / "namesrv")
        servers.callback(namesrv.discard)
        tls = {"tls.config.file": str(property_file(demands="none", name="v5"))}
        settings = {**QUICK, **tls, "tls.server.mode": "permissive"}
        ours = start_roquette_broker(
            folder / "ours", namesrv.address, name="broker-r", settings=settings
        )
        servers.callback(ours.discard)
        theirs = start_apache_broker(folder / "theirs", namesrv.address, settings=SETTINGS)
        servers.callback(theirs.discard)
        yield Door(ours, ours.address), Door(theirs, theirs.address)


def brokers_of(door: Door, topic: str) -> tuple[str, set[str], set[int]]:
    """What a v5 client is told: the status, names of brokers, their ports."""
    bench = Bench(door.grpc)
    try:
        request = QueryRouteRequest(topic=resource(topic), endpoints=endpoints(door.grpc))
        (reply,), _ = bench.raw("QueryRoute", request)
    finally:
        bench.close()
    queues = reply.message_queues  # type: ignore[attr-defined]
    names = {queue.broker.name for queue in queues}
    ports = {address.port for queue in queues for address in queue.broker.endpoints.addresses}
    return reply.status.message, names, ports  # type: ignore[attr-defined]


def test_a_go_client_sends_and_receives_at_our_broker_alone(
    cluster: tuple[Door, Door], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ours, theirs = cluster
    for door in cluster:
        make_topic(door, "T_beside_NORMAL", "NORMAL")
    make_topic(theirs, "T_theirs", "NORMAL")
    until(lambda: "at brokers that do not speak" in brokers_of(ours, "T_theirs")[0])
    until(lambda: brokers_of(ours, "T_beside_NORMAL")[1] == {"broker-r"})
    port = int(ours.grpc.rpartition(":")[2])
    assert brokers_of(ours, "T_beside_NORMAL")[2] == {port}

    peer: LineClient = peers.started(GO, tmp_path_factory.mktemp("go"), authority("ca").cert)
    scene = Scene(GO, peer, ours, "beside")
    try:
        sent = scene.send("NORMAL", count=20)
        scene.simple("simple", "NORMAL")
        found = scene.receive("simple", 20)
        assert {one["msgId"] for one in found} == {one["msgId"] for one in sent}
        for one in found:
            peer("ack", name="simple", msgId=one["msgId"])
    finally:
        peer.stop()
