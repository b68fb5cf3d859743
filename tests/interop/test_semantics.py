"""What messages mean, with Apache's Java clients 4.9.8 and 5.5.0 on two brokers at once.

Order, retries and dead letters, permissions, queue counts and drains while clients run, traces, codecs,
namespaces, units, queries after the index was lost. With ROQUETTE_INTEROP_PROVE=1 on Apache's brokers too.
"""

import asyncio
import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import QUICK_LEVELS, flavours
from tests.interop.driver import Driver, JavaError
from tests.interop.peers import Server, call, start_broker, start_namesrv

from roquette import Client
from roquette.errors import ClientError
from roquette.message.compression import Compression

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
SETTINGS = {
    "messageDelayLevel": QUICK_LEVELS,
    "autoCreateTopicEnable": "true",
    "traceTopicEnable": "true",
}
VERSIONS = ("4.9.8", "5.5.0")


@dataclass(frozen=True)
class Pair:
    """A name server and two brokers of one flavour."""

    flavour: str
    namesrv: Server
    brokers: tuple[Server, Server]
    folder: Path

    def create(self, topic: str, *, broker: int | None = None, **fields: object) -> None:
        """Make or change a topic on both brokers, or on one; returns when the name server tells who has it."""
        wanted = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4,
            "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        } | fields  # fmt: skip
        for server in self.brokers if broker is None else [self.brokers[broker]]:
            answer = call(server.address, 17, {k: str(v) for k, v in wanted.items()})
            assert answer is not None and answer[0]["code"] == 0, answer
            until(lambda name=server.name: name in self.brokers_of(topic))  # type: ignore[misc]

    def brokers_of(self, topic: str) -> set[str]:
        """The brokers that have a topic, as the name server knows."""
        answer = call(self.namesrv.address, 105, {"topic": topic})
        assert answer is not None
        names = (server.name for server in self.brokers)
        return {name for name in names if f'"{name}"'.encode() in answer[1]}

    def permit(self, broker: int, permission: int) -> None:
        """Set the permission of a whole broker."""
        text = f"brokerPermission={permission}\n".encode()
        answer = call(self.brokers[broker].address, 25, {}, text)
        assert answer is not None and answer[0]["code"] == 0, answer

    def send(
        self, broker: int, topic: str, body: bytes = b"x", queue: int = 0, properties: str = ""
    ) -> dict[str, Any]:
        """One message as a raw frame, in the V2 header's letters; the answer's header."""
        fields = {
            "a": "pg",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": str(queue),
            "f": "0",
            "g": "1",
        }
        fields |= {"h": "0", "i": properties, "j": "0", "k": "false", "m": "false"}
        answer = call(self.brokers[broker].address, 310, fields, body)
        assert answer is not None
        return answer[0]


@pytest.fixture(scope="module", params=flavours())
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp(f"pair-{request.param}")
    started: list[Server] = []
    try:
        namesrv = start_namesrv(request.param, folder / "namesrv")
        started.append(namesrv)
        for name in ("broker-a", "broker-b"):
            where = folder / name
            started.append(
                start_broker(request.param, where, namesrv.address, name=name, settings=SETTINGS)
            )
        yield Pair(request.param, namesrv, (started[1], started[2]), folder)
    finally:
        for server in reversed(started):
            server.discard()


