"""Real Spark jobs over a cluster of our own in this process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.spark.records import make_record

from roquette.message.message import MessageQueue
from roquette_spark import plain_message, read_where

PULL_MESSAGE = 11
pytestmark = pytest.mark.spark

Q0, Q1, Q2 = (MessageQueue("T", "broker-a", queue_id) for queue_id in range(3))


def records(count: int, queue_id: int = 0) -> list[bytes]:
    return [
        make_record(
            i,
            b"body %d" % i,
            {"TAGS": "AB"[i % 2], "KEYS": f"k{i}", "n": str(i)},
            queue_id=queue_id,
        )
        for i in range(count)
    ]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({Q0: records(1000), Q1: records(300, 1), Q2: []}) as cluster:
        yield cluster


def source(reader: Any, cluster: FakeCluster, **options: str) -> Any:
    given = {"namesrvAddr": cluster.address, "subscribe": "T"} | options
    return reader.format("rocketmq").options(**given)


def test_a_batch_has_every_message_with_all_columns(spark: Any, cluster: FakeCluster) -> None:
    frame = source(spark.read, cluster).load()

    rows = frame.orderBy("queue_id", "queue_offset").collect()

    assert len(rows) == 1300
    assert [r.queue_offset for r in rows[:1000]] == list(range(1000))
    row = rows[7]
    assert (row.topic, row.broker_name, row.body, row.key, row.tags) == (
        "T",
        "broker-a",
        b"body 7",
        "k7",
        "B",
    )
    assert (row["keys"], row.properties, row.store_host) == (["k7"], {"n": "7"}, "127.0.0.1:10911")
    assert row.store_timestamp.timestamp() == 1_700_000_000.107


def test_the_schema_prunes_columns_and_ranges_are_split(spark: Any, cluster: FakeCluster) -> None:
    frame = (
        source(spark.read, cluster, maxRecordsPerPartition="400")
        .schema("body string, queue_offset long")
        .load()
    )

    assert frame.rdd.getNumPartitions() == 4
    assert frame.where("body = 'body 999'").collect() == [("body 999", 999)]


def test_a_condition_narrows_what_is_read(spark: Any, cluster: FakeCluster) -> None:
    cluster.queues[Q2] = records(50, 2)
    given = {"namesrvAddr": cluster.address, "subscribe": "T"}
    condition = "queue_id IN (1, 2) AND queue_offset < 10"
    columns = "queue_id int, queue_offset long, tags string"
    frame = read_where(spark, condition, schema=columns, **given)
    cluster.requests.clear()

    found = frame.where("tags = 'A'").collect()

    pulls = [ext for code, ext in cluster.requests if code == PULL_MESSAGE]
    assert sorted(found) == [(q, offset, "A") for q in (1, 2) for offset in range(0, 10, 2)]
    assert {(ext["queueId"], int(ext["queueOffset"]) < 10) for ext in pulls} == {
        ("1", True),
        ("2", True),
    }
    assert (frame.count(), frame.union(frame.where("queue_id = 1")).count()) == (20, 30)
    at = "store_timestamp <= timestamp_millis(1700000000105)"  # of the sixth message of each queue
    assert read_where(spark, at, **given).count() == 3 * 6


def test_sql_reads_a_topic(spark: Any, cluster: FakeCluster) -> None:
    start = '{"T":{"broker-a":{"0":990,"1":-2,"2":-2}}}'
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW v USING rocketmq "
        f"OPTIONS (namesrvAddr '{cluster.address}', subscribe 'T', startingOffsets '{start}')"
    )

    assert spark.sql("SELECT count(*), min(queue_offset) FROM v WHERE queue_id = 0").first() == (
        10,
        990,
    )


def test_a_table_of_the_catalog_is_read_with_the_options_of_the_statement(
    spark: Any, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Spark passes none of those that CREATE TABLE was given."""
    given = {"namesrvAddr": cluster.address, "subscribe": "T", "startingOffsets": "earliest"}
    words = ", ".join(f"'{name}'='{value}'" for name, value in given.items())
    spark.sql("DROP TABLE IF EXISTS read_table")
    spark.sql(
        f"CREATE TABLE read_table (body STRING, queue_offset BIGINT) USING rocketmq OPTIONS ({words})"
    )
    try:
        for statement in (
            "SELECT * FROM read_table",
            "INSERT INTO read_table VALUES ('x', 1)",
        ):
            with pytest.raises(Exception, match="no option is given") as told:
                spark.sql(statement).collect()
            assert "FROM t WITH ('namesrvAddr'='...', ...)" in (plain_message(told.value) or "")

        counted = spark.sql(f"SELECT count(body), max(queue_offset) FROM read_table WITH ({words})")
        assert counted.first() == (1300, 999)
        assert spark.read.options(**given).table("read_table").count() == 1300
        stream = spark.readStream.options(**given).table("read_table").writeStream.format("memory")
        stream = stream.queryName("read_table_rows").trigger(availableNow=True)
        stream.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
        assert spark.table("read_table_rows").count() == 1300
    finally:
        spark.sql("DROP TABLE read_table")


