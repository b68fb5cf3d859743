"""Our client against Apache's servers 5.5.0, its broker 4.9.7, and against ours: the same cases for all."""

import asyncio
import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers

import roquette.sync
from roquette import (
    BrokerError,
    Client,
    Message,
    MessageIllegal,
    MessageQueue,
    PoppedMessages,
    ReceivedMessage,
    RouteNotFound,
    StartFrom,
    sql,
)
from roquette.client.operator_calls import put_topic
from roquette.message.names import dlq_topic
from roquette.wire.bodies import TopicConfig

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

SOON_S = 60.0  # machines are slow when everything runs at once
QUICK_DELAYS = {"messageDelayLevel": " ".join(["1s"] * 18)}
TRANSACTIONS = {"transactionTimeOut": "2000", "transactionCheckInterval": "2000"}
TIMERS = {"timerWheelEnable": "true", "recallMessageEnable": "true"}  # 4.9.7 has none, nor pops
number = itertools.count(1)


class Cluster:
    """Addresses of the servers under test, and clients for them."""

    def __init__(self, flavour: str, namesrv: str, folder: Path, old: bool = False) -> None:
        self.flavour = flavour
        self.old = old
        self.namesrv = namesrv
        self.folder = folder

    @contextlib.asynccontextmanager
    async def client(self, **settings: Any) -> AsyncIterator[Client]:
        async with Client(
            **{
                "name_servers": self.namesrv,
                "offset_root": str(self.folder / "offsets"),
                "rebalance": 2,
                "call_timeout": 10,
                "send_timeout": 10,
            }
            | settings
        ) as mq:
            yield mq


