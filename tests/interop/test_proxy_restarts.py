"""`roquette proxy` is killed, and told to end, while Apache's v5 clients send and receive: they go on within 10 s."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.driver import ClientError, LineClient
from tests.interop.peers import Process, Server, free_port, start_broker, start_namesrv
from tests.interop.test_proxy_cluster import BROKER, make_topics, start_roquette_proxy
from tests.interop.v5.peers import GO, JAVA, started
from tests.interop.ways import authority

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(300)]

TOPIC, GROUP = "P_normal", "P_group"
AGAIN_S = 10.0
BUSY_S = 60.0  # beside ten minutes of other tests on two cores


class Yard:
    """Servers, and a proxy that begins again at its port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.namesrv: Server = start_namesrv("roquette", folder / "namesrv")
        self.broker = start_broker(
            "roquette", folder / "broker", self.namesrv.address, settings=BROKER
        )
        make_topics(self.broker)
        self.proxy: Process | None = None
        self.begin()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def begin(self) -> None:
        self.proxy, _ = start_roquette_proxy(self.folder / "proxy", self.namesrv.address, self.port)

    def end(self, number: int) -> float:
        """Returns how long it took."""
        assert self.proxy is not None
        start = time.monotonic()
        self.proxy.popen.send_signal(number)
        self.proxy.popen.wait(40)
        return time.monotonic() - start

    def close(self) -> None:
        assert self.proxy is not None
        self.proxy.stop()
        self.broker.discard()
        self.namesrv.discard()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.close()


class Load:
    """A client that sends and receives; `bodies` are what came."""

    def __init__(self, client: str, peer: LineClient, yard: Yard) -> None:
        self.client, self.peer = client, peer
        self.at = {"endpoints": yard.address, "tls": "1" if client == GO else None}
        self.bodies: set[str] = set()
        self.sent = 0
        self.seen = 0
        peer("producer", name="p", topic=TOPIC, **self.at)
        if client == JAVA:
            peer("push", name="c", group=GROUP, topic=TOPIC, **self.at)
        else:
            peer("simple", name="c", group=GROUP, topic=TOPIC, **{"await": 2}, **self.at)

    def step(self) -> str | None:
        """Send one, receive what there is; the body that was sent, None: it could not be."""
        body: str | None = f"m{self.sent}"
        self.sent += 1
        try:
            self.peer("send", name="p", topic=TOPIC, count=1, body=body)
        except ClientError:
            body = None
        try:
            for one in self.received():
                self.bodies.add(str(one["body"]))
        except ClientError:
            time.sleep(0.1)
        return body

    def received(self) -> list[Any]:
        if self.client == JAVA:
            answer = self.peer("dump", name="c", min=self.seen + 1, timeout=500)
            found = list(answer["messages"])[self.seen :]
            self.seen += len(found)
            return found
        found = list(self.peer("receive", name="c", invisible=20)["messages"])
        for one in found:
            self.peer("ack", name="c", msgId=one["msgId"])
        return found

    def until_it_flows(self, limit_s: float) -> float:
        """Until a message that was sent from now on has come; returns how long that took."""
        start = time.monotonic()
        fresh: set[str] = set()
        while not any(body in word for body in fresh for word in self.bodies):
            assert time.monotonic() - start < limit_s, f"{self.client} receives nothing"
            body = self.step()
            if body is not None:
                fresh.add(body)
        return time.monotonic() - start


@pytest.mark.parametrize("client", [JAVA, GO])
def test_clients_receive_again_soon_after_their_proxy_is_back(
    client: str, yard: Yard, tmp_path: Path
) -> None:
    peer = started(client, tmp_path / "peer", authority("ca").cert)
    try:
        load = Load(client, peer, yard)
        load.until_it_flows(BUSY_S)
        took = []
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            ended = yard.end(number)
            assert ended < 31, f"SIGTERM took {ended} s"
            if client == JAVA:
                load.step()
            else:  # Go's calls wait 5 to 30 s each for a connection
                time.sleep(2)
            yard.begin()
            took.append(load.until_it_flows(BUSY_S))
        print(client, took)
        assert max(took) < AGAIN_S, took
    finally:
        peer.stop()
