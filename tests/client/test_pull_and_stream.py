"""Pulling under one's own control, and messages as an asynchronous iterator."""

import asyncio
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.client.test_push_consumer import committed

from roquette.client.arguments import as_message, start_point
from roquette.client.client import Client
from roquette.client.concurrent import TURN_S
from roquette.client.consumer_options import StartFrom, StartPoint
from roquette.errors import ClientClosed, ConfigError
from roquette.message.message import Message, MessageQueue, ReceivedMessage
from roquette_testing import EmbeddedBroker
from roquette_testing.cluster import SimCluster, simulate

NAMESRV, A = "10.0.0.1", "10.0.1.1"
QUEUE = MessageQueue("orders", "broker-a", 1)


async def small(cluster: SimCluster, count: int = 10) -> Client:
    """A topic with `count` numbered messages in queue 1."""
    await cluster.add_namesrv(NAMESRV)
    await cluster.add_broker(A, "broker-a")
    mq = await cluster.client("10.0.2.1")
    await mq.session.route("TBW102")
    for n in range(count):
        await mq.send("orders", f"{n}", queue=QUEUE, tag="even" if n % 2 == 0 else "odd")
    return mq


# pulling


def test_a_puller_reads_from_the_groups_offset_else_from_the_first_message() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        puller = mq.reader(group="g", batch=4)
        await puller.assign([QUEUE])
        found = await puller.poll() + await puller.poll()
        assert [m.body for m in found] == [f"{n}".encode() for n in range(8)]
        await puller.commit()
        await asyncio.sleep(1)
        again = mq.reader(group="g")
        await again.assign([QUEUE])
        assert again.position(QUEUE) == 8
        assert [m.body for m in await again.poll()] == [b"8", b"9"]

    simulate(scenario)


def test_what_is_sought_or_read_while_it_commits_or_assigns_counts() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        puller = mq.reader(group="g", batch=4, auto_commit=3600)
        await puller.assign([QUEUE])
        await puller.poll()
        committing = asyncio.create_task(puller.commit())
        await asyncio.sleep(0)
        puller.seek(QUEUE, 1)
        await committing
        await puller.close()
        assert await committed(mq, QUEUE) == 1

        other = mq.reader(group="g")
        first = asyncio.create_task(other.assign([QUEUE]))
        await asyncio.sleep(0)
        other.seek(QUEUE, 7)
        await first
        assert other.position(QUEUE) == 7
        late = asyncio.create_task(other.assign([QUEUE, MessageQueue("orders", "broker-a", 2)]))
        await asyncio.sleep(0)
        await other.assign([QUEUE])
        await late
        assert other.assigned() == [QUEUE]
        await other.close()
        with pytest.raises(ClientClosed):
            other.seek(QUEUE, 1)

    simulate(scenario)


def test_a_client_that_knows_no_route_yet_may_read_and_look() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        fresh = await cluster.client("10.0.2.2")
        assert await fresh.max_offset(QUEUE) == 10
        fresh = await cluster.client("10.0.2.3")
        puller = fresh.reader(group="g")
        await puller.assign([QUEUE])
        assert len(await puller.poll()) == 10
        fresh = await cluster.client("10.0.2.4")
        puller = fresh.reader(group="g")
        puller.seek(QUEUE, 7)
        assert len(await puller.poll()) == 3

    simulate(scenario)


def test_seek_throws_away_what_was_fetched_ahead() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        puller = mq.reader(group="g", batch=2)
        puller.seek(QUEUE, 0)
        assert [m.body for m in await puller.poll()] == [b"0", b"1"]
        await asyncio.sleep(1)
        puller.seek(QUEUE, 8)
        assert [m.body for m in await puller.poll()] == [b"8", b"9"]
        puller.seek(QUEUE, 5)
        assert [m.body for m in await puller.poll()] == [b"5", b"6"]
        with pytest.raises(ConfigError):
            puller.seek(QUEUE, -1)

    simulate(scenario)