class Work:
    """Clients of one test, ended with it."""

    def __init__(self, pair: Pair, drivers: Callable[[str], Driver], name: str) -> None:
        self.pair = pair
        self.drivers = drivers
        self.name = name
        self.topic = f"T_{name}"
        self.group = f"G_{name}"
        self.made: list[tuple[Driver, str]] = []
        self.reading: dict[str, Driver] = {}

    def maker(self, version: str, suffix: str = "", **more: object) -> str:
        """A producer of a Java version; its name."""
        name = f"{self.name}_p{suffix}_{version.replace('.', '_')}"
        driver = self.drivers(version)
        driver("maker", name=name, namesrv=self.pair.namesrv.address, **more)
        self.made.append((driver, name))
        return name

    def reader(self, version: str, suffix: str = "", **more: object) -> str:
        """A consumer of a Java version; its name."""
        name = f"{self.name}_c{suffix}_{version.replace('.', '_')}"
        driver = self.reading[name] = self.drivers(version)
        wanted = {"group": self.group, "topic": self.topic} | more
        driver("reader", name=name, namesrv=self.pair.namesrv.address, **wanted)
        return name

    def read(self, name: str, count: int = 0, **more: object) -> list[dict[str, Any]]:
        """What a consumer was given, once there are `count` rows."""
        found: list[dict[str, Any]] = self.reading[name](
            "read", name=name, min=count, timeout=int(PATIENCE_S * 1000), **more
        )["rows"]
        return found

    def queues(self, name: str) -> set[str]:
        """The topic's queues a consumer holds, as broker@id."""
        held = self.reading[name]("read", name=name, brief=1, nudge=1)["queues"]
        return {q.split("@", 1)[1] for q in held if q.startswith(f"{self.topic}@")}

    def close(self) -> None:
        for name, driver in self.reading.items():
            driver("read", name=name, brief=1, stop=1)
        for driver, name in self.made:
            driver("drop", name=name)


@pytest.fixture
def work(pair: Pair, drivers: Callable[[str], Driver], name: str) -> Iterator[Work]:
    found = Work(pair, drivers, name)
    yield found
    found.close()


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def until(what: Callable[[], Any], within_s: float = PATIENCE_S) -> Any:
    """Wait until `what()` is true; its value."""
    end = time.monotonic() + within_s
    while not (value := what()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)
    return value


def quiet(what: Callable[[], Any]) -> Any:
    """Its value; None when Java threw."""
    try:
        return what()
    except JavaError:
        return None


class Streams:
    """Producers of both versions that go on sending, and one group of both versions that consumes."""

    def __init__(self, work: Work, *, mode: str = "sync", pause: int = 10) -> None:
        self.work = work
        self.names: list[tuple[Driver, str]] = []
        self.readers = [work.reader(version) for version in VERSIONS]
        for version in VERSIONS:
            maker, driver = work.maker(version, mode), work.drivers(version)
            name = f"{work.name}_{version.replace('.', '')}"
            driver("stream", name=name, producer=maker, topic=work.topic, mode=mode, pause=pause)
            self.names.append((driver, name))

    def recent(self, count: int = 40) -> list[list[Any]]:
        """The last messages of each producer: body, broker, queue, offset, ms."""
        rows: list[list[Any]] = []
        for driver, name in self.names:
            rows += driver("streamed", name=name, last=count)["sent"]
        return rows

    def places(self) -> set[str]:
        """Where messages of the last half second went, and the last 20 of each producer, as broker@id.

        Those, too: a producer that stood still for half a second may go on with the queues it knows.
        """
        since = time.time() * 1000 - 500
        rows = [row for row in self.recent() if row[4] >= since] + self.recent(20)
        return {f"{row[1]}@{row[2]}" for row in rows}

    def all_at(self, brokers: set[str]) -> bool:
        """Return True when the last 20 messages of each producer went to exactly these: each has its own view of the route."""
        return all(
            {row[1] for row in driver("streamed", name=name, last=20)["sent"]} == brokers
            for driver, name in self.names
        )

    def finish(self) -> None:
        """Stop sending; no send failed, and every message was consumed."""
        sent: list[str] = []
        for driver, name in self.names:
            told = driver("streamed", name=name, stop=1)
            failed = told["failed"]
            if (
                self.work.pair.flavour == "apache"
            ):  # a slow machine makes it refuse, ours it must not
                failed = [text for text in failed if "TIMEOUT_CLEAN_QUEUE" not in text]
            assert failed == []
            sent += [row[0] for row in told["sent"]]
        assert len(sent) == len(set(sent)) > 100
        end = time.monotonic() + PATIENCE_S
        missing = set(sent)
        while missing and time.monotonic() < end:
            rows = [row["body"] for reader in self.readers for row in self.work.read(reader)]
            missing = set(sent) - set(rows)
            time.sleep(0.2)
        assert not missing, f"{len(missing)} of {len(sent)} are lost: {sorted(missing)[:5]}"


