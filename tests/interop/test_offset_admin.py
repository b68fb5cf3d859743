"""Operators and running Java consumers: resets, clones, direct consumption, status; lists, clean-ups, counters; what
is refused, in Apache's words. Driven by Apache's mqadmin 5.5.0 and by raw requests; expectations are proven on
Apache's servers with ROQUETTE_INTEROP_PROVE=1.
"""

import json
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.bench import until_routed
from tests.interop.conftest import Cluster
from tests.interop.driver import Driver
from tests.interop.peers import call

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PATIENCE_S = 60  # machines are slow when everything runs at once
ONCE = pytest.mark.parametrize("java", ["5.5.0"], indirect=True)
OLDER = pytest.param("4.9.8", marks=pytest.mark.long)  # its reset takes 20 s
OLDER_TOO = pytest.mark.parametrize("java", ["5.5.0", OLDER], indirect=True)


def until(what: Callable[[], Any], within_s: float = PATIENCE_S) -> Any:
    """Wait until `what()` is true; its value."""
    end = time.monotonic() + within_s
    while not (value := what()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)
    return value


class Bench:
    """A topic with four queues, a producer, consumers, and mqadmin beside them."""

    def __init__(self, java: Driver, tools: Driver, cluster: Cluster, name: str) -> None:
        self.java, self.tools, self.cluster, self.name = java, tools, cluster, name
        self.key = f"{zlib.crc32(name.encode()):08x}"  # mqadmin cuts long names
        self.topic, self.group = f"T_{self.key}", f"G_{self.key}"
        self.running: list[str] = []

    def admin(self, verb: str, *words: str) -> str:
        """What mqadmin prints."""
        printed = self.tools.mqadmin(verb, "-n", self.cluster.namesrv.address, *words)
        return printed.replace(self.cluster.broker.address, "BROKER").strip()

    def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Any:
        """A raw request to the broker: code, remark, ext fields, body."""
        answer = call(self.cluster.broker.address, code, fields, body)
        assert answer is not None
        head = answer[0]
        return head["code"], head.get("remark"), head.get("extFields") or {}, answer[1]

    def send(self, count: int, body: str = "m") -> list[Any]:
        sending = {"name": self.name, "topic": self.topic, "count": count, "body": body}
        results: list[Any] = self.java("send", **sending)["results"]
        assert [result["status"] for result in results] == ["SEND_OK"] * count
        return results

    def consumer(self, suffix: str = "1", **more: Any) -> str:
        name = f"{self.name}-{suffix}"
        wanted = {"group": self.group, "topic": self.topic, **more}
        self.java("consumer", name=name, namesrv=self.cluster.namesrv.address, **wanted)
        self.running.append(name)
        return name

    def stop(self, name: str) -> None:
        self.running.remove(name)
        self.java("stop", name=name)

    def seen(self, name: str, count: int) -> Counter[str]:
        # Nudged: after a reset a client asks for the queue again with its next rebalance, which is 20 s away.
        wait = {"min": count, "timeout": PATIENCE_S * 1000, "nudge": True}
        return Counter(m["body"] for m in self.java("dump", name=name, **wait)["messages"])

    def again(self, name: str) -> int:
        """How many messages a consumer has got more than once."""
        return sum(times > 1 for times in self.seen(name, 0).values())

    def lag(self, group: str = "") -> int:
        wanted = {"name": self.name, "group": group or self.group, "topic": self.topic}
        lag: int = self.java("lag", **wanted)["lag"]
        return lag


@pytest.fixture
def tools(drivers: Callable[[str], Driver]) -> Driver:
    """The JVM with rocketmq-tools."""
    return drivers("5.5.0")


@pytest.fixture
def bench(
    java: Driver, tools: Driver, cluster: Cluster, producer: str, name: str
) -> Iterator[Bench]:
    found = Bench(java, tools, cluster, producer)
    java("create", name=producer, topic=found.topic, address=cluster.broker.address)
    until_routed(cluster, found.topic)
    yield found
    for consumer in list(found.running):
        found.stop(consumer)


