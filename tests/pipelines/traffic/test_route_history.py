"""Snapshots of routes: who disagrees about what, since when, until when."""

import json
from typing import Any

import pytest

from roquette.errors import ConfigError
from roquette.wire.bodies import BrokerData, QueueData, TopicRouteData
from roquette_spark.offsets.route_snapshots import as_line
from roquette_spark.pipelines.traffic.report import differences, history, read_lines
from roquette_spark.workers.inspector import RouteAnswer

NS1, NS2 = "10.0.0.1:9876", "10.0.0.2:9876"
BOTH = {"broker-a": [4, 4, 6], "broker-b": [4, 4, 6]}
ONE = {"broker-a": [4, 4, 6]}
HOMES = {"broker-a": {"0": "10.1.0.1:10911"}, "broker-b": {"0": "10.1.0.2:10911"}}


def line(
    at: int, server: str, queues: dict[str, Any], topic: str = "T", **other: Any
) -> dict[str, Any]:
    homes = {name: HOMES[name] for name in queues}
    found = {"at_ms": at, "name_server": server, "topic": topic, "known": bool(queues)}
    return {**found, "error": "", "queues": queues, "addresses": homes, **other}


def test_servers_that_agree_are_told_so() -> None:
    told = history([line(at, server, BOTH) for at in (1, 2) for server in (NS1, NS2)])

    assert (told.snapshots, told.first_ms, told.last_ms, told.topics) == (2, 1, 2, 1)
    assert told.name_servers == [NS1, NS2]
    assert told.found == []
    assert told.disagreeing_by_time == [(1, 0), (2, 0)]


def test_document_bs_problem_has_a_begin_an_end_and_a_sentence() -> None:
    """Eight queues on two brokers; one name server hears of broker-b later than the other."""
    told = history(
        [
            *(line(1000, NS1, BOTH), line(1000, NS2, BOTH)),
            *(line(2000, NS1, BOTH), line(2000, NS2, ONE)),
            *(line(3000, NS1, BOTH), line(3000, NS2, ONE)),
            *(line(4000, NS1, BOTH), line(4000, NS2, BOTH)),
        ]
    )

    (found,) = told.found
    assert (found.topic, found.begin_ms, found.seen_ms, found.healed_ms) == ("T", 2000, 3000, 4000)
    assert (found.snapshots, found.lasted_ms) == (2, 2000)
    assert found.differences == [
        f"{NS2} does not know broker-b: clients that ask there miss 4 queues"
    ]
    assert found.views == {NS1: "broker-a 4/4 RW, broker-b 4/4 RW", NS2: "broker-a 4/4 RW"}
    assert told.disagreeing_by_time == [(1000, 0), (2000, 1), (3000, 1), (4000, 0)]
    assert told.open == []


def test_what_comes_again_is_another_disagreement_and_what_stays_is_open() -> None:
    told = history(
        [
            *(line(1, NS1, BOTH), line(1, NS2, ONE)),
            *(line(2, NS1, BOTH), line(2, NS2, BOTH)),
            *(line(3, NS1, BOTH), line(3, NS2, {})),
        ]
    )

    assert [(each.begin_ms, each.healed_ms) for each in told.found] == [(1, 2), (3, None)]
    assert told.open == [told.found[1]]
    assert told.found[1].views[NS2] == "unknown"
    assert len(told.found[1].differences) == 2


def test_a_silent_server_neither_agrees_nor_disagrees() -> None:
    silent = line(2, NS2, {}, error="connection refused")
    told = history([line(1, NS1, BOTH), line(1, NS2, ONE), line(2, NS1, BOTH), silent])

    assert told.unanswered == {NS2: 1}
    assert [(each.seen_ms, each.healed_ms) for each in told.found] == [(1, None)]


def test_counts_permissions_and_addresses_differ_too() -> None:
    other = {"broker-a": [8, 4, 4]}
    moved = line(1, NS2, ONE, addresses={"broker-a": {"0": "10.9.9.9:1"}})

    assert differences({NS1: line(1, NS1, ONE), NS2: line(1, NS2, other)}) == [
        f"the queues of broker-a differ: {NS1} says 4 to read and 4 to write, RW, "
        f"{NS2} says 8 to read and 4 to write, R-"
    ]
    assert differences({NS1: line(1, NS1, ONE), NS2: moved}) == [
        f"the addresses of broker-a differ: {NS1} says 10.1.0.1:10911, {NS2} says 10.9.9.9:1"
    ]


def test_a_route_becomes_a_line_and_a_file_comes_back() -> None:
    route = TopicRouteData(
        queue_datas=[QueueData("broker-b", 4, 4, 6), QueueData("broker-a", 8, 4, 6)],
        broker_datas=[BrokerData("C", "broker-a", {1: "h:2", 0: "h:1"})],
    )
    lines = [
        as_line(RouteAnswer(NS1, "T", route), 7),
        as_line(RouteAnswer(NS2, "T", None, "no answer"), 7),
    ]

    assert lines[0]["queues"] == {"broker-a": [8, 4, 6], "broker-b": [4, 4, 6]}
    assert lines[0]["addresses"] == {"broker-a": {"0": "h:1", "1": "h:2"}}
    assert (lines[1]["known"], lines[1]["error"]) == (False, "no answer")
    assert list(read_lines([json.dumps(each) + "\n" for each in lines], "f")) == lines
    with pytest.raises(ConfigError, match="f, line 2: this is no snapshot of routes"):
        list(read_lines([json.dumps(lines[0]), "{}"], "f"))
