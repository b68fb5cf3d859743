"""Other numbers of queues, under load: nothing is lost, nobody sees an error, and the certificate says why."""

import asyncio

import pytest
from tests.admin.test_drain import NAMES, TOOL, A, B, Load, begin, paced

from roquette.admin.resize import ProofRow, places_of, resize, set_numbers
from roquette.admin.topics import create_topic
from roquette.client.client import Client
from roquette.errors import ConfigError
from roquette_testing.cluster import SimCluster, simulate


async def numbers(tool: Client) -> dict[str, tuple[int, int]]:
    places = await tool.session.run(places_of("orders"))
    return {p.broker: (p.config.write_queue_nums, p.config.read_queue_nums) for p in places}


def certified(rows: list[ProofRow], queues: range) -> None:
    assert {(row.broker, row.queue, row.group) for row in rows} == {
        (broker, queue, "g") for broker in ("broker-a", "broker-b") for queue in queues
    }
    assert all(row.proven and row.coming == 0 for row in rows)
    assert all(row.group_offset >= row.end_offset > 0 for row in rows)


@pytest.mark.parametrize("fault", ["none", "reset", "restart"])
def test_a_topic_gets_fewer_queues_and_more_again(fault: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        tool, load = await begin(cluster)
        producing = asyncio.create_task(load.produce())
        await asyncio.sleep(20)
        told: list[str] = []
        pace = paced(cluster, told, timeout_s=600.0)
        work = asyncio.create_task(resize(tool.session.run, "orders", 1, pace))
        await asyncio.sleep(36 if fault == "restart" else 20)
        if fault == "reset":
            cluster.reset(A)
        if fault == "restart":
            await cluster.stop(A)
            await cluster.restart(A)
        certified(await work, range(1, 4))
        assert await numbers(tool) == {"broker-a": (1, 1), "broker-b": (1, 1)}, told
        await asyncio.sleep(30)
        assert await resize(tool.session.run, "orders", 6, pace) == []
        assert await numbers(tool) == {"broker-a": (6, 6), "broker-b": (6, 6)}
        await asyncio.sleep(60)
        await load.all_got()
        await producing
        assert load.errors == []

    simulate(scenario, seed=5)


def test_delayed_and_half_messages_of_the_queues_are_waited_for() -> None:
    async def scenario(cluster: SimCluster) -> None:
        tool, load = await begin(cluster)
        run = tool.session.run
        queues = {(q.broker_name, q.queue_id): q for q in await tool.queues("orders")}
        for number in range(4):
            await tool.send("orders", b"%d" % number, queue=queues["broker-a", number])
        load.sent |= {b"0", b"1", b"2", b"3"}
        await asyncio.sleep(30)
        await tool.send("orders", b"100", queue=queues["broker-a", 3], delay_level=5)  # a minute
        await tool.send("orders", b"101", queue=queues["broker-a", 0], delay_level=9)  # stays
        load.sent.add(b"100")
        told: list[str] = []
        short = paced(cluster, told, settle_s=1.0, timeout_s=10.0)
        rows = await resize(run, "orders", 2, short)
        waiting = [row for row in rows if not row.proven]
        assert {(row.broker, row.coming) for row in waiting} == {("broker-a", 1)}
        assert await numbers(tool) == {"broker-a": (2, 4), "broker-b": (2, 2)}
        assert told[-1] == "left: 1 delayed or open"
        rows = await resize(run, "orders", 2, paced(cluster, told, settle_s=1.0))
        assert all(row.proven for row in rows)
        assert await numbers(tool) == {"broker-a": (2, 2), "broker-b": (2, 2)}
        await load.all_got()

    simulate(scenario)


def test_lossy_orders_are_refused() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMES)
        await cluster.add_broker(A, "broker-a")
        await cluster.add_broker(B, "broker-b")
        tool = await cluster.client(TOOL, group="TOOLS")
        run, servers = tool.session.run, tool.session.name_servers
        pace = paced(cluster, [], settle_s=0.0, timeout_s=5.0)
        with pytest.raises(ConfigError, match="no broker has a topic orders"):
            await resize(run, "orders", 1, pace)
        await run(create_topic(servers, "orders", queues=2))
        with pytest.raises(ConfigError, match="with 1 queues to read and 2 to write loses"):
            await run(set_numbers("orders", 2, 1, force=False))
        with pytest.raises(ConfigError, match="would be out of reach"):
            await run(set_numbers("orders", 1, 1, force=False))
        await run(set_numbers("orders", 3, 4, force=False))
        assert await numbers(tool) == {"broker-a": (3, 4), "broker-b": (3, 4)}
        await run(set_numbers("orders", 2, 2, force=True))
        await asyncio.sleep(31)
        for queue in await tool.queues("orders"):
            await tool.send("orders", b"nobody reads this", queue=queue)
        with pytest.raises(ConfigError, match="no group reads orders"):
            await resize(run, "orders", 1, pace)
        assert await resize(run, "orders", 1, pace, force=True) == []
        assert await numbers(tool) == {"broker-a": (1, 1), "broker-b": (1, 1)}
        await run(create_topic(servers, "sorted", queues=2, order=True))
        with pytest.raises(ConfigError, match="sorted is an order topic"):
            await resize(run, "sorted", 1, pace)
        (place, _) = await run(set_numbers("sorted", 2, 4, force=False))  # no key moves
        assert (place.config.write_queue_nums, place.config.read_queue_nums) == (2, 4)

    simulate(scenario)


def test_a_load_is_no_test_when_it_sends_nothing() -> None:
    async def scenario(cluster: SimCluster) -> None:
        _, load = await begin(cluster)
        assert isinstance(load, Load)
        producing = asyncio.create_task(load.produce())
        await asyncio.sleep(5)
        await load.all_got()
        await producing
        assert len(load.sent) > 50 and set(load.places) == {"broker-a", "broker-b"}

    simulate(scenario)
