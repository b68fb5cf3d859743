"""rejectPullConsumerEnable: who may still pull (ClientManageProcessor.heartBeat, PullMessageProcessor)."""

import json

import pytest

ON = {"reject_pull_consumer_enable": True}


async def beat(client, group: str, kind: str) -> None:
    body = {
        "clientID": f"{group}-client",
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": kind,
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
            }
        ],
    }
    assert (await client.call(34, {}, json.dumps(body).encode())).code == 0


@pytest.mark.parametrize("setting", [{}, ON])
def test_a_pull_consumer_without_a_group_is_refused_only_when_told_so(run_broker, setting):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        await beat(client, "pullers", "CONSUME_ACTIVELY")
        reply = await client.pull(consumerGroup="pullers")
        assert (case.broker.tables.consumers.find("pullers") is None) == bool(setting)
        if not setting:
            assert reply.code == 0
            return
        assert reply.code == 24
        assert "the pull consumer is rejected by server" in reply.remark

    run_broker(scenario, broker=setting)


def test_push_consumers_tools_and_the_system_go_on(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        await beat(client, "pushers", "CONSUME_PASSIVELY")
        stranger = await case.client()
        for who, group in (
            (client, "pushers"),
            (stranger, "pushers"),
            (client, "TOOLS_CONSUMER"),
            (client, "CID_RMQ_SYS_X"),
        ):
            assert (await who.pull(consumerGroup=group)).code == 0, group

    run_broker(scenario, broker=ON)


def test_a_group_of_pull_consumers_from_before_keeps_its_members(run_broker):
    async def scenario(case):
        member, stranger = await case.client(), await case.client()
        await member.produce()
        await beat(member, "pullers", "CONSUME_ACTIVELY")
        assert (await member.call(25, {}, b"rejectPullConsumerEnable=true\n")).code == 0
        assert (await member.pull(consumerGroup="pullers")).code == 0
        assert (await stranger.pull(consumerGroup="pullers")).code == 24

    run_broker(scenario)
