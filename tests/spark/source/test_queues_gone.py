"""A stream that has read a queue to its end goes on when the queue goes; of what was not read it says what is lost."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.peers import Server, start_broker, start_namesrv
from tests.spark.fake_query import Checkpoint, FakeQuery
from tests.spark.records import ListReader, make_record

from roquette import Client, Message
from roquette.admin.drain import Pace, drain
from roquette.admin.resize import resize
from roquette.admin.topics import create_topic
from roquette.message.message import MessageQueue
from roquette_spark.offsets.committer import RocketMQOffsetCommitter
from roquette_spark.source import batch_reader, stream_reader
from roquette_spark.source.queues import queue_bounds
from roquette_spark.values.offsets import DataLoss

A0, A1, B0 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)
U0 = MessageQueue("U", "a", 0)
KINDS: dict[str, dict[str, str]] = {
    "stream": {},
    "by messages": {"maxOffsetsPerTrigger": "7"},
    "by bytes": {"maxBytesPerTrigger": "900"},
}


def messages(queue: MessageQueue, start: int, end: int) -> list[bytes]:
    return [
        make_record(i, b"%d" % i, topic=queue.topic, queue_id=queue.queue_id)
        for i in range(start, end)
    ]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ListReader:
    queues = {queue: messages(queue, 0, 10) for queue in (A0, A1, B0, U0)}
    source = ListReader(queues, per_pull=100, tells_lives=True)
    monkeypatch.setattr(batch_reader, "open_reader", lambda _: source)
    monkeypatch.setattr(stream_reader, "open_reader", lambda _: source)
    return source


def query(kept: Checkpoint, kind: str = "stream", subscribe: str = "T", **more: str) -> FakeQuery:
    options = {"namesrvAddr": "x:1", "startingOffsets": "earliest", "subscribe": subscribe}
    available_now = kind == "available now"
    return FakeQuery(options | KINDS.get(kind, {}) | more, kept, available_now=available_now)


def shrink(cluster: ListReader) -> None:
    """The queue has no route any more; its broker still knows where it ends."""
    cluster.hidden = {A1}


def stop_broker(cluster: ListReader) -> None:
    """Nobody knows it any more."""
    del cluster.records[B0]


GOING: dict[str, tuple[MessageQueue, Callable[[ListReader], None]]] = {
    "shrink": (A1, shrink),
    "drain": (B0, stop_broker),
}


@pytest.mark.promise(
    "Spark and pipelines",
    "a stream that has read a queue to its end goes on when the queue goes, by a shrink or a drain",
)
@pytest.mark.parametrize("how", GOING)
@pytest.mark.parametrize("kind", [*KINDS, "available now"])
@pytest.mark.parametrize("moment", ["running", "restart"])
def test_a_queue_that_was_read_to_its_end_may_go(
    cluster: ListReader, caplog: pytest.LogCaptureFixture, how: str, kind: str, moment: str
) -> None:
    caplog.set_level(logging.INFO, "roquette_spark")
    queue, take_away = GOING[how]
    kept = Checkpoint()
    running = query(kept, kind)
    assert len(running.drain()) == 30

    cluster.closed = {queue}  # the order's first step; a run meanwhile takes what came before it
    cluster.records[queue] += messages(queue, 10, 12)
    if moment == "restart" or kind == "available now":
        running = query(kept, kind)
    assert len(running.drain()) == 2
    take_away(cluster)
    cluster.closed = set()
    cluster.records[A0] += messages(A0, 10, 14)
    if moment == "restart" or kind == "available now":
        running = query(kept, kind)
    rows = running.drain()

    assert [row["queue_offset"] for row in rows] == [10, 11, 12, 13]
    assert query(kept, kind).batch() is None
    told = [each.getMessage() for each in caplog.records if "all of it was read" in each.message]
    assert 1 <= len(told) <= 2  # once in each run


@pytest.mark.parametrize("kind", [*KINDS, "available now"])
def test_one_empty_batch_writes_down_that_a_queue_was_closed(
    cluster: ListReader, kind: str
) -> None:
    kept = Checkpoint()
    query(kept, kind).drain()

    cluster.closed = {B0}
    again = query(kept, kind)
    assert again.batch() == []
    assert again.batch() is None
    stop_broker(cluster)

    assert query(kept, kind).batch() is None


def test_messages_that_were_not_read_are_told(cluster: ListReader) -> None:
    kept = Checkpoint()
    query(kept).drain()
    cluster.records[A1] += messages(A1, 10, 13)
    shrink(cluster)

    with pytest.raises(DataLoss, match="T a queue 1 is gone with 3 messages that were not read"):
        query(kept).drain()
    assert query(kept, failOnDataLoss="false").drain() == []


def test_a_broker_that_ends_without_a_drain_is_told(cluster: ListReader) -> None:
    kept = Checkpoint()
    query(kept).drain()
    stop_broker(cluster)

    with pytest.raises(DataLoss, match="T b queue 0 is gone: its broker is down"):
        query(kept).drain()


def test_what_came_after_the_last_look_at_a_closed_queue_is_told(cluster: ListReader) -> None:
    """A closed queue of which a limit left something unread is no queue that was read to its end."""
    kept = Checkpoint()
    cluster.closed = {B0}
    limited = query(kept, maxOffsetsPerTrigger="6")
    assert len(limited.batch() or ()) == 6
    stop_broker(cluster)

    with pytest.raises(DataLoss, match="T b queue 0 is gone with 8 messages"):
        limited.drain()
    with pytest.raises(DataLoss, match="T b queue 0 is gone"):
        query(kept).drain()


def test_a_topic_taken_out_of_the_query_is_no_loss_once_it_was_read(cluster: ListReader) -> None:
    kept = Checkpoint()
    assert len(query(kept, subscribe="T,U").drain()) == 40
    cluster.records[A0] += messages(A0, 10, 11)

    assert len(query(kept).drain()) == 1
    cluster.records[U0] += messages(U0, 10, 15)
    with pytest.raises(DataLoss, match=r"U a queue 0 is gone with 5 messages .*taken out of the"):
        query(kept).drain()
    back = query(kept, subscribe="T,U").drain()
    assert [row["queue_offset"] for row in back] == [10, 11, 12, 13, 14]


# Real brokers, and the orders that take queues away from them.


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[str, dict[str, Server]]]:
    """A name server and two brokers, which a test may stop."""
    with contextlib.ExitStack() as undo:
        namesrv = start_namesrv("roquette", tmp_path / "namesrv")
        undo.callback(namesrv.stop)
        brokers = {}
        for name in ("broker-a", "broker-b"):
            folder = tmp_path / name
            brokers[name] = start_broker("roquette", folder, namesrv.address, name=name)
            undo.callback(brokers[name].stop)
        yield namesrv.address, brokers


async def send(mq: Client, topic: str, start: int, end: int) -> None:
    for queue in await mq.queues(topic):
        for number in range(start, end):
            await mq.send(Message(topic, b"%d" % number), queue=queue)


async def order(namesrv: str, kept: Checkpoint, orders: Any) -> list[str]:
    """Give an order of operators; the stream's group is where the checkpoint is."""
    RocketMQOffsetCommitter(namesrv, "lake").commit(kept.offsets[-1])
    told: list[str] = []
    async with Client(namesrv, group="TOOLS") as mq:
        now = asyncio.get_running_loop().time
        pace = Pace(asyncio.sleep, now, told.append, settle_s=1.0, timeout_s=30.0)
        await orders(mq, pace)
    return told


