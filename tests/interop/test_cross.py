"""Apache's servers and ours in one cluster; Java and Roquette clients in one group.

One cluster for all tests: Apache's name server and ours, Apache's broker and ours, each broker registered
with both name servers. So every route is told by both name servers, and every topic is on both brokers.
"""

import asyncio
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.driver import Driver
from tests.interop.peers import Server, call, require_java, start_broker, start_namesrv

from roquette import Client, ReceivedMessage, StartFrom
from roquette.broker.cluster.auto_creation import WHOLE_S
from roquette.client.consumer import Consumer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

SOON_S = 60.0  # machines are slow when everything runs at once
QUEUES = 4
number = itertools.count(1)


class Mixed:
    """Two name servers and two brokers, one of each from Apache."""

    def __init__(self, namesrvs: dict[str, Server], brokers: dict[str, Server]) -> None:
        self.namesrvs = namesrvs
        self.brokers = brokers

    def told(self, namesrv: str, code: int, **fields: str) -> Any:
        """The JSON a name server answers; None when it answers an error."""
        answer = call(self.namesrvs[namesrv].address, code, fields)
        assert answer is not None
        if answer[0]["code"] != 0:
            return None
        # Numbers as keys of maps are not quoted.
        return json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', answer[1]))

    def cluster(self, namesrv: str) -> dict[str, Any]:
        """What a name server tells about brokers, in an order of ours."""
        told = self.told(namesrv, 106)
        clusters = {k: sorted(v) for k, v in told["clusterAddrTable"].items()}
        return {**told, "clusterAddrTable": clusters}

    def route(self, namesrv: str, topic: str) -> dict[str, Any] | None:
        """What a name server tells about a topic, in an order of ours."""
        told = self.told(namesrv, 105, topic=topic, acceptStandardJsonOnly="true")
        if told is None:
            return None
        for part in ("queueDatas", "brokerDatas"):
            told[part].sort(key=lambda data: data["brokerName"])
        found: dict[str, Any] = told
        return found

    def create(self, topic: str) -> None:
        """Make a topic on both brokers, and wait until both name servers tell it."""
        fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "order": "false"}
        fields |= {"readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES)}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
        for broker in self.brokers.values():
            answer = call(broker.address, 17, fields)
            assert answer is not None and answer[0]["code"] == 0, answer
        until(lambda: all(self.on_all(namesrv, topic) for namesrv in self.namesrvs))

    def on_all(self, namesrv: str, topic: str) -> bool:
        route = self.route(namesrv, topic)
        return route is not None and len(route["queueDatas"]) == len(self.brokers)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    require_java()
    folder: Path = tmp_path_factory.mktemp("mixed")
    started: list[Server] = []
    namesrvs: dict[str, Server] = {}
    brokers: dict[str, Server] = {}
    try:
        for flavour in ("roquette", "apache"):
            namesrvs[flavour] = start_namesrv(flavour, folder / f"{flavour}-namesrv")
            started.append(namesrvs[flavour])
        addresses = ";".join(server.address for server in namesrvs.values())
        for flavour in ("roquette", "apache"):
            brokers[flavour] = start_broker(
                flavour, folder / f"{flavour}-broker", addresses, name=f"{flavour}-broker"
            )
            started.append(brokers[flavour])
        yield Mixed(namesrvs, brokers)
    finally:
        for server in started:
            server.discard()


def until(condition: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    """Wait until it is true."""
    end = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.1)


async def soon(condition: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    """The same while the event loop goes on."""
    end = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end, what()
        await asyncio.sleep(0.1)


def run(case: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(200):
            await case

    asyncio.run(bounded())


def name(word: str) -> str:
    """A topic or group nobody else uses."""
    return f"{word}_{next(number)}"


def test_brokers_of_both_register_with_both_name_servers(mixed: Mixed) -> None:
    until(lambda: all(len(brokers_of(mixed, n)) == 2 for n in mixed.namesrvs))
    assert mixed.cluster("apache") == mixed.cluster("roquette")
    assert brokers_of(mixed, "apache") == {
        f"{flavour}-broker": {"0": broker.address} for flavour, broker in mixed.brokers.items()
    }
    topic = name("everywhere")
    mixed.create(topic)
    route = mixed.route("apache", topic)
    assert route == mixed.route("roquette", topic)
    assert route is not None
    assert route["queueDatas"] == [
        {
            "brokerName": f"{flavour}-broker",
            "readQueueNums": QUEUES,
            "writeQueueNums": QUEUES,
            "perm": 6,
            "topicSysFlag": 0,
        }
        for flavour in ("apache", "roquette")
    ]


def brokers_of(mixed: Mixed, namesrv: str) -> dict[str, dict[str, str]]:
    """Names of the brokers a name server knows, with their addresses by id."""
    table = mixed.cluster(namesrv)["brokerAddrTable"]
    return {broker: data["brokerAddrs"] for broker, data in table.items()}


def test_a_topic_made_by_a_send_to_ours_is_on_apaches_broker_at_once(mixed: Mixed) -> None:
    topic = name("first_send")
    fields = {"a": "pg", "b": topic, "c": "TBW102", "d": "3", "e": "0", "f": "0", "g": "1"}
    fields |= {"h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
    began = time.monotonic()
    answer = call(mixed.brokers["roquette"].address, 310, fields, b"x")
    assert answer is not None and answer[0]["code"] == 0, answer
    waited = time.monotonic() - began >= WHOLE_S  # then it went on without the other broker
    for broker in mixed.brokers.values():
        told = call(broker.address, 351, {"topic": topic})
        while waited and told is not None and told[0]["code"] and time.monotonic() - began < SOON_S:
            time.sleep(0.1)
            told = call(broker.address, 351, {"topic": topic})
        assert told is not None and told[0]["code"] == 0, "before the sender had its answer"
        config = json.loads(told[1])
        assert (config["readQueueNums"], config["writeQueueNums"], config["perm"]) == (3, 3, 6)
    until(lambda: all(mixed.on_all(namesrv, topic) for namesrv in mixed.namesrvs))


def test_a_broker_that_leaves_is_forgotten_by_both(mixed: Mixed, tmp_path: Path) -> None:
    addresses = ";".join(server.address for server in mixed.namesrvs.values())
    guest = start_broker("roquette", tmp_path, addresses, name="guest")
    try:
        until(lambda: all("guest" in brokers_of(mixed, n) for n in mixed.namesrvs))
    finally:
        assert guest.stop() == 0
    until(lambda: not any("guest" in brokers_of(mixed, n) for n in mixed.namesrvs))


@pytest.mark.parametrize("namesrv", ["apache", "roquette"])
def test_java_sends_and_we_consume(mixed: Mixed, java: Driver, namesrv: str) -> None:
    async def case() -> None:
        topic, word = name("java_sends"), name("p")
        got: list[ReceivedMessage] = []
        await asyncio.to_thread(mixed.create, topic)
        async with Client(mixed.namesrvs[other(namesrv)].address) as mq:
            await mq.subscribe(
                topic, group=name("G"), handler=got.append, start_from=StartFrom.FIRST
            )
            await asyncio.to_thread(java, "producer", name=word, namesrv=at(mixed, namesrv))
            sending = {"name": word, "topic": topic, "keys": "key", "tags": "x,y"}
            sent = await asyncio.to_thread(java, "send", **sending, count=40)
            more = await asyncio.to_thread(java, "send", **sending, size=100_000)
            await soon(lambda: len({message.message_id for message in got}) >= 41, lambda: len(got))
            java("drop", name=word)
        results = sent["results"] + more["results"]
        assert {r["brokerName"] for r in results} == {"apache-broker", "roquette-broker"}
        by_id = {message.message_id: message for message in got}
        assert set(by_id) == {r["msgId"] for r in results}
        for i, result in enumerate(sent["results"]):
            message = by_id[result["msgId"]]
            assert message.body == f"m-{i}".encode()
            assert (message.tag, message.keys) == ("xy"[i % 2], (f"key-{i}",))
            assert message.queue.broker_name == result["brokerName"]
            assert message.queue.queue_id == result["queueId"]
            assert message.queue_offset == result["queueOffset"]
            assert message.offset_message_id == result["offsetMsgId"]
        assert len(by_id[more["results"][0]["msgId"]].body) == 100_000

    run(case())


@pytest.mark.parametrize("namesrv", ["apache", "roquette"])
def test_we_send_and_java_consumes(mixed: Mixed, java: Driver, namesrv: str) -> None:
    async def case() -> None:
        topic, word = name("we_send"), name("c")
        await asyncio.to_thread(mixed.create, topic)
        options = {"group": name("G"), "topic": topic, "namesrv": at(mixed, namesrv)}
        await asyncio.to_thread(java, "consumer", name=word, **options)
        big = b"A body that is worth compressing. " * 1_000
        async with Client(mixed.namesrvs[other(namesrv)].address) as mq:
            sent = [
                await mq.send(topic, f"m-{i}", key=f"key-{i}", tag="xy"[i % 2]) for i in range(40)
            ]
            sent += await mq.send_batch(topic, [f"batch-{i}" for i in range(10)])
            sent.append(await mq.send(topic, big))
        dumped = await asyncio.to_thread(java, "dump", name=word, min=51, timeout=60_000)
        java("stop", name=word)
        by_id = {message["msgId"]: message for message in dumped["messages"]}
        assert len(dumped["messages"]) == 51
        assert {m["brokerName"] for m in by_id.values()} == {"apache-broker", "roquette-broker"}
        for i, receipt in enumerate(sent[:40]):
            message = by_id[receipt.message_id]
            assert (message["body"], message["tags"]) == (f"m-{i}", "xy"[i % 2])
            assert message["keys"].split() == [f"key-{i}"]
            assert message["queueOffset"] == receipt.queue_offset
        assert sorted(by_id[r.message_id]["body"] for r in sent[40:50]) == sorted(
            f"batch-{i}" for i in range(10)
        )
        assert by_id[sent[50].message_id]["size"] == len(big)

    run(case())


def at(mixed: Mixed, namesrv: str) -> str:
    """The address of a name server."""
    return mixed.namesrvs[namesrv].address


def other(flavour: str) -> str:
    """The other flavour."""
    return "apache" if flavour == "roquette" else "roquette"


class Group:
    """A group with Java members and members of ours; both tell their queues as broker@id."""

    def __init__(self, mixed: Mixed, java: Driver, topic: str, orderly: bool) -> None:
        self.mixed = mixed
        self.java = java
        self.topic = topic
        self.group = name("shared")
        self.orderly = orderly
        self.got: list[tuple[str, int, str]] = []  # ours: queue, offset, body
        self.everything = {
            f"{broker}@{queue}"
            for broker in ("apache-broker", "roquette-broker")
            for queue in range(QUEUES)
        }

    def client(self) -> Client:
        """A client of ours that rebalances as often as the notices come, and every two seconds."""
        return Client(at(self.mixed, "roquette"), rebalance=2, lock_interval=2)

    async def join(self, mq: Client) -> Consumer:
        """A member of ours."""

        def handler(message: ReceivedMessage) -> None:
            queue = f"{message.queue.broker_name}@{message.queue.queue_id}"
            self.got.append((queue, message.queue_offset, message.body.decode()))

        return await mq.subscribe(
            self.topic,
            group=self.group,
            handler=handler,
            start_from=StartFrom.FIRST,
            orderly=self.orderly,
        )

    async def join_java(self, word: str) -> None:
        """A Java member."""
        options = {"group": self.group, "topic": self.topic, "namesrv": at(self.mixed, "apache")}
        await asyncio.to_thread(
            self.java, "consumer", name=word, **options, orderly=self.orderly or None
        )

    async def java_has(self, word: str) -> tuple[set[str], list[tuple[str, int, str]]]:
        """Queues and messages of a Java member."""
        dumped = await asyncio.to_thread(self.java, "dump", name=word)
        prefix = f"{self.topic}@"
        queues = {q.removeprefix(prefix) for q in dumped["queues"] if q.startswith(prefix)}
        return queues, [
            (f"{m['brokerName']}@{m['queueId']}", m["queueOffset"], m["body"])
            for m in dumped["messages"]
        ]

    def ours(self, consumer: Consumer) -> set[str]:
        """Queues of a member of ours."""
        mine = (queue for queue in consumer.queues if queue.topic == self.topic)
        return {f"{queue.broker_name}@{queue.queue_id}" for queue in mine}

    async def settled(self, consumer: Consumer | None, *words: str) -> list[set[str]]:
        """Wait until the members share the queues exactly; the shares, ours first if there is one."""
        end = time.monotonic() + SOON_S
        while True:
            shares = [(await self.java_has(word))[0] for word in words]
            if consumer is not None:
                shares.insert(0, self.ours(consumer))
            counted = Counter(itertools.chain.from_iterable(shares))
            if counted == dict.fromkeys(self.everything, 1) and all(shares):
                return shares
            assert time.monotonic() < end, shares
            await asyncio.sleep(0.2)

    async def sent(self, mq: Client, label: str, count: int) -> set[str]:
        """Send so that every queue gets some; the bodies."""
        bodies = {f"{label}-{n}" for n in range(count)}
        queues = await mq.queues(self.topic)
        for n, body in enumerate(sorted(bodies)):
            await mq.send(self.topic, body, queue=queues[n % len(queues)])
        return bodies

    async def until_seen(self, bodies: set[str], *words: str) -> None:
        """Wait until all the bodies arrived somewhere; none arrived twice."""
        end = time.monotonic() + SOON_S
        while True:
            seen = Counter(body for _, _, body in self.got)
            for word in words:
                seen.update(body for _, _, body in (await self.java_has(word))[1])
            found = {body: seen[body] for body in bodies if seen[body]}
            if len(found) == len(bodies):
                assert set(found.values()) == {1}, found
                return
            assert time.monotonic() < end, sorted(bodies - set(found))
            await asyncio.sleep(0.2)


@pytest.mark.feature("mixed-group", "rebalance")
def test_java_and_we_share_the_queues_of_a_group(mixed: Mixed, java: Driver) -> None:
    async def case() -> None:
        topic, one, two = name("shared"), name("c"), name("c")
        await asyncio.to_thread(mixed.create, topic)
        group = Group(mixed, java, topic, orderly=False)
        async with group.client() as mq:
            await group.join_java(one)
            (all_queues,) = await group.settled(None, one)
            assert all_queues == group.everything
            await group.until_seen(await group.sent(mq, "alone", 16), one)

            mine = await group.join(mq)
            shares = await group.settled(mine, one)
            assert sorted(map(len, shares)) == [4, 4]
            await group.until_seen(await group.sent(mq, "two", 32), one)

            await group.join_java(two)
            shares = await group.settled(mine, one, two)
            assert sorted(map(len, shares)) == [2, 3, 3]
            await group.until_seen(await group.sent(mq, "three", 32), one, two)
            for queue, _, body in group.got:
                assert not body.startswith("three") or queue in shares[0]

            await asyncio.to_thread(java, "stop", name=one)
            shares = await group.settled(mine, two)
            assert sorted(map(len, shares)) == [4, 4]
            await mine.close()
            (rest,) = await group.settled(None, two)
            assert rest == group.everything
            await group.until_seen(await group.sent(mq, "last", 16), two)
        java("stop", name=two)

    run(case())


@pytest.mark.feature("mixed-group", "order")
def test_order_survives_a_queue_going_from_java_to_us_and_back(mixed: Mixed, java: Driver) -> None:
    async def case() -> None:
        topic, word = name("orderly"), name("c")
        await asyncio.to_thread(mixed.create, topic)
        group = Group(mixed, java, topic, orderly=True)
        async with group.client() as mq:
            await group.join_java(word)
            await group.settled(None, word)
            bodies = await group.sent(mq, "java", 16)
            await group.until_seen(bodies, word)
            mine = await group.join(mq)
            await group.settled(mine, word)
            more = await group.sent(mq, "both", 32)
            await group.until_seen(more, word)
            assert any(body.startswith("both") for _, _, body in group.got)
            await mine.close()
            await group.settled(None, word)
            last = await group.sent(mq, "again", 16)
            await group.until_seen(last, word)
            _, seen = await group.java_has(word)
        java("stop", name=word)
        for queue in group.everything:
            for member in (seen, group.got):
                offsets = [offset for where, offset, _ in member if where == queue]
                assert offsets == sorted(offsets)
        assert {body for _, _, body in [*seen, *group.got]} == bodies | more | last

    run(case())


@pytest.mark.feature("lag")
def test_lag_of_a_group_of_ours_as_java_sees_it(mixed: Mixed, java: Driver) -> None:
    async def case() -> None:
        topic, group, word = name("lag"), name("lagging"), name("p")
        await asyncio.to_thread(mixed.create, topic)
        await asyncio.to_thread(java, "producer", name=word, namesrv=at(mixed, "roquette"))
        asking = {"name": word, "group": group, "topic": topic}
        async with Client(at(mixed, "apache")) as mq:
            for queue in await mq.queues(topic):
                await mq.send(topic, b"read", queue=queue)
            got: list[ReceivedMessage] = []
            consumer = await mq.subscribe(
                topic, group=group, handler=got.append, start_from=StartFrom.FIRST
            )
            await soon(lambda: len({m.queue for m in got}) == 2 * QUEUES, lambda: len(got))
            await consumer.close()
            for queue in await mq.queues(topic):
                await mq.send(topic, b"unread", queue=queue)
                await mq.send(topic, b"unread", queue=queue)
            lag: dict[str, Any] = {}
            end = time.monotonic() + SOON_S
            while lag.get("lag") != 4 * QUEUES:  # offsets are committed one way
                assert time.monotonic() < end, str(lag)
                lag = await asyncio.to_thread(java, "lag", **asking)
                await asyncio.sleep(0.2)
        java("drop", name=word)
        assert len(lag["queues"]) == 2 * QUEUES
        for shape in lag["queues"].values():
            assert (shape["broker"], shape["consumer"]) == (3, 1)

    run(case())


def test_apaches_broker_leaves_and_both_forget_it(mixed: Mixed) -> None:
    """Last: the broker is gone afterwards."""
    topic = name("half")
    mixed.create(topic)
    mixed.brokers["apache"].process.popen.terminate()
    for namesrv in mixed.namesrvs:
        until(lambda n=namesrv: set(brokers_of(mixed, n)) == {"roquette-broker"})  # type: ignore[misc]
    route = mixed.route("roquette", topic)
    assert route is not None and route == mixed.route("apache", topic)
    assert [data["brokerName"] for data in route["queueDatas"]] == ["roquette-broker"]
