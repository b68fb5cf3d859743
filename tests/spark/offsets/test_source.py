"""The table of offsets, with a cluster that is a few dicts."""

from typing import Any

import pytest
from tests.spark.records import struct_of

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.offsets.source import (
    COLUMNS,
    OffsetsDataSource,
    OffsetsReader,
    broker_rows,
    offsets_options,
)
from roquette_spark.workers.inspector import BrokerAddress, QueueState

PLACE = BrokerAddress("C", "broker-a", "127.0.0.1:1")
PLACES = (PLACE,)
STATES = {
    ("orders", 0): (10, 100, 1_700_000_000_000),
    ("orders", 1): (0, 0, 0),
    ("pay", 0): (0, 7, 1_700_000_000_500),
    ("%RETRY%billing", 0): (0, 1, 1_700_000_000_600),
    ("SCHEDULE_TOPIC_XXXX", 2): (0, 3, 1_700_000_000_700),
    ("C", 0): (0, 0, 0),
    ("broker-a", 0): (0, 0, 0),
}
COMMITTED = {
    ("billing", "orders"): {0: 90},
    ("billing", "%RETRY%billing"): {0: 1},
    ("late", "orders"): {0: 3, 1: 0},
    ("CID_RMQ_SYS_TRANS", "pay"): {0: 7},
}


class FewDicts:
    """A cluster of one broker."""

    def topics_of(self, place: BrokerAddress) -> list[str]:
        return sorted({topic for topic, _ in STATES})

    def queue_states(self, place: BrokerAddress, topics: list[str]) -> list[QueueState]:
        return [
            QueueState(MessageQueue(topic, place.broker_name, queue), *state)
            for (topic, queue), state in sorted(STATES.items())
            if topic in topics
        ]

    def committed_offsets(self, place: BrokerAddress) -> dict[tuple[str, str], dict[int, int]]:
        return COMMITTED

    def consume_times(
        self, place: BrokerAddress, groups: list[str]
    ) -> dict[tuple[str, MessageQueue], int]:
        assert groups == sorted(set(groups))
        times = {("billing", MessageQueue("orders", "broker-a", 0)): 1_700_000_000_000}
        return {key: value for key, value in times.items() if key[0] in groups}


def rows(**given: str) -> list[dict[str, Any]]:
    options = offsets_options({"namesrvAddr": "x:1"} | given)
    return list(broker_rows(FewDicts(), PLACE, PLACES, options))


def places(found: list[dict[str, Any]]) -> list[tuple]:
    return [(r["topic"], r["queue_id"], r["group"], r["committed_offset"], r["lag"]) for r in found]


def test_queues_by_themselves() -> None:
    found = rows(subscribe="orders")

    assert [list(row) for row in found] == [list(COLUMNS)] * 2
    assert list(found[0].values()) == [
        *("C", "broker-a", "orders", 0, None, 10, 100, None, None, 1_700_000_000_000_000, None)
    ]
    assert found[1]["last_store_timestamp"] is None


def test_system_topics_and_names_of_brokers_are_left_out() -> None:
    assert {row["topic"] for row in rows()} == {"orders", "pay", "%RETRY%billing"}
    assert {row["topic"] for row in rows(includeSystemTopics="true")} == {
        *("orders", "pay", "%RETRY%billing", "SCHEDULE_TOPIC_XXXX")
    }
    assert {row["topic"] for row in rows(subscribe="SCHEDULE_TOPIC_XXXX")} == {
        "SCHEDULE_TOPIC_XXXX"
    }
    assert {row["topic"] for row in rows(subscribePattern="or.*|p.*")} == {"orders", "pay"}


def test_all_groups_have_rows_where_they_have_a_place() -> None:
    assert places([row for row in rows(group="*") if row["group"]]) == [
        ("%RETRY%billing", 0, "billing", 1, 0),
        ("orders", 0, "billing", 90, 10),
        ("orders", 0, "late", 3, 90),  # seven are deleted
        ("orders", 1, "billing", None, 0),
        ("orders", 1, "late", 0, 0),
    ]
    assert "CID_RMQ_SYS_TRANS" in {r["group"] for r in rows(group="*", includeSystemTopics="true")}


def test_a_named_group_has_a_row_for_every_queue() -> None:
    found = [row for row in rows(group="billing,new", subscribe="orders") if row["group"]]

    assert places(found) == [
        ("orders", 0, "billing", 90, 10),
        ("orders", 0, "new", None, 90),
        ("orders", 1, "billing", None, 0),
        ("orders", 1, "new", None, 0),
    ]
    assert [row["last_consume_timestamp"] for row in found] == [
        *(1_700_000_000_000_000, None, None, None)
    ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"group": "*"}, "namesrvAddr is required"),
        ({"namesrvAddr": "x", "groups": "g"}, "unknown option groups; did you mean group"),
        ({"namesrvAddr": "x", "subscribe": "a", "subscribePattern": "b"}, "not both"),
        ({"namesrvAddr": "127.0.0.1:1", "timeoutMs": "2000"}, "no name server answers"),
    ],
)
def test_wrong_options_are_told_in_one_line(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        OffsetsReader(struct_of(topic="string"), offsets_options(given)).partitions()
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_the_schema_is_checked() -> None:
    source = OffsetsDataSource({"namesrvAddr": "x"})
    assert source.schema().startswith("`cluster` string, `broker_name` string, `topic` string")
    source.reader(struct_of("topic", lag="bigint"))
    with pytest.raises(ConfigError, match="no column lag string"):
        source.reader(struct_of(lag="string"))
