"""`spark.read.format("rocketmq")`: a bounded read of every queue."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from roquette.spark.batches import read_batches
from roquette.spark.offsets import Offsets, QueueRange, offsets_json, split_ranges
from roquette.spark.options import LATEST, Position, ReadOptions, read_options
from roquette.spark.plain_errors import plain_errors
from roquette.spark.positions import check_available, lose, name_of, require_queues, resolve
from roquette.spark.queues import QueueReader, open_reader
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
        with plain_errors(options):
            reader = open_reader(options)
            start, end = bounds(reader, options)
            start = check_available(reader, start, end, fail_on_data_loss=options.fail_on_data_loss)
            ranges = split_ranges(
                [QueueRange(queue, offset, end[queue]) for queue, offset in start.items()],
                min_partitions=options.min_partitions,
                max_records=options.max_records_per_partition,
            )
            return [QueuePartition(work) for work in ranges] or [QueuePartition(None)]

    def read(self, partition: QueuePartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one range."""
        return read_partition(partition, self._options, self._schema)


def bounds(reader: QueueReader, options: ReadOptions) -> tuple[Offsets, Offsets]:
    """Start and end of every queue of a table, as things are now."""
    queues = require_queues(reader, options)
    start = resolve(reader, queues, options.starting or Position())
    end = resolve(reader, queues, options.ending or Position(default=LATEST))
    inverted = [queue for queue in queues if start[queue] > end[queue]]
    if inverted:
        for queue, latest in reader.max_offsets(inverted).items():
            if start[queue] > latest:
                lose(
                    f"{name_of(queue)} is to be read from offset {start[queue]} but ends at {latest}: "
                    "was the topic recreated? failOnDataLoss=false reads what there is",
                    options.fail_on_data_loss,
                )
    return start, end


def frozen_options(options: Mapping[str, str]) -> dict[str, str]:
    """The same options with start and end as offsets of now, so that every action reads the same messages.

    Raises:
        ConfigError: as the read would.
    """
    checked = read_options(options)
    start, end = bounds(open_reader(checked), checked)
    moving = {
        *("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets"),
        *("endingtimestamp", "endingoffsetsbytimestamp", "endingoffsets"),
        "startingoffsetsbytimestampstrategy",
    }
    kept = {name: value for name, value in options.items() if name.lower() not in moving}
    return kept | {"startingOffsets": offsets_json(start), "endingOffsets": offsets_json(end)}


def read_partition(
    partition: QueuePartition, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """What a task yields: the batches of its range, none if there is no range."""
    if partition is None or partition.value is None:
        return
    with plain_errors(options):
        yield from read_batches(
            open_reader(options), partition.value, options, arrow_schema(schema)
        )