# T5: queue counts


@pytest.mark.feature("topics", client=("Java 4.9.8", "Java 5.5.0"))
def test_a_topic_shrinks_from_16_to_8_queues_while_clients_run(pair: Pair, work: Work) -> None:
    pair.create(work.topic, readQueueNums=16, writeQueueNums=16)
    streams = Streams(work)
    until(lambda: any(int(place.split("@")[1]) >= 8 for place in streams.places()))
    pair.create(work.topic, readQueueNums=16, writeQueueNums=8)
    until(lambda: (found := streams.places()) and all(int(p.split("@")[1]) < 8 for p in found))
    until(lambda: drained(pair, work.group, work.topic, range(8, 16)))
    pair.create(work.topic, readQueueNums=8, writeQueueNums=8)
    until(
        lambda: (
            {q for r in streams.readers for q in work.queues(r)}
            == {f"{b.name}@{i}" for b in pair.brokers for i in range(8)}
        )
    )
    streams.finish()


def drained(pair: Pair, group: str, topic: str, queues: range) -> bool:
    """Whether the group has committed the end of these queues on every broker."""
    for server in pair.brokers:
        for queue in queues:
            place = {"topic": topic, "queueId": str(queue)}
            end = call(server.address, 30, place)
            done = call(server.address, 14, place | {"consumerGroup": group})
            assert end is not None and done is not None
            if int(end[0]["extFields"]["offset"]) == 0:
                continue
            if done[0]["code"] != 0 or done[0]["extFields"] != end[0]["extFields"]:
                return False
    return True


# T6, T7: permissions


@pytest.mark.feature("topics", client=("Java 4.9.8", "Java 5.5.0"))
def test_permissions_change_while_clients_run(pair: Pair, work: Work) -> None:
    pair.create(work.topic)
    streams = Streams(work)
    both = {"broker-a", "broker-b"}
    until(lambda: streams.all_at(both))

    pair.create(work.topic, broker=0, perm=4)  # read-only: clients write to the other
    if pair.flavour == "roquette":
        refused = pair.send(0, work.topic)
        assert (refused["code"], refused["remark"]) == (
            16,
            f"the topic[{work.topic}] sending message is forbidden",
        )
    until(lambda: {place.split("@")[0] for place in streams.places()} == {"broker-b"})
    pair.create(work.topic, broker=0, perm=2)  # write-only: what comes now is read later
    until(lambda: streams.all_at(both))
    pair.create(work.topic, broker=0, perm=6)

    pair.permit(1, 4)  # the whole other broker
    try:
        if pair.flavour == "roquette":
            refused = pair.send(1, work.topic)
            assert refused["code"] == 16
            assert refused["remark"] == "the broker[127.0.0.1] sending message is forbidden"
        until(lambda: {place.split("@")[0] for place in streams.places()} == {"broker-a"})
    finally:
        pair.permit(1, 6)
    until(lambda: streams.all_at(both))
    streams.finish()


@pytest.mark.feature("topics", client=("Java 4.9.8", "Java 5.5.0"))
def test_a_broker_drains_and_stops_while_clients_send_asynchronously(
    pair: Pair, work: Work
) -> None:
    guest = start_broker(
        pair.flavour,
        pair.folder / work.name,
        pair.namesrv.address,
        name=work.name,
        settings=SETTINGS,
    )
    with_guest = Pair(pair.flavour, pair.namesrv, (pair.brokers[0], guest), pair.folder)
    try:
        with_guest.create(work.topic)
        streams = Streams(work, mode="async")
        until(lambda: {p.split("@")[0] for p in streams.places()} == {"broker-a", guest.name})
        # With the group's retry topic the guest registers anew, and with its permission.
        until(lambda: guest.name in with_guest.brokers_of(f"%RETRY%{work.group}"))
        wiped = call(pair.namesrv.address, 205, {"brokerName": guest.name})
        assert wiped is not None and wiped[0]["code"] == 0
        until(lambda: {p.split("@")[0] for p in streams.places()} == {"broker-a"})
        with_guest.permit(1, 4)
        until(lambda: drained(with_guest, work.group, work.topic, range(4)) or streams.recent())
        until(lambda: drained_of(with_guest, 1, work.group, work.topic))
    finally:
        guest.discard()
    streams.finish()


