"""What an operator says of offsets while a pop's records are being read beside the loop: the operator wins."""

import asyncio

import pytest
from tests.broker.pop_frames import pop
from tests.broker.test_topic_and_group_admin import TOPIC

from roquette.broker.floor.core import BrokerCore
from roquette.broker.pop.feature import PopFeature

PLACE = {"consumerGroup": "g", "topic": "T", "queueId": 0, "setZeroIfNotFound": "false"}
RESET = {"topic": "T", "group": "g", "timestamp": 0, "isForce": "true", "queueId": 0, "offset": 1}


async def reset(client):
    assert (await client.call(222, RESET)).code == 0


async def delete_topic(client):
    assert (await client.call(215, {"topic": "T"})).code == 0


async def remake_topic(client):
    await delete_topic(client)
    made = await client.call(17, TOPIC | {"topic": "T", "readQueueNums": 1, "writeQueueNums": 1})
    assert made.code == 0


async def delete_group(client):
    assert (await client.call(207, {"groupName": "g", "cleanOffset": "true"})).code == 0


async def clone(client):
    fields = {"consumerGroup": "h", "topic": "T", "queueId": 0, "commitOffset": 1}
    assert (await client.call(15, fields)).code == 0
    ask = {"srcGroup": "h", "destGroup": "g", "topic": "T", "offline": "true"}
    assert (await client.call(314, ask)).code == 0


ENDS = {reset: 1, delete_topic: -1, remake_topic: -1, delete_group: -1, clone: 1}


@pytest.mark.promise("Answers", "an operator's reset or deletion holds against a pop at work")
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("pops", [0, 1, 3])
@pytest.mark.parametrize("act", ENDS)
def test_the_operator_wins(run_broker, monkeypatch, act, pops, order):
    read, gate, cold = BrokerCore.read_cold, asyncio.Event(), asyncio.Event()

    async def slowly(self, found):
        runs = await read(self, found)
        cold.set()
        await gate.wait()
        return runs

    monkeypatch.setattr(BrokerCore, "read_cold", slowly)

    async def scenario(case):
        client, operator = await case.client(), await case.client()
        await operator.call(200, {}, b'{"groupName":"g"}')
        await operator.call(200, {}, b'{"groupName":"h"}')
        for number in range(3):
            await client.produce(d=1, body=b"m%d" % number)
        ordered = {"order": "true"} if order else {}
        first = asyncio.ensure_future(pop(case, client, **ordered))
        await cold.wait()
        await act(operator)
        for _ in range(pops):
            assert await pop(case, operator, **ordered) == []
        gate.set()
        assert await first == []
        asked = await operator.call(14, PLACE)
        offset = int(case.ext(asked)["offset"]) if asked.code == 0 else -1
        assert offset == ENDS[act] or (offset, act, pops > 0) == (0, remake_topic, True)
        if ENDS[act] == 1:
            later = await pop(case, client, **ordered)
            assert [message.body for message in later] == [b"m1", b"m2"]
        if act is remake_topic:
            await client.produce(body=b"new")
            assert [message.body for message in await pop(case, client, **ordered)] == [b"new"]
        assert case.broker.feature(PopFeature).pop.locked == set()

    run_broker(scenario, store={"memory_ratio": 0}, broker={"auto_create_topic_enable": True})