@OLDER_TOO
@pytest.mark.feature("offsets")
def test_a_running_consumer_goes_back_to_a_time_and_skips_to_the_end(bench: Bench) -> None:
    first = bench.consumer()
    bench.send(8)
    assert len(bench.seen(first, 8)) == 8
    until(lambda: bench.lag() == 0)
    words = ("-g", bench.group, "-t", bench.topic)
    printed = bench.admin("resetOffsetByTime", *words, "-s", "1")
    rows = sorted(line.split() for line in printed.splitlines() if line.startswith("broker-a"))
    assert rows == [["broker-a", str(queue), "0"] for queue in range(4)]
    until(lambda: bench.again(first) == 8)
    until(lambda: bench.lag() == 0)
    bench.stop(first)
    bench.send(8, "old")
    until(lambda: bench.lag() == 8)
    bench.admin("skipAccumulatedMessage", *words)
    until(lambda: bench.lag() == 0)
    second = bench.consumer("2")
    bench.send(4, "new")
    assert bench.seen(second, 4) == Counter({f"new-{i}": 1 for i in range(4)})


@pytest.mark.feature("offsets")
def test_one_queue_is_reset_to_an_offset_and_commits_before_the_pull_are_ignored(
    bench: Bench,
) -> None:
    bench.send(8)
    group = {"consumerGroup": bench.group, "topic": bench.topic, "queueId": "1"}
    bench.ask(200, {}, json.dumps({"groupName": bench.group}).encode())
    bench.ask(15, group | {"commitOffset": "2"})
    words = ("-g", bench.group, "-t", bench.topic, "-s", "1", "-q", "1", "-o", "1")
    printed = bench.admin("resetOffsetByTime", *words, "-b", bench.cluster.broker.address)
    assert "reset consumer offset to 1" in printed
    ignored = bench.ask(15, group | {"commitOffset": "2"})
    assert ignored[:2] == (0, "Offset has been previously reset")
    assert bench.ask(14, group)[2]["offset"] == "1"
    pull = group | {"queueOffset": "2", "maxMsgNums": "8", "sysFlag": "4", "commitOffset": "0"}
    pull |= {"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}
    moved = bench.ask(11, pull)
    assert moved[:2] == (21, "OFFSET_RESET")
    assert moved[2]["nextBeginOffset"] == "1"
    assert bench.ask(11, pull | {"queueOffset": "1"})[0] == 0
    assert bench.ask(15, group | {"commitOffset": "2"})[:2] == (0, None)


@OLDER_TOO
@pytest.mark.feature("offsets")
def test_a_cloned_group_begins_where_its_source_is(bench: Bench) -> None:
    first = bench.consumer()
    bench.send(8)
    bench.seen(first, 8)
    until(lambda: bench.lag() == 0)
    bench.stop(first)
    clone = f"{bench.group}_clone"
    target = {"group": bench.group, "target": clone, "topic": bench.topic}
    bench.java("cloneOffset", name=bench.name, address=bench.cluster.broker.address, **target)
    assert bench.lag(clone) == 0
    other = f"{bench.group}_other"  # mqadmin commits queue by queue, which needs the group
    bench.ask(200, {}, json.dumps({"groupName": other}).encode())
    words = ("-s", bench.group, "-d", other, "-t", bench.topic)
    printed = bench.admin("cloneGroupOffset", *words)
    assert printed.startswith(f"clone group offset success. srcGroup[{bench.group}]")
    assert bench.lag(other) == 0
    bench.send(3, "new")
    second = bench.consumer("2", group=clone)
    assert bench.seen(second, 3) == Counter({f"new-{i}": 1 for i in range(3)})


@pytest.mark.feature("callbacks")
def test_clients_are_asked_and_one_consumes_directly(bench: Bench) -> None:
    first = bench.consumer()
    sent = bench.send(4)
    bench.seen(first, 4)
    client = client_of(bench)
    wanted = {"topic": bench.topic, "group": bench.group}
    where = {"name": bench.name, "address": bench.cluster.broker.address}
    status = until(lambda: bench.java("consumerStatus", **where, **wanted).get(client))
    assert set(status) <= {f"broker-a@{queue}" for queue in range(4)}
    one = ("-g", bench.group, "-d", client, "-i", sent[2]["offsetMsgId"], "-t", bench.topic)
    printed = bench.admin("queryMsgById", *one)
    assert "consumeResult=CR_SUCCESS" in printed
    until(lambda: bench.seen(first, 0)["m-2"] > 1)
    running = bench.admin("consumerStatus", "-g", bench.group, "-i", client)
    assert "#Consumer Subscription#" in running
    assert bench.topic in running


@pytest.mark.long
def test_before_5_0_the_clients_reset_themselves(bench: Bench) -> None:
    first = bench.consumer()
    bench.send(8)
    bench.seen(first, 8)
    until(lambda: bench.lag() == 0)
    assert bench.ask(25, {}, b"useServerSideResetOffset=false")[0] == 0
    try:
        wanted = {"topic": bench.topic, "group": bench.group, "at": 1}
        where = {"name": bench.name, "address": bench.cluster.broker.address}
        answer = bench.java("resetOffset", **where, **wanted)["queues"]
        assert answer == {f"broker-a@{queue}": 0 for queue in range(4)}
        until(lambda: bench.again(first) == 8)
    finally:
        bench.ask(25, {}, b"useServerSideResetOffset=true")


def client_of(bench: Bench) -> str:
    """The client id of the group's only member."""
    body = bench.ask(203, {"consumerGroup": bench.group})[3]
    (connection,) = json.loads(body)["connectionSet"]
    return str(connection["clientId"])


@ONCE
def test_heartbeats_of_version_2_leave_the_subscriptions_out(bench: Bench) -> None:
    first = bench.consumer(heartbeatV2=1)
    time.sleep(4)  # four heartbeats, of which the later ones name no topics
    second = bench.consumer("2", heartbeatV2=1)
    body = bench.ask(203, {"consumerGroup": bench.group})[3]
    assert bench.topic in json.loads(body)["subscriptionTable"]
    bench.send(8)
    sent = {f"m-{i}" for i in range(8)}  # when the second joins, some may come twice
    until(lambda: set(bench.seen(first, 0) + bench.seen(second, 0)) == sent)


@ONCE
def test_offsets_by_time_at_equal_times_before_the_first_and_after_the_last(bench: Bench) -> None:
    for number in range(3):
        bench.send(4 * 3, f"r{number}")
        time.sleep(0.02)
    queue = {"topic": bench.topic, "queueId": "0"}
    times = store_times(bench, queue)
    assert len(times) == 9

    def at(timestamp: int, boundary: str | None) -> int:
        more = {} if boundary is None else {"boundaryType": boundary}
        return int(bench.ask(29, queue | {"timestamp": str(timestamp)} | more)[2]["offset"])

    for probe in sorted({t + d for t in times for d in (-1, 0, 1)}):
        lower = next((i for i, t in enumerate(times) if t >= probe), len(times))
        upper = max((i for i, t in enumerate(times) if t <= probe), default=0)
        assert at(probe, None) == at(probe, "lower") == lower
        assert at(probe, "upper") == upper
    empty = {"topic": bench.topic, "queueId": "9"}
    assert bench.ask(29, empty | {"timestamp": "1"})[2]["offset"] == "0"


def store_times(bench: Bench, queue: dict[str, str]) -> list[int]:
    """Store times of a queue's messages."""
    pull = queue | {"queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0"}
    pull |= {"consumerGroup": bench.group, "suspendTimeoutMillis": "0", "subscription": "*"}
    pull |= {"subVersion": "0"}
    body = bench.ask(11, pull)[3]
    found, position = [], 0
    while position < len(body):
        found.append(int.from_bytes(body[position + 56 : position + 64], "big"))
        position += int.from_bytes(body[position : position + 4], "big")
    return found


@ONCE
@pytest.mark.feature("admin", "topics")
def test_lists_counters_clean_ups_and_units(bench: Bench, tmp_path: Path) -> None:
    name, where = bench.key, ("-b", bench.cluster.broker.address)
    topics = [{"topicName": f"A_{name}", "attributes": {"+message.type": "FIFO"}}]
    topics += [{"topicName": f"B_{name}", "readQueueNums": 3, "writeQueueNums": 3}]
    groups = [{"groupName": f"X_{name}"}, {"groupName": f"Y_{name}", "retryMaxTimes": 5}]
    for verb, rows in (("updateTopicList", topics), ("updateSubGroupList", groups)):
        path = tmp_path / f"{verb}.json"
        path.write_text(json.dumps(rows))
        assert "success" in bench.admin(verb, *where, "-f", str(path))
    made = json.loads(bench.ask(351, {"topic": f"A_{name}"})[3])
    assert made["attributes"] == {"message.type": "FIFO"}
    assert json.loads(bench.ask(352, {"group": f"Y_{name}"})[3])["retryMaxTimes"] == 5
    bench.send(8)
    units = bench.admin("queryCq", "-t", bench.topic, "-q", "1", "-i", "0", "-c", "5", *where)
    assert units.startswith("Queue data:") and units.count("idx: ") == 2
    assert units.count("physicSize=") == 2 and "max: 2, min: 0" in units
    first = bench.consumer()
    bench.seen(first, 8)
    until(lambda: bench.lag() == 0)
    if bench.cluster.flavour == "roquette":  # the command keeps its client: it works once in a JVM
        stats = bench.admin("brokerConsumeStats", *where)
        rows = [line.split() for line in stats.splitlines() if line.startswith(bench.topic)]
        assert sorted(row[1:6] for row in rows) == [
            [bench.group, "broker-a", str(queue), "2", "2"] for queue in range(4)
        ]
    whole = bench.ask(317, {"isOrder": "false"})[3].decode()
    mine = whole.split(f'"{bench.group}":')[1].split("]")[0]
    for field in ("brokerOffset", "consumerOffset"):
        assert mine.count(f'"{field}":2') == 4
    every = bench.admin("statsAll", "-t", bench.topic)
    assert bench.topic in every and bench.group in every
    assert "producer group" in bench.admin("producer", *where)
    assert bench.admin("cleanExpiredCQ", *where) == "success"
    assert bench.admin("cleanUnusedTopic", *where) == "success"
    assert bench.admin("deleteExpiredCommitLog", *where) == "success"
    counted = {"statsName": "TOPIC_PUT_NUMS", "statsKey": bench.topic}
    # A sample taken while they were sent has fewer; the next one, 10 s later, has all.
    minute = until(
        lambda: (
            (found := json.loads(bench.ask(315, counted)[3] or b"{}").get("statsMinute"))
            and found["sum"] >= 8
            and found
        )
    )
    assert set(minute) == {"sum", "tps", "avgpt"} and minute["sum"] == 8


RESET = {"topic": "nowhere", "group": "nobody", "timestamp": "1", "isForce": "true"}
TOPIC = {"defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
TOPIC |= {"topicFilterType": "SINGLE_TAG", "order": "false", "topic": "Attributes"}
STATS = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "nowhere"}
QUEUE = {"topic": "nowhere", "queueId": "77", "index": "0", "count": "1"}
REFUSED: list[tuple[int, dict[str, str], int, str]] = [
    (222, RESET, 17, "Topic nowhere does not exist"),
    (222, RESET | {"topic": "{topic}"}, 26, "Group nobody does not exist"),
    (223, {"topic": "nowhere", "group": "nobody"}, 1, ".*"),
    (303, {"topic": "nowhere", "group": "nobody"}, 17, r"topic\[nowhere\] not exist"),
    (307, {"consumerGroup": "nobody", "clientId": "c"}, 1, "The Consumer <nobody> <c> not online"),
    (309, {"consumerGroup": "nobody", "clientId": "c", "msgId": "zz"}, 1, ".*"),
    (315, STATS, 1, "The stats <TOPIC_PUT_NUMS> <nowhere> not exist"),
    (17, TOPIC | {"attributes": "+color=red"}, 1, "unsupported key: color"),
    (17, TOPIC | {"attributes": "color=red"}, 1, "add/alter attribute format is wrong: color"),
    (17, TOPIC | {"attributes": "-color"}, 1, "only add attribute is supported while creating "),
    (17, TOPIC | {"attributes": "color"}, 1, "delete attribute format is wrong: color"),
    (17, TOPIC | {"attributes": "+reserve.time=x"}, 1, 'For input string: "x"'),
    (17, TOPIC | {"attributes": "+reserve.time=-9"}, 1, r"value is not in range\(-1, 9223"),
    (17, TOPIC | {"attributes": "+message.type=X"}, 1, r"value is not in set: \["),
    (17, TOPIC | {"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
    (17, TOPIC | {"topic": "DefaultCluster"}, 29, r"The topic\[DefaultCluster\] is conflict with "),
    (215, {"topic": "broker-a"}, 29, r"The topic\[broker-a\] is conflict with system topic"),
]


@ONCE
def test_what_is_refused_has_apaches_code_and_text(bench: Bench) -> None:
    for code, fields, wanted, text in REFUSED:
        filled = {key: value.replace("{topic}", bench.topic) for key, value in fields.items()}
        found, remark, _, _ = bench.ask(code, filled)
        assert (found, bool(re.match(text, remark or ""))) == (wanted, True), (code, filled, remark)
    out_of_range = RESET | {"topic": bench.topic, "group": bench.group, "queueId": "0"}
    bench.ask(200, {}, json.dumps({"groupName": bench.group}).encode())
    refused = bench.ask(222, out_of_range | {"offset": "5"})
    assert refused[:2] == (1, "Target offset 5 not in consume queue range [0-0]")
    made = bench.ask(17, TOPIC | {"topic": f"F_{bench.key}", "attributes": "+queue.type=SimpleCQ"})
    assert made[0] == 0
    again = bench.ask(17, TOPIC | {"topic": f"F_{bench.key}", "attributes": "+queue.type=BatchCQ"})
    assert again[0] == 1
    assert again[1].startswith("attempt to update an unchangeable attribute. key: queue.type")


@ONCE
def test_what_answers_hold_by_field(bench: Bench) -> None:
    bench.send(4)
    bench.ask(200, {}, json.dumps({"groupName": bench.group}).encode())
    place = {"consumerGroup": bench.group, "topic": bench.topic, "queueId": "0"}
    bench.ask(15, place | {"commitOffset": "1"})
    spans = json.loads(bench.ask(303, {"topic": bench.topic, "group": bench.group})[3])
    span = spans["consumeTimeSpanSet"][0]
    assert len(spans["consumeTimeSpanSet"]) == 4
    assert {"messageQueue", "minTimeStamp", "maxTimeStamp", "consumeTimeStamp"} <= set(span)
    assert span["minTimeStamp"] == span["maxTimeStamp"] == span["consumeTimeStamp"] > 0
    units = json.loads(bench.ask(321, {**QUEUE, "topic": bench.topic, "queueId": "0"})[3])
    assert (units["minQueueIndex"], units["maxQueueIndex"]) == (0, 1)
    assert set(units["queueData"][0]) >= {"physicOffset", "physicSize", "tagsCode", "eval"}
    beyond = bench.ask(321, {**QUEUE, "topic": bench.topic, "queueId": "0", "index": "1"})
    assert beyond[0] == 0
    assert beyond[1] == f"Index 1 of 0@{bench.topic} is not exist!"
    forbidden = {"group": bench.group, "topic": bench.topic}
    for readable in ("false", "true"):
        answer = bench.ask(353, forbidden | {"readable": readable})
        assert answer[0] == 0
        assert json.loads(answer[3]) == forbidden | {"readable": readable == "true"}
    correction = bench.ask(308, forbidden | {"compareGroup": "nobody"})[3].decode()
    assert correction.replace('"0"', "0") == '{"correctionOffsets":{0:1}}'
    offsets = bench.ask(43)[3].decode()
    assert f'"{bench.topic}@{bench.group}":{{0:1}}' in offsets
    assert '"offsetTable":' in bench.ask(45)[3].decode()
    system = set(json.loads(bench.ask(305)[3])["topicList"])
    ours = {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a", "BenchmarkTest"}
    assert ours | {"RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"} <= system
