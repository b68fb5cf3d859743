"""Allocation equals Java's, for every golden case."""

import json
from pathlib import Path

import pytest

from roquette.client.core.rebalance import STRATEGIES, averagely
from roquette.message.message import MessageQueue

CASES = json.loads(
    (Path(__file__).parent.parent / "golden" / "allocation" / "cases.json").read_text()
)


def queue_of(text: str, topic: str) -> MessageQueue:
    name, _, number = text.rpartition(":")
    return MessageQueue(topic, name, int(number))


@pytest.mark.parametrize("index", range(len(CASES)))
def test_allocation_equals_javas(index: int) -> None:
    case = CASES[index]
    if case["strategy"] not in STRATEGIES:
        pytest.skip(f"strategy {case['strategy']} takes parameters")
    queues = [queue_of(text, case.get("topic", "TopicTest")) for text in case["queues"]]

    for client, expected in case["results"].items():
        found = STRATEGIES[case["strategy"]](client, case["clients"], queues)
        assert [f"{q.broker_name}:{q.queue_id}" for q in found] == expected


def test_more_members_than_queues_leave_some_idle() -> None:
    queues = [MessageQueue("t", "b", i) for i in range(2)]

    shares = [averagely(client, ["A", "B", "C"], queues) for client in "ABC"]

    assert shares == [queues[:1], queues[1:], []]
