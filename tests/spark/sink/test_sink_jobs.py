"""Spark jobs that write to real servers: Roquette's, and Apache's where Java and Maven are."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.spark.places import Place, environment

from roquette.base.javatypes import java_hash
from roquette_spark.sink.duplicates import remove_duplicates
from roquette_spark.values.errors import APPEND_ONLY, plain_message
from roquette_spark.values.options import SPARK_ID

pytestmark = pytest.mark.spark


def read(spark: Any, place: Place, topic: str) -> Any:
    given = {"namesrvAddr": place.address, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.read.format("rocketmq").options(**given).load()


def sink(writer: Any, place: Place, topic: str, **options: str) -> Any:
    given = {"namesrvAddr": place.address, "topic": topic} | options
    return writer.format("rocketmq").options(**given)


def rows_of(spark: Any, count: int, partitions: int = 2) -> Any:
    return spark.range(0, count, 1, partitions).selectExpr(
        "concat('größe ', id) AS body",
        "concat('key-', id % 10) AS key",
        "elt(int(id % 3) + 1, 'A', 'B', 'C') AS tags",
        "map('n', string(id)) AS properties",
        "int(id % 7) AS flag",
    )


def check_table(spark: Any, place: Place) -> None:
    """All columns arrive; messages of one key lie in one queue, in the order of their partition."""
    topic = place.create("table", 8)

    sink(rows_of(spark, 5000).write, place, topic).mode("append").save()

    place.settle(topic, 5000)
    rows = read(spark, place, topic).collect()
    numbers: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda row: (row.queue_id, row.queue_offset)):
        n = int(row.properties["n"])
        assert row.body.decode() == f"größe {n}"
        assert (row.key, row.tags, row.flag) == (f"key-{n % 10}", "ABC"[n % 3], n % 7)
        assert row.queue_id == abs(java_hash(row.key)) % 8
        assert row.properties == {"n": str(n)}
        if n not in numbers.setdefault(row.key, []):  # at least once: a slow answer is sent again
            numbers[row.key].append(n)
    assert sorted(n for each in numbers.values() for n in each) == list(range(5000))
    for each in numbers.values():
        for half in (range(2500), range(2500, 5000)):  # the two partitions
            part = [n for n in each if n in half]
            assert part == sorted(part)


def check_stream(spark: Any, place: Place, folder: Path) -> None:
    """Topic to topic by a stream with ids; its last batch, done again after a crash, counts once."""
    origin, target = place.create("origin", 4), place.create("target", 2)
    sink(rows_of(spark, 2000).write, place, origin).mode("append").save()
    place.settle(origin, 2000)

    def run() -> int:
        frame = (
            spark.readStream.format("rocketmq")
            .options(namesrvAddr=place.address, subscribe=origin, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "800")
            .load()
            .select("body", "key", "tags", "properties")
        )
        query = (
            sink(frame.writeStream, place, target, deliveryGuarantee="idempotent")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(1 for progress in query.recentProgress if progress["numInputRows"])

    assert run() == 3
    for name in ("2", ".2.crc"):  # a crash before the last batch counted
        (folder / "checkpoint" / "commits" / name).unlink()
    assert run() == 1

    place.settle(target, 2400)
    found = read(spark, place, target)
    assert found.count() >= 2400
    once = remove_duplicates(found).collect()
    assert sorted(int(row.properties["n"]) for row in once) == list(range(2000))
    query_id = json.loads((folder / "checkpoint" / "metadata").read_text())["id"]
    assert {row.properties[SPARK_ID].split("/")[0] for row in once} == {query_id}


def test_a_table_becomes_messages_in_order_of_each_key(spark: Any, roquette: Place) -> None:
    check_table(spark, roquette)


def test_a_stream_with_ids_counts_once_what_was_sent_twice(
    spark: Any, roquette: Place, tmp_path: Path
) -> None:
    check_stream(spark, roquette, tmp_path)


def test_a_stream_is_read_without_duplicates(spark: Any, roquette: Place, tmp_path: Path) -> None:
    topic = roquette.create("twice", 2)
    for _ in range(2):
        writer = rows_of(spark, 100).write
        given = {"deliveryGuarantee": "idempotent", "writeId": "load-1"}
        sink(writer, roquette, topic, **given).mode("append").save()
    sink(rows_of(spark, 10).write, roquette, topic).mode("append").save()  # without ids

    frame = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=roquette.address, subscribe=topic, startingOffsets="earliest")
        .load()
    )
    query = (
        remove_duplicates(frame, watermark="1 hour")
        .select("properties")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    with_id = [row for row in rows if SPARK_ID in row.properties]
    assert sorted(int(row.properties["n"]) for row in with_id) == list(range(100))
    assert len(rows) == 110


def test_an_attempt_that_fails_is_repeated_by_spark_and_counts_once(
    roquette: Place, tmp_path: Path
) -> None:
    """Attempt 0 of each task ends after it has sent some; needs a session whose tasks may fail."""
    topic = roquette.create("attempts", 4)
    script = Path(__file__).with_name("failing_attempts.py")

    done = subprocess.run(
        [sys.executable, str(script), roquette.address, topic],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
        env=environment(),
    )

    assert done.returncode == 0, done.stderr[-3000:]
    stored, once, numbers = json.loads(done.stdout.splitlines()[-1])
    assert stored > 1000  # attempt 0 had sent some
    assert (once, numbers) == (1000, list(range(1000)))


def test_sql_writes_and_reads_one_view(spark: Any, roquette: Place) -> None:
    topic = roquette.create("by_sql", 2)
    given = f"namesrvAddr '{roquette.address}', topic '{topic}', startingOffsets 'earliest'"
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders (body STRING, key STRING, tags STRING) "
        f"USING rocketmq OPTIONS ({given}, sendBatchSize '10')"
    )
    spark.sql("INSERT INTO orders VALUES ('b1', 'k1', 'A'), ('b2', 'k2', NULL)")
    spark.sql("INSERT INTO orders SELECT 'b3', NULL, 'C'")

    rows = spark.sql("SELECT body, key, tags FROM orders ORDER BY body").collect()
    assert [tuple(row) for row in rows] == [
        ("b1", "k1", "A"),
        ("b2", "k2", None),
        ("b3", None, "C"),
    ]


def test_sql_gives_a_catalog_table_its_options_when_it_inserts(spark: Any, roquette: Place) -> None:
    topic = roquette.create("by_table", 1)
    spark.sql("DROP TABLE IF EXISTS orders_table")
    spark.sql(
        "CREATE TABLE orders_table (body STRING) USING rocketmq "
        f"OPTIONS (namesrvAddr '{roquette.address}', topic '{topic}')"
    )
    try:
        given = f"'namesrvAddr'='{roquette.address}', 'topic'='{topic}'"
        spark.sql(f"INSERT INTO orders_table WITH ({given}) VALUES ('b1')")
        assert [row.body for row in read(spark, roquette, topic).collect()] == [b"b1"]
    finally:
        spark.sql("DROP TABLE orders_table")


def test_what_a_newcomer_gets_wrong_is_told_in_words(spark: Any, roquette: Place) -> None:
    topic = roquette.create("errors", 1)
    frame = rows_of(spark, 3)

    def write(frame: Any, mode: str, **options: str) -> None:
        sink(frame.write, roquette, topic, **options).mode(mode).save()

    with pytest.raises(Exception, match=r'only appended: write with mode\("append"\)'):
        write(frame, "overwrite")
    for mode in "error", "ignore":  # Spark refuses these itself
        with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE") as refused:
            write(frame, mode)
        assert plain_message(refused.value) == APPEND_ONLY
    with pytest.raises(Exception, match="columns that no message has: id"):
        write(spark.range(3).selectExpr("'x' AS body", "id"), "append")
    with pytest.raises(Exception, match=r"topic create.*autoCreateTopic"):
        sink(frame.write, roquette, "nothing-here").mode("append").save()
    with pytest.raises(Exception, match="row 0: body is null or empty"):
        write(spark.sql("SELECT '' AS body"), "append")
    assert read(spark, roquette, topic).count() == 0


def test_delays_reach_the_broker(spark: Any, roquette: Place) -> None:
    topic = roquette.create("later", 1)
    frame = spark.sql(
        "SELECT 'now' AS body, CAST(NULL AS TIMESTAMP) AS deliver_timestamp, 0 AS delay_level "
        "UNION ALL SELECT 'level', NULL, 1 "
        "UNION ALL SELECT 'time', now() + INTERVAL 1 SECOND, 0 "
        "UNION ALL SELECT 'a late level', NULL, 18 "
        "UNION ALL SELECT 'a late time', now() + INTERVAL 1 HOUR, 0"
    )
    sink(frame.write, roquette, topic).mode("append").save()

    end = time.monotonic() + 60
    while read(spark, roquette, topic).count() < 3:
        assert time.monotonic() < end
    bodies = {bytes(row.body) for row in read(spark, roquette, topic).collect()}
    assert bodies == {b"now", b"level", b"time"}


@pytest.mark.interop
def test_apaches_servers_take_tables_and_streams_alike(
    spark: Any, apache: Place, tmp_path: Path
) -> None:
    check_table(spark, apache)
    check_stream(spark, apache, tmp_path)
