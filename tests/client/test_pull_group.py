"""Readers as members of a group: shares that change, what is committed, and how much is fetched ahead."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.client.test_pull_and_stream import NAMESRV, QUEUE, A, small
from tests.client.test_push_consumer import committed

from roquette import Client, ClientError, ConfigError, MessageQueue, StartFrom
from roquette.client import calls
from roquette.client.reader import Reader
from roquette_testing.cluster import SimCluster, simulate

FIRST = {"group": "g", "start_from": StartFrom.FIRST}


async def drain(reader: Reader, quiet_s: float = 3.0) -> list[bytes]:
    found: list[bytes] = []
    while messages := await reader.poll(timeout=quiet_s):
        found += [message.body for message in messages]
    return found


def test_members_share_the_queues_and_are_told() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster, 0)
        for n in range(40):
            await mq.send("orders", f"{n}")
        told: list[tuple[int, int]] = []
        one = mq.reader(**FIRST, auto_commit=1.0)
        await one.subscribe(
            "orders", on_change=lambda more, less: told.append((len(more), len(less)))
        )
        assert told == [(4, 0)]
        assert len(one.assigned()) == 4
        seen = await drain(one)
        assert sorted(map(int, seen)) == list(range(40))

        other = await cluster.client("10.0.2.2")
        two = other.reader(**FIRST, auto_commit=1.0)
        await two.subscribe("orders")
        await asyncio.sleep(5)
        assert told == [(4, 0), (0, 2)]
        assert sorted(one.assigned() + two.assigned()) == await mq.queues("orders")
        for n in range(40, 80):
            await mq.send("orders", f"{n}")
        later = await drain(one) + await drain(two)
        assert sorted(map(int, later)) == list(range(40, 80))  # nothing of before again
        await two.close()
        await asyncio.sleep(5)
        assert len(one.assigned()) == 4
        with pytest.raises(ConfigError, match="given its queues"):
            await one.assign([QUEUE])
        with pytest.raises(ConfigError, match="once"):
            await one.subscribe("orders")

    simulate(scenario)


def test_only_what_a_later_poll_followed_is_committed_by_itself() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        reader = mq.reader(**FIRST, batch=4, auto_commit=0.5)
        await reader.subscribe("orders")
        first = await reader.poll()
        assert [m.body for m in first] == [b"0", b"1", b"2", b"3"]
        await asyncio.sleep(5)
        assert await reader.committed(QUEUE) == 0  # its handler may fail yet
        await reader.poll()
        await asyncio.sleep(5)
        assert await reader.committed(QUEUE) == 4
        await reader.close()
        assert await committed(mq, QUEUE) == 4
        reader = mq.reader(**FIRST, batch=4)
        await reader.subscribe("orders")
        assert [m.body for m in await reader.poll()] == [b"4", b"5", b"6", b"7"]
        await reader.commit({QUEUE: 6})
        assert await reader.committed(QUEUE) == 6
        await reader.commit()
        assert await reader.committed(QUEUE) == 8

    simulate(scenario)


def test_automatic_commits_never_go_back_behind_a_commit_of_the_application() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        reader = mq.reader(**FIRST, batch=4, auto_commit=0.5)
        await reader.subscribe("orders")
        await reader.poll()
        await reader.commit()
        await asyncio.sleep(5)
        assert await reader.committed(QUEUE) == 4
        await reader.close()
        assert await committed(mq, QUEUE) == 4

    simulate(scenario)


@pytest.mark.parametrize("limit", [{"max_messages": 6}, {"max_bytes": 6}])
def test_what_is_fetched_ahead_is_limited_over_all_queues(limit: dict[str, int]) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster, 0)
        for n in range(4):
            queue = MessageQueue("orders", "broker-a", n)
            for _ in range(10):
                await mq.send("orders", f"{n}", queue=queue)
        reader = mq.reader(**FIRST, batch=5, **limit)
        await reader.subscribe("orders")
        await asyncio.sleep(5)
        assert (
            10 <= reader._ahead <= 20
        )  # of 40: each queue may have asked once before any had come
        reader.pause(*reader.assigned())
        assert await reader.poll(timeout=1.0) == []
        assert reader._ahead == 0
        reader.resume(*reader.assigned())
        assert len(await drain(reader)) == 40
        assert (reader._ahead, reader._ahead_bytes) == (0, 0)

    simulate(scenario)


def test_offsets_for_a_time_and_seeks_while_subscribed() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster, 3)
        await asyncio.sleep(10)
        middle = mq.session.clock.now_ms()
        await asyncio.sleep(10)
        await mq.send("orders", b"late", queue=QUEUE)
        reader = mq.reader(**FIRST)
        await reader.subscribe("orders")
        assert await reader.offset_for_time(QUEUE, middle) == 3
        when = datetime.fromtimestamp(middle / 1000, UTC)
        assert await reader.offset_for_time(QUEUE, when) == 3
        await reader.seek_to_time(QUEUE, when)
        assert [m.body for m in await reader.poll()] == [b"late"]
        await reader.seek_to_begin(QUEUE)
        assert len(await drain(reader)) == 4
        await reader.seek_to_end(QUEUE)
        assert await drain(reader) == []

    simulate(scenario)


def test_a_topic_that_grows_is_told() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        await mq.session.route("orders")
        told: list[Any] = []
        reader = mq.reader(group="g")
        reader.watch("orders", lambda more, less: told.append((more, less)))
        await asyncio.sleep(1)
        address = mq.session.master_of(QUEUE)
        await mq.session.api.call(address, calls.create_topic("orders", queues=6))
        await asyncio.sleep(120)
        new = [MessageQueue("orders", "broker-a", n) for n in (4, 5)]
        assert told == [(new, [])]

    simulate(scenario)


def test_a_subscription_that_fails_leaves_nothing_behind() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        reader = mq.reader(**FIRST)
        with pytest.raises(ConfigError):
            await reader.subscribe("orders", on_change=3)  # type: ignore[arg-type]
        await reader.subscribe("orders")
        assert len(await drain(reader)) == 10
        again = mq.reader(**FIRST)
        with pytest.raises(ConfigError, match="already has a consumer"):
            await again.subscribe("orders")

    simulate(scenario)


@pytest.mark.simulation
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_message_is_lost_while_members_and_the_broker_come_and_go(seed: int) -> None:
    seen: set[bytes] = set()

    async def live(cluster: SimCluster, ip: str) -> None:
        rng = cluster.loop.random
        mq: Client = await cluster.client(ip)
        while True:
            reader = mq.reader(**FIRST, batch=4, auto_commit=0.5)
            try:
                async with asyncio.timeout(rng.uniform(2, 10)):
                    await reader.subscribe("orders")
                    while True:
                        for message in await reader.poll():
                            await asyncio.sleep(rng.uniform(0, 0.05))
                            seen.add(message.body)  # the timeout may come before: not handled
            except (TimeoutError, ClientError):
                await reader.close()
            await asyncio.sleep(rng.uniform(0, 1))

    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster, 1)
        tasks = [cluster.loop.create_task(live(cluster, f"10.0.3.{n}")) for n in (1, 2, 3)]
        for n in range(1, 300):
            await mq.send("orders", f"{n}")
            await asyncio.sleep(0.05)
            if n == 150:
                cluster.kill(A)
                await asyncio.sleep(1)
                await cluster.restart(A)
        for _ in range(120):
            if len(seen) == 300:
                break
            await asyncio.sleep(1)
        assert len(seen) == 300, sorted({f"{n}".encode() for n in range(300)} - seen)[:5]
        for task in tasks:
            assert not task.done(), task
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    simulate(scenario, seed)


def test_wrong_options() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        mq = await cluster.client("10.0.2.1")
        with pytest.raises(ConfigError, match="max_bytes=0"):
            mq.reader(group="g", max_bytes=0)
        with pytest.raises(ConfigError, match="auto_commit=-1"):
            mq.reader(group="g", auto_commit=-1)
        reader = mq.reader(group="g")
        with pytest.raises(ConfigError, match="no topic"):
            await reader.subscribe()
        with pytest.raises(ConfigError, match="strategy 'X'"):
            await reader.subscribe("orders", strategy="X")  # type: ignore[arg-type]

    simulate(scenario)
