"""Allocation equals Java's, for every golden case."""

import json
from pathlib import Path
from typing import Any

import pytest

from roquette.client.core.rebalance import (
    STRATEGIES,
    Strategy,
    averagely,
    averagely_by_circle,
    by_config,
    by_machine_room,
    nearby,
)
from roquette.message.message import MessageQueue

GOLDEN = Path(__file__).parent.parent / "golden" / "allocation"
CASES = json.loads((GOLDEN / "cases.json").read_text())
# The brokers of these are named room@..., and a client's room is the last word of its id.
ROOMS = json.loads((GOLDEN / "machine_rooms.json").read_text())
ROOM_QUEUES = [
    MessageQueue("TopicTest", room, n)
    for room in ("east@a", "east@b", "north@a", "west@a")
    for n in range(3)
]


def queue_of(text: str, topic: str) -> MessageQueue:
    name, _, number = text.rpartition(":")
    return MessageQueue(topic, name, int(number))


@pytest.mark.parametrize("index", range(len(CASES)))
def test_allocation_equals_javas(index: int) -> None:
    case = CASES[index]
    queues = [queue_of(text, case.get("topic", "TopicTest")) for text in case["queues"]]

    for client, expected in case["results"].items():
        found = STRATEGIES[case["strategy"]](client, case["clients"], queues)
        assert [f"{q.broker_name}:{q.queue_id}" for q in found] == expected


@pytest.mark.parametrize(
    "case", ROOMS, ids=lambda case: f"{case['strategy']} {len(case['clients'])}"
)
def test_allocation_by_machine_rooms_equals_javas(case: dict[str, Any]) -> None:
    def share_nearby(within: Strategy) -> Strategy:
        return nearby(
            lambda broker: broker.partition("@")[0],
            lambda client: client.rpartition("-")[2],
            within,
        )

    share = {
        "MACHINE_ROOM": by_machine_room(frozenset({"east", "west"})),
        "NEARBY AVG": share_nearby(averagely),
        "NEARBY CIRCLE": share_nearby(averagely_by_circle),
    }[case["strategy"]]

    for client, expected in case["results"].items():
        found = share(client, case["clients"], ROOM_QUEUES)
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


def test_queues_go_to_members_of_their_room_and_those_of_empty_rooms_to_all() -> None:
    queues = [
        MessageQueue("t", f"{room}-broker", n)
        for room in ("east", "north", "west")
        for n in range(4)
    ]
    clients = ["10.0.0.1@east", "10.0.0.2@east", "10.0.0.3@west"]
    share = nearby(lambda broker: broker.partition("-")[0], lambda client: client.partition("@")[2])
    got = {client: share(client, clients, queues) for client in clients}
    assert sorted(queue for each in got.values() for queue in each) == sorted(queues)
    assert [(q.broker_name, q.queue_id) for q in got["10.0.0.3@west"]][:4] == [
        ("west-broker", n) for n in range(4)
    ]
    assert all(q.broker_name != "west-broker" for client in clients[:2] for q in got[client])
    assert {len(each) for each in got.values()} == {2 + 2, 2 + 1, 4 + 1}
    assert share("nobody@east", clients, queues) == []
