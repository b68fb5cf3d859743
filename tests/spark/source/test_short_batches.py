"""Micro-batches of a few rows: one task, and connections that last from batch to batch and over a broker's restart."""

import time
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.interop.peers import start_broker, start_namesrv
from tests.spark.fake_query import Checkpoint, FakeQuery
from tests.spark.records import make_record
from tests.spark.test_servers import produce, source

from roquette.errors import ClientError
from roquette.message.message import MessageQueue

pytestmark = pytest.mark.spark

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(8)]
BATCHES = 12


def test_short_batches_are_one_task_over_connections_that_are_kept(
    spark: Any, tmp_path: Path
) -> None:
    with FakeCluster({queue: [] for queue in QUEUES}) as cluster:
        stream = source(
            spark.readStream,
            cluster.address,
            "T",
            offsetPollIntervalMs="0",
            startingOffsets="earliest",
        ).load()
        query = (
            stream.selectExpr("queue_id", "queue_offset", "spark_partition_id() AS task")
            .writeStream.format("memory")
            .queryName("short_batches")
            .option("checkpointLocation", str(tmp_path))
            .start()
        )

        def batches(count: int) -> int:
            """The connections that were made meanwhile."""
            before = cluster.connections
            for _ in range(count):
                for queue, records in cluster.queues.items():
                    records.append(make_record(len(records), queue_id=queue.queue_id))
                query.processAllAvailable()
            return cluster.connections - before

        try:
            batches(2)
            kept = batches(BATCHES)
            cluster.hang_up()
            anew = batches(2)
        finally:
            query.stop()
        rows = spark.table("short_batches").collect()

    assert sorted((row.queue_id, row.queue_offset) for row in rows) == [
        (queue.queue_id, offset) for queue in QUEUES for offset in range(BATCHES + 4)
    ]
    assert {row.task for row in rows} == {0}
    assert kept <= 2, "more than Spark's two workers connected"
    assert 2 <= anew <= 4, "the planner and one worker, and workers that come to it"


def test_a_stream_goes_on_at_a_broker_that_was_started_anew(tmp_path: Path) -> None:
    namesrv = start_namesrv("roquette", tmp_path / "namesrv")
    broker = start_broker("roquette", tmp_path / "broker", namesrv.address)
    try:
        produce(namesrv.address, "T", range(40))
        given = {"namesrvAddr": namesrv.address, "subscribe": "T", "startingOffsets": "earliest"}
        query = FakeQuery(given, Checkpoint())
        before = query.drain()
        broker.stop()
        broker = start_broker("roquette", tmp_path / "broker", namesrv.address)
        produce(namesrv.address, "T", range(40, 60))
        after: list[dict[str, Any]] = []
        deadline = time.monotonic() + 60
        while len(after) < 20:
            assert time.monotonic() < deadline, len(after)
            try:
                after += query.batch() or []
            except ClientError:  # the query would end here; started again, it makes the same batch
                time.sleep(0.1)
    finally:
        broker.stop()
        namesrv.stop()

    places = {(row["queue_id"], row["queue_offset"]) for row in before + after}
    assert (len(before), len(after), len(places)) == (40, 20, 60)
