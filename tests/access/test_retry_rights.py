"""A consumer with rules for its topic and its group, and no more, sends back what it popped again."""

import asyncio

import pytest
from tests.access.attackers import BROKER, Actor, Closed, connect, pop_ext, popped, rule
from tests.access.attackers import _user as user_body

from roquette.message.record import decode_record
from roquette.wire.codes import RequestCode as R
from roquette.wire.signature import Credentials
from roquette_testing.cluster import SimCluster, simulate

BOB = Credentials("bob", "the-secret-of-bob")
EVE = Credentials("eve", "the-secret-of-eve")


async def send_back(who: Actor, place: int, group: str) -> int:
    ext = {"offset": place, "group": group, "delayLevel": -1, "originTopic": "orders"}
    return (await who.ask(R.CONSUMER_SEND_MSG_BACK, ext)).code


@pytest.mark.promise("Security", "POP's retry topics are their group's, in either form")
@pytest.mark.parametrize("v2", [False, True])
def test_what_pop_gives_again_is_its_groups_in_either_form(v2: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        closed = Closed(cluster)
        await closed.build({"enable_retry_topic_v2": v2})
        for who in (BOB, EVE):
            body = user_body(who)
            assert (await closed.admin.ask(R.AUTH_CREATE_USER, {"username": who.access_key}, body)).code == 0  # fmt: skip
        await rule(closed.admin, "bob", "Pub,Sub", "Topic:orders", "Group:billing")
        await rule(
            closed.admin, "eve", "Pub,Sub", "Topic:hers", "Group:bill", "Group:billing_orders2"
        )
        bob, eve = await connect(BROKER, BOB), await connect(BROKER, EVE)
        assert (await bob.produce("orders", b"x")).code == 0
        ask = pop_ext(closed.now_ms()) | {
            "topic": "orders", "consumerGroup": "billing", "initMode": 0, "invisibleTime": 10_000,
        }  # fmt: skip
        assert len(popped(await bob.call(R.POP_MESSAGE, ask))) == 1
        again = []
        async with asyncio.timeout(60):
            while not again:
                await asyncio.sleep(1)
                again = popped(await bob.call(R.POP_MESSAGE, ask | {"bornTime": closed.now_ms()}))
        place = again[0].record.physical_offset
        stored = decode_record(closed.broker.core.store.record_at(place), 0, True)
        assert stored.topic == f"%RETRY%billing{'+' if v2 else '_'}orders"
        assert await send_back(eve, place, "bill") == 16
        assert await send_back(eve, place, "billing_orders2") == 16
        assert await send_back(bob, place, "billing") == 0

    simulate(scenario, seed=3)
