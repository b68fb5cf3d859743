"""Apache's Java clients and messages with a time of delivery: sent, received on time, recalled, refused."""

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import Cluster, flavours
from tests.interop.driver import Driver, JavaError
from tests.interop.peers import Server, start_broker, start_namesrv

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

LATE_MS = 10_000  # a second is the broker's precision; and machines are busy
ILLEGAL = (
    "timer message illegal, the delay time should not be bigger than the max delay 259200000ms"
)


@pytest.fixture(scope="module", params=flavours())
def recalling(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Servers of one flavour whose broker serves recalls."""
    folder = tmp_path_factory.mktemp(f"timers-{request.param}")
    namesrv = start_namesrv(request.param, folder / "namesrv")
    settings = {
        "recallMessageEnable": "true",
        "autoCreateTopicEnable": "true",
        "timerWheelEnable": "true",
    }
    try:
        broker = start_broker(request.param, folder / "broker", namesrv.address, settings=settings)
        try:
            yield Cluster(request.param, namesrv, broker, folder)
        finally:
            broker.discard()
    finally:
        namesrv.discard()


def receive(java: Driver, cluster: Cluster, name: str, topic: str, count: int) -> list[Any]:
    java("lite", name=name, namesrv=cluster.namesrv.address, group=f"G_{name}", topic=topic)
    try:
        found: list[Any] = java("poll", name=name, min=count, timeout=50_000)["messages"]
    finally:
        java("stop", name=name)
    return found


@pytest.mark.feature("timer", client=("Java 4.9.8", "Java 5.5.0"))
def test_every_way_to_name_a_time_is_kept(
    drivers: Callable[[str], Driver], recalling: Cluster, name: str, tmp_path: Path
) -> None:
    java, old = drivers("5.5.0"), drivers("4.9.8")
    topic = f"T_{name}"
    for driver in (java, old):
        driver("producer", name=f"P_{name}", namesrv=recalling.namesrv.address)
    begin_ms = int(time.time() * 1000)
    delays = {"ms": 3500, "at": 4200, "s": 3000, "old": 3300}
    producer = f"P_{name}"
    handles = [
        java("timed", name=producer, topic=topic, method="setDelayTimeMs", value=3500, body="ms"),
        java("timed", name=producer, topic=topic, method="setDeliverTimeMs", value=begin_ms + 4200,
             body="at"),
        java("timed", name=producer, topic=topic, method="setDelayTimeSec", value=3, body="s"),
    ]  # fmt: skip
    old("timed", name=producer, topic=topic, setProperty="TIMER_DELAY_MS", value=3300, body="old")
    sending_ms = int(time.time() * 1000) - begin_ms  # a delay begins when its message is sent
    for sent in handles:
        words = base64.urlsafe_b64decode(sent["recallHandle"]).decode().split(" ")
        assert words[:3] == ["v1", topic, recalling.broker.name]
        assert words[4] == sent["msgId"]
        assert int(words[3]) % 1000 == 1
    found = receive(java, recalling, name, topic, 4)
    assert sorted(message["body"] for message in found) == ["at", "ms", "old", "s"]
    for message in found:
        late = message["storeTimestamp"] - begin_ms - delays[message["body"]]
        assert 0 <= late <= sending_ms + LATE_MS, (message["body"], late, sending_ms)
        assert message["topic"] == topic
    for driver in (java, old):
        driver("drop", name=producer)


@pytest.mark.feature("recall", client="Java 5.5.0")
def test_a_recalled_message_never_comes(
    drivers: Callable[[str], Driver], recalling: Cluster, name: str
) -> None:
    java, topic, producer = drivers("5.5.0"), f"T_{name}", f"P_{name}"
    java("producer", name=producer, namesrv=recalling.namesrv.address)
    sent = [
        java("timed", name=producer, topic=topic, method="setDelayTimeMs", value=4000, body=f"{i}")
        for i in range(3)
    ]
    answer = java("recall", name=producer, topic=topic, handle=sent[1]["recallHandle"])
    assert answer["msgId"] == sent[1]["msgId"]
    java("timed", name=producer, topic=topic, method="setDelayTimeMs", value=6000, body="last")
    found = receive(java, recalling, name, topic, 3)
    assert sorted(message["body"] for message in found) == ["0", "2", "last"]
    for handle in ("x", "djEgYSBiIGMgZA=="):
        with pytest.raises(JavaError) as refused:
            java("recall", name=producer, topic=topic, handle=handle)
        assert refused.value.code in (604, -1)  # the client looks at handles too
        assert "recall" in str(refused.value)
    java("drop", name=producer)


@pytest.mark.feature("timer", "refusals", client="Java 5.5.0")
def test_delays_the_broker_does_not_take(
    drivers: Callable[[str], Driver], recalling: Cluster, name: str
) -> None:
    java, topic, producer = drivers("5.5.0"), f"T_{name}", f"P_{name}"
    java("producer", name=producer, namesrv=recalling.namesrv.address, retries=0)
    for method, value in (
        ("setDelayTimeSec", 3 * 86_400 + 5),
        ("setDelayTimeMs", 3 * 86_400_000 + 5000),
        ("setDeliverTimeMs", 2**62),
    ):
        with pytest.raises(JavaError) as refused:
            java("timed", name=producer, topic=topic, method=method, value=value)
        assert refused.value.code == 13
        assert refused.value.remark is not None and ILLEGAL in refused.value.remark
    java("drop", name=producer)


@pytest.mark.long
def test_a_store_with_waiting_messages_goes_from_apache_to_us_and_back(
    drivers: Callable[[str], Driver], name: str, tmp_path: Path
) -> None:
    """Wheel, timer log and checkpoint of either broker are taken over by the other, nothing comes twice."""
    java, topic, producer = drivers("5.5.0"), f"T_{name}", f"P_{name}"
    store = tmp_path / "broker" / "s"
    settings = {"autoCreateTopicEnable": "true", "timerWheelEnable": "true"}
    paths = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
    namesrv = start_namesrv("roquette", tmp_path / "namesrv")

    def send(body: str, at_ms: int) -> None:
        words = {"topic": topic, "method": "setDeliverTimeMs", "value": at_ms, "body": body}
        for tries_left in range(15, -1, -1):  # the producer learns of the broker's new address
            try:
                java("timed", name=producer, **words)
                return
            except JavaError:
                if not tries_left:
                    raise
                time.sleep(0.5)

    def fetch(count: int) -> list[Any]:
        group = f"G{count}_{name}"  # a group of its own sees all there is
        java("lite", name=name, namesrv=namesrv.address, group=group, topic=topic)
        try:
            found: list[Any] = java("poll", name=name, min=count, timeout=50_000)["messages"]
        finally:
            java("stop", name=name)
        return found

    def apache() -> Any:
        return start_broker(
            "apache", tmp_path / "broker", namesrv.address, settings=settings | paths
        )

    wanted: dict[str, int] = {}
    running: list[Server] = []
    try:
        first = apache()
        running.append(first)
        java("producer", name=producer, namesrv=namesrv.address)
        now_ms = int(time.time() * 1000)
        wanted |= {"a1": now_ms + 20_000, "a2": now_ms + 21_000, "a3": now_ms + 70_000}
        wanted |= {"a4": now_ms + 4000}
        for body, at_ms in wanted.items():
            send(body, at_ms)
        time.sleep(8)  # a4 has come, the rest is in the wheel and on the disk
        first.process.kill()
        second = start_broker("roquette", tmp_path / "broker", namesrv.address, settings=settings)
        running.append(second)
        now_ms = int(time.time() * 1000)
        ours = {"o1": now_ms + 4000, "o2": wanted["a3"] + 1000}
        for body, at_ms in ours.items():
            send(body, at_ms)
        wanted |= ours
        while time.time() * 1000 < max(wanted["a2"], wanted["o1"]) + 2500:
            time.sleep(0.2)
        bodies = sorted(message["body"] for message in fetch(4))
        assert bodies == ["a1", "a2", "a4", "o1"]
        assert second.stop() == 0
        running.append(apache())
        while time.time() * 1000 < wanted["o2"] + 3500:
            time.sleep(0.2)
        found = fetch(6)
        bodies = sorted(message["body"] for message in found)
        assert bodies == ["a1", "a2", "a3", "a4", "o1", "o2"]
        for message in found:
            assert message["storeTimestamp"] >= wanted[message["body"]]
    finally:
        for server in running:
            server.process.kill()
        namesrv.discard()
    java("drop", name=producer)
