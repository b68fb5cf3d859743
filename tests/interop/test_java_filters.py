"""Apache's Java consumers, 4.9.8 and 5.5.0, with SQL92 selectors: push, lite pull, pull, retry, errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.bench import until_routed
from tests.interop.conftest import Cluster
from tests.interop.driver import Driver, JavaError
from tests.interop.peers import start_broker, start_namesrv

pytestmark = [pytest.mark.interop, pytest.mark.feature("sql92"), pytest.mark.timeout(180)]

PATIENCE_MS = 60_000
QUIET_MS = 400
NO_SQL = "The broker does not support consumer to filter message by SQL92"


class Shop:
    """A topic with messages of a shop, and consumers with selectors."""

    def __init__(self, java: Driver, cluster: Cluster, name: str) -> None:
        self.java = java
        self.cluster = cluster
        self.topic = f"T_{name}"
        self.group = f"G_{name}"
        self.producer = name
        self.running: list[str] = []

    def send(self, body: str, tags: str | None = None, **properties: str) -> None:
        """One message with properties."""
        self.java("send", name=self.producer, topic=self.topic, count=1, body=body, tags=tags, property=properties)  # fmt: skip

    def fill(self) -> None:
        """Six messages of different kinds."""
        self.send("cheap", "A", price="5", region="eu-1")
        self.send("dear", "A", price="500", region="us-1")
        self.send("other", "B", price="50", region="eu-2")
        self.send("unpriced", "C", region="eu-3")
        self.send("odd", "C", price="free", region="eu-4")
        self.send("fraction", "A", price="7.5", region="eu-5")

    def start(self, command: str, sql: str, **more: Any) -> str:
        """A consumer with a selector; its name."""
        name = f"{self.producer}-{len(self.running)}"
        self.java(command, name=name, group=self.group, topic=self.topic, sql=sql, namesrv=self.cluster.namesrv.address, **more)  # fmt: skip
        self.running.append(name)
        return name

    def seen(self, name: str, count: int) -> list[str]:
        """The bodies a consumer has got, when it has `count` of them and a moment has gone."""
        found = self.java("sqlSeen", name=name, min=count, timeout=PATIENCE_MS, quiet=QUIET_MS)
        return sorted(message["body"].rsplit("-", 1)[0] for message in found["messages"])

    def pull(self, sql: str, queue: int, offset: int = 0) -> dict[str, Any]:
        """One pull that brings its selector."""
        return self.java("sqlPull", group=self.group, topic=self.topic, sql=sql, queue=queue, offset=offset, brokerName=self.cluster.broker.name, namesrv=self.cluster.namesrv.address)  # fmt: skip


@pytest.fixture
def shop(java: Driver, cluster: Cluster, producer: str) -> Iterator[Shop]:
    found = Shop(java, cluster, producer)
    java("create", name=producer, topic=found.topic, address=cluster.broker.address)
    until_routed(cluster, found.topic)
    yield found
    for consumer in found.running:
        java("sqlStop", name=consumer)


@pytest.mark.feature("sql92")
def test_a_push_consumer_gets_what_its_selector_wants(shop: Shop) -> None:
    shop.fill()
    name = shop.start("sqlPush", "TAGS IN ('A', 'B') AND price BETWEEN 1 AND 100 -- in euro\n")
    before = shop.seen(name, 2)
    shop.send("unwanted", "C", price="6")
    shop.send("late", "B", price="6")  # it wakes the held pull
    after = shop.seen(name, 3)

    assert before == ["cheap", "other"]
    assert after == ["cheap", "late", "other"]


@pytest.mark.feature("sql92")
def test_null_and_what_is_no_number_do_not_match(shop: Shop) -> None:
    shop.fill()
    name = shop.start("sqlPush", "price <> 5 OR region ENDSWITH '-3'")

    # "free" and "7.5" are no integers: comparing them fails, whatever stands behind OR.
    assert shop.seen(name, 3) == ["dear", "other", "unpriced"]


@pytest.mark.feature("sql92", "pull")
def test_a_lite_pull_consumer_gets_what_its_selector_wants(shop: Shop) -> None:
    shop.fill()
    name = shop.start("sqlLite", "price > 6.0 and region startswith 'eu'")

    assert shop.seen(name, 2) == ["fraction", "other"]


@pytest.mark.feature("sql92")
def test_a_pull_brings_its_selector_and_makes_progress(shop: Shop) -> None:
    shop.fill()
    answers = [shop.pull("price IS NULL", queue) for queue in range(4)]
    bodies = [message["body"] for answer in answers for message in answer["messages"]]
    filled = [answer for answer in answers if answer["nextBeginOffset"] > 0]

    assert [body.rsplit("-", 1)[0] for body in bodies] == ["unpriced"]
    assert sum(answer["nextBeginOffset"] for answer in filled) == 6
    assert {answer["status"] for answer in filled} <= {"FOUND", "NO_MATCHED_MSG"}


@pytest.mark.feature("sql92", "retry")
def test_a_failed_message_comes_again_through_the_retry_topic(shop: Shop) -> None:
    shop.fill()
    name = shop.start("sqlPush", "price = 50", failUntil=1)

    found = shop.java("sqlSeen", name=name, min=2, timeout=PATIENCE_MS, quiet=QUIET_MS)["messages"]

    assert [message["reconsumeTimes"] for message in found] == [0, 1]
    assert {message["body"].rsplit("-", 1)[0] for message in found} == {"other"}
    assert {message["topic"] for message in found} == {shop.topic}


@pytest.mark.parametrize("sql", ["price >", "price > 'x'", "a = NULL", "5"])
@pytest.mark.feature("sql92", "refusals")
def test_a_wrong_selector_ends_the_start_of_a_consumer(shop: Shop, sql: str) -> None:
    with pytest.raises(JavaError) as raised:
        shop.start("sqlPush", sql)

    assert raised.value.code == 23
    if shop.cluster.flavour == "roquette":
        assert "Invalid MessageSelector." in str(raised.value)


@pytest.mark.feature("sql92", "refusals")
def test_a_broker_without_property_filter_says_so(
    java: Driver, cluster: Cluster, tmp_path: Path, name: str
) -> None:
    namesrv = start_namesrv(cluster.flavour, tmp_path / "n")
    try:
        off = {"enablePropertyFilter": "false", "autoCreateTopicEnable": "true"}
        broker = start_broker(cluster.flavour, tmp_path / "b", namesrv.address, settings=off)
        try:
            java("producer", name=name, namesrv=namesrv.address)
            java("create", name=name, topic="T", address=broker.address)
            with pytest.raises(JavaError) as raised:
                java("sqlPush", name=name, group="G", topic="T", sql="a = 1", namesrv=namesrv.address)  # fmt: skip
            java("drop", name=name)
        finally:
            broker.discard()
    finally:
        namesrv.discard()

    assert raised.value.code == 1
    assert NO_SQL in str(raised.value)