@pytest.fixture(scope="module", params=["apache", "apache49", "roquette"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp(request.param)
    flavour, old, _ = request.param.partition("49")
    namesrv = peers.start_namesrv(flavour, folder / "namesrv")
    try:
        start = partial(peers.start_broker, flavour)
        settings = QUICK_DELAYS | TRANSACTIONS | {"enablePropertyFilter": "true"}
        if old:
            start = partial(peers.start_apache_broker, version="4.9.7")
        else:
            settings |= TIMERS
        broker = start(folder / "broker", namesrv.address, settings=settings)
        try:
            yield Cluster(flavour, namesrv.address, folder, bool(old))
        finally:
            broker.discard()
    finally:
        namesrv.discard()


def run(case: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(150):
            await case

    asyncio.run(bounded())


def name(word: str) -> str:
    """A topic or group nobody else uses."""
    return f"T_{word}_{next(number)}"  # as ways.py lets its user


async def until(condition: Callable[[], bool], what: str = "") -> None:
    """Wait for a condition; fails with `what` after a while."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SOON_S
    while not condition():
        assert loop.time() < end, what or "waited in vain"
        await asyncio.sleep(0.02)


async def read_all(mq: Client, topic: str, count: int) -> list[ReceivedMessage]:
    """Every message of a topic, once there are `count`, by pulling each queue from its first to its last offset."""
    queues = await routed(mq, topic)
    await reaches(mq, queues, count)
    puller = mq.reader(group=name("reader"))
    ends = {queue: await mq.max_offset(queue) for queue in queues}
    for queue in queues:
        await puller.assign([*puller.assigned(), queue])
        puller.seek(queue, await mq.min_offset(queue))
    found: list[ReceivedMessage] = []
    while any(puller.position(queue) < end for queue, end in ends.items()):
        found += await puller.poll(timeout=10.0)
    await puller.close()
    return found


async def reaches(mq: Client, queues: list[MessageQueue], count: int) -> None:
    """Wait until the queues hold so many messages: Apache's queues follow its log."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SOON_S
    while (held := sum([await mq.max_offset(queue) for queue in queues])) < count:
        assert loop.time() < end, held
        await asyncio.sleep(0.02)


async def create(mq: Client, topic: str) -> list[MessageQueue]:
    """Create a topic by sending to it; its queues, once the name server knows them."""
    await mq.send(topic, b"first")
    return await routed(mq, topic)


async def routed(mq: Client, topic: str) -> list[MessageQueue]:
    """A topic's queues, once the name server knows them: a new topic may be sent to before."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SOON_S
    while True:
        with contextlib.suppress(RouteNotFound):
            return await mq.queues(topic)
        assert loop.time() < end
        await asyncio.sleep(0.05)


def test_send_in_every_way_and_read_it_back(cluster: Cluster) -> None:
    async def case() -> None:
        topic, sent = name("ways"), []
        async with cluster.client() as mq:
            receipt = await mq.send(
                topic, "größe", key=["k1", "k2"], tag="new", properties={"origin": "hier"}
            )
            assert receipt.status == "SEND_OK"
            queues = await routed(mq, topic)
            assert [q.queue_id for q in queues] == [0, 1, 2, 3]
            sent.append(receipt)
            sent.append(await mq.send(topic, b"explicit", queue=queues[2]))
            assert sent[-1].queue == queues[2]
            sent.append(await mq.send(topic, b"chosen", selector=lambda found, _: found[1]))
            assert sent[-1].queue == queues[1]
            sharded = [await mq.send(topic, f"s{n}", shard_key="one") for n in range(3)]
            assert len({r.queue for r in sharded}) == 1
            assert [r.queue_offset - sharded[0].queue_offset for r in sharded] == [0, 1, 2]
            sent += sharded
            futures = [await mq.send_nowait(topic, f"soon{n}") for n in range(300)]
            sent += await asyncio.gather(*futures)
            sent += await mq.send_batch(topic, [f"batch{n}" for n in range(50)])
            sent.append(await mq.send(topic, b"z" * 50_000))
            for n in range(3):
                await mq.send_oneway(topic, f"oneway{n}")
            found = await read_all(mq, topic, len(sent) + 3)
            by_id = {message.message_id: message for message in found}
            for receipt in sent:
                message = by_id[receipt.message_id]
                assert message.offset_message_id == receipt.offset_message_id
                assert (message.queue, message.queue_offset) == (
                    receipt.queue,
                    receipt.queue_offset,
                )
        first = by_id[sent[0].message_id]
        assert first.body.decode() == "größe"
        assert (first.keys, first.tag) == (("k1", "k2"), "new")
        assert first.properties["origin"] == "hier"
        bodies = Counter(message.body for message in found)
        assert bodies[b"z" * 50_000] == 1
        assert all(bodies[f"oneway{n}".encode()] == 1 for n in range(3))
        assert len(found) == len(sent) + 3

    run(case())


def test_a_batch_splits_by_size_and_refuses_delays(cluster: Cluster) -> None:
    async def case() -> None:
        topic = name("batch")
        async with cluster.client() as mq:
            receipts = await mq.send_batch(topic, [bytes([n]) * 300_000 for n in range(1, 9)])
            assert len({r.offset_message_id for r in receipts}) == 8
            found = await read_all(mq, topic, 8)
            assert sorted(m.body[0] for m in found) == list(range(1, 9))
            with pytest.raises(MessageIllegal):
                await mq.send_batch(topic, [Message(topic, b"x", delay_level=1)])

    run(case())


def test_illegal_messages_and_unknown_topics_are_refused(cluster: Cluster) -> None:
    async def case() -> None:
        async with cluster.client() as mq:
            with pytest.raises(MessageIllegal):
                await mq.send(name("empty"), b"")
            with pytest.raises(MessageIllegal):
                await mq.send("bad topic/../x", b"1")
            with pytest.raises(MessageIllegal):
                await mq.send(name("large"), bytes(4 * 1024 * 1024 + 1))
            with pytest.raises(RouteNotFound):
                await mq.queues(name("nowhere"))

    run(case())


def test_two_consumers_share_and_the_one_left_takes_over(cluster: Cluster) -> None:
    async def case() -> None:
        topic, group = name("share"), name("group")
        got: dict[str, list[ReceivedMessage]] = {"one": [], "two": []}
        async with cluster.client() as mq, cluster.client() as other:
            await create(mq, topic)
            options = {"group": group, "start_from": StartFrom.FIRST}
            one = await mq.subscribe(topic, handler=got["one"].append, **options)
            two = await other.subscribe(topic, handler=got["two"].append, **options)

            def mine(consumer: Any) -> int:
                return sum(queue.topic == topic for queue in consumer.queues)

            await until(lambda: mine(one) == mine(two) == 2, "queues are not shared")
            futures = [await mq.send_nowait(topic, f"a{n}") for n in range(200)]
            await asyncio.gather(*futures)
            await until(lambda: len({m.message_id for g in got.values() for m in g}) == 201)
            assert len(got["one"]) > 50
            assert len(got["two"]) > 50

            await two.close()
            await until(lambda: mine(one) == 4, "queues were not taken over")
            futures = [await mq.send_nowait(topic, f"b{n}") for n in range(100)]
            await asyncio.gather(*futures)
            await until(lambda: len({m.body for m in got["one"] if m.body.startswith(b"b")}) == 100)
        everything = [m.message_id for g in got.values() for m in g]
        assert len(set(everything)) == 301
        assert len(everything) <= 301 + 64, "more duplicates than a rebalance explains"

    run(case())


def test_a_group_goes_on_where_it_stopped(cluster: Cluster) -> None:
    async def case() -> None:
        topic, group, first, second = name("resume"), name("group"), [], []
        async with cluster.client() as mq:
            await create(mq, topic)
            consumer = await mq.subscribe(
                topic, group=group, handler=first.append, start_from=StartFrom.FIRST
            )
            await until(lambda: len(first) == 1)
            await consumer.close()
            await mq.send_batch(topic, [f"{n}" for n in range(20)])
        async with cluster.client() as mq:
            await mq.subscribe(
                topic, group=group, handler=second.append, start_from=StartFrom.FIRST
            )
            await until(lambda: len(second) >= 20)
            await asyncio.sleep(0.5)
        assert sorted(int(m.body) for m in second) == list(range(20))

    run(case())


@pytest.mark.promise("The client", "a clean join or leave repeats no finished message")
def test_members_that_come_and_go_repeat_no_finished_message(cluster: Cluster) -> None:
    async def case() -> None:
        topic, group, total = name("handover"), name("group"), 6_000
        finished: dict[bytes, list[tuple[MessageQueue, int]]] = {}

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.002)
            finished.setdefault(message.body, []).append((message.queue, message.queue_offset))

        async def member(stack: contextlib.AsyncExitStack) -> None:
            mq = await stack.enter_async_context(cluster.client(rebalance=20))
            await mq.subscribe(topic, group=group, handler=handler, start_from=StartFrom.FIRST)

        async def send(mq: Client) -> None:
            for first in range(0, total, 20):
                await mq.send_batch(topic, [f"{n}" for n in range(first, first + 20)])
                await asyncio.sleep(0.02)

        async with cluster.client() as mq, contextlib.AsyncExitStack() as stays:
            await create(mq, topic)
            await member(stays)
            sending = asyncio.create_task(send(mq))
            for _ in range(5):
                async with contextlib.AsyncExitStack() as comes:
                    await member(comes)
                    await asyncio.sleep(0.7)
                await asyncio.sleep(0.4)
            await sending
            await until(lambda: len(finished) == total + 1)
            await asyncio.sleep(0.5)  # the group is idle now
            await member(stays)
            await asyncio.sleep(1)
        assert [found for found in finished.items() if len(found[1]) > 1] == []

    run(case())


def test_a_new_group_begins_at_the_end_the_start_or_a_time(cluster: Cluster) -> None:
    async def case() -> None:
        topic = name("where")
        got: dict[str, list[bytes]] = {"last": [], "first": [], "time": []}
        async with cluster.client() as mq:
            queues = await create(mq, topic)
            await mq.send(topic, b"old", queue=queues[0])
            await asyncio.sleep(1.5)
            receipt = await mq.send(topic, b"middle", queue=queues[0])
            stored = next(
                m for m in await read_all(mq, topic, 3) if m.message_id == receipt.message_id
            )
            starts = {"last": StartFrom.LAST, "first": StartFrom.FIRST}
            starts["time"] = stored.store_timestamp_ms
            for word, bodies in got.items():

                def keep(message: ReceivedMessage, bodies: list[bytes] = bodies) -> None:
                    bodies.append(message.body)

                await mq.subscribe(topic, group=name(word), handler=keep, start_from=starts[word])
            await mq.send(topic, b"new", queue=queues[0])
            # Of two queues, which are read side by side.
            counts = {"last": 4, "first": 4, "time": 4 if cluster.old else 2}
            await until(lambda: all(len(got[word]) >= count for word, count in counts.items()))
        # A broker answers 0 to a new group while a queue's first messages are in memory, which Java's
        # client takes for the group's offset: queues added later lose nothing that way.
        assert sorted(got["last"]) == [b"first", b"middle", b"new", b"old"]
        assert sorted(got["first"]) == [b"first", b"middle", b"new", b"old"]
        # 4.9 does so also to those who ask it not to (setZeroIfNotFound came with 5.0).
        wanted = [b"first", b"middle", b"new", b"old"] if cluster.old else [b"middle", b"new"]
        assert sorted(got["time"]) == wanted

    run(case())


def test_tags_are_exact_even_when_their_hashes_collide(cluster: Cluster) -> None:
    async def case() -> None:
        topic, got = name("tags"), []
        async with cluster.client() as mq:
            await create(mq, topic)
            await mq.subscribe(
                topic,
                group=name("group"),
                handler=got.append,
                tag="Aa || c",
                start_from=StartFrom.FIRST,
            )
            for tag in ["Aa", "BB", "c", "d", None, "Aa"]:  # "Aa" and "BB" have one hash in Java
                await mq.send(topic, f"{tag}", tag=tag)
            await until(lambda: len(got) >= 3)
            await asyncio.sleep(0.5)
        assert Counter(m.tag for m in got) == {"Aa": 2, "c": 1}

    run(case())


def test_broadcasting_gives_everybody_everything_and_remembers_locally(cluster: Cluster) -> None:
    async def case() -> None:
        topic, group = name("all"), name("group")
        got: dict[str, list[bytes]] = {"x": [], "y": []}

        async def join(mq: Client, word: str) -> None:
            def keep(message: ReceivedMessage) -> None:
                got[word].append(message.body)

            await mq.subscribe(
                topic, group=group, handler=keep, model="broadcasting", start_from=StartFrom.FIRST
            )

        async with (
            cluster.client(instance_name=f"{group}x") as mq,
            cluster.client(instance_name=f"{group}y") as other,
        ):
            await create(mq, topic)
            await join(mq, "x")
            await join(other, "y")
            await mq.send_batch(topic, [f"{n}" for n in range(20)])
            await until(lambda: all(len(set(bodies)) == 21 for bodies in got.values()))
            client_id = mq.session.client_id
        kept = cluster.folder / "offsets" / client_id / group / "offsets.json"
        assert "".join(kept.read_text().split()).startswith('{"offsetTable":{{"brokerName":')
        got["x"].clear()
        async with cluster.client(instance_name=f"{group}x") as mq:
            await join(mq, "x")
            await mq.send(topic, b"later")
            await until(lambda: bool(got["x"]))
            await asyncio.sleep(0.5)
        assert got["x"] == [b"later"]

    run(case())


def test_a_failing_message_returns_and_ends_among_the_dead_letters(cluster: Cluster) -> None:
    async def case() -> None:
        topic, group = name("retry"), name("group")
        seen: dict[bytes, list[int]] = {}
        topics = set()

        def handler(message: ReceivedMessage) -> bool:
            seen.setdefault(message.body, []).append(message.reconsume_times)
            topics.add(message.topic)
            if message.body == b"poison":
                raise ValueError("cannot digest this")
            return not (message.body == b"twice" and message.reconsume_times == 0)

        async with cluster.client() as mq:
            await create(mq, topic)
            await mq.subscribe(
                topic,
                group=group,
                handler=handler,
                start_from=StartFrom.FIRST,
                max_reconsume_times=2,
            )
            for body in (b"good", b"twice", b"poison"):
                await mq.send(topic, body, key=body.decode(), tag="t")
            await until(lambda: len(seen.get(b"poison", [])) == 3 and len(seen[b"twice"]) == 2)
            dead = await read_all(mq, dlq_topic(group), 1)
        assert seen[b"good"] == [0]
        assert seen[b"twice"] == [0, 1]
        assert seen[b"poison"] == [0, 1, 2]
        assert topics == {topic}
        assert [(m.body, m.keys, m.tag) for m in dead] == [(b"poison", ("poison",), "t")]
        assert dead[0].properties["RETRY_TOPIC"] == topic

    run(case())


def test_orderly_handlers_see_each_queue_in_order_through_failures(cluster: Cluster) -> None:
    async def case() -> None:
        topic, group, order = name("orderly"), name("group"), {}
        failed = set()

        async def handler(message: ReceivedMessage) -> bool:
            await asyncio.sleep(0.001)
            if message.queue_offset % 7 == 3 and message.message_id not in failed:
                failed.add(message.message_id)
                return False
            order.setdefault(message.queue, []).append(message.queue_offset)
            return True

        async with (
            cluster.client(orderly_suspend=0.05, lock_interval=1) as mq,
            cluster.client(orderly_suspend=0.05, lock_interval=1) as other,
        ):
            await create(mq, topic)
            options = {"group": group, "orderly": True, "start_from": StartFrom.FIRST}
            one = await mq.subscribe(topic, handler=handler, **options)
            for n in range(40):
                await mq.send(topic, f"{n}", shard_key=f"{n % 8}")
            await until(lambda: sum(len(set(each)) for each in order.values()) == 41)
            two = await other.subscribe(topic, handler=handler, **options)
            await until(
                lambda: (
                    sum(q.topic == topic for q in two.queues) == 2
                    and sum(q.topic == topic for q in one.queues) == 2
                )
            )
            for n in range(40):
                await mq.send(topic, f"{n}", shard_key=f"{n % 8}")
            await until(lambda: sum(len(set(each)) for each in order.values()) == 81)
        for offsets in order.values():
            once = list(
                dict.fromkeys(offsets)
            )  # a queue that moves may begin again a little before
            assert once == list(range(len(once)))
        assert failed

    run(case())


def test_delayed_messages_come_later(cluster: Cluster) -> None:
    async def case() -> None:
        topic, got = name("later"), []
        loop = asyncio.get_running_loop()
        async with cluster.client() as mq:
            await create(mq, topic)
            await mq.subscribe(
                topic, group=name("group"), handler=lambda m: got.append((loop.time(), m))
            )
            started = loop.time()
            await mq.send(topic, b"now")
            await mq.send(topic, b"delayed", delay_level=2)
            await until(lambda: any(m.body == b"delayed" for _, m in got))
        arrived = {message.body: when - started for when, message in got}
        assert arrived[b"delayed"] >= 0.9
        assert {m.topic for _, m in got} == {topic}

    run(case())


def test_pulling_with_seek_commit_and_offsets_by_time(cluster: Cluster) -> None:
    async def case() -> None:
        topic, group = name("pull"), name("group")
        async with cluster.client() as mq:
            queues = await create(mq, topic)
            queue = queues[0]
            await reaches(mq, queues, 1)
            base = await mq.max_offset(queue)
            for n in range(10):
                await mq.send(topic, f"{n}", queue=queue)
            assert await mq.min_offset(queue) == 0
            await reaches(mq, [queue], base + 10)

            puller = mq.reader(group=group, batch=4)
            await puller.assign([queue])
            puller.seek(queue, base + 6)
            found: list[ReceivedMessage] = []
            while len(found) < 4:
                found += await puller.poll(timeout=10.0)
            assert [m.body for m in found] == [b"6", b"7", b"8", b"9"]
            assert await puller.poll(timeout=0.2) == []
            await puller.commit()
            # Of messages that were stored in one millisecond 4.9 names any, later ones the first.
            stored_ms = found[0].store_timestamp_ms
            same = sum(message.store_timestamp_ms == stored_ms for message in found)
            at = await mq.offset_by_time(queue, stored_ms)
            assert at <= base + 6 + (same - 1 if cluster.old else 0)
            end = (
                base + 10 - cluster.old
            )  # 4.9 names the last message for a time that comes after it
            assert await mq.offset_by_time(queue, 2**41) == end

            await mq.send(topic, b"held", queue=queue)  # wakes the held pull
            assert [m.body for m in await puller.poll(timeout=60.0)] == [b"held"]
            await puller.close()
            again = mq.reader(group=group)
            end = asyncio.get_running_loop().time() + SOON_S
            while True:  # the commit is one way
                await again.assign([])
                await again.assign([queue])
                if again.position(queue) == base + 10:
                    break
                assert asyncio.get_running_loop().time() < end
                await asyncio.sleep(0.05)
            assert [m.body for m in await again.poll(timeout=60.0)] == [b"held"]

    run(case())


def test_stored_messages_are_found_by_key_by_id_and_by_place(cluster: Cluster) -> None:
    async def found(mq: Client, topic: str, key: str, count: int) -> list[ReceivedMessage]:
        end = asyncio.get_running_loop().time() + SOON_S
        while len(messages := await mq.find(topic, key)) < count:  # Apache's index follows its log
            assert asyncio.get_running_loop().time() < end, (key, messages)
            await asyncio.sleep(0.05)
        return messages

    async def case() -> None:
        topic = name("find")
        async with cluster.client() as mq:
            await create(mq, topic)
            receipts = [
                await mq.send(topic, f"{n}", key=["all", f"order-{n}"], properties={"n": f"{n}"})
                for n in range(5)
            ]
            assert [m.body for m in await found(mq, topic, "all", 5)] == [
                b"0",
                b"1",
                b"2",
                b"3",
                b"4",
            ]
            (one,) = await found(mq, topic, "order-3", 1)
            assert (one.body, one.queue, one.properties["n"]) == (b"3", receipts[3].queue, "3")
            assert one.message_id == receipts[3].message_id
            assert await found(mq, topic, receipts[3].message_id, 1) == [one]
            placed = await mq.message_at(receipts[3].offset_message_id)
            assert (placed.body, placed.message_id) == (b"3", one.message_id)
            assert placed.keys == ("all", "order-3")
            assert len(await mq.find(topic, "all", most=2)) == 2
            later = one.stored_at + timedelta(seconds=30)
            assert await mq.find(topic, "all", since=later) == []
            assert await mq.find(topic, "order-30") == []
            with pytest.raises(BrokerError):
                await mq.message_at(f"{receipts[3].offset_message_id[:16]}00000000FFFFFFF0")

    run(case())


def test_a_loop_over_messages_acknowledges_and_leaves_promptly(cluster: Cluster) -> None:
    async def case() -> None:
        topic, group, got = name("loop"), name("group"), []
        loop = asyncio.get_running_loop()
        async with cluster.client() as mq:
            await create(mq, topic)
            await mq.send_batch(topic, [f"{n}" for n in range(9)])
            async for message in mq.consume(topic, group=group, start_from=StartFrom.FIRST):
                got.append(message.body)
                if len(got) == 6:
                    break  # the sixth is not acknowledged
            left = loop.time()
        assert loop.time() - left < 10.0  # a held pull would be 15 s
        async with cluster.client() as mq, mq.consume(topic, group=group) as stream:
            async for message in stream:
                got.append(message.body)
                if len(set(got)) == 10:
                    break
        assert len(got) == 11

    run(case())


def test_the_blocking_twin(cluster: Cluster) -> None:
    topic, got = name("sync"), []
    with roquette.sync.Client(cluster.namesrv) as mq:
        assert mq.send(topic, b"1", key="k").status == "SEND_OK"
        assert len(mq.send_batch(topic, [b"2", b"3"])) == 2

        def held() -> int:
            with contextlib.suppress(RouteNotFound):
                return sum(mq.max_offset(queue) for queue in mq.queues(topic))
            return 0

        end = time.monotonic() + SOON_S
        while held() < 3:  # Apache's queues follow its log
            assert time.monotonic() < end
            time.sleep(0.05)
        assert held() == 3
        for message in mq.consume(topic, group=name("group"), start_from=StartFrom.FIRST):
            got.append(message.body)
            if len(got) == 3:
                break
    assert sorted(got) == [b"1", b"2", b"3"]


def test_another_name_server_is_used_when_one_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    async def case(addresses: str) -> None:
        topic = name("failover")
        async with cluster.client(name_servers=addresses, connect_timeout=1) as mq:
            await mq.send(topic, b"1")
            assert len(await routed(mq, topic)) == 4

    dead = f"127.0.0.1:{peers.free_port()}"
    for addresses in (f"{dead};{cluster.namesrv}", f"{cluster.namesrv};{dead}"):
        run(case(addresses))


def test_java_tools_would_see_our_client(cluster: Cluster) -> None:
    async def case() -> None:
        topic, group = name("seen"), name("group")
        async with cluster.client() as mq:
            await create(mq, topic)
            await mq.subscribe(topic, group=group, handler=lambda m: None, tag="a || b")
            broker = mq.session.broker_addresses()[0]
            asked = {"consumerGroup": group}
            header, body = await asyncio.to_thread(peers.call, broker, 203, asked) or ({}, b"")
            assert header["code"] == 0, header
            seen = json.loads(body)
            assert [c["clientId"] for c in seen["connectionSet"]] == [mq.session.client_id]
            assert seen["consumeType"] == "CONSUME_PASSIVELY"
            assert seen["subscriptionTable"][topic]["tagsSet"] == ["a", "b"]
            asked |= {"clientId": mq.session.client_id, "jstackEnable": "false"}
            header, body = await asyncio.to_thread(peers.call, broker, 307, asked) or ({}, b"")
            assert header["code"] == 0, header
            assert b'"mqTable"' in body

    run(case())


POP = {
    "group": "G_pop",
    "start_from": StartFrom.FIRST,
    "invisible": 20.0,
}


async def jobs_of(jobs: PoppedMessages, count: int) -> list[ReceivedMessage]:
    found = []
    async with asyncio.timeout(SOON_S):
        while len(found) < count:
            found.append(await anext(jobs))
    return found


def test_pop_acknowledge_extend_and_give_back(cluster: Cluster) -> None:
    if cluster.old:
        pytest.skip("4.9.7 does not pop")

    async def case() -> None:
        topic = name("pop")
        async with cluster.client() as mq:
            await create(mq, topic)
            sent = {f"{n}".encode() for n in range(12)} | {b"first"}
            for body in sorted(sent - {b"first"}):
                await mq.send(topic, body)
            async with mq.pop(topic, **POP, batch=8) as jobs:
                found = await jobs_of(jobs, 13)
                assert {job.body for job in found} == sent
                await asyncio.gather(*[job.ack() for job in found[:9]])  # in batches
                await found[9].ack()
                await found[10].retry(after=1)
                await found[11].extend(2)
                await found[12].dead_letter()
                again = await jobs_of(jobs, 2)
                assert {job.body for job in again} == {job.body for job in found[10:12]}
                assert {job.topic for job in again} == {topic}
                assert {job.reconsume_times for job in again} == {1}
                await asyncio.gather(*[job.ack() for job in again])
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(5):
                        await anext(jobs)
            dead = await read_all(mq, dlq_topic("G_pop"), 1)
            assert [m.body for m in dead] == [found[12].body]

    run(case())


def test_priorities_choose_the_queue_and_pops_begin_with_the_highest(cluster: Cluster) -> None:
    if cluster.old:
        pytest.skip("4.9.7 knows no priorities")

    async def case() -> None:
        async with cluster.client() as mq:
            topic = name("priorities")
            await routed(mq, "TBW102")
            route = await mq.session.route("TBW102")
            config = TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4)
            made = put_topic(config, attributes={"message.type": "PRIORITY"})
            for address in route.addresses.values():
                await mq.session.api.call(address[0], made)
            await routed(mq, topic)
            given = [1, 3, 0, 2, 9, 1]
            receipts = [await mq.send(topic, b"x", priority=p) for p in given]
            assert [receipt.queue.queue_id for receipt in receipts] == [1, 3, 0, 2, 3, 1]
            await reaches(mq, [receipt.queue for receipt in receipts[:4]], 6)
            async with mq.pop(topic, group=name("g"), batch=1) as jobs:
                found = await jobs_of(jobs, 6)
                assert [message.priority for message in found] == [3, 9, 2, 1, 1, 0]
                await asyncio.gather(*[message.ack() for message in found])

    run(case())


def test_pop_in_order_and_by_an_expression(cluster: Cluster) -> None:
    if cluster.old:
        pytest.skip("4.9.7 does not pop")

    async def case() -> None:
        topic = name("pop")
        async with cluster.client() as mq:
            queues = await create(mq, topic)
            queue = queues[0]
            for n in range(6):
                await mq.send(topic, f"{n}", queue=queue, properties={"n": f"{n}"})
            options = POP | {"group": "G_order", "filter": sql("n >= 0")}
            async with mq.pop(topic, **options, batch=3, orderly=True) as jobs:
                seen = []
                while len(seen) < 6:
                    for job in await jobs_of(jobs, 1):
                        seen.append(job.body)
                        await job.ack()
                assert seen == [f"{n}".encode() for n in range(6)]

    run(case())


def test_transactions_end_as_the_block_does_or_as_the_check_says(cluster: Cluster) -> None:
    async def case() -> None:
        topic, group = name("deal"), name("shop")
        asked: list[bytes] = []
        seen: list[bytes] = []

        def check(message: ReceivedMessage) -> bool | None:
            asked.append(message.body)
            assert message.topic == topic
            return message.body == b"doubt, good"

        async with (
            cluster.client() as reader,
            Client(cluster.namesrv, send_timeout=10, group=group) as mq,
        ):
            await create(reader, topic)
            mq.on_check(topic, check)
            async with mq.transaction(topic, b"good", key="k") as tx:
                assert tx.message_id
            with pytest.raises(ZeroDivisionError):
                async with mq.transaction(topic, b"bad"):
                    raise ZeroDivisionError
            for body in (b"doubt, good", b"doubt, bad"):
                with pytest.raises(asyncio.CancelledError):
                    async with mq.transaction(topic, body):
                        raise asyncio.CancelledError
            await reader.subscribe(
                topic,
                group=name("g"),
                handler=lambda message: seen.append(message.body),
                start_from=StartFrom.FIRST,
            )
            await until(lambda: {b"doubt, good", b"doubt, bad"} <= set(asked), f"{asked}")
            await until(lambda: b"doubt, good" in seen, f"{seen}")
            await asyncio.sleep(1)
            assert sorted(seen) == [b"doubt, good", b"first", b"good"]

    run(case())


def test_requests_are_answered(cluster: Cluster) -> None:
    async def case() -> None:
        topic = name("ask")
        async with cluster.client() as server, cluster.client() as mq:
            await create(mq, topic)
            await server.serve(
                topic,
                group=name("answerers"),
                handler=lambda message: message.body.upper(),
                start_from=StartFrom.FIRST,
            )
            replies = await asyncio.gather(
                *(mq.request(topic, f"question {n}", timeout=30) for n in range(10))
            )
            assert [reply.body for reply in replies] == [b"QUESTION %d" % n for n in range(10)]

    run(case())


def test_expressions_are_filtered_there_and_here(cluster: Cluster) -> None:
    async def case() -> None:
        topic, seen = name("sql"), []
        async with cluster.client() as mq:
            await create(mq, topic)
            for n in range(10):
                await mq.send(topic, f"{n}", properties={"price": f"{n}"})
            await mq.subscribe(
                topic,
                group=name("g"),
                handler=lambda message: seen.append(message.body),
                filter=sql("price > 6"),
                start_from=StartFrom.FIRST,
            )
            await until(lambda: len(seen) >= 3)
            await asyncio.sleep(0.5)
            assert sorted(seen) == [b"7", b"8", b"9"]

    run(case())


def test_messages_are_delivered_at_a_time_or_taken_back(cluster: Cluster) -> None:
    if cluster.old:
        pytest.skip("4.9 has no timer")

    async def case() -> None:
        topic, seen = name("timed"), []
        async with cluster.client() as mq:
            await create(mq, topic)
            await mq.subscribe(
                topic,
                group=name("g"),
                handler=lambda message: seen.append(message.body),
                start_from=StartFrom.FIRST,
            )
            await mq.send(topic, b"in two seconds", deliver_at=timedelta(seconds=2))
            back = await mq.send(topic, b"never", deliver_at=timedelta(seconds=5))
            await mq.recall(back)
            await mq.send(topic, b"last", deliver_at=timedelta(seconds=7))
            assert b"in two seconds" not in seen
            await until(lambda: b"last" in seen)
            assert seen == [b"first", b"in two seconds", b"last"]


def test_readers_share_a_group_and_commit_by_themselves(cluster: Cluster) -> None:
    async def case() -> None:
        topic, group = name("read"), name("readers")
        words: dict[str, Any] = {
            "group": group,
            "start_from": StartFrom.FIRST,
            "auto_commit_s": 0.5,
        }
        async with cluster.client() as mq, cluster.client() as other:
            queues = await create(mq, topic)
            for n in range(40):
                await mq.send(topic, f"{n}")
            one, two = mq.reader(**words), other.reader(**words)
            await one.subscribe(topic)
            await two.subscribe(topic)
            await until(
                lambda: sorted(one.assigned() + two.assigned()) == queues, "no share of the queues"
            )
            await until(lambda: len(one.assigned()) == len(queues) // 2)
            seen: Counter[bytes] = Counter()
            async with asyncio.timeout(SOON_S):
                while len(seen) < 41:
                    for reader in (one, two):
                        seen.update(message.body for message in await reader.poll(timeout=0.5))
            for reader in (one, two):
                await reader.commit()
            await two.close()
            await until(lambda: one.assigned() == queues or sorted(one.assigned()) == queues)
            for n in range(40, 60):
                await mq.send(topic, f"{n}")
            later: Counter[bytes] = Counter()
            async with asyncio.timeout(SOON_S):
                while len(later) < 20:
                    later.update(message.body for message in await one.poll(timeout=0.5))
            assert later == {f"{n}".encode(): 1 for n in range(40, 60)}
