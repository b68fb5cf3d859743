"""Draining a broker, and giving its work back: nothing is lost, nobody sees an error. In the simulation."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from roquette import StartFrom
from roquette.admin.cluster import look_at, masters_of
from roquette.admin.drain import Pace, drain, hide, in_short, left_on, noted, restore
from roquette.admin.topics import create_topic
from roquette.client import calls
from roquette.client.calls import ask
from roquette.client.client import Client
from roquette.errors import ClientError, ConfigError
from roquette.message.message import ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

NAMES, A, B, CLIENT, TOOL = "10.0.0.1", "10.0.1.1", "10.0.1.2", "10.0.2.1", "10.0.3.1"


class Load:
    """A producer that sends all the time, in every way, and a group whose members fail the first time."""

    def __init__(self, mq: Client) -> None:
        self.mq = mq
        self.sent: set[bytes] = set()
        self.got: Counter[bytes] = Counter()
        self.errors: list[str] = []
        self.places: Counter[str] = Counter()
        self.going = True

    async def produce(self) -> None:
        number = 0
        while self.going:
            number += 1
            body = b"%d" % number
            try:
                if number % 10 == 0:
                    async with self.mq.transaction("orders", body):
                        pass
                else:
                    receipt = await self.mq.send("orders", body, delay_level=int(number % 5 == 0))
                    self.places[receipt.queue.broker_name] += 1
                self.sent.add(body)
            except ClientError as error:
                self.errors.append(str(error))
            await asyncio.sleep(0.05)

    def take(self, message: ReceivedMessage) -> None:
        self.got[message.body] += 1
        if int(message.body) % 7 == 0 and message.reconsume_times == 0:
            raise ValueError("once more")

    async def all_got(self) -> None:
        self.going = False
        for _ in range(600):
            if self.sent <= set(self.got):
                return
            await asyncio.sleep(1)
        raise AssertionError(f"lost: {sorted(self.sent - set(self.got))[:10]}")


def paced(cluster: SimCluster, told: list[str], **more: float) -> Pace:
    return Pace(asyncio.sleep, cluster.loop.time, told.append, **more)


async def begin(cluster: SimCluster) -> tuple[Client, Load]:
    """Two brokers with one topic, the load, and a client for the operator."""
    await cluster.add_namesrv(NAMES)
    for ip, name in ((A, "broker-a"), (B, "broker-b")):
        await cluster.add_broker(ip, name, transaction_check_interval=1000)
    tool = await cluster.client(TOOL, group="TOOLS")
    await tool.session.run(create_topic(tool.session.name_servers, "orders", queues=4))
    await asyncio.sleep(1)
    load = Load(await cluster.client(CLIENT, group="P"))
    load.mq.on_check("orders", lambda message: True)
    await load.mq.subscribe("orders", group="g", handler=load.take, start_from=StartFrom.FIRST)
    return tool, load


async def perms(tool: Client) -> dict[str, int]:
    route = await tool.session.run(ask("", calls.route("orders")))
    return {data.broker_name: data.perm for data in route.queue_datas}


@pytest.mark.parametrize("fault", ["none", "reset", "restart"])
def test_a_broker_is_emptied_and_comes_back(fault: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        tool, load = await begin(cluster)
        run, servers = tool.session.run, tool.session.name_servers
        producing = asyncio.create_task(load.produce())
        await asyncio.sleep(20)
        told: list[str] = []
        pace = paced(cluster, told, settle_s=35.0, timeout_s=600.0)
        draining = asyncio.create_task(drain(run, servers, "broker-a", pace))
        await asyncio.sleep(20)
        if fault == "reset":
            cluster.reset(A)
        if fault == "restart":  # it registers anew, and name servers show it again
            await cluster.stop(A)
            await cluster.restart(A)
        left = await draining
        assert left.rows == [], told
        assert told[-1] == "left: nothing"
        assert (await perms(tool)) == {"broker-a": 4, "broker-b": 6}
        before = Counter(load.places)
        await asyncio.sleep(60)
        assert load.places["broker-b"] > before["broker-b"] + 100
        assert load.places["broker-a"] == before["broker-a"]
        assert (await run(left_on("broker-a"))).rows == [], "it stays empty"

        await run(restore(servers, "broker-a"))
        await asyncio.sleep(40)
        assert (await perms(tool)) == {"broker-a": 6, "broker-b": 6}
        assert load.places["broker-a"] > before["broker-a"]
        assert await run(noted("broker-a")) is None
        with pytest.raises(ConfigError, match="broker-a is not drained"):
            await run(restore(servers, "broker-a"))
        await load.all_got()
        await producing
        assert load.errors == []

    simulate(scenario, seed=3)


def test_what_is_left_is_told_and_waited_for() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMES)
        await cluster.add_broker(A, "broker-a")
        await cluster.add_broker(B, "broker-b")
        tool = await cluster.client(TOOL, group="TOOLS")
        run, servers = tool.session.run, tool.session.name_servers
        await run(create_topic(servers, "orders", queues=1))
        await run(create_topic(servers, "unread", queues=1))
        await asyncio.sleep(1)
        (queue,) = [q for q in await tool.queues("orders") if q.broker_name == "broker-a"]
        (other,) = [q for q in await tool.queues("unread") if q.broker_name == "broker-a"]
        got: list[ReceivedMessage] = []
        consumer = await tool.subscribe(
            "orders", group="g", handler=got.append, start_from=StartFrom.FIRST
        )
        await tool.send("orders", b"1", queue=queue)
        while len(got) < 1:
            await asyncio.sleep(1)
        await asyncio.sleep(10)
        await consumer.close()
        await tool.send("orders", b"2", queue=queue)
        await tool.send("orders", b"3", queue=queue, delay_level=4)
        await tool.send("unread", b"4", queue=other)
        left = await run(left_on("broker-a"))
        assert in_short(left) == "left: 1 unread of g, 1 delayed"
        assert [(row.kind, row.topic, row.count) for row in left.stays] == [("unread", "unread", 1)]
        told: list[str] = []
        pace = paced(cluster, told, settle_s=1.0, timeout_s=60.0)
        left = await drain(run, servers, "broker-a", pace)
        assert in_short(left) == "left: 2 unread of g" == told[-1]
        assert (await drain(run, servers, "broker-a", pace, ignored=["g"])).rows == []

    simulate(scenario)


def test_a_recall_that_takes_nothing_away_hides_no_message() -> None:
    """Of two that wait one is recalled twice, which Apache's counts take for two."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMES)
        await cluster.add_broker(A, "broker-a", recall_message_enable=True)
        tool = await cluster.client(TOOL, group="TOOLS")
        run = tool.session.run
        await run(create_topic(tool.session.name_servers, "orders", queues=1))
        await asyncio.sleep(1)
        await tool.send("orders", b"comes", deliver_at=timedelta(minutes=1))
        gone = await tool.send("orders", b"recalled", deliver_at=timedelta(minutes=1))
        assert in_short(await run(left_on("broker-a"))) == "left: 2 timed"
        await asyncio.sleep(5)
        for _ in range(2):
            await tool.recall(gone)
        await asyncio.sleep(5)
        ((_, address),) = await run(masters_of())
        assert (await run(look_at(address, ["orders"]))).by_topic == {"orders": 2}  # as yet
        assert in_short(await run(left_on("broker-a"))) == "left: 2 timed"
        await asyncio.sleep(60)
        found = await run(look_at(address, ["orders"]))
        assert (found.timed, found.ends["orders"][0].max_offset) == (0, 1)

    simulate(scenario)