def drained_of(pair: Pair, broker: int, group: str, topic: str) -> bool:
    """Whether the group has consumed what one broker holds of the topic."""
    one = Pair(pair.flavour, pair.namesrv, (pair.brokers[broker],) * 2, pair.folder)
    return drained(one, group, topic, range(4))


# Order


@pytest.mark.feature("order", "rebalance", client=("Java 4.9.8", "Java 5.5.0"))
def test_order_through_a_rebalance_while_messages_flow(pair: Pair, work: Work) -> None:
    pair.create(work.topic, order="true")
    first = work.reader("4.9.8", orderly=1, workMs=3)
    driver, maker = work.drivers("5.5.0"), work.maker("5.5.0")
    driver("stream", name=work.name, producer=maker, topic=work.topic, mode="order", pause=4)
    work.read(first, 50, brief=1)
    second = work.reader("5.5.0", orderly=1, workMs=3)
    every = {f"{b.name}@{i}" for b in pair.brokers for i in range(4)}

    def shared() -> bool:
        mine, theirs = work.queues(first), work.queues(second)
        return len(mine) == len(theirs) == 4 and mine | theirs == every

    until(shared)
    work.read(second, 50, brief=1)
    told = driver("streamed", name=work.name, stop=1)
    assert told["failed"] == []
    sent = [row[0] for row in told["sent"]]

    def rows() -> list[dict[str, Any]]:
        return [row | {"reader": at} for at in (first, second) for row in work.read(at)]

    until(lambda: {row["body"] for row in rows()} >= set(sent))
    by_queue: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows():
        by_queue.setdefault((row["broker"], row["queue"]), []).append(row)
    assert len(by_queue) == 8
    for taken in by_queue.values():
        taken.sort(key=lambda row: row["began"])
        offsets = [row["offset"] for row in taken]
        assert offsets == sorted(offsets), "in order, whoever took it"
        for row, later in itertools.pairwise(taken):
            assert row["ended"] <= later["began"], "one at a time, whoever it is"
    assert any(len({row["reader"] for row in taken}) == 2 for taken in by_queue.values())


@pytest.mark.feature("order", "retry")
def test_an_orderly_queue_waits_for_its_failing_message(
    pair: Pair, work: Work, version: str
) -> None:
    pair.create(work.topic)
    reader = work.reader(version, orderly=1, failing="bad", failUntil=3, suspend=100)
    until(lambda: len(work.queues(reader)) == 8)
    for body in (b"good-1", b"bad", b"good-2"):
        assert pair.send(0, work.topic, body, queue=2)["code"] == 0
    assert pair.send(0, work.topic, b"beside", queue=3)["code"] == 0
    rows = work.read(reader, 7)
    of_queue = [(row["body"], row["tries"]) for row in rows if row["queue"] == 2]
    assert of_queue == [("good-1", 0), *(("bad", n) for n in range(4)), ("good-2", 0)]


@pytest.mark.feature("order", "dead-letter")
def test_an_orderly_message_that_fails_too_often_is_a_dead_letter(
    pair: Pair, work: Work, version: str
) -> None:
    pair.create(work.topic)
    reader = work.reader(
        version, orderly=1, failing="bad", failUntil=99, suspend=50, maxReconsume=2
    )
    until(lambda: len(work.queues(reader)) == 8)
    for body in (b"bad", b"good"):
        assert pair.send(0, work.topic, body, queue=1)["code"] == 0
    rows = work.read(reader, 4)
    assert [(row["body"], row["tries"]) for row in rows] == [
        ("bad", 0), ("bad", 1), ("bad", 2), ("good", 0),
    ]  # fmt: skip
    (dead,) = until(lambda: stored(pair, f"%DLQ%{work.group}"))
    assert dead.body == b"bad"
    assert dead.properties["RETRY_TOPIC"] == work.topic


