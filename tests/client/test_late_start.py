"""Consumers that start before their topic, broker or name server begin within a second of the moment they can."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.test_push_consumer import NAMESRV, A, until

from roquette import StartFrom
from roquette.client.client import Client
from roquette.errors import ClientError
from roquette_testing.cluster import SimCluster, simulate

Begin = Callable[[Client, list[bytes]], Coroutine[Any, Any, None]]
FIRST: Any = {"group": "g", "start_from": StartFrom.FIRST}


async def by_handler(mq: Client, got: list[bytes]) -> None:
    await mq.subscribe("orders", handler=lambda m: got.append(m.body), **FIRST)


async def in_order(mq: Client, got: list[bytes]) -> None:
    await mq.subscribe("orders", handler=lambda m: got.append(m.body), orderly=True, **FIRST)


async def by_loop(mq: Client, got: list[bytes]) -> None:
    async for message in mq.consume("orders", **FIRST):
        got.append(message.body)


async def by_pop(mq: Client, got: list[bytes]) -> None:
    async for job in mq.pop("orders", **FIRST):
        got.append(job.body)
        await job.ack()


async def by_reader(mq: Client, got: list[bytes]) -> None:
    reader = mq.reader(**FIRST)
    await reader.subscribe("orders")
    while True:
        got += [message.body for message in await reader.poll()]


@pytest.mark.parametrize("begin", [by_handler, in_order, by_loop, by_pop, by_reader])
@pytest.mark.parametrize("late", ["topic", "broker", "broker of a known topic", "name server"])
def test_it_begins_within_a_second(begin: Begin, late: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        name_server = f"{NAMESRV}:9876"
        if late != "name server":
            await cluster.add_namesrv(NAMESRV)
        if late in ("topic", "broker of a known topic"):
            await cluster.add_broker(A, "broker-a")
        sender = await cluster.client("10.0.2.1", name_servers=name_server)
        if late == "broker of a known topic":
            await sender.send("orders", b"0")
            cluster.kill(A)
        mq = await cluster.client("10.0.3.1", name_servers=name_server)
        got: list[bytes] = []
        consuming = asyncio.create_task(begin(mq, got))
        await asyncio.sleep(37.3)
        assert not got
        if late == "name server":
            await cluster.add_namesrv(NAMESRV)
        if late in ("broker", "name server"):
            await cluster.add_broker(A, "broker-a")
        if late == "broker of a known topic":
            await cluster.restart(A)
        loop = asyncio.get_running_loop()
        end = loop.time() + 30
        while True:
            try:
                await sender.send("orders", b"1")
                break
            except ClientError:
                assert loop.time() < end
                await asyncio.sleep(0.05)
        took_s = await until(lambda: b"1" in got)
        consuming.cancel()
        assert took_s < 1.0

    simulate(scenario)
