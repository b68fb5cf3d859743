"""A number in a request's body that no Java type holds changes nothing, and is answered in words."""

import json
from typing import Any

import pytest

HUGE = (2**63, -(2**63) - 1, 2**70, 10**4000)
QUEUE = {"topic": "T", "brokerName": "b", "queueId": 0}
ACK = {"c": "g", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": ""}
SUBSCRIPTION = {"topic": "T", "subString": "a", "codeSet": [97], "subVersion": 1}
CONSUMER = {
    "groupName": "g",
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "subscriptionDataSet": [SUBSCRIPTION],
}
GROUP = {
    "groupName": "g",
    "retryQueueNums": 1,
    "retryMaxTimes": 1,
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "groupSysFlag": 0,
    "consumeTimeoutMinute": 1,
}
TOPIC = {"topicName": "X", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
BODIES: dict[str, tuple[int, Any]] = {
    "group": (200, GROUP),
    "groups": (225, {"groupConfigList": [GROUP]}),
    "topics": (18, {"topicConfigList": [TOPIC]}),
    "heartbeat": (34, {"clientID": "c", "heartbeatFingerprint": 0, "consumerDataSet": [CONSUMER]}),
    "lock": (41, {"consumerGroup": "g", "clientId": "c", "mqSet": [QUEUE]}),
    "unlock": (42, {"consumerGroup": "g", "clientId": "c", "mqSet": [QUEUE]}),
    "mode": (401, {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}),
    "acks": (200151, {"brokerName": "broker-a", "acks": [ACK]}),
}  # fmt: skip


def changed(value: Any, number: int) -> list[Any]:
    """Copies of a body, each with another one of its numbers replaced."""
    if isinstance(value, bool) or not isinstance(value, (int, list, dict)):
        return []
    if isinstance(value, int):
        return [number]
    if isinstance(value, list):
        return [
            [*value[:i], each, *value[i + 1 :]]
            for i, old in enumerate(value)
            for each in changed(old, number)
        ]
    return [value | {key: each} for key, old in value.items() for each in changed(old, number)]


@pytest.mark.parametrize("name", BODIES)
def test_a_number_beyond_javas_changes_nothing(run_broker: Any, name: str) -> None:
    code, good = BODIES[name]

    async def scenario(case: Any) -> None:
        client = await case.client()
        await client.produce("T")
        before = [(await client.call(code, {})).body for code in (21, 201, 402)]
        tried = 0
        for number in HUGE:
            for body in changed(good, number):
                reply = await client.call(code, {}, json.dumps(body).encode())
                assert reply.code != 0, body
                assert not reply.remark.startswith(
                    ("ValueError", "OverflowError", "UnicodeDecodeError")
                )
                tried += 1
        assert tried >= len(HUGE)
        assert [(await client.call(code, {})).body for code in (21, 201, 402)] == before
        assert case.broker.tables.consumers.groups() == []

    run_broker(scenario)
