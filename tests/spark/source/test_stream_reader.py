"""The hooks Spark calls, called directly on a reader of lists."""

import pickle

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from tests.spark.records import ListReader, make_record, struct_of

from roquette.errors import ConfigError, ConnectError
from roquette.message.message import MessageQueue
from roquette_spark.source import batch_reader, stream_reader
from roquette_spark.source.batch_reader import RocketmqBatchReader, frozen_options
from roquette_spark.source.stream_reader import QueueEnds, RocketmqStreamReader
from roquette_spark.values.errors import SourceError
from roquette_spark.values.offsets import DataLoss, QueueRange, encode_offsets
from roquette_spark.values.options import ReadOptions, read_options

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
    given = {"namesrvAddr": "x:1", "offsetPollIntervalMs": "0"}
    if not {"assign", "subscribePattern"} & set(more):
        given["subscribe"] = "T"
    return read_options(given | {"partitionDiscoveryIntervalMs": "0"} | more)


def ranges(partitions: list) -> list[QueueRange]:
    return [work for p in partitions for work in p.value]


class Clock:
    def __init__(self, now: int = 10_000_000) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now


# tables


def test_a_batch_reads_everything_by_default(cluster: ListReader) -> None:
    reader = RocketmqBatchReader(SCHEMA, options())

    partitions = reader.partitions()

    assert ranges(partitions) == [QueueRange(A0, 0, 10), QueueRange(A1, 0, 4)]
    rows = [row for p in partitions for batch in reader.read(p) for row in batch.to_pylist()]
    assert len(rows) == 14


def test_an_empty_batch_still_has_the_partition_spark_wants(cluster: ListReader) -> None:
    reader = RocketmqBatchReader(SCHEMA, options(startingOffsets="latest"))

    partitions = reader.partitions()

    assert [p.value for p in partitions] == [()]
    assert list(reader.read(partitions[0])) == []


def test_batch_positions_per_queue_and_by_time(cluster: ListReader) -> None:
    start = '{"T":{"a":{"0":3,"1":-1},"b":{"0":-2}}}'

    by_queue = RocketmqBatchReader(
        SCHEMA,
        options(startingOffsets=start, endingOffsets='{"T":{"a":{"0":5,"1":-1},"b":{"0":-1}}}'),
    )
    by_time = RocketmqBatchReader(
        SCHEMA,
        options(
            startingTimestamp=str(1_700_000_000_102), startingOffsetsByTimestampStrategy="latest"
        ),
    )

    assert ranges(by_queue.partitions()) == [QueueRange(A0, 3, 5)]
    assert ranges(by_time.partitions()) == [QueueRange(A0, 2, 10), QueueRange(A1, 2, 4)]


def test_assigned_queues_only(cluster: ListReader) -> None:
    reader = RocketmqBatchReader(SCHEMA, options(assign='{"T":{"a":[1]}}'))

    assert ranges(reader.partitions()) == [QueueRange(A1, 0, 4)]


def test_big_queues_are_split(cluster: ListReader) -> None:
    by_size = RocketmqBatchReader(SCHEMA, options(maxRecordsPerPartition="5")).partitions()
    by_count = RocketmqBatchReader(SCHEMA, options(minPartitions="7")).partitions()

    assert ranges(by_size) == [
        QueueRange(A0, 0, 5),
        QueueRange(A0, 5, 10),
        QueueRange(A1, 0, 4),
    ]
    assert len(by_count) >= 7


def test_offsets_of_a_queue_that_is_not_there_are_an_error(cluster: ListReader) -> None:
    with pytest.raises(ConfigError, match="a queue 7, which does not exist"):
        RocketmqBatchReader(SCHEMA, options(startingOffsets='{"T":{"a":{"7":3}}}')).partitions()


def test_a_batch_before_the_oldest_offset_is_data_loss(cluster: ListReader) -> None:
    cluster.oldest = 2
    start = '{"T":{"a":{"0":0,"1":-2},"b":{"0":-2}}}'

    with pytest.raises(DataLoss, match="offset 0 is gone, the oldest is 2"):
        RocketmqBatchReader(SCHEMA, options(startingOffsets=start)).partitions()


