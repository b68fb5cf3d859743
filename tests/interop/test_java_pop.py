"""Apache's Java client 5.5.0 pops: receipts, redelivery, invisible times, order, the push consumer in POP mode."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.interop.bench import until, until_routed
from tests.interop.conftest import SETTINGS, Cluster, flavours
from tests.interop.driver import Driver, JavaError
from tests.interop.peers import start_broker, start_namesrv

from roquette import Client, PoppedMessages
from roquette.broker.pop import receipt

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PATIENCE_MS = 60_000
# POP of Apache's broker needs its timer.
POP_SETTINGS = {**SETTINGS, "timerWheelEnable": "true", "enablePropertyFilter": "true"}


@pytest.fixture(scope="module", params=flavours())
def pop_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Servers of our own."""
    folder = tmp_path_factory.mktemp(f"pop-{request.param}")
    namesrv = start_namesrv(request.param, folder / "namesrv")
    try:
        settings = POP_SETTINGS if "apache" in request.param else SETTINGS
        broker = start_broker(request.param, folder / "broker", namesrv.address, settings=settings)
        try:
            yield Cluster(request.param, namesrv, broker, folder)
        finally:
            broker.discard()
    finally:
        namesrv.discard()


@dataclass
class Bench:
    """A topic with four queues and a group."""

    java: Driver
    cluster: Cluster
    name: str

    @property
    def topic(self) -> str:
        return f"T_{self.name}"

    @property
    def group(self) -> str:
        return f"G_{self.name}"

    def send(self, count: int, body: str = "m", **more: Any) -> None:
        """Send messages."""
        self.java("send", name=self.name, topic=self.topic, count=count, body=body, **more)

    def __call__(self, command: str, **more: Any) -> dict[str, Any]:
        """A command about the topic and group, at the broker."""
        base = {
            "namesrv": self.cluster.namesrv.address, "broker": self.cluster.broker.name,
            "address": self.cluster.broker.address, "topic": self.topic, "group": self.group,
        }  # fmt: skip
        return self.java(command, **base | more)

    def pop(self, count: int = 1, within_ms: int = 10_000, **more: Any) -> list[dict[str, Any]]:
        """Pop until `count` messages are there."""
        found: list[dict[str, Any]] = []
        for _ in range(60):
            found += self("pop", poll=within_ms, **more)["messages"]
            if len(found) >= count:
                break
        return found

    def ack(self, message: dict[str, Any]) -> dict[str, Any]:
        """Acknowledge one message."""
        return self("popAck", receipt=message["properties"]["POP_CK"])


@pytest.fixture
def bench(drivers: Callable[[str], Driver], pop_cluster: Cluster, name: str) -> Iterator[Bench]:
    java = drivers("5.5.0")
    java("producer", name=name, namesrv=pop_cluster.namesrv.address)
    found = Bench(java, pop_cluster, name)
    java.mqadmin(
        "updateTopic", "-n", pop_cluster.namesrv.address, "-c", "DefaultCluster",
        "-t", found.topic, "-r", "4", "-w", "4",
    )  # fmt: skip
    until_routed(pop_cluster, found.topic)
    yield found
    java("drop", name=name)


def bodies(messages: list[dict[str, Any]]) -> Counter[str]:
    return Counter(message["body"] for message in messages)