def stored(pair: Pair, topic: str) -> list[Any]:
    """Every message of a topic on both brokers, read by our own client."""

    async def run() -> list[Any]:
        found: list[Any] = []
        async with Client(pair.namesrv.address) as mq:
            try:
                queues = await mq.queues(topic)
            except ClientError:  # no route yet
                return []
            puller = mq.reader(group="auditor")
            count = 0
            for queue in queues:
                first, end = await mq.min_offset(queue), await mq.max_offset(queue)
                puller.seek(queue, first)
                count += end - first
            while len(found) < count:
                found += await puller.poll(timeout=5)
            await puller.close()
        return found

    return asyncio.run(run())


def test_an_order_configuration_names_the_queues_and_marks_the_topic(
    pair: Pair, work: Work, version: str
) -> None:
    maker, driver = work.maker(version), work.drivers(version)
    administer = work.drivers("5.5.0").mqadmin
    there = ("-n", pair.namesrv.address)
    told = call(pair.namesrv.address, 318, {}, b"orderMessageEnable=true\n")
    assert told is not None and told[0]["code"] == 0
    shown = administer(
        "updateTopic", *there, "-c", "DefaultCluster", "-t", work.topic, "-o", "true"
    )
    assert "success" in shown, shown
    assert topic_of(pair, work.topic)["order"] is True
    conf = ("updateOrderConf", *there, "-t", work.topic)
    shown = administer(*conf, "-m", "put", "-v", "broker-b:2")
    assert "success" in shown, shown
    until(
        lambda: (
            driver("queues", name=maker, topic=work.topic)["queues"]
            == [f"{work.topic}@broker-b@{queue}" for queue in range(2)]
        )
    )
    # A topic that is in the configuration becomes one of order when the broker registers next.
    plain = f"{work.topic}_plain"
    pair.create(plain)
    plainly = ("updateOrderConf", *there, "-t", plain, "-m", "put", "-v", "broker-a:4")
    assert "success" in administer(*plainly)
    pair.create(f"{plain}_2")
    until(lambda: topic_of(pair, plain)["order"])
    shown = administer(*conf, "-m", "delete")
    assert "success" in shown, shown
    until(lambda: len(driver("queues", name=maker, topic=work.topic)["queues"]) == 16)


# Retries and dead letters


@pytest.mark.feature("retry", "dead-letter")
def test_failed_messages_come_again_with_their_ids_and_end_as_dead_letters(
    pair: Pair, work: Work, version: str
) -> None:
    pair.create(work.topic)
    reader = work.reader(version, failing="bad", failUntil=99, maxReconsume=2, level=2)
    until(lambda: len(work.queues(reader)) == 8)
    maker, driver = work.maker(version), work.drivers(version)
    told = driver("send", name=maker, topic=work.topic, body="bad", keys="k", tags="t")
    (sent,) = told["results"]
    rows = until(lambda: (r := work.read(reader, 3, nudge=1)) and len(r) >= 3 and r)
    assert [(row["body"], row["tries"]) for row in rows] == [("bad-0", n) for n in range(3)]
    assert {row["id"] for row in rows} == {sent["msgId"]}
    assert {row["topic"] for row in rows} == {work.topic}
    assert all(
        900 < later["stored"] - row["stored"] < 60_000 for row, later in itertools.pairwise(rows)
    ), "the level the consumer asked for, 1 s here; others are minutes"
    (dead,) = until(lambda: stored(pair, f"%DLQ%{work.group}"))
    assert (dead.body, dead.message_id, dead.reconsume_times) == (b"bad-0", sent["msgId"], 3)
    assert (dead.keys, dead.tag) == (("k-0",), "t")
    assert dead.properties["RETRY_TOPIC"] == work.topic
    assert dead.properties["ORIGIN_MESSAGE_ID"] == sent["offsetMsgId"]
    (queue,) = {dead.queue}
    assert queue.broker_name == sent["brokerName"], "where the message was"


