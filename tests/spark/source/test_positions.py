"""Topics, patterns and assigned queues become queues; words, offsets and times become offsets."""

import re

import pytest
from tests.spark.records import ListReader, make_record

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.source.queues import (
    bounds_of,
    check_available,
    find_queues,
    matching_topics,
    require_queues,
    resolve,
)
from roquette_spark.values.offsets import DataLoss
from roquette_spark.values.options import read_options
from roquette_spark.values.positions_json import Position

A0, A1, B0 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)
BASE = 1_700_000_000_100  # store time of offset 0


@pytest.fixture
def cluster() -> ListReader:
    return ListReader({A0: [make_record(i) for i in range(10)], A1: [make_record(0)], B0: []})


def options(**given: str):  # type: ignore[no-untyped-def]
    chosen = {} if {"assign", "subscribePattern", "subscribe"} & set(given) else {"subscribe": "T"}
    return read_options({"namesrvAddr": "ns:1"} | chosen | given)


def start(cluster: ListReader, **given: str) -> dict[MessageQueue, int]:
    position = options(**given).starting
    assert position is not None
    return resolve(cluster, [A0, A1, B0], position)


def test_words() -> None:
    cluster = ListReader({A0: [b"x"] * 10, A1: [b"x"] * 4, B0: [b"x"] * 5}, oldest=3)

    assert start(cluster, startingOffsets="earliest") == {A0: 3, A1: 3, B0: 3}
    assert start(cluster, startingOffsets="latest") == {A0: 10, A1: 4, B0: 5}


def test_a_group_goes_on_where_it_was_and_elsewhere_at_the_start(cluster: ListReader) -> None:
    cluster.committed = {A0: 7}

    assert start(cluster, startingOffsets="group", group="g") == {A0: 7, A1: 0, B0: 0}


def test_a_time_of_all_queues(cluster: ListReader) -> None:
    with pytest.raises(
        ConfigError, match=r"T a queue 1 has no message stored at .* or later; .*=latest"
    ):
        start(cluster, startingTimestamp=str(BASE + 4))

    lenient = {"startingOffsetsByTimestampStrategy": "latest"}
    assert start(cluster, startingTimestamp=str(BASE + 4), **lenient) == {A0: 4, A1: 1, B0: 0}


def test_times_by_place_and_the_rest_from_the_start(cluster: ListReader) -> None:
    by_broker = start(cluster, startingOffsetsByTimestamp=f'{{"T":{{"a":{{"0":{BASE + 6}}}}}}}')

    assert by_broker == {A0: 6, A1: 0, B0: 0}
    with pytest.raises(ConfigError, match="a time is given for T c, which does not exist"):
        start(cluster, startingOffsetsByTimestamp='{"T":{"c":5}}')


def test_offsets_that_people_write_name_each_queue(cluster: ListReader) -> None:
    """As with Spark's Kafka source, which wants every partition."""
    lacking = "it lacks T a queue 1, T b queue 0 (-2 is the earliest offset, -1 the latest)"
    with pytest.raises(
        ConfigError,
        match=re.escape(f"option startingOffsets must give an offset for each queue; {lacking}"),
    ):
        start(cluster, startingOffsets='{"T":{"a":{"0":3}}}')
    ending = options(endingOffsets='{"T":{"a":{"0":3,"1":-1}}}').ending
    assert ending is not None
    with pytest.raises(
        ConfigError, match=r"endingOffsets .* lacks T b queue 0 \(-1 is the latest\)"
    ):
        resolve(cluster, [A0, A1, B0], ending)
    many = [MessageQueue("T", "a", number) for number in range(9)]
    wanted = ListReader({queue: [] for queue in many})
    with pytest.raises(ConfigError, match="T a queue 5 and 3 more"):
        resolve(wanted, many, Position(queues=(("T", "a", 0, 3),)))

    assert start(cluster, startingOffsets='{"T":{"a":{"0":3,"1":-1},"b":{"0":-2}}}') == {
        A0: 3,
        A1: 1,
        B0: 0,
    }


def test_saved_offsets_lack_the_queues_that_were_made_later(cluster: ListReader) -> None:
    saved = '{"v":1,"offsets":{"T":{"a":{"0":3}}}}'

    assert start(cluster, startingOffsets=saved) == {A0: 3, A1: 0, B0: 0}


def test_an_ending_time_past_the_last_message_is_the_end(cluster: ListReader) -> None:
    ending = options(endingTimestamp=str(BASE + 4)).ending
    assert ending is not None

    assert resolve(cluster, [A0, A1, B0], ending) == {A0: 4, A1: 1, B0: 0}


def test_latest_may_be_what_was_found_before(cluster: ListReader) -> None:
    position = options(startingOffsets="latest").starting
    assert position is not None

    assert resolve(cluster, [A0], position, ends={A0: 6}) == {A0: 6}


def test_patterns_match_whole_names_and_leave_the_systems_topics_out() -> None:
    names = ["order", "order-a", "orders", "%RETRY%order", "%DLQ%g", "TBW102", "rmq_sys_x"]

    assert matching_topics(names, "order.*") == ["order", "order-a", "orders"]
    assert matching_topics(names, ".*") == ["order", "order-a", "orders"]
    assert matching_topics(names, "%DLQ%.*") == ["%DLQ%g"]


def test_a_pattern_without_a_match_is_an_error_for_a_table(cluster: ListReader) -> None:
    assert require_queues(cluster, options(subscribePattern="T?")) == [A0, A1, B0]
    with pytest.raises(ConfigError, match=r"no topic at ns:1 matches subscribePattern 'X.*'"):
        require_queues(cluster, options(subscribePattern="X.*"))


def test_assigned_queues_are_read_and_no_others(cluster: ListReader) -> None:
    assert find_queues(cluster, options(assign='{"T":{"a":[1],"b":[0]}}')) == ([A1, B0], [])


def test_an_assigned_queue_that_is_not_there_is_an_error(cluster: ListReader) -> None:
    with pytest.raises(ConfigError, match="assign names T a queue 9, which does not exist"):
        require_queues(cluster, options(assign='{"T":{"a":[1,9]}}'))


def test_a_missing_topic_is_told_with_the_nearest_name() -> None:
    cluster = ListReader({MessageQueue("orders", "a", 0): []})

    with pytest.raises(
        ConfigError, match="topic order does not exist at ns:1; did you mean orders"
    ):
        require_queues(cluster, options(subscribe="order"))
    with pytest.raises(ConfigError, match="topic zzz does not exist at ns:1; create it, or check"):
        require_queues(cluster, options(subscribe="zzz"))


def test_what_is_gone_is_data_loss_or_left_out() -> None:
    cluster = ListReader({A0: [b"x"] * 10}, oldest=4)
    begin, end = {A0: 2, A1: 0, B0: 0}, {A0: 9, A1: 3, B0: 0}

    with pytest.raises(DataLoss, match="T a queue 1 is gone"):
        check_available(cluster, begin, end, fail_on_data_loss=True)
    with pytest.raises(DataLoss, match="offset 2 is gone, the oldest is 4"):
        check_available(cluster, {A0: 2}, end, fail_on_data_loss=True)
    assert check_available(cluster, begin, end, fail_on_data_loss=False) == {A0: 4}
    assert bounds_of(cluster, [A0, A1], fail_on_data_loss=False) == {A0: 4}