@pytest.mark.interop
@pytest.mark.spark
def test_orders_that_lose_nothing_end_no_stream(servers: tuple[str, dict[str, Server]]) -> None:
    namesrv, brokers = servers
    kept = Checkpoint()
    given = {"namesrvAddr": namesrv, "subscribe": "orders", "startingOffsets": "earliest"}

    async def create() -> None:
        async with Client(namesrv, group="TOOLS") as mq:
            session = mq.session
            await session.run(create_topic(session.name_servers, "orders", queues=4))
            await send(mq, "orders", 0, 5)

    asyncio.run(create())
    read = len(FakeQuery(given, kept).drain())
    assert read == 40
    early = Checkpoint([kept.offsets[-1]], 1, kept.initial)

    async def resized(mq: Client, pace: Pace) -> None:
        rows = await resize(mq.session.run, "orders", 2, pace)
        assert {(row.queue, row.group, row.proven) for row in rows} == {
            (2, "lake", True),
            (3, "lake", True),
        }
        await send(mq, "orders", 5, 7)

    asyncio.run(order(namesrv, kept, resized))
    assert len(FakeQuery(given, kept).drain()) == 8

    async def drained(mq: Client, pace: Pace) -> None:
        session = mq.session
        work = asyncio.create_task(
            drain(session.run, session.name_servers, "broker-b", pace, alone=True)
        )
        await asyncio.sleep(3)
        await asyncio.to_thread(FakeQuery(given, kept).drain)  # a run while the broker is closed
        left = await work
        assert left.rows == []

    asyncio.run(order(namesrv, kept, drained))
    brokers["broker-b"].stop()
    deadline = time.monotonic() + 60
    while len(queue_bounds(namesrv, ["orders"])[0]) != 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)

    async def more() -> None:
        async with Client(namesrv, group="TOOLS") as mq:
            await send(mq, "orders", 7, 8)

    asyncio.run(more())
    assert len(FakeQuery(given, kept).drain()) == 2
    with pytest.raises(DataLoss, match="orders broker-b queue 0 is gone"):  # it had not come so far
        FakeQuery(given, early).drain()
