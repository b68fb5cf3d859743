"""Apache's Java producers, 4.9.8 and 5.5.0: every way of sending, topics that appear, queries."""

import hashlib
from typing import Any

import pytest
from tests.interop.bench import until_routed
from tests.interop.conftest import Cluster
from tests.interop.driver import Driver, JavaError

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def read_all(java: Driver, cluster: Cluster, name: str, topic: str, count: int) -> list[Any]:
    """All `count` messages of a topic, by a lite pull consumer of its own."""
    java("lite", name=name, namesrv=cluster.namesrv.address, group=f"G_{name}", topic=topic)
    try:
        found: list[Any] = java("poll", name=name, min=count, timeout=50_000)["messages"]
    finally:
        java("stop", name=name)
    return found


@pytest.mark.also("closed")
@pytest.mark.feature("send", "properties", "auto-create")
def test_sync_sends_create_the_topic(
    java: Driver, cluster: Cluster, producer: str, name: str
) -> None:
    topic = f"T_{name}"
    sent = java(
        "send",
        name=producer,
        topic=topic,
        count=8,
        tags="red,blue",
        keys="k",
        property={"shape": "round", "unicode": "größer 字"},
    )["results"]
    assert [result["status"] for result in sent] == ["SEND_OK"] * 8
    assert {result["brokerName"] for result in sent} == {cluster.broker.name}
    # T1: the default topic has 8 queues, a new topic takes the producer's default of 4.
    until_routed(cluster, topic)
    route = java("route", name=producer, topic=topic)
    assert route["queues"] == [
        {"brokerName": cluster.broker.name, "read": 4, "write": 4, "perm": 6}
    ]
    addresses = {"0": cluster.broker.address}
    expected = {"cluster": "DefaultCluster", "brokerName": cluster.broker.name}
    assert route["brokers"] == [{**expected, "addresses": addresses}]
    # Dense per queue; which queues is Java's affair, which may begin anew when the topic's own route comes.
    queues = [r["queueId"] for r in sent]
    assert set(queues) == set(range(4))
    assert sorted((r["queueId"], r["queueOffset"]) for r in sent) == [
        (queue, offset) for queue in range(4) for offset in range(queues.count(queue))
    ]
    found = read_all(java, cluster, name, topic, 8)
    by_id = {message["msgId"]: message for message in found}
    assert len(found) == 8 and set(by_id) == {result["msgId"] for result in sent}
    for i, result in enumerate(sent):
        message = by_id[result["msgId"]]
        assert message["body"] == f"m-{i}"
        assert message["tags"] == ["red", "blue"][i % 2]
        assert message["keys"] == f"k-{i}"
        assert message["properties"]["shape"] == "round"
        assert message["properties"]["unicode"] == "größer 字"
        assert (message["queueId"], message["queueOffset"]) == (
            result["queueId"],
            result["queueOffset"],
        )
        assert message["storeHost"].endswith(cluster.broker.address)
        assert message["bornHost"] == "127.0.0.1"
        assert message["reconsumeTimes"] == 0


@pytest.mark.also("closed")
@pytest.mark.feature("send-async", "send-oneway", "send-to-queue")
def test_async_oneway_and_selected_sends(
    java: Driver, cluster: Cluster, producer: str, name: str
) -> None:
    topic = f"T_{name}"
    common: dict[str, Any] = {"name": producer, "topic": topic}
    first = java("send", **common, mode="sync", body="sync")["results"]
    until_routed(cluster, topic)
    several = java("send", **common, mode="async", body="async", count=20)["results"]
    assert {result["status"] for result in first + several} == {"SEND_OK"}
    assert java("send", **common, mode="oneway", body="oneway", count=5)["results"] == []
    chosen = java("send", **common, mode="selector", argument=2, body="chosen", count=3)["results"]
    assert {result["queueId"] for result in chosen} == {2}
    direct = java("send", **common, mode="queue", queue=3, body="direct", count=3)["results"]
    assert {result["queueId"] for result in direct} == {3}
    offsets = [result["queueOffset"] for result in direct]
    assert offsets == list(range(offsets[0], offsets[0] + 3))
    bodies = sorted(message["body"] for message in read_all(java, cluster, name, topic, 32))
    wanted = {"sync": 1, "async": 20, "oneway": 5, "chosen": 3, "direct": 3}
    assert bodies == sorted(f"{kind}-{i}" for kind, count in wanted.items() for i in range(count))


@pytest.mark.also("closed")
@pytest.mark.feature("batch")
def test_a_batch_is_many_messages(java: Driver, cluster: Cluster, producer: str, name: str) -> None:
    topic = f"T_{name}"
    java("send", name=producer, topic=topic, body="single")
    (result,) = java(
        "send", name=producer, topic=topic, mode="batch", count=50, tags="a,b", keys="key"
    )["results"]
    assert result["status"] == "SEND_OK"
    ids, offset_ids = result["msgId"].split(","), result["offsetMsgId"].split(",")
    assert len(set(ids)) == 50 and len(set(offset_ids)) == 50
    found = [m for m in read_all(java, cluster, name, topic, 51) if m["body"] != "single-0"]
    found.sort(key=lambda message: message["queueOffset"])
    assert [message["body"] for message in found] == [f"m-{i}" for i in range(50)]
    assert [message["msgId"] for message in found] == ids
    assert {message["queueId"] for message in found} == {result["queueId"]}
    first = result["queueOffset"]
    assert [message["queueOffset"] for message in found] == list(range(first, first + 50))
    assert [message["tags"] for message in found] == ["a", "b"] * 25
    (viewed,) = java("view", name=producer, topic=topic, id=offset_ids[7])["messages"]
    assert viewed["body"] == "m-7"


