"""Apache's Go client (rocketmq-client-go/v2): every way of sending, consuming, pulling and asking it offers."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.bench import NOTICED_S, Bench, bodies, create_topic, until, until_routed
from tests.interop.clients import GoClient
from tests.interop.conftest import Cluster
from tests.interop.driver import ClientError
from tests.interop.peers import call

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture
def bench(go: GoClient, cluster: Cluster, name: str) -> Iterator[Bench]:
    """A Go producer on a topic of four queues."""
    found = Bench(go, cluster, name)
    found.create()
    go("producer", name=name, namesrv=cluster.namesrv.address)
    yield found
    for consumer in list(found.running):
        found.stop(consumer)
    go("drop", name=name)


def read_all(bench: Bench, topic: str = "", queues: int = 4) -> list[Any]:
    """Every message of a topic, by a pull consumer of its own, queue by queue."""
    topic = topic or bench.topic
    name = bench.consumer("reader", "lite", group=f"{bench.group}_reader", topic=topic)
    where = {"name": name, "topic": topic, "brokerName": bench.cluster.broker.name}
    found: list[Any] = []
    for queue in range(queues):
        at = 0
        while at < bench.size(queue, topic):  # at its end the broker holds a pull
            told = bench.client("pull", **where, queue=queue, offset=at)
            found += told["messages"]
            at = told["next"]
    bench.stop(name)
    return found


@pytest.mark.also("signed")
@pytest.mark.feature("send", "properties", client="Go 2.1.2")
def test_sync_sends(bench: Bench) -> None:
    properties = {"shape": "round", "unicode": "größer 字"}
    sent = bench.send(8, tags="red,blue", keys="k", property=properties)
    assert {result["brokerName"] for result in sent} == {bench.cluster.broker.name}
    places = sorted((result["queueId"], result["queueOffset"]) for result in sent)
    queues = [queue for queue, _ in places]
    assert places == [(q, n) for q in sorted(set(queues)) for n in range(queues.count(q))]
    found = read_all(bench)
    by_id = {message["msgId"]: message for message in found}
    assert len(found) == 8 and set(by_id) == {result["msgId"] for result in sent}
    for i, result in enumerate(sent):
        message = by_id[result["msgId"]]
        assert (message["body"], message["keys"]) == (f"m-{i}", f"k-{i}")
        assert message["tags"] == ["red", "blue"][i % 2]
        assert {key: message["properties"][key] for key in properties} == properties
        assert message["queueId"] == result["queueId"]
        assert message["queueOffset"] == result["queueOffset"]
        assert message["offsetMsgId"] == result["offsetMsgId"]
        assert message["storeHost"] == bench.cluster.broker.address
        assert message["bornHost"].startswith("127.0.0.1:")


@pytest.mark.also("signed")
@pytest.mark.feature("send-async", "send-oneway", client="Go 2.1.2")
def test_async_and_oneway_sends(bench: Bench) -> None:
    several = bench.send(20, mode="async", body="async")
    assert len({result["msgId"] for result in several}) == 20
    oneway = bench.client(
        "send", name=bench.name, topic=bench.topic, mode="oneway", body="oneway", count=5
    )
    assert oneway["results"] == []
    bench.sent += [f"oneway-{i}" for i in range(5)]
    found: list[Any] = []

    def stored() -> bool:
        found[:] = read_all(bench)
        return len(found) >= 25

    until(stored)
    assert bodies(found) == Counter(bench.sent)


@pytest.mark.also("signed")
@pytest.mark.feature("batch", client="Go 2.1.2")
def test_a_batch_is_many_messages(bench: Bench) -> None:
    (result,) = bench.client(
        "send", name=bench.name, topic=bench.topic, mode="batch", count=50, tags="a,b"
    )["results"]
    assert result["status"] == "SEND_OK"
    ids = result["offsetMsgId"].split(",")
    assert len(set(ids)) == 50
    found = read_all(bench)
    assert [message["body"] for message in found] == [f"m-{i}" for i in range(50)]
    assert [message["offsetMsgId"] for message in found] == ids
    assert {message["queueId"] for message in found} == {result["queueId"]}
    assert [message["queueOffset"] for message in found] == list(range(50))
    assert [message["tags"] for message in found] == ["a", "b"] * 25


@pytest.mark.feature("send-to-queue", client="Go 2.1.2")
def test_chosen_queues(go: GoClient, cluster: Cluster, name: str) -> None:
    create_topic(cluster, f"T_{name}")
    common = {"namesrv": cluster.namesrv.address}
    queue = {"topic": f"T_{name}", "queue": 2, "brokerName": cluster.broker.name}
    go("producer", name=name, **common, queue=1)
    sent = go("send", name=name, **queue, count=3)["results"]
    assert [(result["queueId"], result["queueOffset"]) for result in sent] == [
        (2, offset) for offset in range(3)
    ]
    go("drop", name=name)
    go("producer", name=name, **common, hash=1)
    sharded = go("send", name=name, topic=f"T_{name}", sharding="order-17", count=6)["results"]
    assert len({result["queueId"] for result in sharded}) == 1
    go("drop", name=name)


@pytest.mark.feature("compressed", client="Go 2.1.2")
def test_a_big_body_is_compressed(bench: Bench) -> None:
    size = 200_000
    bench.send(1, size=size)
    (message,) = read_all(bench)
    body = bytes(ord("a") + at % 26 for at in range(size))
    assert (message["size"], message["hash"]) == (size, hashlib.md5(body).hexdigest())
    assert message["storeSize"] < size // 10


@pytest.mark.also("signed")
@pytest.mark.feature("delay", client="Go 2.1.2")
def test_delayed_messages_come_late(bench: Bench) -> None:
    consumer = bench.consumer()
    bench.send(1, body="now")
    (result,) = bench.send(1, body="later", delay=2)
    found = {message["body"]: message for message in bench.seen(consumer, 2)}
    assert set(found) == {"now-0", "later-0"}
    later = found["later-0"]
    assert later["topic"] == bench.topic and later["msgId"] == result["msgId"]
    assert later["storeTimestamp"] - later["bornTimestamp"] >= 900  # level 2 is 1 s here


@pytest.mark.feature("auto-create", client="Go 2.1.2")
def test_sending_makes_the_topic(bench: Bench, strict: Cluster) -> None:
    go, topic = bench.client, f"N_{bench.name}"
    sent = go("send", name=bench.name, topic=topic, count=4)["results"]
    assert [result["status"] for result in sent] == ["SEND_OK"] * 4
    until_routed(bench.cluster, topic)
    assert go("publish", namesrv=bench.cluster.namesrv.address, topic=topic)["queues"] == [
        0,
        1,
        2,
        3,
    ]
    assert len(read_all(bench, topic)) == 4
    word = f"{bench.name}-strict"
    go("producer", name=word, namesrv=strict.namesrv.address)
    with pytest.raises(ClientError) as missing:
        go("send", name=word, topic=topic)
    assert str(missing.value.answer["text"]) == f"the topic={topic} route info not found"
    go("drop", name=word)


@pytest.mark.feature("refusals", client="Go 2.1.2")
def test_a_refusal_reaches_the_sender(bench: Bench) -> None:
    with pytest.raises(ClientError) as long:
        bench.send(1, property={"long": "p" * 33_000})
    assert long.value.code == 13
    with pytest.raises(ClientError) as big:
        bench.client(
            "producer", name="big", namesrv=bench.cluster.namesrv.address, compressOver=9 << 20
        )
        bench.client("send", name="big", topic=bench.topic, size=5 << 20)
    bench.client("drop", name="big")
    assert big.value.code == 13
    assert big.value.remark == long.value.remark
    assert [bench.size(queue) for queue in range(4)] == [0, 0, 0, 0]


@pytest.mark.feature("push", "rebalance", "offsets", client="Go 2.1.2")
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
    # It says no goodbye, it closes its connections.
    bench.stop(second)
    until(lambda: bench.queues(first) == {0, 1, 2, 3}, NOTICED_S)
    bench.send(20, body="after")
    bench.until_all_seen(first, before=of_second)
    bench.stop(first)
    until(lambda: sum(bench.committed()) == 60)
    third = bench.consumer("3")
    bench.send(4, body="rest")
    assert bodies(bench.seen(third, 4)) == Counter(f"rest-{i}" for i in range(4))


@pytest.mark.also("signed")
@pytest.mark.feature("broadcasting", client="Go 2.1.2")
def test_broadcasting_reaches_everybody(bench: Bench) -> None:
    first = bench.consumer("1", model="broadcasting")
    second = bench.consumer("2", model="broadcasting")
    until(lambda: bench.queues(first) == bench.queues(second) == {0, 1, 2, 3})
    bench.send(12)
    assert bodies(bench.seen(first, 12)) == Counter(bench.sent)
    assert bodies(bench.seen(second, 12)) == Counter(bench.sent)


@pytest.mark.feature("tags", client="Go 2.1.2")
def test_tags_select(bench: Bench) -> None:
    bench.send(12, tags="red,green,blue")
    two = bench.consumer("two", expression="red || blue")
    found = bench.seen(two, 8)
    assert Counter(message["tags"] for message in found) == {"red": 4, "blue": 4}
    assert bodies(found) == {f"m-{i}": 1 for i in range(12) if i % 3 != 1}


@pytest.mark.also("signed")
@pytest.mark.feature("order", client="Go 2.1.2")
def test_order_within_a_queue_through_failures(bench: Bench) -> None:
    for _ in range(40):
        bench.send(1, body=f"m{len(bench.sent)}")
    consumer = bench.consumer(orderly=1, failUntil=1)
    found = bench.seen(consumer, 80)
    done = [message for message in found if message["reconsumeTimes"] == 1]
    assert bodies(done) == Counter(bench.sent)
    for queue in range(4):
        mine = [message for message in found if message["queueId"] == queue]
        offsets = [message["queueOffset"] for message in mine]
        # Each fails once and comes again before the next one.
        assert offsets == [offset for offset in range(len(mine) // 2) for _ in range(2)]


@pytest.mark.feature("order", "rebalance", client="Go 2.1.2")
def test_locks_go_with_a_consumer_that_stops(bench: Bench) -> None:
    first = bench.consumer("1", orderly=1)
    until(lambda: bench.queues(first) == {0, 1, 2, 3})
    bench.send(20)
    assert bodies(bench.seen(first, 20)) == Counter(bench.sent)
    until(lambda: sum(bench.committed()) == 20)  # what it has handled, it has not yet committed
    bench.stop(first)  # it gives its locks back
    second = bench.consumer("2", orderly=1)
    until(lambda: bench.queues(second, nudge=True) == {0, 1, 2, 3}, NOTICED_S)
    bench.send(20, body="more")
    assert bodies(bench.seen(second, 20)) == Counter(f"more-{i}" for i in range(20))


@pytest.mark.long
@pytest.mark.feature("order", "rebalance", client="Go 2.1.2")
def test_a_lock_that_is_kept_expires(bench: Bench) -> None:
    # The Go client keeps the lock of a queue it lets go: the next one waits until it expires, 60 s.
    first = bench.consumer("1", orderly=1)
    until(lambda: bench.queues(first) == {0, 1, 2, 3})
    second = bench.consumer("2", orderly=1)
    until(lambda: len(bench.queues(first)) == 2)
    both = (first, second)
    until(lambda: [len(bench.queues(name, nudge=True)) for name in both] == [2, 2], 100)
    bench.send(20)
    bench.until_all_seen(first, second)


@pytest.mark.feature("retry", client="Go 2.1.2")
def test_a_failed_message_comes_again(bench: Bench) -> None:
    # The client asks for the retry topic's route at its start and then every 30 s only.
    bench.create(f"%RETRY%{bench.group}", queues=1)
    consumer = bench.consumer(failUntil=2)
    until(lambda: bench.queues(consumer))
    (sent,) = bench.send(1, tags="t", keys="k", property={"colour": "red"})
    tries = bench.seen(consumer, 3)
    assert [message["reconsumeTimes"] for message in tries] == [0, 1, 2]
    for message in tries:
        assert message["topic"] == bench.topic and message["body"] == "m-0"
        assert message["msgId"] == sent["msgId"]
        assert message["tags"] == "t" and message["properties"]["colour"] == "red"
    assert tries[2]["properties"]["RETRY_TOPIC"] == bench.topic
    assert tries[2]["storeTimestamp"] - tries[0]["storeTimestamp"] >= 1800  # two delays of 1 s
    time.sleep(1.5)
    assert len(bench.seen(consumer)) == 3


@pytest.mark.feature("dead-letter", client="Go 2.1.2")
def test_what_fails_too_often_is_a_dead_letter(bench: Bench) -> None:
    bench.create(f"%RETRY%{bench.group}", queues=1)
    consumer = bench.consumer(failUntil=99, maxReconsume=1)
    until(lambda: bench.queues(consumer))
    (sent,) = bench.send(1)
    assert [m["reconsumeTimes"] for m in bench.seen(consumer, 2)] == [0, 1]
    dead = f"%DLQ%{bench.group}"
    asked = {"topic": dead}

    def there() -> bool:
        answer = call(bench.cluster.namesrv.address, 105, asked)
        return answer is not None and answer[0]["code"] == 0

    until(there)
    (message,) = read_all(bench, dead, queues=1)
    assert message["body"] == "m-0" and message["msgId"] == sent["msgId"]
    assert message["properties"]["RETRY_TOPIC"] == bench.topic
    assert len(bench.seen(consumer)) == 2


@pytest.mark.feature("pull", "tags", client="Go 2.1.2")
def test_polling_and_acknowledging(bench: Bench) -> None:
    bench.send(20, tags="a,b")
    lite = bench.consumer("lite", "lite", expression="a")
    found = bench.client("poll", name=lite, min=10, timeout=50_000)["messages"]
    assert bodies(found) == {f"m-{i}": 1 for i in range(0, 20, 2)}
    bench.stop(lite)
    until(lambda: sum(bench.committed()) == 20)
    again = bench.consumer("again", "lite", expression="a")
    bench.send(2, body="more", tags="a")
    more = bench.client("poll", name=again, min=2, timeout=50_000)["messages"]
    assert bodies(more) == {"more-0": 1, "more-1": 1}


@pytest.mark.also("signed")
@pytest.mark.feature("pull", "offsets", client="Go 2.1.2")
def test_pulling_from_an_offset(bench: Bench) -> None:
    bench.send(40)
    lite = bench.consumer("lite", "lite")
    where = {"name": lite, "topic": bench.topic, "brokerName": bench.cluster.broker.name}
    told = bench.client("pull", **where, queue=1, offset=0)
    count = told["max"]
    assert (told["status"], told["min"], told["next"]) == ("FOUND", 0, count)
    told = bench.client("pull", **where, queue=1, offset=count - 1)
    (last,) = told["messages"]
    assert last["queueOffset"] == count - 1 and told["next"] == count
    told = bench.client("pull", **where, queue=1, offset=count + 5)
    assert (told["status"], told["next"], told["messages"]) == ("OFFSET_ILLEGAL", count, [])
    until(lambda: bench.client("commit", **where, queue=1, offset=3) and bench.committed()[1] == 3)


@pytest.mark.feature("admin", client="Go 2.1.2")
def test_topics_are_made_and_deleted(bench: Bench) -> None:
    go, cluster, topic = bench.client, bench.cluster, f"A_{bench.name}"
    where = {"namesrv": cluster.namesrv.address, "address": cluster.broker.address}
    go("create", **where, topic=topic, queues=3)

    def listed() -> Any:
        return topic in go("topics", namesrv=cluster.namesrv.address)["topics"]

    until(listed)
    assert go("publish", namesrv=cluster.namesrv.address, topic=topic)["queues"] == [0, 1, 2]
    go("delete", **where, topic=topic)
    until(lambda: not listed())
    with pytest.raises(ClientError):
        go("publish", namesrv=cluster.namesrv.address, topic=topic)


@pytest.mark.feature("namespaces", client="Go 2.1.2")
def test_a_namespace_is_a_prefix(bench: Bench) -> None:
    go, cluster = bench.client, bench.cluster
    word, real = f"{bench.name}-ns", f"NS1%{bench.topic}"
    bench.create(real)
    bench.create(f"%RETRY%NS1%{bench.group}", queues=1)
    go("producer", name=word, namesrv=cluster.namesrv.address, namespace="NS1")
    consumer = bench.consumer("ns", namespace="NS1", failUntil=1)
    outside = bench.consumer("outside")
    go("send", name=word, topic=bench.topic, count=3)
    found = bench.seen(consumer, 6)
    assert bodies(found) == {f"m-{i}": 2 for i in range(3)}
    assert {message["topic"] for message in found} <= {real, bench.topic}
    assert bodies(read_all(bench, real)) == {f"m-{i}": 1 for i in range(3)}
    assert bench.seen(outside) == []
    go("drop", name=word)


@pytest.mark.also("signed")
@pytest.mark.feature("trace", client="Go 2.1.2")
def test_traces_are_sent(bench: Bench) -> None:
    go, cluster, word = bench.client, bench.cluster, f"{bench.name}-traced"
    trace = "RMQ_SYS_TRACE_TOPIC"
    go("producer", name=word, namesrv=cluster.namesrv.address, trace=1)
    consumer = bench.consumer(trace=1)
    (sent,) = go("send", name=word, topic=bench.topic, keys="k")["results"]
    assert sent["traceOn"] and sent["regionId"] == "DefaultRegion"
    (seen,) = bench.seen(consumer, 1)
    assert seen["properties"]["TRACE_ON"] == "true"
    told: list[str] = []

    def traced() -> bool:
        contents = [message["body"] for message in read_all(bench, trace, queues=1)]
        lines = [line for content in contents for line in content.split("\x02")]
        told[:] = [line for line in lines if sent["msgId"] in line]
        return len({line.split("\x01")[0] for line in told}) >= 3

    until(traced)
    assert {line.split("\x01")[0] for line in told} == {"Pub", "SubBefore", "SubAfter"}
    go("drop", name=word)


@pytest.mark.feature("callbacks", client="Go 2.1.2")
def test_the_broker_asks_the_consumer(bench: Bench) -> None:
    consumer = bench.consumer()
    until(lambda: bench.queues(consumer) == {0, 1, 2, 3})
    answer = call(bench.cluster.broker.address, 203, {"consumerGroup": bench.group})
    assert answer is not None and answer[0]["code"] == 0
    body = answer[1].decode()
    client = body.split('"clientId":"')[1].split('"')[0]
    assert client.endswith(f"@consumer-{consumer}") and '"language":"GO"' in body
    asked = {"consumerGroup": bench.group, "clientId": client, "jstackEnable": "false"}
    answer = call(bench.cluster.broker.address, 307, asked)
    assert answer is not None and answer[0]["code"] == 0, answer
    for queue in range(4):
        assert f'"queueId":{queue}'.encode() in answer[1]


@pytest.mark.feature("sql92", client="Go 2.1.2")
def test_sql_selects(bench: Bench) -> None:
    for shape, size in (("round", 1), ("round", 7), ("flat", 7)):
        bench.send(1, body=f"{shape}{size}", property={"shape": shape, "size": size})
    consumer = bench.consumer(sql="shape = 'round' AND size > 5")
    assert bodies(bench.seen(consumer, 1)) == {"round7-0": 1}
    bench.send(1, body="plain")
    bench.send(1, body="last", property={"shape": "round", "size": 9})
    assert bodies(bench.seen(consumer, 2)) == {"round7-0": 1, "last-0": 1}


@pytest.fixture
def transacting(bench: Bench) -> Iterator[str]:
    """A Go producer of transactions, by its name."""
    word = f"{bench.name}-t"
    bench.client("tproducer", name=word, namesrv=bench.cluster.namesrv.address)
    yield word
    bench.client("tdrop", name=word)


@pytest.mark.also("signed")
@pytest.mark.feature("transactions", client="Go 2.1.2")
def test_transactions_end_as_they_say(bench: Bench, transacting: str) -> None:
    go, common = bench.client, {"name": transacting, "topic": bench.topic}
    consumer = bench.consumer()
    go("transact", **common, body="kept", count=3, property={"local": "commit"})
    go("transact", **common, body="undone", count=3, property={"local": "rollback"})
    assert bodies(bench.seen(consumer, 3)) == {f"kept-{i}": 1 for i in range(3)}
    time.sleep(1)
    found = bench.seen(consumer)
    assert len(found) == 3 and {message["topic"] for message in found} == {bench.topic}


@pytest.mark.feature("transactions", client="Go 2.1.2")
def test_transactions_are_checked(bench: Bench, transacting: str) -> None:
    go, common = bench.client, {"name": transacting, "topic": bench.topic}
    consumer = bench.consumer()
    # Each message says itself when it may be checked first: CHECK_IMMUNITY_TIME_IN_SECONDS.
    unknown = {"local": "unknown", "CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}
    go("transact", **common, body="kept", property={**unknown, "check": "commit"})
    go("transact", **common, body="undone", property={**unknown, "check": "rollback"})
    asked = go("checks", name=transacting, min=2, timeout=50_000)["messages"]
    assert set(bodies(asked)) == {"kept-0", "undone-0"}
    assert bodies(bench.seen(consumer, 1)) == {"kept-0": 1}


@pytest.mark.also("signed")
@pytest.mark.feature("request-reply", client="Go 2.1.2")
def test_a_request_gets_its_reply(bench: Bench) -> None:
    served = call(bench.cluster.broker.address, 324)
    if served is not None and served[0]["code"] == 3:
        pytest.skip("the broker does not serve reply messages yet (SEND_REPLY_MESSAGE)")
    go, elsewhere = bench.client, f"Q_{bench.name}"
    bench.create(elsewhere)
    # A Go producer's first heartbeat comes a second after its start, to brokers it has met by then, the next
    # one 30 s later; without it the broker does not know whom to send the reply (GET_PRODUCER_CONNECTION_LIST).
    go("send", name=bench.name, topic=elsewhere)
    mine = {"producerGroup": f"PG_{bench.name}"}
    until(lambda: (told := call(bench.cluster.broker.address, 204, mine)) and not told[0]["code"])
    bench.consumer(replier=bench.name)
    reply = go("request", name=bench.name, topic=bench.topic, body="question", timeout=50_000)
    assert reply["body"] == "re:question-0"
    with pytest.raises(ClientError) as late:  # nobody listens there
        go("request", name=bench.name, topic=elsewhere, timeout=1000)
    assert "timeout" in str(late.value)