@pytest.mark.feature("pop", client="Java 5.5.0")
def test_pop_ack_and_what_comes_again(bench: Bench) -> None:
    bench.send(12)
    messages = bench.pop(12, invisible=3_000)
    assert bodies(messages) == {f"m-{i}": 1 for i in range(12)}
    kept = {m["body"] for m in messages[:3]}
    for message in messages[3:9]:
        assert bench.ack(message)["status"] == "OK"
    batch = {str(i): m["properties"]["POP_CK"] for i, m in enumerate(messages[9:])}
    assert bench("popBatchAck", receipt=batch)["status"] == "OK"

    again = bench.pop(3, invisible=3_000)
    assert {m["body"] for m in again} == kept
    assert {m["reconsumeTimes"] for m in again} == {1}
    assert {m["topic"] for m in again} == {bench.topic}
    assert {m["properties"]["POP_CK"].split(" ")[4] for m in again} == {"1"}
    assert {m["msgId"] for m in again} == {m["msgId"] for m in messages[:3]}
    first_pop = {m["properties"]["POP_CK"].split(" ")[1] for m in messages}
    assert {m["properties"]["1ST_POP_TIME"] for m in again} <= first_pop
    for message in again:
        assert bench.ack(message)["status"] == "OK"
    assert bench("pop", poll=6_000)["status"] == "POLLING_NOT_FOUND"


@pytest.mark.also("closed")
@pytest.mark.feature("pop", client="Java 5.5.0")
def test_the_invisible_time_is_changed(bench: Bench) -> None:
    bench.send(2)
    one, two = bench.pop(2, invisible=60_000)
    sooner = bench("popInvisible", receipt=one["properties"]["POP_CK"], invisible=1_000)
    later = bench("popInvisible", receipt=two["properties"]["POP_CK"], invisible=60_000)
    assert (sooner["status"], later["status"]) == ("OK", "OK")
    assert len(later["extraInfo"].split(" ")) == 8
    assert bench("popAck", receipt=later["extraInfo"])["status"] == "OK"
    (again,) = bench.pop(1)
    assert again["body"] == one["body"]


@pytest.mark.feature("pop", client="Java 5.5.0")
def test_a_waiting_pop_gets_what_comes(bench: Bench) -> None:
    bench.send(1)
    assert len(bench.pop(1)) == 1
    assert bench("pop", poll=1_000)["status"] == "POLLING_NOT_FOUND"
    answer = bench("popAsk", code=200055)
    assert (answer["code"], answer["ext"]) == (0, {"pollingNum": "0"})


@pytest.mark.feature("pop", client="Java 5.5.0")
def test_peek_and_notification(bench: Bench) -> None:
    nothing = bench("popAsk", code=200054)
    bench.send(4)
    peeked = until(lambda: (a := bench("popAsk", code=200052))["size"] and a)
    told = bench("popAsk", code=200054)
    assert (nothing["code"], nothing["ext"]["hasMsg"]) == (0, "false")
    assert (told["code"], told["ext"]["hasMsg"]) == (0, "true")
    assert (peeked["code"], peeked["remark"], peeked["ext"]["restNum"]) == (0, "FOUND", "4")
    assert len(bench.pop(4)) == 4
    assert bench("popAsk", code=200052)["code"] == 19


@pytest.mark.feature("pop", "order", client="Java 5.5.0")
def test_an_orderly_pop_blocks_its_queue(bench: Bench) -> None:
    bench.send(4, mode="queue", queue=1)
    order = {"order": 1, "queue": 1, "max": 2, "invisible": 4_000}
    first = bench.pop(2, **order)
    assert [m["body"] for m in first] == ["m-0", "m-1"]
    assert {m["properties"]["POP_CK"].split(" ")[3] for m in first} == {"999"}
    assert bench("pop", **order)["messages"] == []
    again = bench.pop(2, **order)  # after the invisible time
    assert [m["body"] for m in again] == ["m-0", "m-1"]
    assert [m["reconsumeTimes"] for m in again] == [1, 1]
    for message in again:
        assert bench.ack(message)["status"] == "OK"
    assert [m["body"] for m in bench.pop(2, **order)] == ["m-2", "m-3"]