@pytest.mark.feature("compressed")
def test_a_big_body_is_compressed(java: Driver, cluster: Cluster, producer: str, name: str) -> None:
    topic, size = f"T_{name}", 200_000
    (result,) = java("send", name=producer, topic=topic, size=size)["results"]
    assert result["status"] == "SEND_OK"
    (message,) = read_all(java, cluster, name, topic, 1)
    body = bytes(ord("a") + at % 26 for at in range(size))
    assert (message["size"], message["hash"]) == (size, hashlib.md5(body).hexdigest())
    assert message["storeSize"] < size // 10


@pytest.mark.also("closed")
@pytest.mark.feature("delay")
def test_delayed_messages_come_late(
    java: Driver, cluster: Cluster, producer: str, name: str
) -> None:
    topic = f"T_{name}"
    java("send", name=producer, topic=topic, body="now")
    (result,) = java("send", name=producer, topic=topic, body="later", delay=2)["results"]
    assert result["status"] == "SEND_OK"
    found = {m["body"]: m for m in read_all(java, cluster, name, topic, 2)}
    assert set(found) == {"now-0", "later-0"}
    later = found["later-0"]
    assert later["topic"] == topic and later["msgId"] == result["msgId"]
    assert later["storeTimestamp"] - later["bornTimestamp"] >= 900  # level 2 is 1 s here


@pytest.mark.also("closed")
@pytest.mark.feature("query")
def test_messages_are_found_again(java: Driver, cluster: Cluster, producer: str, name: str) -> None:
    topic = f"T_{name}"
    sent = java("send", name=producer, topic=topic, count=3, keys="one", oneKey=1)["results"]
    java("send", name=producer, topic=topic, count=2, keys="two", oneKey=1)
    read_all(java, cluster, name, topic, 5)  # the index follows the commit log as the queues do
    found = java("query", name=producer, topic=topic, key="one")["messages"]
    assert {message["msgId"] for message in found} == {result["msgId"] for result in sent}
    (unique,) = java("unique", name=producer, topic=topic, id=sent[1]["msgId"])["messages"]
    assert unique["body"] == "m-1"
    (viewed,) = java("view", name=producer, topic=topic, id=sent[2]["offsetMsgId"])["messages"]
    assert viewed["body"] == "m-2" and viewed["queueOffset"] == sent[2]["queueOffset"]
    with pytest.raises(JavaError):
        java("query", name=producer, topic=topic, key="none")


@pytest.mark.also("closed")
@pytest.mark.feature("query", "offsets")
def test_offsets_by_time(java: Driver, cluster: Cluster, producer: str, name: str) -> None:
    topic = f"T_{name}"
    java("send", name=producer, topic=topic)
    until_routed(cluster, topic)
    sent = java("send", name=producer, topic=topic, mode="queue", queue=1, count=5)["results"]
    key = f"{cluster.broker.name}@1"
    found = [m for m in read_all(java, cluster, name, topic, 6) if m["queueId"] == 1]
    stored = max(message["storeTimestamp"] for message in found)
    past = java("offsets", name=producer, topic=topic, at=1)[key]
    assert (past["min"], past["search"]) == (0, 0)
    assert past["max"] == sent[-1]["queueOffset"] + 1
    assert 0 < past["earliest"] <= stored
    future = java("offsets", name=producer, topic=topic, at=stored + 60_000)[key]
    assert future["search"] == future["max"]


@pytest.mark.feature("auto-create", "refusals")
def test_no_topics_without_auto_creation(java: Driver, strict: Cluster, name: str) -> None:
    java("producer", name=name, namesrv=strict.namesrv.address, retries=0)
    try:
        with pytest.raises(JavaError) as missing:
            java("send", name=name, topic=f"T_{name}")
        # The client finds no route, not even that of the default topic, and says so itself.
        assert missing.value.code == 10005
        assert missing.value.answer["text"].startswith(f"No route info of this topic: T_{name}")
        # A producer that has a queue of the topic asks the broker, which refuses.
        java("create", name=name, topic=f"C_{name}", address=strict.broker.address)
        java("send", name=name, topic=f"C_{name}")  # now it knows the broker's address
        queue = {"brokerName": strict.broker.name, "queueId": 0}
        with pytest.raises(JavaError) as refused:
            java("send", name=name, topic=f"T_{name}", mode="forced", **queue)
        assert refused.value.code == 17
        assert refused.value.remark == (
            f"topic[T_{name}] not exist, apply first please!\n"
            "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
        )
        with pytest.raises(JavaError) as unknown:
            java("route", name=name, topic=f"T_{name}")
        assert unknown.value.answer["code"] == 17
    finally:
        java("drop", name=name)
