"""A job whose tasks fail at their first attempt, after some was sent: run by test_sink_jobs."""

import json
import sys
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from roquette_spark.local.jdk import spark_session
from roquette_spark.sink.duplicates import remove_duplicates
from roquette_spark.source.queues import queue_bounds


def until_some_are_stored(namesrv: str, topic: str) -> None:
    """Wait for what was handed to the sink: on a busy machine it starts its worker seconds later."""
    end = time.monotonic() + 60
    while not sum(queue_bounds(namesrv, [topic])[1].values()):
        assert time.monotonic() < end, "nothing was sent"
        time.sleep(0.1)


def failing(
    batches: Iterator[pa.RecordBatch], namesrv: str, topic: str
) -> Iterator[pa.RecordBatch]:
    """The same rows; at attempt 0 an error after 300 of them, when some of those have been sent."""
    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if number == 3 and context.attemptNumber() == 0:
            until_some_are_stored(namesrv, topic)
            raise RuntimeError("attempt 0 fails here")
        yield batch


def main(namesrv: str, topic: str) -> None:
    """Write 1,000 rows, read them back, print how many lie there, how many differ, and which."""
    spark = spark_session(
        "attempts",
        2,
        spark__master="local[2,4]",
        spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark__sql__execution__arrow__maxRecordsPerBatch="100",
    )
    # Bodies of 2 kB: smaller ones would wait in buffers between the two Python workers.
    rows = spark.range(0, 1000, 1, 2).selectExpr(
        "concat(id, repeat('x', 2000)) AS body", "concat('k', id % 7) AS key"
    )
    given = {"namesrvAddr": namesrv, "topic": topic, "sendBatchSize": "20"}
    given["deliveryGuarantee"] = "idempotent"
    frame = rows.mapInArrow(lambda batches: failing(batches, namesrv, topic), rows.schema)
    frame.write.format("rocketmq").options(**given).mode("append").save()
    found = (
        spark.read.format("rocketmq")
        .options(namesrvAddr=namesrv, subscribe=topic, startingOffsets="earliest")
        .load()
    )
    once = remove_duplicates(found).collect()
    numbers = sorted(int(row.body.rstrip(b"x")) for row in once)
    print(json.dumps([found.count(), len(once), numbers]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
