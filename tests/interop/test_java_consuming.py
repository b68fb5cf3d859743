"""Apache's Java consumers, 4.9.8 and 5.5.0: push, rebalance, broadcasting, pull, tags, retry, order, lag."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.interop.bench import NOTICED_S, Bench, bodies, until, until_routed
from tests.interop.conftest import Cluster
from tests.interop.driver import Driver, JavaError

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture
def bench(java: Driver, cluster: Cluster, producer: str, name: str) -> Iterator[Bench]:
    found = Bench(java, cluster, producer)
    found.client("create", name=producer, topic=found.topic, address=cluster.broker.address)
    until_routed(cluster, found.topic)
    yield found
    for consumer in list(found.running):
        found.stop(consumer)


@pytest.mark.feature("push", "rebalance", "lag")
def test_two_consumers_share_and_one_takes_over(bench: Bench) -> None:
    first = bench.consumer("1")
    until(lambda: bench.queues(first) == {0, 1, 2, 3})
    second = bench.consumer("2")
    # The broker's notice (40) makes both rebalance, long before their 20 s: two and two.
    until(lambda: len(bench.queues(first)) == len(bench.queues(second)) == 2, NOTICED_S)
    assert bench.queues(first) | bench.queues(second) == {0, 1, 2, 3}
    bench.send(40)
    bench.until_all_seen(first, second)
    of_first, of_second = bench.seen(first), bench.seen(second)
    assert {m["queueId"] for m in of_first} == bench.queues(first)
    assert {m["queueId"] for m in of_second} == bench.queues(second)
    bench.stop(second)
    until(lambda: bench.queues(first) == {0, 1, 2, 3}, NOTICED_S)
    bench.send(20, body="after")
    bench.until_all_seen(first, before=of_second)
    bench.stop(first)
    until(lambda: bench.lag()["lag"] == 0)


@pytest.mark.also("closed")
@pytest.mark.feature("broadcasting")
def test_broadcasting_reaches_everybody(bench: Bench) -> None:
    first = bench.consumer("1", model="broadcasting")
    second = bench.consumer("2", model="broadcasting")
    until(lambda: bench.queues(first) == bench.queues(second) == {0, 1, 2, 3})
    bench.send(12)
    assert bodies(bench.seen(first, 12)) == Counter(bench.sent)
    assert bodies(bench.seen(second, 12)) == Counter(bench.sent)


@pytest.mark.also("closed")
@pytest.mark.feature("tags")
def test_tags_select(bench: Bench) -> None:
    bench.send(12, tags="red,green,blue")
    two = bench.consumer("two", expression="red || blue")
    found = bench.seen(two, 8)
    assert Counter(message["tags"] for message in found) == {"red": 4, "blue": 4}
    assert bodies(found) == {f"m-{i}": 1 for i in range(12) if i % 3 != 1}


@pytest.mark.feature("pull", "tags", "offsets")
def test_pull_with_subscription(bench: Bench) -> None:
    bench.send(20, tags="a,b")
    lite = bench.consumer("lite", "lite", manual=1, expression="a")
    found = bench.client("poll", name=lite, min=10, timeout=50_000)["messages"]
    assert bodies(found) == {f"m-{i}": 1 for i in range(0, 20, 2)}
    stored = bench.client("commit", name=lite, topic=bench.topic)["committed"]
    assert sum(stored.values()) >= 10 and set(stored) == {"0", "1", "2", "3"}


@pytest.mark.also("closed")
@pytest.mark.feature("pull", "offsets")
def test_pull_with_assign_and_seek(bench: Bench) -> None:
    bench.send(10, mode="queue", queue=2)
    lite = bench.consumer("lite", "lite", assigned=1)
    (queue,) = bench.client("assign", name=lite, topic=bench.topic, queue=2)["queues"]
    assert queue == f"{bench.topic}@{bench.cluster.broker.name}@2"
    found = _polled_after_seek(bench, lite, 6, 4)
    assert [message["queueOffset"] for message in found] == [6, 7, 8, 9]
    again = _polled_after_seek(bench, lite, 0, 10)
    assert [message["body"] for message in again] == [f"m-{i}" for i in range(10)]


def _polled_after_seek(bench: Bench, lite: str, offset: int, count: int) -> list[Any]:
    """What Apache's lite consumer polls once it has moved to `offset` in queue 2.

    Its seek can be lost without a request to the broker: a pull task that begins just then takes the new offset, is
    cancelled by the seek, and throws away what it pulled (`nextPullOffset` is called outside the queue's lock). Or a
    pull from where it stood before puts its messages in behind the seek. Its user has to seek again, and so does the test.
    """
    for _ in range(5):
        bench.client("seek", name=lite, topic=bench.topic, queue=2, offset=offset)
        found: list[Any] = bench.client("poll", name=lite, min=count, timeout=10_000)["messages"]
        if found and found[0]["queueOffset"] == offset:
            break
    return found


@pytest.mark.also("closed")
@pytest.mark.feature("retry")
def test_a_failed_message_comes_again(bench: Bench) -> None:
    consumer = bench.consumer(failUntil=2)
    until(lambda: bench.queues(consumer))
    (sent,) = bench.send(1, tags="t", keys="k", property={"colour": "red"})
    tries = bench.seen(consumer, 3, nudge=True)
    assert [message["reconsumeTimes"] for message in tries] == [0, 1, 2]
    for message in tries:
        assert message["topic"] == bench.topic and message["body"] == "m-0"
        assert message["msgId"] == sent["msgId"]
        assert message["tags"] == "t" and message["properties"]["colour"] == "red"
    last = tries[2]["properties"]
    assert last["RETRY_TOPIC"] == bench.topic
    assert last["ORIGIN_MESSAGE_ID"] == sent["offsetMsgId"]
    assert tries[2]["storeTimestamp"] - tries[0]["storeTimestamp"] >= 1800  # two delays of 1 s
    time.sleep(1.5)
    assert len(bench.seen(consumer)) == 3


@pytest.mark.feature("dead-letter")
def test_what_fails_too_often_is_a_dead_letter(bench: Bench) -> None:
    consumer = bench.consumer(failUntil=99, maxReconsume=1)
    until(lambda: bench.queues(consumer))
    (sent,) = bench.send(1)
    assert [m["reconsumeTimes"] for m in bench.seen(consumer, 2, nudge=True)] == [0, 1]
    dead = f"%DLQ%{bench.group}"

    def found() -> Any:
        return bench.client("route", name=bench.name, topic=dead)

    route = until(lambda: _quiet(found))
    broker = {"brokerName": bench.cluster.broker.name, "perm": 6}
    assert route["queues"] == [{**broker, "read": 1, "write": 1}]
    lite = bench.consumer("dlq", "lite", topic=dead, group=f"{bench.group}_dlq")
    (message,) = bench.client("poll", name=lite, min=1, timeout=50_000)["messages"]
    assert message["body"] == "m-0"
    assert message["properties"]["ORIGIN_MESSAGE_ID"] == sent["offsetMsgId"]
    assert message["properties"]["RETRY_TOPIC"] == bench.topic
    assert len(bench.seen(consumer)) == 2


def _quiet(what: Callable[[], Any]) -> Any:
    try:
        return what()
    except JavaError:
        return None


@pytest.mark.also("closed")
@pytest.mark.feature("lag")
def test_lag(bench: Bench) -> None:
    bench.send(8)
    consumer = bench.consumer()
    bench.seen(consumer, 8)
    bench.stop(consumer)  # it stores its offsets
    until(lambda: bench.lag()["lag"] == 0)
    sent = bench.send(6, body="more", mode="queue", queue=1)
    stats = bench.lag()
    assert stats["lag"] == 6
    key = f"{bench.cluster.broker.name}@{{}}"
    assert set(stats["queues"]) == {key.format(queue) for queue in range(4)}
    mine = stats["queues"][key.format(1)]
    assert mine["broker"] == sent[-1]["queueOffset"] + 1
    assert mine["consumer"] == sent[0]["queueOffset"]
    assert mine["last"] > 0  # store time of the last message consumed


@pytest.mark.also("closed")
@pytest.mark.feature("order")
def test_order_within_a_queue(bench: Bench) -> None:
    for queue in range(4):
        bench.send(10, body=f"q{queue}", mode="queue", queue=queue)
    consumer = bench.consumer(orderly=1)
    found = bench.seen(consumer, 40)
    assert bodies(found) == Counter(bench.sent)
    for queue in range(4):
        order = [message["body"] for message in found if message["queueId"] == queue]
        assert order == [f"q{queue}-{i}" for i in range(10)]


@pytest.mark.feature("order", "rebalance")
def test_an_orderly_queue_moves_with_its_lock(bench: Bench) -> None:
    first = bench.consumer("1", orderly=1)
    until(lambda: bench.queues(first) == {0, 1, 2, 3})
    second = bench.consumer("2", orderly=1)
    # The first lets go of the locks; the second gets them when it asks again.
    until(lambda: [len(bench.queues(name, nudge=True)) for name in (first, second)] == [2, 2])
    assert bench.queues(first) | bench.queues(second) == {0, 1, 2, 3}
    for queue in range(4):
        bench.send(5, body=f"q{queue}", mode="queue", queue=queue)
    # Nudged: a queue that moves once more waits for the next rebalance, 20 s, before it is locked again.
    bench.until_all_seen(first, second, nudge=True)


@pytest.mark.feature("offsets")
def test_consuming_from_last_gets_what_a_young_queue_holds(bench: Bench) -> None:
    # A new group of CONSUME_FROM_LAST_OFFSET begins at the end; but while a queue still begins at 0 and
    # in memory, the broker answers 0 to the question for its offset (QUERY_CONSUMER_OFFSET).
    bench.send(8, body="old")
    consumer = bench.consumer(**{"from": "CONSUME_FROM_LAST_OFFSET"})
    found = bench.seen(consumer, 8)
    assert bodies(found) == Counter(bench.sent)
