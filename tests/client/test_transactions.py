"""Transactions of the client in virtual time: what is committed is delivered, what is not known is asked for."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from roquette.broker.transactions import feature
from roquette.client.client import Client
from roquette.client.transactions import TransactionState
from roquette.errors import ConfigError, NotDurable, TransactionLost
from roquette.message.message import ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NAMESRV, BROKER, SHOP, OTHER, READER = "10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.2.2", "10.0.2.3"
FAST = {  # as many checks as outlast the time to the next heartbeat
    "transaction_time_out": 1500,
    "transaction_check_interval": 1000,
    "transaction_check_max": 60,
}


async def world(cluster: SimCluster) -> tuple[Client, list[bytes]]:
    """A producer of the group shop, and the bodies that a consumer of orders gets."""
    await cluster.add_namesrv(NAMESRV)
    await cluster.add_broker(BROKER, "broker-a", **FAST)
    mq = await cluster.client(SHOP, group="shop")
    await mq.send("orders", b"first")
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        assert message.topic == "orders"
        seen.append(message.body)

    reader = await cluster.client(READER)
    await reader.subscribe("orders", group="g", handler=handle, start_from=0)
    return mq, seen


async def begin(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    """A task of the process this runs in."""
    return asyncio.get_running_loop().create_task(work)


def test_the_end_of_the_block_decides() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, seen = await world(cluster)
        async with mq.transaction("orders", b"good", key="1") as tx:
            await asyncio.sleep(0.5)
            assert seen == [b"first"]
            assert tx.state is TransactionState.OPEN
        assert tx.state is TransactionState.COMMITTED

        with pytest.raises(ZeroDivisionError):
            async with mq.transaction("orders", b"bad") as failed:
                raise ZeroDivisionError
        assert failed.state is TransactionState.ROLLED_BACK

        async with mq.transaction("orders", b"dropped") as dropped:
            await dropped.rollback()
        async with mq.transaction("orders", b"early") as early:
            await early.commit()
            with pytest.raises(ConfigError, match="has ended: committed"):
                await early.rollback()
        await asyncio.sleep(30)
        assert seen == [b"first", b"good", b"early"]

    simulate(scenario)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("decision", [True, False])
def test_what_was_cancelled_is_asked_for(decision: bool, asynchronous: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, seen = await world(cluster)
        asked: list[str] = []
        answers: list[Any] = [None, ValueError("the database is away"), "what?", decision]

        def answer(message: ReceivedMessage) -> Any:
            asked.append(message.message_id)
            assert (message.topic, message.body, message.keys) == ("orders", b"doubt", ("k",))
            found = answers.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        async def answer_later(message: ReceivedMessage) -> Any:
            await asyncio.sleep(0.1)
            return answer(message)

        mq.on_check("orders", answer_later if asynchronous else answer)
        ids: list[str] = []

        async def work() -> None:
            async with mq.transaction("orders", b"doubt", key="k") as tx:
                ids.append(tx.message_id)
                await asyncio.sleep(3600)

        task = asyncio.get_running_loop().create_task(work())
        await asyncio.sleep(1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.sleep(60)
        assert asked == ids * 4
        assert seen == ([b"first", b"doubt"] if decision else [b"first"])

    simulate(scenario)


def test_another_process_of_the_group_answers_for_one_that_died() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, seen = await world(cluster)
        other = await cluster.client(OTHER, group="shop")
        asked: list[bytes] = []

        def check(message: ReceivedMessage) -> bool:
            asked.append(message.body)
            return True

        other.on_check("orders", check)  # it has never sent anything

        async def work() -> None:
            async with mq.transaction("orders", b"orphan"):
                await asyncio.sleep(3600)

        await cluster.run_on(SHOP, begin(work()))
        await asyncio.sleep(1)
        cluster.kill(SHOP)
        await asyncio.sleep(60)
        assert asked == [b"orphan"]
        assert seen == [b"first", b"orphan"]

    simulate(scenario)


def test_a_commit_that_does_not_arrive_is_left_to_the_check() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, seen = await world(cluster)
        mq.on_check("orders", lambda message: True)
        async with mq.transaction("orders", b"late") as tx:
            cluster.kill(BROKER)
        assert tx.state is TransactionState.LEFT_TO_CHECK
        await cluster.restart(BROKER)
        await asyncio.sleep(90)
        assert seen.count(b"late") == 1

    simulate(scenario)


def test_a_half_message_that_is_not_durable_is_rolled_back() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, seen = await world(cluster)
        sender = mq._sender
        send_half = sender.send_half

        async def slow(message: Any) -> Any:
            return msgspec.structs.replace(await send_half(message), status="FLUSH_DISK_TIMEOUT")

        sender.send_half = slow  # type: ignore[method-assign]
        with pytest.raises(NotDurable, match="stored by broker-a, but FLUSH_DISK_TIMEOUT"):
            async with mq.transaction("orders", b"unsafe"):
                raise AssertionError("the block must not run")
        await asyncio.sleep(30)
        assert seen == [b"first"]

    simulate(scenario)


def test_what_cannot_be_a_transaction_is_refused() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, _ = await world(cluster)
        nobody = await cluster.client(OTHER)
        with pytest.raises(ConfigError, match="a producer group of its own"):
            nobody.transaction("orders", b"x")
        with pytest.raises(ConfigError, match="a producer group of its own"):
            nobody.on_check("orders", lambda message: True)
        with pytest.raises(ConfigError, match="cannot be called"):
            mq.on_check("orders", True)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="topic"):
            mq.on_check("a b", lambda message: True)

    simulate(scenario)


def test_a_block_at_work_is_not_asked_for() -> None:
    """The check of the documents of before: what is not found has failed."""

    async def scenario(cluster: SimCluster) -> None:
        mq, seen = await world(cluster)
        books: set[str] = set()
        asked: list[str] = []

        def check(message: ReceivedMessage) -> bool:
            asked.append(message.message_id)
            return message.message_id in books

        mq.on_check("orders", check)
        async with mq.transaction("orders", b"slow") as tx:
            await asyncio.sleep(40)
            books.add(tx.message_id)
        assert tx.state is TransactionState.COMMITTED
        with pytest.raises(ValueError):
            async with mq.transaction("orders", b"fails"):
                await asyncio.sleep(40)
                raise ValueError
        await asyncio.sleep(30)
        assert asked == []
        assert seen == [b"first", b"slow"]
        assert not mq._checks.open

    simulate(scenario)


@pytest.mark.parametrize("answer", [False, True, None])
def test_a_block_whose_message_was_dropped_elsewhere_raises(
    answer: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, seen = await world(cluster)
        other = await cluster.client(OTHER, group="shop")
        asked = asyncio.Event()

        def check(message: ReceivedMessage) -> bool | None:
            asked.set()
            return answer

        for each in (mq, other):
            each.on_check("orders", check)
        if answer is None:
            with pytest.raises(TransactionLost, match="discarded already"):
                async with mq.transaction("orders", b"for ever"):
                    await asyncio.sleep(100)  # longer than all checks take
        elif answer:
            async with mq.transaction("orders", b"committed elsewhere") as tx:
                await asked.wait()
                await asyncio.sleep(1)
            assert tx.state is TransactionState.COMMITTED
            asked.clear()
            with pytest.raises(ValueError):
                async with mq.transaction("orders", b"delivered") as tx:
                    await asked.wait()
                    await asyncio.sleep(1)
                    raise ValueError
            assert tx.state is TransactionState.COMMITTED
        else:
            with pytest.raises(TransactionLost, match="rolled back or discarded") as lost:
                async with mq.transaction("orders", b"dropped") as tx:
                    await asked.wait()
                    await asyncio.sleep(1)
            assert tx.state is TransactionState.LOST
            assert (lost.value.topic, lost.value.message_id) == ("orders", tx.message_id)
            asked.clear()
            with pytest.raises(ValueError):
                async with mq.transaction("orders", b"also") as tx:
                    await asked.wait()
                    await asyncio.sleep(1)
                    raise ValueError
            assert tx.state is TransactionState.ROLLED_BACK
        await asyncio.sleep(30)
        assert seen == [b"first", *([b"committed elsewhere", b"delivered"] if answer else [])]
        assert not mq._checks.open

    simulate(scenario)
    assert ("delivered, although rolled back" in caplog.text) is bool(answer)


def test_what_an_older_broker_says_of_every_ended_message_is_no_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for words in ("_ENDED", "_COMMITTED"):
        before = "The half message has been committed, rolled back or discarded already"
        monkeypatch.setattr(feature, words, before)

    async def scenario(cluster: SimCluster) -> None:
        mq, seen = await world(cluster)
        other = await cluster.client(OTHER, group="shop")
        asked = asyncio.Event()
        for each in (mq, other):
            each.on_check("orders", lambda message: asked.set() or True)
        async with mq.transaction("orders", b"committed elsewhere") as tx:
            await asked.wait()
            await asyncio.sleep(1)
        assert tx.state is TransactionState.LEFT_TO_CHECK
        await asyncio.sleep(5)
        assert seen == [b"first", b"committed elsewhere"]

    simulate(scenario)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_whatever_dies(seed: int) -> None:
    """A producer or the broker is killed; the books decide, and what is delivered agrees with them."""

    async def scenario(cluster: SimCluster) -> None:
        mq, seen = await world(cluster)
        books: dict[bytes, bool] = {}
        rng = cluster.loop.random

        def check(message: ReceivedMessage) -> bool | None:
            return books.get(message.body, False)

        mq.on_check("orders", check)
        other = await cluster.client(OTHER, group="shop")
        other.on_check("orders", check)

        async def one(number: int) -> None:
            body = f"{number}".encode()
            async with mq.transaction("orders", body):
                await asyncio.sleep(rng.uniform(0, 0.3))
                if number % 3 == 0:
                    raise ValueError
                books[body] = True  # the database has it
                await asyncio.sleep(rng.uniform(0, 0.3))

        async def run() -> None:
            for number in range(40):
                with contextlib.suppress(Exception):
                    await one(number)

        await cluster.run_on(SHOP, begin(run()))
        await asyncio.sleep(rng.uniform(0.5, 4))
        victim = rng.choice((SHOP, BROKER, ""))
        if victim:
            cluster.kill(victim)
            await asyncio.sleep(rng.uniform(0.1, 3))
        if victim == BROKER:
            await cluster.restart(BROKER)
        await asyncio.sleep(120)
        delivered = set(seen) - {b"first"}
        assert delivered == set(books), "what the database has is delivered, and nothing else"
        assert len(books) > 0

    simulate(scenario, seed)