def test_nobody_is_cut_off_without_being_asked() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMES)
        await cluster.add_namesrv("10.0.0.2")
        await cluster.add_broker(A, "broker-a")
        await cluster.add_broker(B, "broker-b")
        tool = await cluster.client(TOOL, group="TOOLS")
        run, servers = tool.session.run, tool.session.name_servers
        await run(create_topic(servers, "alone", queues=1, broker="broker-a"))
        await asyncio.sleep(1)
        with pytest.raises(ConfigError, match="alone is on broker-a alone"):
            await run(hide(servers, "broker-a"))
        with pytest.raises(ConfigError, match="knows no broker broker-x"):
            await run(hide(servers, "broker-x"))
        assert await run(noted("broker-a")) is None, "nothing was changed"
        cluster.kill("10.0.0.2")
        with pytest.raises(ClientError, match=r"name server 10\.0\.0\.2:9876 does not answer"):
            await run(hide(servers, "broker-a", alone=True))

    simulate(scenario)


def test_popped_messages_are_waited_for_until_they_are_acknowledged() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMES)
        await cluster.add_broker(A, "broker-a")
        tool = await cluster.client(TOOL, group="TOOLS")
        run, servers = tool.session.run, tool.session.name_servers
        await run(create_topic(servers, "orders", queues=1))
        await asyncio.sleep(1)
        await tool.send("orders", b"1")

        async def kinds() -> set[str]:
            return {row.kind for row in (await run(left_on("broker-a"))).rows}

        async with tool.pop(
            "orders", group="g", start_from=StartFrom.FIRST, invisible=600.0
        ) as jobs:
            async for job in jobs:
                await asyncio.sleep(30)
                assert await kinds() == {"popped"}
                await job.ack()
                break
        for _ in range(120):
            if not await kinds():
                return
            await asyncio.sleep(1)
        raise AssertionError(await run(left_on("broker-a")))

    simulate(scenario)
