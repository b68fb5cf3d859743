"""Requests of many parts: taken in step by step, bounded, and never in the way of a neighbour."""

import asyncio
import json
from typing import Any

import pytest

from roquette.base.entropy import Entropy
from roquette.broker.clients.heartbeat import (
    CONSUMERS_A_STEP,
    MAX_SUBSCRIPTIONS,
    MEMBERS_A_TURN,
    HeartbeatProcessor,
    notify_members,
)
from roquette.broker.pop.hand_out import MOST_QUEUES, drawn_queues
from roquette.message.properties import encode_properties
from roquette.message.record import encode_batch


def beat(
    client: str, producers: int, consumers: int, subscriptions: Any = (), **more: Any
) -> bytes:
    consumer = {"messageModel": "CLUSTERING", "subscriptionDataSet": list(subscriptions)}
    value = {
        "clientID": client,
        "producerDataSet": [{"groupName": f"p{n}"} for n in range(producers)],
        "consumerDataSet": [consumer | {"groupName": f"c{n}"} for n in range(consumers)],
    }
    return json.dumps(value | more).encode()


@pytest.mark.promise("Peers", "a large request or answer lets others in between")
def test_a_heartbeat_of_hundreds_of_groups_is_taken_step_by_step(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client, neighbour = await case.client(), await case.client()
        listed = [{"topic": "T", "subString": "a > 5", "expressionType": "SQL92"}]
        large = asyncio.ensure_future(client.call(34, {}, beat("c1", 2_000, 400, listed)))
        asked = 0
        while not large.done():
            assert (await neighbour.call(28, {})).code == 0
            asked += 1
        assert asked > 1
        assert (large.result().code, large.result().remark) == (0, None)
        assert len(case.broker.tables.consumers.groups()) == 400
        assert len(case.broker.tables.producers.groups()) == 2_000
        assert case.broker.tables.consumers.find("c399").filters["T"].predicate is not None

    run_broker(scenario)


@pytest.mark.parametrize("seed", range(6))  # it leaves while the body is decoded, or later
def test_what_a_client_leaves_while_its_heartbeat_is_read_it_does_not_join(
    run_broker: Any, seed: int
) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        last = 40 * CONSUMERS_A_STEP - 1
        client.send(34, {}, beat("c1", 0, last + 1))
        ext = {"clientID": "c1", "consumerGroup": f"c{last}"}
        assert (await client.call(35, ext)).code == 0
        await asyncio.sleep(5)
        assert case.broker.tables.consumers.find(f"c{last}") is None
        assert case.broker.tables.consumers.find(f"c{last - 1}") is not None
        assert not case.broker.feature(HeartbeatProcessor)._beating

    run_broker(scenario, seed=seed)


@pytest.mark.parametrize("delay_s", [0.0, 0.0005, 0.002, 0.01])
def test_a_client_that_goes_while_its_heartbeat_is_read_leaves_nothing(
    run_broker: Any, delay_s: float
) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        client.send(34, {}, beat("c1", 3_000, 600))
        await asyncio.sleep(delay_s)
        client.writer.transport.abort()
        await asyncio.sleep(5)
        assert case.broker.tables.consumers.groups() == []
        assert case.broker.tables.producers.groups() == []
        assert not case.broker.feature(HeartbeatProcessor)._beating

    run_broker(scenario)


def test_what_is_too_much_for_one_heartbeat_is_refused_in_words(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        many = [{"topic": f"T{n}"} for n in range(MAX_SUBSCRIPTIONS + 1)]
        long = [{"topic": "T", "subString": "a||" * 100_000}]
        tags = [{"topic": "T", "subString": "a", "tagsSet": ["ab"] * 150_000}]
        rather = [{"topic": "T", "subString": "ab||" * 4_097}]  # of one topic
        for listed in (many, long, tags, rather):
            reply = await client.call(34, {}, beat("c1", 0, 1, listed))
            assert reply.code == 0
            assert "1 groups are not registered; consumer group c0: it has" in reply.remark
        reply = await client.call(34, {}, beat("c1", 200_000, 0))
        assert reply.code == 1 and "2097152 are allowed here" in reply.remark
        reply = await client.call(34, {}, b"{'a':[" + b"[]," * 30_000 + b"]}")
        assert reply.code == 1 and "not plain JSON, 65536 are allowed" in reply.remark
        topics = [{"topicName": f"t{n}"} for n in range(1_001)]
        reply = await client.call(18, {}, json.dumps({"topicConfigList": topics}).encode())
        assert reply.remark == "1001 topics in one request, 1000 are allowed: send several"
        groups = [{"groupName": f"t{n}"} for n in range(1_001)]
        reply = await client.call(225, {}, json.dumps({"groupConfigList": groups}).encode())
        assert reply.remark == "1001 groups in one request, 1000 are allowed: send several"
        reply = await client.call(25, {}, b"a=b\n" * 10_000)
        assert reply.remark == "settings of 40000 bytes, 32768 are allowed at once"

    run_broker(scenario)


def test_every_member_of_a_large_group_is_told_of_a_change(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        members = [await case.client() for _ in range(MEMBERS_A_TURN + 10)]
        for number, member in enumerate(members):
            member.send(34, {}, beat(f"m{number}", 0, 1))
        await asyncio.sleep(2)
        for member in members:
            member.unread.clear()
        joined = await case.client()
        assert (await joined.call(34, {}, beat("new", 0, 1))).code == 0
        await asyncio.sleep(1)
        for member in members:
            async with asyncio.timeout(1):
                while (await member.receive()).code != 40:
                    pass

    run_broker(scenario)


def test_batches_of_very_many_messages_or_keys_are_refused(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        ext = case.send_ext("Many", m="true")
        keys = encode_properties({"KEYS": " ".join(["k"] * 12_000)}).encode()
        words = encode_properties({"text": " ".join(["k"] * 12_000)}).encode()
        for entries, code in (
            ([(0, b"", b"")] * 32_768, 0),
            ([(0, b"", b"")] * 32_769, 13),
            ([(0, b"", keys)] * 3, 13),
            ([(0, b"", words)] * 3, 0),
        ):
            reply = await client.call(320, ext, encode_batch(entries))
            assert reply.code == code, reply.remark
        await client.call(25, {}, b"maxBatchMessages=2\n")
        reply = await client.call(320, ext, encode_batch([(0, b"", b"")] * 3))
        assert reply.code == 13 and "more than 2 messages (maxBatchMessages)" in reply.remark

    run_broker(scenario)


@pytest.mark.promise("Peers", "a large request or answer lets others in between")
def test_large_answers_of_operators_let_others_in_between(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client, neighbour = await case.client(), await case.client()
        wide = {"topic": "Wide", "readQueueNums": 5_000, "writeQueueNums": 5_000, "perm": 6, "topicFilterType": "SINGLE_TAG", "defaultTopic": "x", "order": "false"}  # fmt: skip
        assert (await client.call(17, wide)).code == 0
        assert (await client.call(200, {}, b'{"groupName":"g"}')).code == 0
        reset = {"topic": "Wide", "group": "g", "timestamp": -1, "isForce": "true"}
        for code, ext in (
            (202, {"topic": "Wide"}),
            (222, reset),
            (208, {"consumerGroup": "g", "topic": "Wide"}),
            (303, {"topic": "Wide", "group": "g"}),
        ):
            large = asyncio.ensure_future(client.call(code, ext))
            asked = 0
            while not large.done():
                assert (await neighbour.call(28, {})).code == 0
                asked += 1
            assert asked > 1, code
            assert large.result().code == 0
            assert large.result().body.count(b'"queueId":') == 5_000

    run_broker(scenario)


def test_a_pop_of_very_many_queues_looks_at_some_of_them() -> None:
    entropy = Entropy(1, process_id=1)
    assert drawn_queues(5, 7, entropy) == [2, 3, 4, 0, 1]
    begins = set()
    for _ in range(20):
        found = drawn_queues(65_536, 7, entropy)
        assert len(set(found)) == len(found) == MOST_QUEUES
        begins.add(found[0])
    assert len(begins) == 20, "every queue is looked at in the end"


def test_an_answer_that_no_frame_holds_is_refused_before_it_is_built(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        wide = {"readQueueNums": 60_000, "writeQueueNums": 60_000, "perm": 6, "topicFilterType": "SINGLE_TAG", "defaultTopic": "x", "order": "false"}  # fmt: skip
        names = [f"Wide{n}" for n in range(3)]
        for name in names:
            assert (await client.call(17, wide | {"topic": name})).code == 0
        reply = await client.call(208, {"consumerGroup": "g", "topicList": ";".join(names)})
        assert reply.code == 1
        assert "about 180000 queues, 150000 are allowed: ask for fewer topics" in reply.remark

    run_broker(scenario)


def test_changes_of_one_turn_are_told_together(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        members = [await case.client() for _ in range(3)]
        for number, member in enumerate(members):
            await member.call(34, {}, beat(f"c{number}", 0, 1))
        await asyncio.sleep(1)
        for member in members:
            member.send(38, {"consumerGroup": "c0"})
            while (await member.receive()).code == 40:
                pass
        group = case.broker.tables.consumers.find("c0")
        for _ in range(10):
            notify_members(group)  # at once, and when that has been told
        await asyncio.sleep(1)
        notify_members(group)
        await asyncio.sleep(1)
        for member in members:
            member.send(38, {"consumerGroup": "c0"})
            told = 0
            while (command := await member.receive()).code == 40:
                told += 1
            assert told == 3
            assert json.loads(command.body)["consumerIdList"] == ["c0", "c1", "c2"]

    run_broker(scenario)
