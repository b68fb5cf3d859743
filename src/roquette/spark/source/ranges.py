"""`format("rocketmq_ranges")`: a stream that carries which messages to read, not the messages; for our pipelines.

A micro-batch is one row of text. Tasks of the pipeline's own read what it says (`read_ranges`), so that a message never
enters the JVM. Offsets, limits, checks and checkpoints are those of `format("rocketmq")`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from roquette.message.message import MessageQueue
from roquette.spark.datasource import RocketmqDataSource
from roquette.spark.errors import plain_errors
from roquette.spark.options import read_options
from roquette.spark.source.batch_reader import QueuePartition
from roquette.spark.source.batches import read_batches
from roquette.spark.source.offsets import QueueRange
from roquette.spark.source.queues import open_reader
from roquette.spark.source.stream_reader import RocketmqStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "rocketmq_ranges"
COLUMN = "ranges"


class RangesDataSource(RocketmqDataSource):
    """Takes the options of `format("rocketmq")`; reads only as a stream."""

    @classmethod
    def name(cls) -> str:
        """Not found by name in a session that `register_ranges` did not see."""
        return FORMAT

    def schema(self) -> str:
        """One column."""
        return f"{COLUMN} string"

    def streamReader(self, schema: StructType) -> "RangesStreamReader":
        """Spark's door."""
        with plain_errors():
            return RangesStreamReader(schema, self._read_options())


class RangesStreamReader(RocketmqStreamReader):
    """Plans as its base does; a batch is one row."""

    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> list[QueuePartition]:
        """One task for all ranges."""
        tasks = super().partitions(start, end)
        return [QueuePartition(tuple(each for task in tasks for each in task.value))]

    def read(self, partition: QueuePartition) -> Iterator[pa.RecordBatch]:
        """The text of the ranges."""
        yield pa.RecordBatch.from_pydict({COLUMN: [encode_ranges(partition.value)]})


def register_ranges(spark: "SparkSession") -> None:
    """Make FORMAT known to a session."""
    spark.dataSource.register(RangesDataSource)


def encode_ranges(ranges: Iterable[QueueRange]) -> str:
    """As JSON: [topic, broker, queue, first offset, offset after the last] of each."""
    return json.dumps(
        [
            [each.queue.topic, each.queue.broker_name, each.queue.queue_id, each.start, each.end]
            for each in ranges
        ]
    )


def decode_ranges(text: str) -> list[QueueRange]:
    """What `encode_ranges` made."""
    return [
        QueueRange(MessageQueue(topic, broker_name, queue_id), start, end)
        for topic, broker_name, queue_id, start, end in json.loads(text)
    ]


def share_ranges(
    ranges: Sequence[QueueRange], *, tasks: int, least: int
) -> list[tuple[QueueRange, ...]]:
    """The ranges of one topic as the work of tasks, cut so that each task has as many messages as the others.

    Args:
        tasks: at most so many.
        least: messages that are worth a task; the same ranges always give the same tasks.
    """
    total = sum(each.end - each.start for each in ranges)
    count = max(1, min(tasks, total // least))
    bounds = [total * number // count for number in range(1, count + 1)]
    found: list[list[QueueRange]] = [[]]
    done = 0
    for each in sorted(ranges):
        start = each.start
        while start < each.end:
            end = min(each.end, start + bounds[len(found) - 1] - done)
            found[-1].append(QueueRange(each.queue, start, end))
            done += end - start
            start = end
            if done == bounds[len(found) - 1] and done < total:
                found.append([])
    return [tuple(group) for group in found if group]


def ranges_by_topic(ranges: Iterable[QueueRange]) -> dict[str, list[QueueRange]]:
    """By the topics of their queues."""
    ordered = sorted(ranges)
    return {topic: list(some) for topic, some in groupby(ordered, lambda each: each.queue.topic)}


def read_ranges(
    works: Sequence[QueueRange], options: Mapping[str, str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The messages of ranges, in a worker. `options` are those of the stream.

    Raises:
        DataLoss: the broker lacks some of a range and `failOnDataLoss` is set.
    """
    checked = read_options(options)
    with plain_errors(checked.namesrv_addr):
        yield from read_batches(open_reader(checked), works, checked, schema)
