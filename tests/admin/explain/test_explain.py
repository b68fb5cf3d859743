"""The life of messages on a broker: each verdict from what really happened, in the simulation."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from roquette import StartFrom, sql
from roquette.admin.explain import MessageVerdict, collect, explain
from roquette.admin.topics import create_topic, delete_topic
from roquette.client.client import Client
from roquette.errors import ConfigError
from roquette.message.message import ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

NAMES, A, CLIENT, TOOL = "10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.3.1"


class Yard:
    """One broker, the operator's client and an application's."""

    def __init__(self, cluster: SimCluster, tool: Client, mq: Client) -> None:
        self.cluster, self.tool, self.mq = cluster, tool, mq

    async def said(
        self, asked: str, topic: str | None = "orders"
    ) -> dict[tuple[str, str], MessageVerdict]:
        """The verdicts of the one message that is meant, by code and group."""
        now_ms = self.cluster.clock.now_ms()
        (facts,) = await self.tool.session.run(collect(asked, topic, now_ms))
        found = explain(facts)
        keyed = {(verdict.code, verdict.group): verdict for verdict in found}
        assert len(keyed) == len(found)
        return keyed

    async def codes(self, asked: str, topic: str | None = "orders") -> set[str]:
        return {code for code, _ in await self.said(asked, topic)}

    async def subscribe(self, group: str, handler: Any = lambda message: None, **more: Any) -> Any:
        options = {"start_from": StartFrom.FIRST, **more}
        return await self.mq.subscribe("orders", group=group, handler=handler, **options)


async def begin(cluster: SimCluster, **settings: Any) -> Yard:
    await cluster.add_namesrv(NAMES)
    await cluster.add_broker(A, "broker-a", trace_topic_enable=True, **settings)
    tool = await cluster.client(TOOL, group="TOOLS")
    await tool.session.run(create_topic(tool.session.name_servers, "orders", queues=1))
    await asyncio.sleep(1)
    return Yard(cluster, tool, await cluster.client(CLIENT, group="P", trace=True))


def test_who_read_it_who_did_not_want_it_and_who_has_not_yet() -> None:
    async def scenario(cluster: SimCluster) -> None:
        yard = await begin(cluster)
        hold = asyncio.Event()

        async def wait(message: ReceivedMessage) -> None:
            await hold.wait()

        await yard.subscribe("reads")
        await yard.subscribe("tagged", tag="b || c")
        await yard.subscribe("cheap", filter=sql("price < 10"))
        await yard.subscribe("slow", wait)
        await yard.subscribe("all", model="broadcasting")
        gone = await yard.subscribe("gone")
        first = await yard.mq.send("orders", b"0", tag="a", properties={"price": "12"})
        await asyncio.sleep(20)
        await gone.close()
        sent = await yard.mq.send("orders", b"1", key="k1", tag="a", properties={"price": "12"})
        await asyncio.sleep(20)
        said = await yard.said(sent.message_id)
        assert set(said) == {
            ("stored", ""),
            ("handled", "reads"),
            ("filtered-by-tag", "tagged"),
            ("filtered-by-sql", "cheap"),
            ("waiting", "slow"),
            ("broadcast", "all"),
            ("offline", "gone"),
        }
        assert said["stored", ""].evidence.startswith(
            "orders@broker-a:0 offset 1, sent by 10.0.2.1"
        )
        assert "with success" in said["handled", "reads"].says
        assert "'b || c'" in said["filtered-by-tag", "tagged"].evidence
        assert "has 1 message before it" in said["waiting", "slow"].says
        assert "offset 1 in the queue, the message is 1" in said["offline", "gone"].evidence
        # the same by key, by its place, and looked for in every topic
        assert await yard.said("k1") == said == await yard.said(sent.offset_message_id, None)
        assert await yard.said(sent.message_id, None) == said
        assert ("waiting", "slow") in await yard.said(first.message_id)
        hold.set()

    simulate(scenario)


def test_failures_and_dead_letters() -> None:
    async def scenario(cluster: SimCluster) -> None:
        yard = await begin(cluster)

        def fail(message: ReceivedMessage) -> None:
            raise ValueError("no")

        def once(message: ReceivedMessage) -> None:
            if message.reconsume_times == 0:
                raise ValueError("once")

        await yard.subscribe("never", fail, max_reconsume_times=1)
        await yard.subscribe("once", once)
        sent = await yard.mq.send("orders", b"1")
        await asyncio.sleep(8)
        said = await yard.said(sent.message_id)
        assert "for %RETRY%never: due at" in said["delayed", "never"].says
        await asyncio.sleep(60)
        said = await yard.said(sent.message_id)
        assert "failed 2 times and gave it up" in said["dead", "never"].says
        assert "got it again 1 time" in said["retried", "once"].says
        assert "%DLQ%never@broker-a:0" in said["dead", "never"].evidence

    simulate(scenario)


def test_delays_and_times() -> None:
    async def scenario(cluster: SimCluster) -> None:
        yard = await begin(cluster)
        delayed = await yard.mq.send("orders", b"1", delay_level=5)
        timed = await yard.mq.send("orders", b"2", deliver_at=timedelta(seconds=90))
        await asyncio.sleep(10)
        said = await yard.said(delayed.message_id)
        assert set(said) == {("delayed", "")}
        assert "level 5" in said["delayed", ""].says and "in 50 s" in said["delayed", ""].says
        said = await yard.said(timed.message_id)
        assert set(said) == {("timed", "")} and "in 80 s" in said["timed", ""].says
        await asyncio.sleep(120)
        assert await yard.codes(delayed.message_id) == {"stored", "delay-over", "nobody"}
        assert await yard.codes(timed.message_id) == {"stored", "nobody"}

    simulate(scenario)


def test_transactions() -> None:
    async def scenario(cluster: SimCluster) -> None:
        yard = await begin(
            cluster,
            transaction_time_out=3_000,
            transaction_check_interval=2_000,
            transaction_check_max=3,
        )
        yard.mq.on_check("orders", lambda message: None)
        ids = {}
        async with yard.mq.transaction("orders", b"1") as tx:
            ids["committed"] = tx.message_id
            await asyncio.sleep(1)
            assert await yard.codes(tx.message_id) == {"open"}
        with pytest.raises(ValueError, match="back"):
            async with yard.mq.transaction("orders", b"2") as tx:
                ids["rolled-back"] = tx.message_id
                raise ValueError("back")

        async def left_open() -> None:
            async with yard.mq.transaction("orders", b"3") as opened:
                ids["given-up"] = opened.message_id
                await asyncio.Event().wait()

        cancelled = asyncio.create_task(left_open())
        await asyncio.sleep(1)
        cancelled.cancel()
        await asyncio.sleep(60)
        assert await yard.codes(ids["committed"]) == {"stored", "committed", "nobody"}
        assert await yard.codes(ids["rolled-back"]) == {"rolled-back"}
        said = await yard.said(ids["given-up"])
        assert set(said) == {("given-up", "")}
        assert "checked 3 times" in said["given-up", ""].evidence

    simulate(scenario)


def test_what_is_not_there() -> None:
    async def scenario(cluster: SimCluster) -> None:
        yard = await begin(cluster)
        sent = await yard.mq.send("orders", b"1", key="twice")
        await yard.mq.send("orders", b"1", key="twice")
        await asyncio.sleep(2)
        both = await yard.tool.session.run(collect("twice", "orders", 0))
        assert [len(facts.copies) for facts in both] == [1, 1]
        said = await yard.said("0" * 32)
        assert (
            set(said) == {("not-found", "")}
            and "broker-a begins at" in said["not-found", ""].evidence
        )
        with pytest.raises(ConfigError, match="no broker has 'nothing' in any topic"):
            await yard.said("nothing", None)
        servers = yard.tool.session.name_servers
        await yard.tool.session.run(delete_topic(servers, "orders"))
        assert await yard.codes(sent.message_id) == {"stored", "topic-gone"}
        assert await yard.codes(sent.message_id, "never-was") == {"topic-gone"}

    simulate(scenario)


def test_a_broker_that_is_gone_may_have_it() -> None:
    async def scenario(cluster: SimCluster) -> None:
        yard = await begin(cluster)
        await cluster.add_broker("10.0.1.9", "broker-z")
        await yard.mq.send("orders", b"1")
        cluster.kill("10.0.1.9")
        await asyncio.sleep(5)
        (facts,) = await yard.tool.session.run(collect("0" * 32, "orders", 0))
        assert facts.unreachable["broker-z"].startswith("10.0.1.9:10911 lost its connection")
        assert {verdict.code for verdict in explain(facts)} == {"not-found", "unknown"}

    simulate(scenario)