@pytest.mark.feature("retry")
def test_a_refused_send_back_goes_round_by_the_other_broker(
    pair: Pair, work: Work, version: str
) -> None:
    pair.create(work.topic)
    reader = work.reader(version, failing="bad", failUntil=1)
    until(lambda: len(work.queues(reader)) == 8)
    until(lambda: pair.brokers_of(f"%RETRY%{work.group}") == {"broker-a", "broker-b"})
    assert pair.send(0, work.topic, b"bad-0")["code"] == 0
    first = work.read(reader, 1)  # its second try comes by the broker's own retry
    assert first[0]["broker"] == "broker-a"
    work.read(reader, 2, nudge=1)
    if pair.flavour == "apache":
        return  # a broker without write permission stores what comes
    # It comes some seconds later: the permission is gone before the consumer can send it back.
    pair.send(0, work.topic, b"bad-1", properties="TIMER_DELAY_MS\x013000\x02")
    pair.permit(0, 4)
    try:
        rows = work.read(reader, 4, nudge=1)
    finally:
        pair.permit(0, 6)
    again = [row for row in rows if row["body"] == "bad-1"]
    assert [row["broker"] for row in again] == ["broker-a", "broker-b"]
    # The client writes the number of the try into the first of its sends only (sendKernelImpl): 0 or 1 here.
    assert again[1]["topic"] == work.topic and again[1]["tries"] <= 1


# Traces


@pytest.mark.feature("trace")
def test_traces_of_producer_and_consumer(pair: Pair, work: Work, version: str) -> None:
    pair.create(work.topic)
    maker, driver = work.maker(version, trace=1), work.drivers(version)
    reader = work.reader(version, trace=1)
    (sent,) = driver("send", name=maker, topic=work.topic, keys="key", tags="t")["results"]
    assert sent["traceOn"]
    work.read(reader, 1)

    def kinds() -> set[bytes]:
        traces = stored(pair, "RMQ_SYS_TRACE_TOPIC")
        mine = [trace for trace in traces if sent["msgId"] in trace.keys]
        records = [part for trace in mine for part in trace.body.split(b"\2") if part]
        return {part.split(b"\1")[0] for part in records if sent["msgId"].encode() in part}

    until(lambda: kinds() == {b"Pub", b"SubBefore", b"SubAfter"})
    if version == "5.5.0":  # mqadmin finds and reads them
        words = ("queryMsgTraceById", "-n", pair.namesrv.address, "-i", sent["msgId"])
        shown = work.drivers("5.5.0").mqadmin(*words)
        assert "Pub" in shown and work.group in shown, shown


# Codecs


@pytest.mark.feature("compressed", client="Java 5.5.0")
def test_java_reads_what_we_compress_and_we_read_what_java_compresses(
    pair: Pair, work: Work
) -> None:
    pair.create(work.topic)
    body = bytes(ord("a") + at % 26 for at in range(50_000))
    driver = work.drivers("5.5.0")
    for kind in Compression:
        maker = work.maker("5.5.0", kind.name, compression=kind.name)
        driver("send", name=maker, topic=work.topic, size=len(body), tags=f"java-{kind.name}")

    async def ours() -> None:
        for kind in Compression:
            async with Client(pair.namesrv.address, compression=kind) as mq:
                await mq.send(work.topic, body, tag=f"ours-{kind.name}")

    asyncio.run(ours())
    found = {message.tag: message for message in stored(pair, work.topic)}
    wanted = {f"{who}-{kind.name}" for who in ("java", "ours") for kind in Compression}
    assert set(found) == wanted
    assert all(message.body == body for message in found.values())

    reading = {"namesrv": pair.namesrv.address, "group": work.group, "topic": work.topic}
    driver("lite", name=work.name, **reading)
    read = driver("poll", name=work.name, min=6, timeout=50_000)["messages"]
    driver("stop", name=work.name)
    assert {message["tags"] for message in read} == wanted
    assert {message["hash"] for message in read} == {read[0]["hash"]}
    for message in read:
        assert message["size"] == len(body) and message["storeSize"] < len(body) // 10
        kind = message["tags"].split("-")[1]
        flag = (
            message["sysFlag"] & 7 << 8
        )  # Java clears the bit "compressed" when it has decompressed
        assert flag == Compression[kind].sys_flag & ~1, "kinds are told apart by the same bits"