def test_a_puller_filters_by_tag_and_skips_the_rest() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        puller = mq.reader(group="g", tag="odd")
        puller.seek(QUEUE, 0)
        assert [m.body for m in await puller.poll()] == [b"1", b"3", b"5", b"7", b"9"]
        assert puller.position(QUEUE) == 10

    simulate(scenario)


def test_an_offset_outside_the_queue_is_corrected() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        puller = mq.reader(group="g")
        puller.seek(QUEUE, 500)
        waiting = asyncio.ensure_future(puller.poll(timeout=20))
        await asyncio.sleep(1)
        await mq.send("orders", b"new", queue=QUEUE)
        assert [m.body for m in await waiting] == [b"new"]

    simulate(scenario)


def test_poll_waits_no_longer_than_asked_and_ends_with_the_puller() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        puller = mq.reader(group="g")
        started = cluster.loop.time()
        assert await puller.poll(timeout=2.0) == []
        assert cluster.loop.time() - started == pytest.approx(2.0)
        await puller.close()
        with pytest.raises(ClientClosed):
            await puller.poll()

    simulate(scenario)


def test_unassigned_queues_are_read_no_more() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        puller = mq.reader(group="g")
        await puller.assign([QUEUE, MessageQueue("orders", "broker-a", 0)])
        assert len(puller.assigned()) == 2
        await puller.assign([MessageQueue("orders", "broker-a", 0)])
        assert await puller.poll(timeout=3) == []

    simulate(scenario)


# streams


def test_asking_for_the_next_message_acknowledges_the_one_before() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        worker = await cluster.client("10.0.3.1")
        got = []
        async with worker.consume("orders", group="g", start_from=StartFrom.FIRST) as stream:
            async for message in stream:
                got.append(message.body)
                if len(got) == 4:
                    break
        await asyncio.sleep(1)
        assert await committed(mq, QUEUE) == 3

    simulate(scenario)


def test_an_error_in_the_loop_leaves_the_message_to_come_again() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        worker = await cluster.client("10.0.3.1")
        with pytest.raises(ZeroDivisionError):
            async with worker.consume("orders", group="g", start_from=StartFrom.FIRST) as stream:
                async for message in stream:
                    if message.body == b"2":
                        raise ZeroDivisionError
        got = []
        async with worker.consume("orders", group="g", start_from=StartFrom.FIRST) as stream:
            async for message in stream:
                got.append(message.body)
                if message.body == b"9":
                    break
        assert got == [f"{n}".encode() for n in range(2, 10)]

    simulate(scenario)


def test_a_message_may_be_sent_back_or_acknowledged_by_hand() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        worker = await cluster.client("10.0.3.1")
        got = []
        async with worker.consume("orders", group="g", start_from=StartFrom.FIRST) as stream:
            async for message in stream:
                got.append((message.body, message.reconsume_times))
                if message.body == b"5" and message.reconsume_times == 0:
                    message.retry()
                if message.reconsume_times:
                    message.ack()
                    break
        assert got[-1] == (b"5", 1)
        assert len(got) == 11

    simulate(scenario)


def test_of_those_that_wait_for_a_message_each_gets_one_when_the_one_before_is_done() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster, 1)
        worker = await cluster.client("10.0.3.1")
        stream = worker.consume("orders", group="g", start_from=StartFrom.FIRST)
        await anext(stream)
        got: list[ReceivedMessage] = []

        async def ask() -> None:
            got.append(await anext(stream))

        askers = [asyncio.create_task(ask()) for _ in range(2)]
        await asyncio.sleep(1)
        for n in (1, 2):
            await mq.send("orders", f"{n}", queue=QUEUE)
        await asyncio.sleep(5)
        assert [message.body for message in got] == [b"1"]
        assert await committed(mq, QUEUE) == 1
        got[0].ack()
        await asyncio.gather(*askers)
        assert [message.body for message in got] == [b"1", b"2"]

    simulate(scenario)


