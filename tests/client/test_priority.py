"""Priorities (RIP-80): a message's priority is its queue, and pops look at the highest queue first."""

import asyncio
from typing import Any

import pytest
from tests.client.test_pop import CLIENT, NAMESRV, A, taken

from roquette import Admin, Message, MessageIllegal, MessageQueue
from roquette.client.client import Client
from roquette.client.operator_calls import put_group
from roquette.wire.bodies import SubscriptionGroupConfig
from roquette_testing.cluster import SimCluster, simulate

TYPE = {"message.type": "PRIORITY"}


async def prioritized(
    cluster: SimCluster, attributes: dict[str, str] | None = None, **settings: Any
) -> Client:
    """A topic of four priorities."""
    await cluster.add_namesrv(NAMESRV)
    await cluster.add_broker(A, "broker-a")
    mq = await cluster.client(CLIENT, **settings)
    chosen = TYPE if attributes is None else attributes
    await Admin(mq).create_topic("orders", queues=4, attributes=chosen)
    return mq


async def order_of(mq: Client, count: int, group: str = "g") -> list[int | None]:
    """The priorities of the messages, as single pops hand them out."""
    found: list[int | None] = []
    async with mq.pop("orders", group=group, batch=1) as messages:
        for message in await taken(messages, count):
            found.append(message.priority)
            await message.ack()
    return found


def test_the_highest_come_first_and_what_is_higher_than_all_is_the_highest() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await prioritized(cluster)
        given = [1, 3, 0, 2, 9, 1]
        receipts = [await mq.send("orders", b"x", priority=p) for p in given]
        assert [r.queue.queue_id for r in receipts] == [1, 3, 0, 2, 3, 1]
        pipelined = await (await mq.send_nowait("orders", b"x", priority=2))
        assert pipelined.queue.queue_id == 2
        assert await order_of(mq, 7) == [3, 9, 2, 2, 1, 1, 0]

    simulate(scenario)


def test_what_failed_comes_after_all_that_is_new() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await prioritized(cluster)
        await mq.send("orders", b"x", priority=3)
        async with mq.pop("orders", group="g", invisible=1) as messages:
            await anext(messages)
        for _ in range(30):
            await mq.send("orders", b"x", priority=0)
        await asyncio.sleep(60)
        assert await order_of(mq, 31) == [0] * 30 + [3]

    simulate(scenario)


@pytest.mark.parametrize("why", ["another topic", "its group's factor"])
def test_else_queues_have_their_turns(why: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await prioritized(cluster, {} if why == "another topic" else None)
        factor = "0" if why == "its group's factor" else "100"
        made = put_group(
            SubscriptionGroupConfig(group_name="g"), attributes={"priority.factor": factor}
        )
        await mq.session.api.call(f"{A}:10911", made)
        given = [p for _ in range(10) for p in range(4)]
        for priority in given:
            await mq.send("orders", b"x", priority=priority)
        found = await order_of(mq, 40)
        assert sorted(found) == sorted(given) and found != sorted(given)[::-1]  # type: ignore[type-var]

    simulate(scenario)


def test_what_is_of_another_kind_loses_its_priority_at_the_broker() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await prioritized(cluster)
        message = Message("orders", b"x", shard_key="7")
        message.properties["_SYS_MSG_PRIORITY_"] = "1"  # behind the client's words
        for _ in range(8):
            await mq._sender.send(message)
        (queue,) = {m.queue.queue_id for m in await taken(mq.pop("orders", group="g"), 8)}
        assert (
            await mq.message_at((await mq._sender.send(message)).offset_message_id)
        ).priority is None
        assert 0 <= queue < 4

    simulate(scenario)


def test_words_that_a_broker_would_not_heed_are_refused() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await prioritized(cluster)
        queue = MessageQueue("orders", "broker-a", 0)
        for wrong in ({"shard_key": "7"}, {"delay_level": 1}):
            with pytest.raises(MessageIllegal, match="neither shard key nor delay"):
                await mq.send("orders", b"x", priority=1, **wrong)  # type: ignore[arg-type]
        with pytest.raises(MessageIllegal, match="priority -1 is not 0 to"):
            await mq.send("orders", b"x", priority=-1)
        for value in (True, "1", 1.0):
            with pytest.raises(TypeError, match="priority="):
                await mq.send("orders", b"x", priority=value)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="neither queue nor selector"):
            await mq.send("orders", b"x", priority=1, queue=queue)
        with pytest.raises(TypeError, match="neither queue nor selector"):
            await mq.send_nowait("orders", b"x", priority=1, selector=lambda qs, m: qs[0])
        with pytest.raises(MessageIllegal, match="nor priorities"):
            await mq.send_batch("orders", [Message("orders", b"x", priority=1)])
        with pytest.raises(MessageIllegal, match="say priority="):
            await mq.send("orders", b"x", properties={"_SYS_MSG_PRIORITY_": "1"})
        with pytest.raises(MessageIllegal, match="neither"):
            await mq.send(Message("orders", b"x", priority=0, delay_level=1))

    simulate(scenario)
