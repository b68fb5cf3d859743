"""Spark jobs against servers in processes of their own: Roquette's, and Apache's where Java and Maven are."""

import time
from pathlib import Path
from typing import Any

import pytest
from tests.spark.places import Place, publish

from roquette import Message

pytestmark = pytest.mark.spark

Position = tuple[int, int]  # queue id, queue offset


def produce(namesrv: str, topic: str, numbers: range) -> dict[Position, int]:
    """Publish numbered messages and wait until they can be read; where each went. Tags A, B, C in turn; every 50th body is compressed."""
    receipts = publish(namesrv, [message(topic, number) for number in numbers])
    return {
        (receipt.queue.queue_id, receipt.queue_offset): number
        for number, receipt in zip(numbers, receipts, strict=True)
    }


def message(topic: str, number: int) -> Message:
    return Message(topic, body_of(number).encode(), tag="ABC"[number % 3], keys=(f"key-{number}",))


def body_of(number: int) -> str:
    return f"größe {number} " * (1000 if number % 50 == 0 else 1)


def source(reader: Any, namesrv: str, topic: str, **options: str) -> Any:
    given = {"namesrvAddr": namesrv, "subscribe": topic} | options
    return reader.format("rocketmq").options(**given)


def check_batch(spark: Any, namesrv: str, topic: str) -> None:
    sent = produce(namesrv, topic, range(3000))

    rows = source(spark.read, namesrv, topic).load().collect()

    assert {(row.queue_id, row.queue_offset): row.body.decode() for row in rows} == {
        place: body_of(number) for place, number in sent.items()
    }
    assert len(rows) == 3000
    for row in rows:
        number = sent[row.queue_id, row.queue_offset]
        assert (row.key, row.tags, row.topic) == (f"key-{number}", "ABC"[number % 3], topic)
    assert {row.store_host.rpartition(":")[0] for row in rows} == {"127.0.0.1"}


def check_stream(spark: Any, namesrv: str, topic: str, folder: Path) -> None:
    """Three runs over one checkpoint, the last after a crash: all there, once, and nothing else."""

    def run() -> int:
        query = (
            source(
                spark.readStream,
                namesrv,
                topic,
                startingOffsets="earliest",
                maxOffsetsPerTrigger="400",
            )
            .schema("queue_id int, queue_offset long, body string")
            .load()
            .writeStream.format("parquet")
            .option("path", str(folder / "out"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(1 for progress in query.recentProgress if progress["numInputRows"])

    sent = produce(namesrv, topic, range(1000))
    assert run() == 3
    assert run() == 0

    sent |= produce(namesrv, topic, range(1000, 1300))
    for log in (
        "checkpoint/commits",
        "out/_spark_metadata",
    ):  # a crash before the last batch counted
        for name in ("2", ".2.crc"):
            (folder / log / name).unlink()
    assert run() == 2

    rows = spark.read.parquet(str(folder / "out")).collect()
    assert len(rows) == 1300
    assert {(row.queue_id, row.queue_offset): row.body for row in rows} == {
        place: body_of(number) for place, number in sent.items()
    }


def test_a_batch_has_what_was_published(spark: Any, roquette: Place) -> None:
    check_batch(spark, roquette.address, "batch")


def test_a_stream_restarts_without_loss_or_duplicates(
    spark: Any, roquette: Place, tmp_path: Path
) -> None:
    check_stream(spark, roquette.address, "stream", tmp_path)


def test_tags_are_filtered_by_the_broker(spark: Any, roquette: Place) -> None:
    sent = produce(roquette.address, "tagged", range(300))

    rows = source(spark.read, roquette.address, "tagged", tags="A || C").load().collect()

    assert sorted(sent[row.queue_id, row.queue_offset] for row in rows) == [
        number for number in range(300) if number % 3 != 1
    ]


def test_a_starting_time_leaves_out_what_was_stored_before(spark: Any, roquette: Place) -> None:
    produce(roquette.address, "timed", range(100))
    between_ms = int(time.time() * 1000) + 1
    while time.time() * 1000 <= between_ms:
        pass
    later = produce(roquette.address, "timed", range(100, 150))

    rows = (
        source(spark.read, roquette.address, "timed", startingTimestamp=str(between_ms))
        .load()
        .collect()
    )

    assert sorted((row.queue_id, row.queue_offset) for row in rows) == sorted(later)


def test_a_topic_that_does_not_exist_is_told_in_words(spark: Any, roquette: Place) -> None:
    with pytest.raises(Exception, match=r"topic nothing-here does not exist"):
        source(spark.read, roquette.address, "nothing-here").load().collect()


@pytest.mark.interop
def test_apaches_servers_are_read_alike(spark: Any, apache: Place, tmp_path: Path) -> None:
    check_batch(spark, apache.address, "batch")
    check_stream(spark, apache.address, "stream", tmp_path)