def test_a_batch_from_beyond_the_end_is_data_loss(cluster: ListReader) -> None:
    start = '{"T":{"a":{"0":11,"1":-2},"b":{"0":-2}}}'

    with pytest.raises(DataLoss, match="from offset 11 but ends at 10: was the topic recreated"):
        RocketmqBatchReader(SCHEMA, options(startingOffsets=start)).partitions()
    lenient = options(startingOffsets=start, failOnDataLoss="false")
    assert ranges(RocketmqBatchReader(SCHEMA, lenient).partitions()) == [QueueRange(A1, 0, 4)]


def test_frozen_options_read_the_same_twice(cluster: ListReader) -> None:
    given = {"namesrvAddr": "x:1", "subscribe": "T", "StartingOffsets": "earliest", "tags": "A"}

    frozen = frozen_options(given)
    cluster.records[A0] += [make_record(10)]

    assert (frozen["tags"], "StartingOffsets" in frozen) == ("A", False)
    found = ranges(RocketmqBatchReader(SCHEMA, read_options(frozen)).partitions())
    assert found == [QueueRange(A0, 0, 10), QueueRange(A1, 0, 4)]


# streams: positions


def test_a_stream_starts_at_the_end_by_default(cluster: ListReader) -> None:
    assert RocketmqStreamReader(SCHEMA, options()).initialOffset() == encode_offsets(
        {A0: 10, A1: 4, B0: 0}
    )


def test_a_stream_may_start_where_a_group_is(cluster: ListReader) -> None:
    cluster.committed = {A0: 6}
    reader = RocketmqStreamReader(SCHEMA, options(startingOffsets="group", group="g"))

    assert reader.initialOffset() == encode_offsets({A0: 6, A1: 0, B0: 0})


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


def test_a_batch_of_few_messages_is_one_task(cluster: ListReader) -> None:
    start, end = encode_offsets({A0: 8, A1: 3, B0: 0}), encode_offsets({A0: 10, A1: 4, B0: 0})

    def planned(**more: str) -> list[tuple[QueueRange, ...]]:
        return [
            p.value for p in RocketmqStreamReader(SCHEMA, options(**more)).partitions(start, end)
        ]

    both = (QueueRange(A0, 8, 10), QueueRange(A1, 3, 4))
    assert planned() == [both]
    assert planned(minRecordsPerPartition="2") == [both[:1], both[1:]]
    assert planned(minRecordsPerPartition="0") == [both[:1], both[1:]]
    assert planned(minPartitions="2") == [both[:1], both[1:]]
    reader = RocketmqStreamReader(SCHEMA, options())
    (work,) = reader.partitions(start, end)
    rows = [row for batch in reader.read(work) for row in batch.to_pylist()]
    assert [row["queue_offset"] for row in rows] == [8, 9, 3]


