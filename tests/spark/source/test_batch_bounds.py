"""The ends of a table: what contradicts itself is said, and saved ends hold whatever has come since."""

import pytest
from tests.spark.records import ListReader, make_record, struct_of

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.source import batch_reader
from roquette_spark.source.batch_reader import RocketmqBatchReader, bounds, frozen_options
from roquette_spark.values.offsets import QueueRange
from roquette_spark.values.options import ReadOptions, read_options

A0, A1, NEW = (MessageQueue("T", "a", queue_id) for queue_id in range(3))
BASE = 1_700_000_000_100  # store time of offset 0


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ListReader:
    source = ListReader({queue: [make_record(i) for i in range(10)] for queue in (A0, A1)})
    monkeypatch.setattr(batch_reader, "open_reader", lambda _: source)
    return source


def options(**given: str) -> ReadOptions:
    return read_options({"namesrvAddr": "ns:1", "subscribe": "T"} | given)


def at(first: int, second: int) -> str:
    return f'{{"T":{{"a":{{"0":{first},"1":{second}}}}}}}'


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": at(5, 5), "endingOffsets": at(7, 3)},
        {"startingOffsets": "latest", "endingOffsets": at(-1, 3)},
        {"startingTimestamp": str(BASE + 5), "endingTimestamp": str(BASE + 3)},
        {"startingOffsetsByTimestamp": f'{{"T":{BASE + 5}}}', "endingOffsets": at(9, 3)},
        {
            "startingOffsetsByTimestamp": f'{{"T":{{"a":{{"1":{BASE + 5}}}}}}}',
            "endingOffsets": at(9, 3),
        },
    ],
)
def test_an_end_before_its_start_is_an_error(cluster: ListReader, given: dict[str, str]) -> None:
    with pytest.raises(
        ConfigError, match=r"T a queue [01] is to be read from offset \d+ to 3: the end"
    ) as told:
        bounds(cluster, options(**given))

    assert str(told.value).endswith("lies before the start; see options starting* and ending*")


def test_nothing_is_left_to_read_where_the_broker_or_a_group_says_the_start(
    cluster: ListReader,
) -> None:
    cluster.oldest = 4
    cluster.committed = {A0: 8, A1: 8}

    for start in ({}, {"startingOffsets": at(-2, -2)}, {"startingOffsets": "group", "group": "g"}):
        begin, end = bounds(cluster, options(endingOffsets=at(3, 3), **start))
        assert all(begin[queue] > end[queue] for queue in (A0, A1))


def test_frozen_ends_hold_when_a_queue_is_made(cluster: ListReader) -> None:
    frozen = frozen_options({"namesrvAddr": "ns:1", "subscribe": "T"})
    before = bounds(cluster, read_options(frozen))
    cluster.records[NEW] = [make_record(0)]
    cluster.records[A0] += [make_record(10)]

    start, end = bounds(cluster, read_options(frozen))

    assert (start.pop(NEW), end.pop(NEW)) == (0, 0)
    assert (start, end) == before


def test_conditions_narrow_what_is_planned(cluster: ListReader) -> None:
    cluster.oldest = 2
    given = options(startingOffsets=at(0, 0), narrowBy="queue_id = 1 AND queue_offset >= 4")

    (partition,) = RocketmqBatchReader(struct_of("queue_offset"), given).partitions()

    assert partition.value == (QueueRange(A1, 4, 10),)  # that older messages are gone loses nothing
    nothing = options(narrowBy="queue_id > 7")
    (empty,) = RocketmqBatchReader(struct_of("queue_offset"), nothing).partitions()
    assert empty.value == ()
