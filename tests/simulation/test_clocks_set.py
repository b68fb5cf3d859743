"""Name server and client while the wall clock of their host is set: what is alive stays, what is dead goes."""

import asyncio

import pytest

from roquette import StartFrom
from roquette.message.message import ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation
HOUR_MS = 3_600_000
NAME_SERVER, BROKER, CLIENT = "10.0.0.1", "10.0.1.1", "10.0.2.1"
both_ways = pytest.mark.parametrize("jump_ms", [-2 * HOUR_MS, HOUR_MS, 100 * 24 * HOUR_MS])


@both_ways
def test_a_name_server_keeps_a_broker_that_lives_and_forgets_one_that_does_not(
    jump_ms: int,
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        server = await cluster.add_namesrv(NAME_SERVER)
        await cluster.add_broker(BROKER, "broker-a")
        mq = await cluster.client(CLIENT)
        await mq.send("orders", b"1")
        cluster.set_clock(NAME_SERVER, jump_ms)
        await asyncio.sleep(20)
        assert server.core.routes.find_route("orders") is not None
        cluster.isolate(BROKER)  # no end of a connection tells
        await asyncio.sleep(100)
        assert server.core.routes.find_route("orders") is not None
        await asyncio.sleep(40)
        assert server.core.routes.find_route("orders") is None

    simulate(scenario)


@both_ways
def test_a_message_at_work_goes_back_after_its_time_and_not_before(jump_ms: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAME_SERVER)
        await cluster.add_broker(BROKER, "broker-a")
        mq = await cluster.client(CLIENT, consume_timeout=120)
        taken: list[float] = []

        async def slow(message: ReceivedMessage) -> None:
            taken.append(cluster.loop.time())
            if len(taken) == 1:
                await asyncio.sleep(1_000)

        await mq.send("orders", b"1")
        await mq.subscribe("orders", group="g", handler=slow, start_from=StartFrom.FIRST)
        await asyncio.sleep(30)
        cluster.set_clock(CLIENT, jump_ms)
        await asyncio.sleep(280)
        assert len(taken) == 2
        assert 120 < taken[1] - taken[0] < 240

    simulate(scenario)