@pytest.mark.feature("pop", "refusals", client="Java 5.5.0")
def test_refusals(bench: Bench) -> None:
    bench.send(1)
    (message,) = bench.pop(1)
    mine = message["properties"]["POP_CK"]
    cases: list[tuple[str, dict[str, Any], int | str]] = [
        ("pop", {"topic": "X_" + bench.name}, 17),
        ("pop", {"queue": 9}, 29),
        ("pop", {"max": 33}, 29),
        ("pop", {"expression": "a >", "type": "SQL92"}, 23),
        ("popAck", {"receipt": mine, "offset": 77}, "NO_EXIST"),
        ("popAck", {"receipt": mine, "topic": "X_" + bench.name}, "NO_EXIST"),
        ("popInvisible", {"receipt": mine, "topic": "X_" + bench.name}, "NO_EXIST"),
    ]
    found: list[int | str | None] = []
    for command, fields, _ in cases:
        try:
            found.append(bench(command, **fields)["status"])
        except JavaError as error:
            found.append(error.code)
    assert found == [expected for _, _, expected in cases]


def consumer(bench: Bench, suffix: str, **more: Any) -> str:
    """A push consumer of the group, which the broker tells to pop."""
    name = f"{bench.name}-{suffix}"
    bench("popConsumer", name=name, **more)
    return name


def pop_mode(bench: Bench) -> None:
    said = bench.java.mqadmin(
        "setConsumeMode", "-n", bench.cluster.namesrv.address, "-b", bench.cluster.broker.address,
        "-t", bench.topic, "-g", bench.group, "-m", "POP", "-q", "0",
    )  # fmt: skip
    assert "success" in said, said


@pytest.mark.feature("pop", "push", client="Java 5.5.0")
def test_a_push_consumer_pops(bench: Bench) -> None:
    pop_mode(bench)
    first, second = consumer(bench, "1"), consumer(bench, "2")
    bench.send(40)
    until(lambda: sum(len(bench("popSeen", name=n)["messages"]) for n in (first, second)) >= 40)
    found = [m for n in (first, second) for m in bench("popSeen", name=n)["messages"]]
    assert bodies(found) == {f"m-{i}": 1 for i in range(40)}
    assert all("POP_CK" in m["properties"] for m in found)
    for name in (first, second):
        bench("popStop", name=name)
    assert bench("pop", poll=500)["status"] == "POLLING_NOT_FOUND"


def test_a_push_consumer_and_ours_pop_of_one_group(bench: Bench) -> None:
    pop_mode(bench)
    java = consumer(bench, "1")
    seen: Counter[str] = Counter()
    rounds: list[int] = []

    def of_java() -> Counter[str]:
        return bodies(bench("popSeen", name=java)["messages"])

    async def ours() -> None:
        async with (
            Client(bench.cluster.namesrv.address) as mq,
            mq.pop(bench.topic, group=bench.group, batch=1) as jobs,
        ):
            reading = asyncio.create_task(read(jobs))
            await asyncio.sleep(1.0)
            async with asyncio.timeout(90):
                while not (seen and await asyncio.to_thread(of_java)):
                    await asyncio.to_thread(bench.send, 10)
                    rounds.append(10)
                    await asyncio.sleep(0.2)
                while (await asyncio.to_thread(of_java) + seen).total() < sum(rounds):
                    await asyncio.sleep(0.1)
            reading.cancel()

    async def read(jobs: PoppedMessages) -> None:
        async for job in jobs:
            seen[job.body.decode()] += 1
            await job.ack()

    asyncio.run(ours())
    theirs = of_java()
    bench("popStop", name=java)
    assert theirs + seen == {f"m-{i}": len(rounds) for i in range(10)}
    assert bench("pop", poll=500)["status"] == "POLLING_NOT_FOUND"


@pytest.mark.feature("pop", "retry", client="Java 5.5.0")
def test_a_push_consumer_pops_again_what_failed(bench: Bench) -> None:
    pop_mode(bench)
    name = consumer(bench, "1", failUntil=1, expression="red")
    bench.send(6, tags="red,blue")
    found = bench("popSeen", name=name, min=6, timeout=PATIENCE_MS)["messages"]
    bench("popStop", name=name)
    assert bodies(found) == {f"m-{i}": 2 for i in (0, 2, 4)}
    assert Counter(m["reconsumeTimes"] for m in found) == {0: 3, 1: 3}


