"""What people reported of other RocketMQ connectors for Spark, Flink and SeaTunnel does not happen here.

Names and numbers are those of the issues: apache/rocketmq-externals for rocketmq-spark and the early
rocketmq-flink, apache/rocketmq-flink for the later one, apache/seatunnel. Faults of sinks are in
test_writer_faults.py.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.spark.fake_query import Checkpoint, FakeQuery
from tests.spark.records import make_record, struct_of

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.offsets.committer import RocketMQOffsetCommitter
from roquette_spark.source.batch_reader import RocketmqBatchReader
from roquette_spark.values.offsets import DataLoss
from roquette_spark.values.options import read_options

Q0, Q1 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)


def records(start: int, end: int, queue_id: int = 0) -> list[bytes]:
    return [
        make_record(i, b"%d" % i, {"KEYS": f"k{i}", "n": str(i)}, queue_id=queue_id)
        for i in range(start, end)
    ]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({Q0: records(0, 100), Q1: records(0, 40, 1)}) as cluster:
        yield cluster


def options(cluster: FakeCluster, **more: str) -> dict[str, str]:
    base = {"namesrvAddr": cluster.address, "subscribe": "T", "startingOffsets": "earliest"}
    return base | more


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return sorted((row["broker_name"], row["queue_id"], row["queue_offset"]) for row in rows)


def everything(q0: int = 100, q1: int = 40) -> list[tuple[str, int, int]]:
    return [("a", 0, i) for i in range(q0)] + [("a", 1, i) for i in range(q1)]


# rocketmq-spark


def test_spark_876_901_a_restart_consumes_nothing_twice(cluster: FakeCluster) -> None:
    kept = Checkpoint()
    given = options(cluster, maxOffsetsPerTrigger="30", group="g")

    first = FakeQuery(given, kept)
    rows = [*(first.batch() or []), *(first.batch() or [])]
    first.batch(crash=True)  # planned and read, not done
    rows += FakeQuery(given, kept).drain()

    assert places(rows) == everything()


def test_spark_876_offsets_of_the_group_do_not_move_a_restart(cluster: FakeCluster) -> None:
    kept = Checkpoint()
    given = options(cluster, maxOffsetsPerTrigger="30", group="g")
    rows = FakeQuery(given, kept).batch() or []
    cluster.committed = {("g", "T", 0): 0, ("g", "T", 1): 40}

    rows += FakeQuery(given, kept).drain()

    assert places(rows) == everything()


def test_spark_168_seatunnel_6665_the_next_offset_is_committed_not_the_last_one_read(
    cluster: FakeCluster,
) -> None:
    kept = Checkpoint()
    query = FakeQuery(options(cluster, group="g"), kept)
    query.drain()

    RocketMQOffsetCommitter(cluster.address, "g").commit(kept.offsets[-1])

    assert cluster.committed == {("g", "T", 0): 100, ("g", "T", 1): 40}
    goes_on = options(cluster, startingOffsets="group", group="g")
    assert FakeQuery(goes_on, Checkpoint()).batch() is None


def test_spark_148_a_broker_without_new_messages_does_not_stop_the_others(
    cluster: FakeCluster,
) -> None:
    cluster.queues[MessageQueue("T", "a", 2)] = []
    kept = Checkpoint()
    query = FakeQuery(options(cluster), kept)
    rows = query.drain()
    cluster.queues[Q0] += records(100, 103)

    rows += query.drain()

    assert places(rows) == everything(q0=103)


def test_spark_94_a_group_can_be_named_and_a_missing_one_is_told(cluster: FakeCluster) -> None:
    FakeQuery(options(cluster, group="billing"), Checkpoint()).drain()

    assert {ext["consumerGroup"] for _, ext in cluster.requests if "consumerGroup" in ext} == {
        "billing"
    }
    with pytest.raises(ConfigError, match="startingOffsets=group needs option group"):
        read_options(options(cluster, startingOffsets="group"))


def test_spark_71_tables_and_streams_give_the_same_rows(cluster: FakeCluster) -> None:
    given = options(cluster)
    table = RocketmqBatchReader(
        struct_of("broker_name", "queue_id", "queue_offset", "body"), read_options(given)
    )

    rows = [
        row
        for part in table.partitions()
        for batch in table.read(part)
        for row in batch.to_pylist()
    ]

    assert places(rows) == places(FakeQuery(given, Checkpoint()).drain()) == everything()


def test_spark_properties_are_a_map_and_keys_a_column(cluster: FakeCluster) -> None:
    schema = struct_of("key", "properties")

    rows = FakeQuery(options(cluster), Checkpoint(), schema=schema).drain()

    assert rows[7] == {"key": "k7", "properties": [("n", "7")]}


def test_spark_rates_can_be_limited_and_a_run_can_end(cluster: FakeCluster) -> None:
    query = FakeQuery(options(cluster, maxOffsetsPerTrigger="50"), Checkpoint(), available_now=True)
    sizes = []
    while (rows := query.batch()) is not None:
        sizes.append(len(rows))
        cluster.queues[Q0] += records(len(cluster.queues[Q0]), len(cluster.queues[Q0]) + 10)

    assert sizes == [50, 50, 40]


# rocketmq-flink


def test_flink_95_116_117_queues_of_an_expanded_topic_are_read_from_their_start(
    cluster: FakeCluster,
) -> None:
    kept = Checkpoint()
    query = FakeQuery(options(cluster, startingOffsets="latest"), kept)
    assert query.batch() is None
    fresh = MessageQueue("T", "a", 2)

    cluster.queues[fresh] = records(0, 7, 2)
    rows = query.drain()
    cluster.queues[fresh] += records(7, 9, 2)
    rows += FakeQuery(options(cluster), kept).drain()

    assert places(rows) == [("a", 2, i) for i in range(9)]


def test_flink_95_a_topic_expanded_between_two_runs_is_read_whole(cluster: FakeCluster) -> None:
    kept = Checkpoint()
    FakeQuery(options(cluster), kept, available_now=True).drain()
    cluster.queues[MessageQueue("T", "a", 2)] = records(0, 7, 2)

    rows = FakeQuery(options(cluster), kept, available_now=True).drain()

    assert places(rows) == [("a", 2, i) for i in range(7)]


@pytest.mark.parametrize("crashes", range(1, 5))
def test_flink_76_78_restores_lose_and_repeat_no_offsets(
    cluster: FakeCluster, crashes: int
) -> None:
    kept = Checkpoint()
    given = options(cluster, maxOffsetsPerTrigger="17")
    rows: list[dict[str, Any]] = []

    for number in range(crashes):
        query = FakeQuery(given, kept)
        rows += query.batch() or []
        query.batch(crash=True)
        cluster.queues[Q1] += records(40 + number, 41 + number, 1)
    rows += FakeQuery(given, kept).drain()

    assert places(rows) == everything(q1=40 + crashes)


def test_flink_19_25_36_offsets_are_committed_after_every_batch(cluster: FakeCluster) -> None:
    kept = Checkpoint()
    query = FakeQuery(options(cluster, group="g", maxOffsetsPerTrigger="70"), kept)

    query.batch()
    assert cluster.committed == {}  # Spark tells the reader a batch late
    query.batch()
    assert cluster.committed == {("g", "T", 0): 50, ("g", "T", 1): 20}
    FakeQuery(options(cluster, group="g"), kept)  # a restart makes good for the last one
    assert cluster.committed == {("g", "T", 0): 100, ("g", "T", 1): 40}


def test_flink_78_79_a_queue_that_went_is_told_or_left_and_never_an_unassigned_queue(
    cluster: FakeCluster,
) -> None:
    kept = Checkpoint()
    FakeQuery(options(cluster), kept).drain()
    del cluster.queues[Q1]
    cluster.queues[Q0] += records(100, 105)

    with pytest.raises(DataLoss, match="T a queue 1 is gone"):
        FakeQuery(options(cluster), kept).batch()
    rows = FakeQuery(options(cluster, failOnDataLoss="false"), kept).drain()

    assert places(rows) == [("a", 0, i) for i in range(100, 105)]
    cluster.queues[Q1] = records(0, 43, 1)  # it comes back, and goes on where it was
    back = FakeQuery(options(cluster, failOnDataLoss="false"), kept).drain()
    assert places(back) == [("a", 1, i) for i in range(40, 43)]


def test_flink_500_the_key_for_exactly_once_is_in_every_row(cluster: FakeCluster) -> None:
    rows = FakeQuery(options(cluster), Checkpoint()).drain()

    keys = {(r["topic"], r["broker_name"], r["queue_id"], r["queue_offset"]) for r in rows}
    assert len(keys) == len(rows) == 140


def test_flink_120_lag_can_be_computed_from_progress(cluster: FakeCluster) -> None:
    query = FakeQuery(options(cluster, maxOffsetsPerTrigger="10"), Checkpoint())
    query.batch()

    latest: Any = query.reader.reportLatestOffset()

    assert latest["offsets"]["T"]["a"] == {"0": 100, "1": 40}


def test_flink_acl_credentials_are_never_ignored_in_silence(cluster: FakeCluster) -> None:
    found = read_options(options(cluster, accessKey="ak", secretKey="sk"))
    assert found.credentials is not None and found.credentials.secret_key == "sk"
    with pytest.raises(ConfigError, match="accessKey is given without"):
        read_options(options(cluster, accessKey="ak"))


# both, and SeaTunnel


def test_truncated_topics_are_told_or_read_from_what_is_left(cluster: FakeCluster) -> None:
    kept = Checkpoint()
    given = options(cluster, maxOffsetsPerTrigger="14")
    FakeQuery(given, kept).batch()
    cluster.oldest = 20

    with pytest.raises(DataLoss, match="offset 10 is gone, the oldest is 20"):
        FakeQuery(given, kept).batch()
    rows = FakeQuery(given | {"failOnDataLoss": "false"}, kept).drain()

    expected = [("a", 0, i) for i in range(20, 100)] + [("a", 1, i) for i in range(20, 40)]
    assert places(rows) == expected


def test_start_positions_differ_by_topic_and_queue(cluster: FakeCluster) -> None:
    text = '{"T":{"a":{"0":95,"1":-1}}}'

    rows = FakeQuery(options(cluster, startingOffsets=text), Checkpoint()).drain()

    assert places(rows) == [("a", 0, i) for i in range(95, 100)]