def test_trigger_once_reads_all_whatever_the_limits(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(
        SCHEMA, options(maxOffsetsPerTrigger="1", minOffsetsPerTrigger="100")
    )

    end = reader.latestOffset(encode_offsets({A0: 0, A1: 0, B0: 0}), ReadAllAvailable())

    assert end == encode_offsets({A0: 10, A1: 4, B0: 0})


def test_a_limit_of_bytes(cluster: ListReader) -> None:
    size = len(make_record(0))
    reader = RocketmqStreamReader(SCHEMA, options(maxBytesPerTrigger=str(7 * size)))
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(7 * size)

    end = reader.latestOffset(encode_offsets({A0: 0, A1: 0, B0: 0}), limit)

    assert end == encode_offsets({A0: 5, A1: 2, B0: 0})


def test_both_limits_count(cluster: ListReader) -> None:
    size = len(make_record(0))
    given = options(maxBytesPerTrigger=str(7 * size), maxOffsetsPerTrigger="3")
    reader = RocketmqStreamReader(SCHEMA, given)

    end = reader.latestOffset(encode_offsets({A0: 0, A1: 0, B0: 0}), reader.getDefaultReadLimit())

    assert end == encode_offsets({A0: 2, A1: 1, B0: 0})


def test_a_limit_of_a_topic_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    c0, c1 = MessageQueue("U", "a", 0), MessageQueue("U", "a", 1)
    source = ListReader(
        {A0: records(10), A1: records(4), c0: records(6), c1: records(2)}, per_pull=100
    )
    monkeypatch.setattr(stream_reader, "open_reader", lambda _: source)
    start = encode_offsets({A0: 0, A1: 0, c0: 0, c1: 0})

    def end(**more: str) -> dict[str, object]:
        given = options(subscribe="T,U", maxOffsetsPerTriggerByTopic='{"T":7,"other":1}', **more)
        reader = RocketmqStreamReader(SCHEMA, given)
        return reader.latestOffset(start, reader.getDefaultReadLimit())

    assert end() == encode_offsets({A0: 5, A1: 2, c0: 6, c1: 2})
    assert end(maxOffsetsPerTrigger="5") == encode_offsets({A0: 1, A1: 1, c0: 2, c1: 1}), (
        "within that of all"
    )


def test_few_messages_wait_until_they_are_enough_or_late(cluster: ListReader) -> None:
    clock = Clock()
    given = options(minOffsetsPerTrigger="5", maxTriggerDelay="60s")
    reader = RocketmqStreamReader(SCHEMA, given, clock)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    start = encode_offsets({A0: 0, A1: 4, B0: 0})

    first = reader.latestOffset(start, limit)
    cluster.records[A0] += records(4)
    clock.now += 59_999
    waits = reader.latestOffset(first, limit)
    clock.now += 1
    late = reader.latestOffset(first, limit)
    clock.now += 60_000
    nothing = reader.latestOffset(late, limit)
    cluster.records[A0] += records(5)
    enough = reader.latestOffset(late, limit)

    assert first == encode_offsets({A0: 10, A1: 4, B0: 0})
    assert waits == first
    assert late == nothing == encode_offsets({A0: 14, A1: 4, B0: 0})
    assert enough == encode_offsets({A0: 19, A1: 4, B0: 0})


def test_available_now_waits_for_no_minimum(cluster: ListReader) -> None:
    clock = Clock()
    reader = RocketmqStreamReader(SCHEMA, options(minOffsetsPerTrigger="100"), clock)
    reader.prepareForTriggerAvailableNow()
    start = encode_offsets({A0: 9, A1: 4, B0: 0})

    assert reader.latestOffset(start, ReadMinRows(100)) != start
    clock.now += 1
    assert reader.latestOffset(start, ReadMinRows(100)) != start


# streams: what comes and goes


def test_available_now_counts_nothing_that_comes_later(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(SCHEMA, options())
    start = encode_offsets({A0: 0, A1: 0, B0: 0})

    reader.prepareForTriggerAvailableNow()
    cluster.records[A0] += [make_record(10)]
    cluster.records[MessageQueue("T", "c", 0)] = records(5)

    assert reader.latestOffset(start, ReadAllAvailable()) == encode_offsets({A0: 10, A1: 4, B0: 0})


def test_available_now_starting_at_the_end_starts_at_its_own_end(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(SCHEMA, options())

    reader.prepareForTriggerAvailableNow()
    cluster.records[A0] += [make_record(10)]
    cluster.records[MessageQueue("T", "c", 0)] = records(5)
    start = reader.initialOffset()

    assert start == encode_offsets({A0: 10, A1: 4, B0: 0})
    assert reader.latestOffset(start, ReadAllAvailable()) == start


def test_a_new_queue_starts_at_its_earliest(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(SCHEMA, options())
    start = encode_offsets({A0: 10, A1: 4})
    cluster.records[B0] = records(3)

    end = reader.latestOffset(start, ReadAllAvailable())

    assert ranges(reader.partitions(start, end)) == [QueueRange(B0, 0, 3)]


def test_a_new_topic_of_a_pattern_is_read_from_its_start(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(SCHEMA, options(subscribePattern="T.*"))
    start = reader.initialOffset()
    cluster.records[MessageQueue("T-new", "a", 0)] = records(2)
    cluster.records[MessageQueue("other", "a", 0)] = records(2)

    end = reader.latestOffset(start, ReadAllAvailable())

    assert ranges(reader.partitions(start, end)) == [
        QueueRange(MessageQueue("T-new", "a", 0), 0, 2)
    ]


def test_a_queue_that_is_gone_is_data_loss_or_kept(cluster: ListReader) -> None:
    start = encode_offsets({A0: 10, A1: 4, B0: 0})
    del cluster.records[A1]

    with pytest.raises(DataLoss, match="T a queue 1 is gone"):
        RocketmqStreamReader(SCHEMA, options()).latestOffset(start, ReadAllAvailable())
    lenient = RocketmqStreamReader(SCHEMA, options(failOnDataLoss="false"))
    assert lenient.latestOffset(start, ReadAllAvailable()) == start


def test_a_loss_that_is_borne_is_told_once(
    cluster: ListReader, caplog: pytest.LogCaptureFixture
) -> None:
    start = encode_offsets({A0: 10, A1: 4, B0: 0})
    lenient = RocketmqStreamReader(SCHEMA, options(failOnDataLoss="false"))
    kept = cluster.records.pop(A1)

    for _ in range(5):
        lenient.latestOffset(start, ReadAllAvailable())
    assert caplog.text.count("T a queue 1 is gone") == 1
    cluster.records[A1] = kept
    lenient.latestOffset(start, ReadAllAvailable())
    del cluster.records[A1]
    lenient.latestOffset(start, ReadAllAvailable())

    assert caplog.text.count("T a queue 1 is gone") == 2


def test_a_planned_range_of_a_queue_that_is_gone_is_data_loss_or_skipped(
    cluster: ListReader,
) -> None:
    start, end = encode_offsets({A0: 8, A1: 0}), encode_offsets({A0: 10, A1: 4})
    del cluster.records[A1]

    with pytest.raises(DataLoss, match="T a queue 1 is gone"):
        RocketmqStreamReader(SCHEMA, options()).partitions(start, end)
    lenient = RocketmqStreamReader(SCHEMA, options(failOnDataLoss="false"))
    assert ranges(lenient.partitions(start, end)) == [QueueRange(A0, 8, 10)]


def test_a_topic_that_is_gone_is_judged_as_its_queues_are(cluster: ListReader) -> None:
    start = encode_offsets({A0: 10, A1: 4, B0: 0})
    cluster.records.clear()

    with pytest.raises(DataLoss, match="T a queue 0 is gone"):
        RocketmqStreamReader(SCHEMA, options()).latestOffset(start, ReadAllAvailable())
    lenient = RocketmqStreamReader(SCHEMA, options(failOnDataLoss="false"))
    lenient.prepareForTriggerAvailableNow()
    assert lenient.latestOffset(start, ReadAllAvailable()) == start


def test_a_topic_added_to_the_options_must_exist(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(SCHEMA, options(topic="T,U", subscribe="T,U"))

    with pytest.raises(ConfigError, match="topic U does not exist at x:1"):
        reader.latestOffset(encode_offsets({A0: 10, A1: 4, B0: 0}), ReadAllAvailable())


def test_a_queue_that_goes_between_two_looks_is_noticed(cluster: ListReader) -> None:
    slow = options(partitionDiscoveryIntervalMs="100000", failOnDataLoss="false")
    reader = RocketmqStreamReader(SCHEMA, slow)
    start = reader.latestOffset(encode_offsets({A0: 0, A1: 0, B0: 0}), ReadAllAvailable())
    del cluster.records[A1]

    assert reader.latestOffset(start, ReadAllAvailable()) == start


def test_a_recreated_topic_is_data_loss(cluster: ListReader) -> None:
    start = encode_offsets({A0: 11, A1: 4, B0: 0})

    with pytest.raises(DataLoss, match="ends at 10, before offset 11"):
        RocketmqStreamReader(SCHEMA, options()).latestOffset(start, ReadAllAvailable())
    lenient = RocketmqStreamReader(SCHEMA, options(failOnDataLoss="false"))
    assert lenient.latestOffset(start, ReadAllAvailable()) == start


def test_a_replica_that_is_behind_is_no_data_loss(cluster: ListReader) -> None:
    start = encode_offsets({A0: 11, A1: 4, B0: 0})
    cluster.replicas = {A0}

    reader = RocketmqStreamReader(SCHEMA, options())

    assert reader.latestOffset(start, ReadAllAvailable()) == start


# streams: the rest


def test_a_broker_that_does_not_answer_is_told_in_one_line(
    cluster: ListReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(queues: object) -> dict[MessageQueue, int]:
        raise ConnectError("connect to 10.0.0.1:10911 failed: refused")

    monkeypatch.setattr(cluster, "max_offsets", refuse)

    with pytest.raises(SourceError, match=r"a broker does not answer \(connect to 10.0.0.1:10911"):
        RocketmqStreamReader(SCHEMA, options()).latestOffset(encode_offsets({}), ReadAllAvailable())


def test_progress_is_committed_as_the_next_offset_and_only_where_it_moved(
    cluster: ListReader,
) -> None:
    reader = RocketmqStreamReader(SCHEMA, options(group="g"))

    reader.commit(encode_offsets({A0: 10, A1: 4}))
    first = dict(cluster.committed)
    cluster.committed.clear()
    reader.commit(encode_offsets({A0: 12, A1: 4}))

    assert first == {A0: 10, A1: 4}
    assert cluster.committed == {A0: 12}


def test_a_commit_that_fails_does_not_end_the_stream(
    cluster: ListReader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(offsets: object) -> None:
        raise ConnectError("no")

    monkeypatch.setattr(cluster, "commit_offsets", refuse)

    RocketmqStreamReader(SCHEMA, options(group="g")).commit(encode_offsets({A0: 10}))

    assert "offsets were not committed group=g error=no" in caplog.text


def test_nothing_is_committed_without_a_group(cluster: ListReader) -> None:
    RocketmqStreamReader(SCHEMA, options()).commit(encode_offsets({A0: 10}))

    assert cluster.committed == {}


def test_the_reader_travels_to_workers_without_its_cache(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(SCHEMA, options(startingOffsets="earliest"))
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301 - Spark does exactly this

    work = reader.partitions(encode_offsets({A0: 8}), encode_offsets({A0: 10}))[0]
    assert sum(batch.num_rows for batch in copy.read(work)) == 2


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


def test_name_servers_may_be_away_while_brokers_answer(
    cluster: ListReader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(topic: str) -> list[MessageQueue]:
        raise ConnectError("connect to x:1 failed")

    ends = QueueEnds(cluster, options(), Clock())
    ends.find()
    monkeypatch.setattr(cluster, "queues", away)
    cluster.records[A0] += [make_record(10)]

    assert ends.find() == {A0: 11, A1: 4, B0: 0}
    assert "no name server answers" in caplog.text
    with pytest.raises(ConnectError):
        QueueEnds(cluster, options(), Clock()).find()


def test_progress_shows_what_is_known_without_asking(cluster: ListReader) -> None:
    reader = RocketmqStreamReader(SCHEMA, options())
    assert reader.reportLatestOffset() is None

    reader.latestOffset(encode_offsets({A0: 0, A1: 0, B0: 0}), ReadAllAvailable())
    asked = cluster.asked

    assert reader.reportLatestOffset() == encode_offsets({A0: 10, A1: 4, B0: 0})
    assert cluster.asked == asked