@pytest.mark.feature("pop", "sql92", client="Java 5.5.0")
def test_a_selector_chooses(bench: Bench) -> None:
    bench.send(6, tags="red,blue")
    found = bench.pop(3, expression="TAGS in ('red')", type="SQL92")
    assert bodies(found) == {f"m-{i}": 1 for i in (0, 2, 4)}


@pytest.mark.feature("pop", client="Java 5.5.0")
def test_receipts_are_apaches(drivers: Callable[[str], Driver]) -> None:
    """Against ExtraInfoUtil itself, byte for byte."""
    java = drivers("5.5.0")
    rng = random.Random(5)
    topics = ("T", "%RETRY%g", "%RETRY%g_T", "%RETRY%g+T", "a+b", "%RETRY%a_b_c", "%DLQ%g+T")
    for _ in range(300):
        start = rng.choice((0, 1, 77, 2**31, 2**62 + rng.randrange(1000)))
        values = {
            "start": start, "pop": rng.randrange(2**50), "invisible": rng.choice((0, 1, 10**9, -1)),
            "revive": rng.choice((0, 7, 999)), "topic": rng.choice(topics),
            "broker": rng.choice(("broker-a", "b", "x_y.z")), "queue": rng.randrange(20),
            "offset": start + rng.randrange(40), "count": rng.randrange(5),
        }  # fmt: skip
        theirs = java("receipt", **values)
        topic, queue, offset = values["topic"], values["queue"], values["offset"]

        assert theirs["receipt"] == receipt.build_extra_info(
            start, values["pop"], values["invisible"], values["revive"], topic,
            values["broker"], queue, offset,
        )  # fmt: skip
        assert theirs["starts"] == receipt.start_offset_info(topic, queue, start)
        assert theirs["offsets"] == receipt.message_offset_info(topic, queue, [start, offset])
        assert theirs["counts"] == ";".join(
            (
                receipt.offset_count_info(topic, queue, offset, values["count"]),
                receipt.queue_count_info(topic, queue, values["count"]),
            )
        )
        parsed = receipt.parse_extra_info(theirs["receipt"])
        assert (parsed.start_offset, parsed.pop_time) == (start, values["pop"])
        assert (parsed.revive_qid, parsed.broker_name) == (values["revive"], values["broker"])


@pytest.mark.long
@pytest.mark.parametrize("first, second", [("apache", "roquette"), ("roquette", "apache")])
def test_a_store_moves_with_what_is_out(
    first: str, second: str, drivers: Callable[[str], Driver], tmp_path: Any, name: str
) -> None:
    """Popped from one broker, not acknowledged, and come again from the other, on the same files."""
    namesrv = start_namesrv("roquette", tmp_path / "namesrv")
    store = tmp_path / "broker" / "s"
    apache = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}

    def start(flavour: str) -> Bench:
        more = {**POP_SETTINGS, **apache} if flavour == "apache" else SETTINGS
        broker = start_broker(flavour, tmp_path / "broker", namesrv.address, settings=more)
        return Bench(java, Cluster(flavour, namesrv, broker, tmp_path), name)

    java = drivers("5.5.0")
    try:
        bench = start(first)
        try:
            java("producer", name=name, namesrv=namesrv.address)
            bench.send(6)
            messages = bench.pop(6, invisible=15_000)
            for message in messages[:3]:
                assert bench.ack(message)["status"] == "OK"
        finally:
            assert bench.cluster.broker.stop() in (0, 143)
        bench = start(second)
        try:
            again = bench.pop(3, within_ms=10_000)
            assert bodies(again) == bodies(messages[3:])
            assert {m["reconsumeTimes"] for m in again} == {1}
            assert bench("pop", poll=5_000)["status"] == "POLLING_NOT_FOUND"
        finally:
            bench.cluster.broker.discard()
    finally:
        java("drop", name=name)
        namesrv.discard()
