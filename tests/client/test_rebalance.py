"""Allocation equals Java's, for every golden case."""

import json
from pathlib import Path

import pytest

from roquette.client.core.rebalance import STRATEGIES, averagely, by_config, by_machine_room
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


def test_a_machine_room_gets_the_queues_of_its_own_brokers() -> None:
    names = ("r1@a", "r1@b", "r2@c", "plain", "r1@x@y")
    queues = [MessageQueue("t", name, i) for name in names for i in range(2)]
    strategy = by_machine_room(frozenset({"r1", "r3"}))

    shares = [strategy(client, ["A", "B", "C"], queues) for client in "ABC"]

    # As AllocateMessageQueueByMachineRoom: equal shares in order, the rest one each to the first members.
    assert shares == [[queues[0], queues[3]], [queues[1]], [queues[2]]]
    assert strategy("D", ["A"], queues) == []


def test_written_down_queues_are_taken_as_they_are() -> None:
    queues = [MessageQueue("t", "b", i) for i in range(3)]

    assert by_config(queues[1:])("A", ["A", "B"], queues) == queues[1:]