def test_wrong_options_are_told_in_one_line(spark: Any, cluster: FakeCluster) -> None:
    with pytest.raises(Exception, match="unknown option subscrib; did you mean subscribe"):
        source(spark.read, cluster, subscrib="x").load()


def test_an_empty_topic_is_an_empty_table(spark: Any, cluster: FakeCluster) -> None:
    assert source(spark.read, cluster, startingOffsets="latest").load().count() == 0


def test_batches_of_a_pattern_have_of_a_topic_what_its_limit_allows(
    spark: Any, cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.queues[MessageQueue("U", "broker-a", 0)] = [
        make_record(offset, topic="U", queue_id=0) for offset in range(250)
    ]
    given = {
        "namesrvAddr": cluster.address,
        "subscribePattern": "[TU]",
        "startingOffsets": "earliest",
        "maxOffsetsPerTriggerByTopic": '{"T":600,"elsewhere":1}',
    }
    batches: list[dict[str, int]] = []

    def look(frame: Any, number: int) -> None:
        batches.append({row[0]: row[1] for row in frame.groupBy("topic").count().collect()})

    stream = spark.readStream.format("rocketmq").options(**given).load()
    query = stream.writeStream.foreachBatch(look).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    assert batches == [{"T": 600, "U": 250}, {"T": 600}, {"T": 100}]


def test_a_stream_restarts_from_its_checkpoint_without_loss_or_duplicates(
    spark: Any, cluster: FakeCluster, tmp_path: Path
) -> None:
    def run() -> int:
        stream = source(
            spark.readStream, cluster, startingOffsets="earliest", maxOffsetsPerTrigger="400"
        )
        query = (
            stream.schema("queue_id int, queue_offset long, body string")
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(1 for progress in query.recentProgress if progress["numInputRows"])

    def found() -> list[tuple[int, int]]:
        rows = (
            spark.read.parquet(str(tmp_path / "out")).select("queue_id", "queue_offset").collect()
        )
        return sorted(map(tuple, rows))

    assert run() == 4  # 1,300 messages, 400 at a time
    assert run() == 0
    cluster.queues[Q0] += records(1100)[1000:]
    cluster.queues[Q2] += records(5, 2)
    for name in ("3", ".3.crc"):  # as after a crash before the last commit
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    assert run() >= 1

    expected = [(0, i) for i in range(1100)]
    expected += [(1, i) for i in range(300)] + [(2, i) for i in range(5)]
    assert found() == expected


def test_processes_that_a_jvm_starts_import_pyspark_compiled(spark: Any) -> None:
    """Not out of its zip, which each of them would compile anew: 2 CPU seconds for each stream's."""

    def place(batches: Any) -> Any:
        import pyarrow
        import pyspark

        list(batches)
        yield pyarrow.RecordBatch.from_pydict({"place": [pyspark.__file__]})

    [row] = spark.range(1).coalesce(1).mapInArrow(place, "place string").collect()

    assert Path(row.place).is_file()