def test_a_message_kept_for_too_long_goes_back_and_its_acknowledgement_counts_no_more() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster, 2)
        worker = await cluster.client("10.0.3.1", consume_timeout=120)
        stream = worker.consume("orders", group="g", start_from=StartFrom.FIRST)
        kept = await anext(stream)
        await asyncio.sleep(200)
        kept.ack()
        rest = [await anext(stream), await anext(stream)]
        assert [(m.body, m.reconsume_times) for m in rest] == [(b"1", 0), (kept.body, 1)]

    simulate(scenario)


def test_who_iterates_without_a_pause_lets_others_have_turns() -> None:
    """In real time: a stream that has messages gives none away for longer than `TURN_S`."""

    async def main() -> None:
        with EmbeddedBroker() as broker:
            async with Client(broker.name_servers) as mq:
                await mq.send_batch("orders", [f"{n}" for n in range(100)])
                turns = seen = 0

                async def count() -> None:
                    nonlocal turns
                    while True:
                        turns += 1
                        await asyncio.sleep(0)

                counting = asyncio.create_task(count())
                async for _ in mq.consume("orders", group="g", start_from=StartFrom.FIRST):
                    if seen == 0:
                        before = turns
                    seen += 1
                    time.sleep(2 * TURN_S)
                    if seen == 20:
                        break
                counting.cancel()
                assert turns - before >= 19

    asyncio.run(main())


def test_leaving_a_loop_by_break_does_not_delay_the_end_of_the_client() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        worker = await cluster.client("10.0.3.1")
        async for _ in worker.consume("orders", group="g", start_from=StartFrom.FIRST):
            break
        started = cluster.loop.time()
        await worker.close()
        assert cluster.loop.time() - started < 1

    simulate(scenario)


# words


@pytest.mark.parametrize("whom", ["stream", "client"])
@pytest.mark.parametrize("joining", [True, False])
def test_who_waits_for_the_next_message_is_told_when_the_stream_closes(
    whom: str, joining: bool
) -> None:
    async def main(cluster: SimCluster) -> None:
        await small(cluster, 0)
        client = await cluster.client("10.0.3.1")
        stream = client.consume("orders", group="g")

        async def iterate() -> int:
            return len([message async for message in stream])

        waiting = asyncio.create_task(iterate())
        await asyncio.sleep(0.001 if joining else 5)
        await (stream.close() if whom == "stream" else client.close())
        async with asyncio.timeout(20):
            assert await waiting == 0
            assert await anext(stream, None) is None

    simulate(main)


def test_send_arguments_become_a_message() -> None:
    message = as_message(
        "t",
        "größe",
        {
            "key": "k",
            "tag": "tag",
            "properties": {"a": "b"},
            "shard_key": "shard",
            "delay_level": 3,
        },
    )

    assert message == Message(
        "t",
        "größe".encode(),
        tag="tag",
        keys=("k",),
        properties={"a": "b"},
        delay_level=3,
        shard_key="shard",
    )
    assert as_message("t", bytearray(b"x"), {"key": ["a", "b"]}).keys == ("a", "b")
    assert as_message(message) is message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (StartFrom.LAST, StartFrom.LAST),
        ("CONSUME_FROM_FIRST_OFFSET", StartFrom.FIRST),
        (0, 0),
        (1_700_000_000_000, 1_700_000_000_000),
        (datetime(1970, 1, 2, tzinfo=UTC), 86_400_000),
    ],
)
def test_where_to_begin_in_every_form(given: StartPoint, expected: StartFrom | int) -> None:
    assert start_point(given) == expected


@pytest.mark.parametrize("given", ["", "latest", "first", "timestamp:5", -1, True, None])
def test_unknown_places_to_begin_are_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="start_from="):
        start_point(given)


def test_importing_and_creating_a_client_starts_nothing() -> None:
    before = threading.active_count()

    client = Client("127.0.0.1:9876")

    assert threading.active_count() == before
    with pytest.raises(ClientClosed):
        _ = client.session
