"""`linger=`: sends that wait a moment for others to their topic, and go as one batch."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.client.test_producer import A, B, pair, read

from roquette.client.client import Client
from roquette.client.receipt import SendReceipt
from roquette.client.settings import config_of
from roquette.errors import ClientError, ConfigError, MessageIllegal
from roquette.message.message import Message, MessageQueue
from roquette_testing.cluster import SimCluster, simulate

LINGER_S = 0.5


async def lingering(cluster: SimCluster, **settings: Any) -> Client:
    await pair(cluster)
    mq = await cluster.client("10.0.2.2", **{"linger": LINGER_S, **settings})
    await mq.queues("orders")
    return mq


def now() -> float:
    return asyncio.get_running_loop().time()


def is_one_batch(receipts: list[SendReceipt]) -> bool:
    """Whether they went to one queue, one behind the other: alone they would take turns."""
    first = receipts[0]
    return [(r.queue, r.queue_offset - first.queue_offset) for r in receipts] == [
        (first.queue, place) for place in range(len(receipts))
    ]


def test_what_is_sent_within_the_time_is_one_batch() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await lingering(cluster)
        began = now()
        sends = [asyncio.ensure_future(mq.send("orders", b"%d" % n)) for n in range(3)]
        futures = [await mq.send_nowait("orders", b"%d" % n, key="k") for n in range(3, 6)]
        other = asyncio.ensure_future(mq.send("other", b"6", tag="t"))
        receipts = [*await asyncio.gather(*sends), *await asyncio.gather(*futures)]
        await other
        assert 0.5 <= now() - began < 0.6
        first = sorted(receipts, key=lambda receipt: receipt.queue_offset)
        assert is_one_batch(first)
        assert len({receipt.message_id for receipt in receipts}) == 6
        stored = {message.message_id: message for message in await read(mq, "orders")}
        assert [stored[r.message_id].body for r in receipts] == [b"%d" % n for n in range(6)]
        assert stored[receipts[3].message_id].keys == ("k",)
        (alone,) = await read(mq, "other")
        assert (alone.body, alone.tag) == (b"6", "t")

    simulate(scenario)


def test_what_no_batch_takes_goes_alone_and_at_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await lingering(cluster)
        queue = MessageQueue("orders", "broker-a", 0)
        began = now()
        await mq.send("orders", b"x", shard_key="7")
        await mq.send("orders", b"x", delay_level=1)
        await mq.send("orders", b"x", deliver_at=timedelta(hours=1))
        await mq.send("orders", b"x", queue=queue)
        await mq.send("orders", b"x", selector=lambda queues, message: queues[0])
        await mq.send("orders", b"x", timeout=5)
        await mq.send("orders", b"x", priority=3)
        await mq.send(Message("orders", b"x", wait_store_ok=False))
        await mq.send("orders", b"x" * 5_000)
        await (await mq.send_nowait("orders", b"x", shard_key="7"))
        await mq.send_oneway("orders", b"x")
        await mq.send_batch("orders", [b"x", b"y"])
        assert now() - began < LINGER_S

    simulate(scenario)


def test_a_batch_that_is_full_goes_at_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await lingering(cluster, max_message_size=10_000, linger=60)
        futures = [await mq.send_nowait("orders", b"x" * 2_000) for _ in range(9)]
        began = now()
        receipts = await asyncio.gather(*futures[:8])
        assert now() - began < 1
        assert is_one_batch(receipts[:4]) and is_one_batch(receipts[4:])
        assert not futures[8].done()

    simulate(scenario)


def test_an_error_reaches_each_sender_and_a_wrong_message_its_own_alone() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await lingering(cluster, send_timeout=1)
        good = asyncio.ensure_future(mq.send("orders", b"x"))
        with pytest.raises(MessageIllegal, match="two words"):
            await mq.send("orders", b"x", key="two words")
        with pytest.raises(MessageIllegal, match="length is zero"):
            await mq.send_nowait("orders", b"")
        assert (await good).status == "SEND_OK"
        cluster.kill(A)
        cluster.kill(B)
        sends = [asyncio.ensure_future(mq.send("orders", b"x")) for _ in range(2)]
        future = await mq.send_nowait("orders", b"x")
        errors = await asyncio.gather(*sends, future, return_exceptions=True)
        assert all(isinstance(error, ClientError) for error in errors), errors
        assert len({id(error) for error in errors}) == 3

    simulate(scenario)


def test_an_end_sends_what_waits() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await lingering(cluster, linger=3_600)
        began = now()
        futures = [await mq.send_nowait("orders", b"x") for _ in range(5)]
        await mq.flush()
        assert all(future.done() for future in futures)
        futures = [await mq.send_nowait("orders", b"x") for _ in range(5)]
        waits = asyncio.ensure_future(mq.send("orders", b"x"))
        await asyncio.sleep(0)
        await mq.close()
        assert (await waits).status == "SEND_OK" and mq.unsaid == 0
        assert is_one_batch([future.result() for future in futures])
        assert now() - began < 1

    simulate(scenario)


def test_who_gives_up_before_it_goes_has_sent_nothing() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await lingering(cluster)
        given_up = asyncio.ensure_future(mq.send("orders", b"given up"))
        kept = asyncio.ensure_future(mq.send("orders", b"kept"))
        await asyncio.sleep(0.1)
        given_up.cancel()
        await kept
        assert [m.body for m in await read(mq, "orders")].count(b"given up") == 0
        await mq.flush(timeout=1)

    simulate(scenario)


def test_pipelined_sends_that_wait_are_bounded() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await lingering(cluster, max_in_flight=2)
        began = now()
        futures = [await mq.send_nowait("orders", b"x") for _ in range(4)]
        assert 0.5 <= now() - began < 0.6
        with pytest.raises(MessageIllegal):
            await mq.send_nowait("orders", b"")  # and its place is free again
        await asyncio.gather(*futures)
        began = now()
        await asyncio.gather(*[await mq.send_nowait("orders", b"x") for _ in range(2)])
        assert now() - began < 0.6

    simulate(scenario)


def test_the_setting_is_a_span_of_time() -> None:
    assert config_of("n:1", {}).linger_ms == 0
    assert config_of("n:1", {"linger": 0.005}).linger_ms == 5
    assert config_of("n:1", {"linger": 0.0001}).linger_ms == 1
    assert config_of("n:1", {}, {"ROQUETTE_LINGER": "20ms"}).linger_ms == 20
    with pytest.raises(ConfigError, match="linger"):
        config_of("n:1", {"linger": -1})
