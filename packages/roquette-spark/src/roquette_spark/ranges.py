"""`format("rocketmq_ranges")`: a stream that carries which messages to read, not the messages; for our pipelines.

A micro-batch is one row of text. Tasks of the pipeline's own read what it says (`read_ranges`), so that a message never
enters the JVM. Offsets, limits, checks and checkpoints are those of `format("rocketmq")`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from roquette_spark.datasource import RocketmqDataSource
from roquette_spark.source.batch_reader import QueuePartition, read_batches
from roquette_spark.source.queues import open_reader
from roquette_spark.source.stream_reader import RocketmqStreamReader
from roquette_spark.values.errors import plain_errors
from roquette_spark.values.offsets import QueueRange, encode_ranges
from roquette_spark.values.options import read_options

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
        return f"{COLUMN} string"

    def streamReader(self, schema: StructType) -> "RangesStreamReader":
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
        yield pa.RecordBatch.from_pydict({COLUMN: [encode_ranges(partition.value)]})


def register_ranges(spark: "SparkSession") -> None:
    """Make FORMAT known to a session."""
    spark.dataSource.register(RangesDataSource)


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
