"""The Node.js client ali-ons, which speaks the remoting protocol as the Java client 3.4.9 did."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.bench import NOTICED_S, Bench, bodies, until
from tests.interop.clients import NodeClient
from tests.interop.conftest import Cluster
from tests.interop.driver import ClientError
from tests.interop.peers import call

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture
def bench(node: NodeClient, cluster: Cluster, name: str) -> Iterator[Bench]:
    """A Node.js producer on a topic of four queues."""
    found = Bench(node, cluster, name)
    found.create()
    node("producer", name=name, namesrv=cluster.namesrv.address)
    yield found
    for consumer in list(found.running):
        found.stop(consumer)
    node("drop", name=name)


@pytest.mark.also("signed")
@pytest.mark.feature("send", "push", "properties", client="Node 3.12.0")
def test_what_is_sent_arrives(bench: Bench) -> None:
    consumer = bench.consumer()
    properties = {"shape": "round", "unicode": "größer 字"}
    sent = bench.send(12, tags="red,blue", keys="k", property=properties)
    found = bench.seen(consumer, 12)
    by_id = {message["msgId"]: message for message in found}
    assert len(found) == 12 and set(by_id) == {result["msgId"] for result in sent}
    for i, result in enumerate(sent):
        message = by_id[result["msgId"]]
        assert (message["body"], message["keys"]) == (f"m-{i}", f"k-{i}")
        assert message["tags"] == ["red", "blue"][i % 2]
        assert {key: message["properties"][key] for key in properties} == properties
        assert message["queueId"] == result["queueId"]
        assert message["queueOffset"] == result["queueOffset"]
        assert message["storeHost"] == bench.cluster.broker.address
        assert message["bornHost"].startswith("127.0.0.1:")


@pytest.mark.also("signed")
@pytest.mark.feature("send-to-queue", client="Node 3.12.0")
def test_a_sharding_key_chooses_the_queue(bench: Bench) -> None:
    sent = bench.send(6, sharding="order-17")
    assert len({result["queueId"] for result in sent}) == 1


@pytest.mark.feature("compressed", client="Node 3.12.0")
def test_a_big_body_is_compressed(bench: Bench) -> None:
    consumer, size = bench.consumer(), 100_000
    bench.send(1, size=size)
    (message,) = bench.seen(consumer, 1)
    body = bytes(ord("a") + at % 26 for at in range(size))
    assert (message["size"], message["hash"]) == (size, hashlib.md5(body).hexdigest())
    assert message["storeSize"] < size // 10


@pytest.mark.also("signed")
@pytest.mark.feature("delay", client="Node 3.12.0")
def test_delayed_messages_come_late(bench: Bench) -> None:
    consumer = bench.consumer()
    bench.send(1, body="now")
    bench.send(1, body="later", delay=2)
    found = {message["body"]: message for message in bench.seen(consumer, 2)}
    later = found["later-0"]
    assert later["topic"] == bench.topic
    assert later["storeTimestamp"] - later["bornTimestamp"] >= 900  # level 2 is 1 s here


@pytest.mark.feature("refusals", client="Node 3.12.0")
def test_a_topic_that_is_missing(bench: Bench) -> None:
    node, topic = bench.client, f"N_{bench.name}"
    with pytest.raises(ClientError) as missing:
        # It never asks for the default topic's route: that a topic is missing ends its sending.
        node("send", name=bench.name, topic=topic)
    assert missing.value.code == 17
    assert missing.value.remark is not None
    assert missing.value.remark.startswith(
        f"No topic route info in name server for the topic: {topic}"
    )


@pytest.mark.feature("refusals", client="Node 3.12.0")
def test_a_refusal_reaches_the_sender(bench: Bench) -> None:
    with pytest.raises(ClientError) as refused:
        bench.send(1, property={"long": "p" * 33_000})
    assert refused.value.code == 13
    assert [bench.size(queue) for queue in range(4)] == [0, 0, 0, 0]


@pytest.mark.feature("rebalance", client="Node 3.12.0")
def test_two_consumers_share_and_one_takes_over(bench: Bench) -> None:
    first = bench.consumer("1")
    until(lambda: bench.queues(first) == {0, 1, 2, 3})
    second = bench.consumer("2")
    until(lambda: len(bench.queues(first)) == len(bench.queues(second)) == 2, NOTICED_S)
    assert bench.queues(first) | bench.queues(second) == {0, 1, 2, 3}
    bench.send(40)
    bench.until_all_seen(first, second)
    of_first, of_second = bench.seen(first), bench.seen(second)
    assert {m["queueId"] for m in of_first} == bench.queues(first)
    bench.stop(second)
    until(lambda: bench.queues(first) == {0, 1, 2, 3}, NOTICED_S)
    bench.send(20, body="after")
    bench.until_all_seen(first, before=of_second)


@pytest.mark.feature("offsets", client="Node 3.12.0")
def test_the_next_consumer_goes_on(bench: Bench) -> None:
    first = bench.consumer("1")
    until(lambda: bench.queues(first) == {0, 1, 2, 3})
    bench.send(20)
    until(lambda: bench.committed() == [bench.size(queue) for queue in range(4)])
    bench.stop(first)
    second = bench.consumer("2")
    bench.send(4, body="rest")
    assert bodies(bench.seen(second, 4)) == Counter(f"rest-{i}" for i in range(4))


@pytest.mark.also("signed")
@pytest.mark.feature("broadcasting", client="Node 3.12.0")
def test_broadcasting_reaches_everybody(bench: Bench) -> None:
    first = bench.consumer("1", model="broadcasting")
    second = bench.consumer("2", model="broadcasting")
    until(lambda: bench.queues(first) == bench.queues(second) == {0, 1, 2, 3})
    bench.send(12)
    assert bodies(bench.seen(first, 12)) == Counter(bench.sent)
    assert bodies(bench.seen(second, 12)) == Counter(bench.sent)


@pytest.mark.feature("tags", client="Node 3.12.0")
def test_tags_select(bench: Bench) -> None:
    bench.send(12, tags="red,green,blue")
    two = bench.consumer("two", expression="red || blue")
    found = bench.seen(two, 8)
    assert Counter(message["tags"] for message in found) == {"red": 4, "blue": 4}
    assert bodies(found) == {f"m-{i}": 1 for i in range(12) if i % 3 != 1}


@pytest.mark.feature("sql92", client="Node 3.12.0")
def test_sql_selects(bench: Bench) -> None:
    for shape, size in (("round", 1), ("round", 7), ("flat", 7)):
        bench.send(1, body=f"{shape}{size}", property={"shape": shape, "size": size})
    consumer = bench.consumer(sql="shape = 'round' AND size > 5")
    assert bodies(bench.seen(consumer, 1)) == {"round7-0": 1}
    bench.send(1, body="plain")
    bench.send(1, body="last", property={"shape": "round", "size": 9})
    assert bodies(bench.seen(consumer, 2)) == {"round7-0": 1, "last-0": 1}


@pytest.mark.feature("retry", client="Node 3.12.0")
def test_a_failed_message_comes_again(bench: Bench) -> None:
    consumer = bench.consumer(failUntil=2)
    until(lambda: bench.queues(consumer))
    (sent,) = bench.send(1, tags="t", property={"colour": "red"})
    tries = bench.seen(consumer, 3)
    assert [message["reconsumeTimes"] for message in tries] == [0, 1, 2]
    for message in tries:
        assert message["topic"] == bench.topic and message["body"] == "m-0"
        assert message["tags"] == "t" and message["properties"]["colour"] == "red"
    last = tries[-1]["properties"]
    assert last["RETRY_TOPIC"] == bench.topic and last["ORIGIN_MESSAGE_ID"] == sent["msgId"]
    time.sleep(1.5)
    assert len(bench.seen(consumer)) == 3


@pytest.mark.feature("dead-letter", client="Node 3.12.0")
def test_what_fails_too_often_is_a_dead_letter(bench: Bench) -> None:
    consumer = bench.consumer(failUntil=99, maxReconsume=1)
    until(lambda: bench.queues(consumer))
    (sent,) = bench.send(1)
    assert [m["reconsumeTimes"] for m in bench.seen(consumer, 2)] == [0, 1]
    dead = f"%DLQ%{bench.group}"

    def there() -> bool:
        answer = call(bench.cluster.namesrv.address, 105, {"topic": dead})
        return answer is not None and answer[0]["code"] == 0

    until(there)
    reader = bench.consumer("dead", topic=dead, group=f"{bench.group}_dead")
    found: list[Any] = bench.seen(reader, 1)
    assert [message["body"] for message in found] == ["m-0"]
    assert found[0]["properties"]["ORIGIN_MESSAGE_ID"] == sent["msgId"]
    assert len(bench.seen(consumer)) == 2


@pytest.mark.feature("namespaces", client="Node 3.12.0")
def test_a_namespace_is_a_prefix(bench: Bench) -> None:
    node, cluster = bench.client, bench.cluster
    word, real = f"{bench.name}-ns", f"NS1%{bench.topic}"
    bench.create(real)
    node("producer", name=word, namesrv=cluster.namesrv.address, namespace="NS1")
    consumer = bench.consumer("ns", namespace="NS1")
    outside = bench.consumer("outside")
    node("send", name=word, topic=bench.topic, count=3)
    found = bench.seen(consumer, 3)
    assert bodies(found) == {f"m-{i}": 1 for i in range(3)}
    assert {message["topic"] for message in found} == {real}
    assert bench.seen(outside) == []
    node("drop", name=word)
