"""Push consumers whose handlers are slow, beside others at one broker: nobody is refused, and everybody gets all of his.

The broker renews few receipts here, so that it has the many clients that reach its bound elsewhere. Apache's Go client 5.1.2
has no push consumer: its slow one is a simple consumer that acknowledges nothing.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.exposition import read_exposition
from tests.interop.bench import until
from tests.interop.driver import LineClient
from tests.interop.peers import start_namesrv, start_roquette_broker
from tests.interop.proxies import Door
from tests.interop.test_v5 import NO_TLS_CHOICE, QUICK, WAIT_MS, make_group, make_topic
from tests.interop.v5 import peers
from tests.interop.v5.peers import GO, JAVA
from tests.interop.ways import authority, property_file

pytestmark = [pytest.mark.interop, pytest.mark.long]

MOST, LITTLE = 100, 10  # receipts that are renewed, and of everybody
TOPIC = "T_slow"
COUNT = 150  # messages; each group gets all


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[tuple[Door, dict[str, LineClient]]]:
    """The broker and the two clients."""
    tls = {"tls.config.file": str(property_file(demands="none", name="v5"))}
    starter = str(peers.HERE / "few_receipts.py")
    with ExitStack() as ends:
        namesrv = start_namesrv("roquette", tmp_path / "namesrv")
        ends.callback(namesrv.discard)
        broker = start_roquette_broker(
            tmp_path / "broker",
            namesrv.address,
            settings={**QUICK, **tls, "tls.server.mode": "permissive"},
            prefix=(
                "env",
                "ROQUETTE_INTERPRETED=1",
                sys.executable,
                starter,
                str(MOST),
                str(LITTLE),
            ),
        )
        ends.callback(broker.discard)
        roots, clients = authority("ca").cert, {}
        for name in (JAVA, GO):
            clients[name] = peers.started(name, tmp_path / name[:4], roots)
            ends.callback(clients[name].stop)
        yield Door(broker, broker.address), clients


def handed_out(door: Door, group: str) -> bool:
    """Whether a group has been given all there is."""
    with urlopen(f"http://{door.grpc}/metrics") as page:
        samples = read_exposition(page.read().decode())
    name, labels = "rocketmq_consumer_ready_messages", {"consumer_group": group, "topic": TOPIC}
    return [s.value for s in samples if s.name == name and labels.items() <= s.labels.items()] == [
        0
    ]


def test_slow_consumers_beside_others(
    stage: tuple[Door, dict[str, LineClient]], tmp_path: Path
) -> None:
    door, clients = stage
    java, go = clients[JAVA], clients[GO]
    topic = make_topic(door, TOPIC, "NORMAL")

    def at(client: str, name: str) -> dict[str, str | None]:
        group = make_group(door, f"G_{name}")
        tls = NO_TLS_CHOICE.get(client)
        return {"name": name, "group": group, "topic": topic, "endpoints": door.grpc, "tls": tls}

    go("producer", name="sender", topic=topic, endpoints=door.grpc)
    sent = {one["msgId"] for one in go("send", name="sender", topic=topic, count=COUNT)["results"]}
    slow_ones = [f"slow_{number}" for number in range(2)]
    for name in slow_ones:
        java("push", hold=1, **at(JAVA, name))
    until(lambda: all(handed_out(door, f"G_{name}") for name in slow_ones))  # beyond each bound
    assert len(slow_ones) * COUNT > 2 * MOST

    def received(name: str) -> list[str]:
        """All that comes to a simple consumer of Go, until it has them."""
        go("simple", **at(GO, name))
        found: list[str] = []

        def more() -> bool:
            messages = go("receive", name=name, invisible=600)["messages"]
            found.extend(one["msgId"] for one in messages)
            return len(found) >= COUNT

        until(more)
        return found

    java("push", **at(JAVA, "fast"))
    assert sorted(received("slow_go")) == sorted(sent)  # and they stay with it
    for message in (quick := received("fast_go")):
        go("ack", name="fast_go", msgId=message)
    assert sorted(quick) == sorted(sent)
    for name in slow_ones:
        java("release", name=name)
    for name in ("fast", *slow_ones):
        found = java("dump", name=name, min=COUNT, timeout=WAIT_MS)["messages"]
        assert sorted(one["msgId"] for one in found) == sorted(sent)  # to nobody twice
    (log,) = tmp_path.glob("Java/logs/**/rocketmq-client.log")
    assert "response-code=" not in log.read_text()  # Go's refusals are errors of its commands