# Namespaces and units


@pytest.mark.parametrize("form", ["namespace", "namespaceV2"])
@pytest.mark.feature("namespaces")
def test_namespaces(pair: Pair, work: Work, version: str, form: str) -> None:
    if version == "4.9.8" and form == "namespaceV2":
        pytest.skip("4.9.8 has no namespaces of the second form")
    settings = {form: "MQ_INST_1"}
    real = f"MQ_INST_1%{work.topic}" if form == "namespace" else work.topic
    pair.create(real)
    reader = work.reader(version, failing="bad", failUntil=1, **settings)
    maker, driver = work.maker(version, **settings), work.drivers(version)
    driver("send", name=maker, topic=work.topic, body="bad")
    rows = work.read(reader, 2, nudge=1)
    assert [(row["body"], row["tries"]) for row in rows] == [("bad-0", 0), ("bad-0", 1)]
    assert {row["topic"] for row in rows} == {work.topic}, "the application sees no namespace"
    (message,) = stored(pair, real)
    group = f"MQ_INST_1%{work.group}" if form == "namespace" else work.group
    until(lambda: pair.brokers_of(f"%RETRY%{group}") == {"broker-a", "broker-b"})
    assert message.body == b"bad-0"


def test_units(pair: Pair, work: Work, version: str) -> None:
    maker = work.maker(version, unitName="west")
    driver = work.drivers(version)
    driver("send", name=maker, topic=work.topic)
    reader = work.reader(version, unitName="west")
    assert [row["body"] for row in work.read(reader, 1)] == ["m-0"]
    flags = {
        topic: topic_of(pair, topic)["topicSysFlag"]
        for topic in (work.topic, f"%RETRY%{work.group}")
    }
    assert flags == {work.topic: 1, f"%RETRY%{work.group}": 2}


def topic_of(pair: Pair, topic: str) -> dict[str, Any]:
    """A topic's settings on the first broker that has it."""
    for server in pair.brokers:
        answer = call(server.address, 351, {"topic": topic})
        if answer is not None and answer[0]["code"] == 0:
            found: dict[str, Any] = json.loads(answer[1])
            return found
    raise AssertionError(f"nobody has {topic}")


# Queries


@pytest.mark.feature("query", client="Java 5.5.0")
def test_queries_work_again_after_the_index_was_lost(work: Work, tmp_path: Path) -> None:
    namesrv = start_namesrv("roquette", tmp_path / "namesrv")
    server = start_broker("roquette", tmp_path / "b", namesrv.address, settings=SETTINGS)
    driver = work.drivers("5.5.0")
    try:
        driver("maker", name=work.name, namesrv=namesrv.address)
        sending = {"name": work.name, "topic": work.topic}
        sent = driver("send", **sending, count=200, keys="one")["results"]
        assert server.stop() == 0
        shutil.rmtree(tmp_path / "b" / "s" / "index")
        server = start_broker("roquette", tmp_path / "b", namesrv.address, settings=SETTINGS)
        until(
            lambda: quiet(lambda: driver("query", **sending, key="one-199"))
        )  # it finds the broker
        for number in (0, 100, 199):
            found = driver("query", **sending, key=f"one-{number}")["messages"]
            assert [message["msgId"] for message in found] == [sent[number]["msgId"]]
            told = driver("unique", **sending, id=sent[number]["msgId"])["messages"]
            assert told[0]["body"] == f"m-{number}"
        shown = driver.mqadmin(
            "queryMsgByKey", "-n", namesrv.address, "-t", work.topic, "-k", "one-7"
        )
        assert sent[7]["msgId"] in shown, shown
        driver("drop", name=work.name)
    finally:
        server.discard()
        namesrv.discard()
