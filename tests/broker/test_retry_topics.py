"""Retry topics as heartbeats make them (ClientManageProcessor.heartBeat)."""

import json
from typing import Any

from roquette.wire.bodies import TopicConfig


def heartbeat(*, unit: bool = False) -> bytes:
    subscription = {
        "topic": "T", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
        "expressionType": "TAG", "classFilterMode": False,
    }  # fmt: skip
    group = {
        "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription],
        "unitMode": unit,
    }  # fmt: skip
    return json.dumps({"clientID": "c1", "consumerDataSet": [group]}).encode()


def test_a_consumer_of_a_unit_makes_a_retry_topic_of_a_unit(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        assert (await client.call(34, {}, heartbeat(unit=True))).code == 0
        made = case.broker.tables.topics.find("%RETRY%g")
        assert (made.sys_flag, made.perm, made.write_queues, made.order) == (2, 6, 1, False)

    run_broker(scenario)


def test_a_group_of_an_order_topic_has_a_retry_topic_of_order(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        assert (await client.call(34, {}, heartbeat())).code == 0
        made = case.broker.tables.topics.find("%RETRY%g")
        assert (made.sys_flag, made.order) == (0, False)
        case.broker.tables.topics.put(TopicConfig(topic_name="T", order=True), 0)
        version = case.broker.tables.topics.data_version.counter
        for _ in range(3):
            assert (await client.call(34, {}, heartbeat())).code == 0
        assert made.order
        assert case.broker.tables.topics.data_version.counter == version + 1

    run_broker(scenario)
