"""What an application says of a message means the same however it came: to a handler, in a batch, in order, in a loop, popped."""

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from roquette import (
    Client,
    ClientClosed,
    MessageSettled,
    ReceivedMessage,
    Retry,
    StartFrom,
)
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NAMESRV, A, SENDER, WORKER = "10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.3.1"
FIRST = {"group": "g", "start_from": StartFrom.FIRST}
WAYS = ["handler", "batch", "in order", "loop", "popped"]

Act = Callable[[ReceivedMessage], Any]


async def begin(cluster: SimCluster) -> tuple[Client, Client]:
    await cluster.add_namesrv(NAMESRV)
    await cluster.add_broker(A, "broker-a", default_topic_queue_nums=1)
    sender, worker = await cluster.client(SENDER), await cluster.client(WORKER)
    await sender.send("orders", b"1")
    return sender, worker


@asynccontextmanager
async def taking(way: str, mq: Client, act: Act) -> AsyncIterator[None]:
    """Messages of group g go to `act`, which may raise."""

    async def one(message: ReceivedMessage) -> None:
        await act(message)

    async def several(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            await act(message)

    async def loop() -> None:
        while True:
            made = mq.consume if way == "loop" else mq.pop
            try:
                async with made("orders", **FIRST) as messages:
                    async for message in messages:
                        await act(message)
                        if way == "popped" and not message.settled:
                            await message.ack()
            except Retry:
                continue

    if way in ("loop", "popped"):
        work = asyncio.create_task(loop())
        yield
        work.cancel()
        await asyncio.wait([work])
        return
    options: dict[str, Any] = {"orderly": way == "in order", **FIRST}
    consumer = (
        mq.subscribe("orders", several, batch=4, **options)
        if way == "batch"
        else mq.subscribe("orders", one, **options)
    )
    async with consumer:
        yield


@pytest.mark.parametrize("way", WAYS)
def test_what_is_acknowledged_is_done_though_its_handler_fails(way: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        sender, worker = await begin(cluster)
        await sender.send("orders", b"2")
        seen: list[bytes] = []

        async def act(message: ReceivedMessage) -> None:
            await message.ack()
            await message.ack()
            seen.append(message.body)
            with pytest.raises(MessageSettled):
                await message.dead_letter()
            raise Retry

        async with taking(way, worker, act):
            await asyncio.sleep(90)
        assert sorted(seen) == [b"1", b"2"]

    simulate(scenario)


@pytest.mark.parametrize("raised", [True, False], ids=["raised", "called"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_asked_for_again_comes_after_its_time(way: str, raised: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        _, worker = await begin(cluster)
        seen: list[float] = []
        loop = asyncio.get_running_loop()

        async def act(message: ReceivedMessage) -> None:
            seen.append(loop.time())
            if len(seen) > 1:
                return
            if raised:
                raise Retry(after=timedelta(seconds=28))
            await message.retry(after=28)

        async with taking(way, worker, act):
            await asyncio.sleep(120)
        assert len(seen) == 2
        assert 28 <= seen[1] - seen[0] < 40  # by delay levels: 30 s

    simulate(scenario)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_dead_comes_no_more_and_lies_among_the_dead_letters(way: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        sender, worker = await begin(cluster)
        await sender.send("orders", b"2")
        seen: list[bytes] = []

        async def act(message: ReceivedMessage) -> None:
            seen.append(message.body)
            if message.body == b"1":
                await message.dead_letter()

        async with taking(way, worker, act):
            await asyncio.sleep(90)
        assert sorted(seen) == [b"1", b"2"]
        (queue,) = await sender.queues("%DLQ%g")
        assert await sender.max_offset(queue) == 1
        reader = sender.reader(group="r")
        reader.seek(queue, 0)
        assert [m.body for m in await reader.poll()] == [b"1"]

    simulate(scenario)


def test_what_is_acknowledged_does_not_go_back_when_its_handler_takes_too_long() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await begin(cluster)
        worker = await cluster.client("10.0.3.2", consume_timeout=60)
        seen: list[int] = []

        async def act(message: ReceivedMessage) -> None:
            seen.append(message.reconsume_times)
            message.ack()
            await asyncio.sleep(200)

        async with worker.subscribe("orders", act, **FIRST):
            await asyncio.sleep(300)
        assert seen == [0]

    simulate(scenario)


def test_of_a_batch_each_message_has_its_own_end() -> None:
    async def scenario(cluster: SimCluster) -> None:
        sender, worker = await begin(cluster)
        await sender.send_batch("orders", [b"2", b"3", b"4"])
        seen: list[tuple[bytes, int]] = []

        async def act(messages: list[ReceivedMessage]) -> None:
            seen.extend((m.body, m.reconsume_times) for m in messages)
            for message in messages:
                if message.body in (b"1", b"3"):
                    message.ack()
            if any(message.reconsume_times == 0 for message in messages):
                raise ValueError("the others come again")

        async with worker.subscribe("orders", act, batch=8, **FIRST):
            await asyncio.sleep(60)
        first = [(b"%d" % n, 0) for n in (1, 2, 3, 4)]
        assert sorted(seen) == sorted([*first, (b"2", 1), (b"4", 1)])

    simulate(scenario)


def test_a_commit_of_a_loop_is_at_the_brokers_when_it_returns() -> None:
    async def scenario(cluster: SimCluster) -> None:
        sender, worker = await begin(cluster)
        await sender.send("orders", b"2")
        stream = worker.consume("orders", **FIRST)
        with pytest.raises(ClientClosed, match="not begun"):
            await stream.commit()
        reader = sender.reader(group="g")
        (queue,) = await sender.queues("orders")
        async with stream:
            message = await anext(stream)
            await stream.commit()
            assert not await reader.committed(queue)
            message.ack()
            await stream.commit()
            assert await reader.committed(queue) == 1
            await anext(stream)
        assert await reader.committed(queue) == 1  # the second one was not acknowledged

    simulate(scenario)


@pytest.mark.parametrize("way", ["consume", "pop"])
def test_a_loop_with_a_time_limit_ends_when_nothing_comes(way: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        _, worker = await begin(cluster)
        loop = asyncio.get_running_loop()
        async with getattr(worker, way)("orders", **FIRST, timeout=timedelta(seconds=5)) as stream:
            seen = [message.body async for message in stream]
            began = loop.time()
            seen += [message.body async for message in stream]
            assert 4.9 < loop.time() - began < 6
        assert seen == [b"1"]

    simulate(scenario)


def test_only_a_popped_message_has_a_time() -> None:
    async def scenario(cluster: SimCluster) -> None:
        _, worker = await begin(cluster)
        async with worker.consume("orders", **FIRST) as stream:
            message = await anext(stream)
            assert message.expires_in is None
            with pytest.raises(ValueError, match="has no time to extend"):
                await message.extend(5)
            message.ack()
        kept = pickle.loads(pickle.dumps(message))  # noqa: S301 - ours
        assert (kept, kept.settled) == (message, True)
        with pytest.raises(MessageSettled, match="no consumer handed it out"):
            kept.retry()

    simulate(scenario)


def test_a_consumer_begins_when_it_is_awaited_or_entered() -> None:
    async def scenario(cluster: SimCluster) -> None:
        _, worker = await begin(cluster)
        seen: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            seen.append(message.body)

        consumer = worker.subscribe("orders", handle, **FIRST)
        await asyncio.sleep(5)
        assert (seen, consumer.queues) == ([], [])
        with pytest.raises(ClientClosed, match="has not joined"):
            consumer.pause()
        assert await consumer is consumer
        await asyncio.sleep(5)
        assert (seen, len(consumer.queues)) == ([b"1"], 1)
        async with consumer:  # it has begun already
            pass
        await consumer.close()

    simulate(scenario)
