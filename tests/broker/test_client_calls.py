"""Heartbeats of both versions, and questions the broker passes on to a client."""

import asyncio
import json

import pytest

from roquette.wire.bodies import GetConsumerStatusBody
from roquette.wire.json_body import decode_body

TABLE = b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}}'


def beat(client_id="c1", **more):
    data = {
        "clientID": client_id,
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": "g",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
            }
        ],
    } | more
    if more.get("withoutSub"):
        data["consumerDataSet"][0]["subscriptionDataSet"] = []
    return json.dumps(data).encode()


def test_the_answer_to_a_heartbeat_says_when_subscriptions_are_wanted(run_broker):
    async def scenario(case):
        client, other = await case.client(), await case.client()
        answers = [
            await client.call(34, {}, beat()),
            await client.call(34, {}, beat(heartbeatFingerprint=5)),
            await client.call(34, {}, beat(heartbeatFingerprint=5, withoutSub=True)),
            await other.call(34, {}, beat("c2", heartbeatFingerprint=6)),
        ]
        assert [case.ext(answer)["IS_SUB_CHANGE"] for answer in answers] == [
            "true",
            "true",
            "false",
            "true",
        ]
        assert {case.ext(answer)["IS_SUPPORT_HEART_BEAT_V2"] for answer in answers} == {"true"}
        assert set(case.broker.tables.consumers.find("g").subscriptions) == {"T"}

    run_broker(scenario)


def test_a_broker_that_does_not_know_what_was_left_out_asks_for_it(run_broker):
    async def scenario(case):
        client = await case.client()
        first = await client.call(34, {}, beat(heartbeatFingerprint=5, withoutSub=True))
        again = await client.call(34, {}, beat(heartbeatFingerprint=5, withoutSub=True))
        full = await client.call(34, {}, beat(heartbeatFingerprint=5))

        assert [case.ext(r)["IS_SUB_CHANGE"] for r in (first, again, full)] == [
            "true",
            "true",
            "false",
        ]

    run_broker(scenario)


def test_a_member_that_pulls_by_a_newer_subscription_is_asked_for_it(run_broker):
    async def scenario(case):
        client, other = await case.client(), await case.client()
        await client.produce()
        for member, name in ((client, "c1"), (other, "c2")):
            await member.call(34, {}, beat(name, heartbeatFingerprint=5))
        known = beat("c2", heartbeatFingerprint=5, withoutSub=True)
        calm = await other.call(34, {}, known)
        refused = await other.pull(sysFlag=0, subVersion=2)
        await client.call(34, {}, beat("c1", heartbeatFingerprint=5, withoutSub=True))
        asked = await other.call(34, {}, known)
        newer = json.loads(beat("c2", heartbeatFingerprint=5))
        newer["consumerDataSet"][0]["subscriptionDataSet"][0]["subVersion"] = 2
        told = await other.call(34, {}, json.dumps(newer).encode())
        served = await other.pull(sysFlag=0, subVersion=2)

        assert [case.ext(r)["IS_SUB_CHANGE"] for r in (calm, asked, told)] == [
            "false",
            "true",
            "false",
        ]
        assert (refused.code, served.code) == (25, 0)

    run_broker(scenario)


def test_a_unit_mode_consumers_retry_topic_has_the_flag(run_broker):
    async def scenario(case):
        client = await case.client()
        data = json.loads(beat())
        data["consumerDataSet"][0]["unitMode"] = True
        await client.call(34, {}, json.dumps(data).encode())
        assert case.broker.tables.topics.find("%RETRY%g").sys_flag == 2

    run_broker(scenario)


async def answer(client, code, body):
    """Answer one request of the broker with `code`; the request."""
    while (request := await client.receive()).code == 40:
        pass
    client.wire.send_reply(request.opaque, 0, None, b'{"x":"y"}', body)
    client.writer.write(b"".join(client.wire.data_to_send()))
    assert request.code == code
    return request


def test_a_message_is_consumed_directly_by_one_client(run_broker):
    async def scenario(case):
        member, admin = await case.client(), await case.client()
        sent = case.ext(await admin.produce(body=b"again"))
        await member.call(34, {}, beat())
        fields = {"consumerGroup": "g", "clientId": "c1", "msgId": sent["msgId"], "topic": "T"}
        asked = asyncio.ensure_future(admin.call(309, fields))
        request = await answer(member, 309, b'{"consumeResult":"CR_SUCCESS"}')
        reply = await asked

        assert case.ext(request) == fields | {
            "brokerName": "broker-a",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        assert b"again" in request.body
        assert (reply.code, reply.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')

    run_broker(scenario)


@pytest.mark.parametrize(
    "code, fields, refusal, text",
    [
        (309, {"msgId": "nonsense"}, 1, "the message id 'nonsense' is wrong"),
        (309, {"msgId": "0A00000100002A9F00000000000F0000"}, 1, "can not find message by the"),
        (309, {"clientId": "c9"}, 1, "The Consumer <g> <c9> not online"),
        (307, {"clientId": "c9"}, 1, "The Consumer <g> <c9> not online"),
        (223, {"group": "h"}, 1, "No Any Consumer online in the consumer group: [h]"),
    ],
)
def test_questions_that_are_refused(run_broker, code, fields, refusal, text):
    async def scenario(case):
        member, admin = await case.client(), await case.client()
        sent = case.ext(await admin.produce())
        await member.call(34, {}, beat())
        base = {"consumerGroup": "g", "clientId": "c1", "msgId": sent["msgId"], "group": "g"}
        reply = await admin.call(code, base | {"topic": "T"} | fields)

        assert reply.code == refusal
        assert reply.remark.startswith(text)

    run_broker(scenario)


def test_a_client_that_does_not_answer_is_waited_for_ten_seconds(run_broker):
    async def scenario(case):
        member, admin = await case.client(), await case.client()
        await member.call(34, {}, beat())
        began = case.loop.time()
        reply = await admin.call(307, {"consumerGroup": "g", "clientId": "c1"})

        assert reply.code == 207
        assert reply.remark.startswith("consumer <g> <c1> Timeout: ")
        assert 9 < case.loop.time() - began < 16

    run_broker(scenario)


def test_the_status_of_members_leaves_out_the_silent_ones(run_broker):
    async def scenario(case):
        first, silent, admin = [await case.client() for _ in range(3)]
        await admin.produce()
        await first.call(34, {}, beat("c1"))
        await silent.call(34, {}, beat("c2"))
        began = case.loop.time()
        asked = asyncio.ensure_future(admin.call(223, {"topic": "T", "group": "g"}))
        await answer(first, 221, TABLE)
        reply = await asked
        one = asyncio.ensure_future(
            admin.call(223, {"topic": "T", "group": "g", "clientAddr": "c1"})
        )
        await answer(first, 221, TABLE)
        quick = await one

        for found in (reply, quick):
            table = decode_body(GetConsumerStatusBody, found.body).consumer_table
            assert {c: list(q.values()) for c, q in table.items()} == {"c1": [7]}
        assert case.loop.time() - began < 6

    run_broker(scenario)
