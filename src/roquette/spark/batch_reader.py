"""`spark.read.format("rocketmq")`: a bounded read of every queue."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from roquette.spark.batches import read_batches
from roquette.spark.offsets import QueueRange, split_ranges
from roquette.spark.options import LATEST, Position, ReadOptions
from roquette.spark.positions import check_available, find_queues, resolve
from roquette.spark.queues import open_reader
from roquette.spark.schema import arrow_schema


class QueuePartition(InputPartition):
    """The work of one task. `value` is None where Spark wants a partition although there is no work."""

    def __init__(self, value: QueueRange | None) -> None:
        super().__init__(value)


class RocketmqBatchReader(DataSourceReader):
    """Plans and reads; Spark pickles it into the workers.

    Offsets are resolved at each action: give endingOffsets, or cache the frame, to read the same twice.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options

    def partitions(self) -> list[QueuePartition]:
        """One range per queue, more when options ask for smaller ones; never an empty list."""
        options = self._options
        reader = open_reader(options)
        queues = find_queues(reader, options.topics)
        start = resolve(reader, queues, options.starting or Position())
        end = resolve(reader, queues, options.ending or Position(default=LATEST))
        start = check_available(reader, start, end, fail_on_data_loss=options.fail_on_data_loss)
        ranges = split_ranges(
            [QueueRange(queue, start[queue], end[queue]) for queue in queues],
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        return [QueuePartition(work) for work in ranges] or [QueuePartition(None)]

    def read(self, partition: QueuePartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one range."""
        return read_partition(partition, self._options, self._schema)


def read_partition(
    partition: QueuePartition, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """What a task yields: the batches of its range, none if there is no range."""
    if partition is None or partition.value is None:
        return iter(())
    return read_batches(open_reader(options), partition.value, options, arrow_schema(schema))
