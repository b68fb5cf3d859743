"""The hooks Spark calls, called directly on a reader of lists."""

import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.spark.records import ListReader, make_record, struct_of

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette.spark import batch_reader, stream_reader
from roquette.spark.batch_reader import RocketmqBatchReader
from roquette.spark.offsets import DataLoss, QueueRange, encode_offsets
from roquette.spark.options import ReadOptions, read_options
from roquette.spark.stream_reader import QueueEnds, RocketmqStreamReader

A0, A1, B0 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)
SCHEMA = struct_of("queue_offset", "broker_name")


def records(count: int) -> list[bytes]:
    return [make_record(i) for i in range(count)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ListReader:
    source = ListReader({A0: records(10), A1: records(4), B0: []}, per_pull=100)
    monkeypatch.setattr(batch_reader, "open_reader", lambda _: source)
    monkeypatch.setattr(stream_reader, "open_reader", lambda _: source)
    return source


def options(**more: str) -> ReadOptions:
    given = {"namesrvAddr": "x", "subscribe": "T", "offsetPollIntervalMs": "0"}
    return read_options(given | {"partitionDiscoveryIntervalMs": "0"} | more)


def ranges(partitions: list) -> list[QueueRange]:
    return [p.value for p in partitions]


def test_a_batch_reads_everything_by_default(cluster: ListReader) -> None:
    reader = RocketmqBatchReader(SCHEMA, options())

    partitions = reader.partitions()

    assert ranges(partitions) == [QueueRange(A0, 0, 10), QueueRange(A1, 0, 4)]
    rows = [row for p in partitions for batch in reader.read(p) for row in batch.to_pylist()]
    assert len(rows) == 14


def test_an_empty_batch_still_has_the_partition_spark_wants(cluster: ListReader) -> None:
    reader = RocketmqBatchReader(SCHEMA, options(startingOffsets="latest"))

    partitions = reader.partitions()

    assert ranges(partitions) == [None]
    assert list(reader.read(partitions[0])) == []


def test_batch_positions_per_queue_and_by_time(cluster: ListReader) -> None:
    start = '{"T":{"a":{"0":3,"1":-1}}}'

    by_queue = RocketmqBatchReader(
        SCHEMA, options(startingOffsets=start, endingOffsets='{"T":{"a":{"0":5}}}')
    )
    by_time = RocketmqBatchReader(SCHEMA, options(startingTimestamp=str(1_700_000_000_102)))

    assert ranges(by_queue.partitions()) == [QueueRange(A0, 3, 5)]
    assert ranges(by_time.partitions())[:2] == [QueueRange(A0, 2, 10), QueueRange(A1, 2, 4)]


def test_offsets_of_a_queue_that_is_not_there_are_an_error(cluster: ListReader) -> None:
    with pytest.raises(ConfigError, match="a queue 7, which does not exist"):
        RocketmqBatchReader(SCHEMA, options(startingOffsets='{"T":{"a":{"7":3}}}')).partitions()


def test_a_batch_before_the_oldest_offset_is_data_loss(cluster: ListReader) -> None:
    cluster.oldest = 2
    start = '{"T":{"a":{"0":0}}}'

    with pytest.raises(DataLoss, match="offset 0 is gone, the oldest is 2"):
        RocketmqBatchReader(SCHEMA, options(startingOffsets=start)).partitions()


def test_a_stream_starts_at_the_end_by_default(cluster: ListReader) -> None:
    assert RocketmqStreamReader(SCHEMA, options()).initialOffset() == encode_offsets(
        {A0: 10, A1: 4, B0: 0}
    )


def test_a_stream_moves_by_its_limit_to_the_end(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(
        SCHEMA, options(startingOffsets="earliest", maxOffsetsPerTrigger="7")
    )
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    start = reader.initialOffset()

    one = reader.latestOffset(start, ReadMaxRows(7))
    two = reader.latestOffset(one, ReadMaxRows(7))
    three = reader.latestOffset(two, ReadMaxRows(7))

    assert one == encode_offsets({A0: 5, A1: 2, B0: 0})
    assert two == three == encode_offsets({A0: 10, A1: 4, B0: 0})
    assert ranges(reader.partitions(one, two)) == [QueueRange(A0, 5, 10), QueueRange(A1, 2, 4)]
    assert reader.partitions(two, three) == []


def test_available_now_counts_nothing_that_comes_later(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(SCHEMA, options())
    start = encode_offsets({A0: 0, A1: 0, B0: 0})

    reader.prepareForTriggerAvailableNow()
    cluster.records[A0] += [make_record(10)]
    cluster.records[MessageQueue("T", "c", 0)] = records(5)

    assert reader.latestOffset(start, ReadAllAvailable()) == encode_offsets({A0: 10, A1: 4, B0: 0})


def test_a_new_queue_starts_at_its_earliest(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(SCHEMA, options())
    start = encode_offsets({A0: 10, A1: 4})
    cluster.records[B0] = records(3)

    end = reader.latestOffset(start, ReadAllAvailable())

    assert ranges(reader.partitions(start, end)) == [QueueRange(B0, 0, 3)]


def test_a_queue_that_is_gone_is_data_loss_or_kept(cluster: ListReader) -> None:
    start = encode_offsets({A0: 10, A1: 4, B0: 0})
    del cluster.records[A1]

    with pytest.raises(DataLoss, match="T a queue 1 is gone"):
        RocketmqStreamReader(SCHEMA, options()).latestOffset(start, ReadAllAvailable())
    lenient = RocketmqStreamReader(SCHEMA, options(failOnDataLoss="false"))
    assert lenient.latestOffset(start, ReadAllAvailable()) == start


def test_a_recreated_topic_is_data_loss(cluster: ListReader) -> None:
    start = encode_offsets({A0: 11, A1: 4, B0: 0})

    with pytest.raises(DataLoss, match="ends at 10, before offset 11"):
        RocketmqStreamReader(SCHEMA, options()).latestOffset(start, ReadAllAvailable())


def test_the_reader_travels_to_workers_without_its_cache(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(SCHEMA, options(startingOffsets="earliest"))
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301 - Spark does exactly this

    work = reader.partitions(encode_offsets({A0: 8}), encode_offsets({A0: 10}))[0]
    assert sum(batch.num_rows for batch in copy.read(work)) == 2


class Clock:
    now = 1_000_000

    def now_ms(self) -> int:
        return self.now


def test_ends_are_asked_for_once_per_interval(cluster: ListReader) -> None:
    clock = Clock()
    ends = QueueEnds(
        cluster, options(offsetPollIntervalMs="100", partitionDiscoveryIntervalMs="5000"), clock
    )

    for clock.now in range(1_000_000, 1_000_100, 10):
        ends.find()
    assert cluster.asked == 3
    clock.now = 1_000_100
    ends.find()

    assert cluster.asked == 6
