"""`spark.read.format("rocketmq")`: a bounded read of every queue."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from roquette.errors import ConfigError
from roquette_spark.errors import plain_errors
from roquette_spark.options import ReadOptions, read_options
from roquette_spark.schema import arrow_schema
from roquette_spark.source.batches import read_batches
from roquette_spark.source.narrowing import narrowed
from roquette_spark.source.offsets import (
    Offsets,
    QueueRange,
    group_ranges,
    offsets_json,
    split_ranges,
)
from roquette_spark.source.positions import (
    check_available,
    name_of,
    named_queues,
    report_data_loss,
    require_queues,
    resolve,
)
from roquette_spark.source.positions_json import LATEST, Position
from roquette_spark.source.queues import BlockingQueueReader, open_reader


class QueuePartition(InputPartition):
    """The work of one task: ranges to read one after the other; none where Spark wants a task for nothing."""

    def __init__(self, value: tuple[QueueRange, ...]) -> None:
        super().__init__(value)


class RocketmqBatchReader(DataSourceReader):
    """Plans and reads; Spark pickles it into the workers.

    Offsets are resolved when Spark plans: once for a frame (4.3). Frames with the options of `frozen_options` read the same.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options

    def partitions(self) -> list[QueuePartition]:
        """Return the partitions that `plan_tasks` makes; never an empty list."""
        options = self._options
        with plain_errors(options.namesrv_addr):
            reader = open_reader(options)
            start, end = bounds(reader, options)
            if options.narrow_by:
                start, end = narrowed(reader, options.narrow_by, start, end)
            start = check_available(reader, start, end, fail_on_data_loss=options.fail_on_data_loss)
            return plan_tasks(start, end, options) or [QueuePartition(())]

    def read(self, partition: QueuePartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one range."""
        return read_partition(partition, self._options, self._schema)


def plan_tasks(start: Offsets, end: Offsets, options: ReadOptions) -> list[QueuePartition]:
    """One task per queue of `start` that has messages, or as many as the options *Partition* say."""
    least, most = options.min_partitions, options.max_records_per_partition
    ranges = split_ranges(
        [QueueRange(queue, offset, end[queue]) for queue, offset in start.items()],
        min_partitions=least,
        max_records=most,
    )
    together = options.min_records_per_partition
    groups = group_ranges(ranges, least=together, min_partitions=least, max_records=most)
    return [QueuePartition(group) for group in groups]


def bounds(reader: BlockingQueueReader, options: ReadOptions) -> tuple[Offsets, Offsets]:
    """Start and end of every queue of a table, as things are now.

    Raises:
        ConfigError: options give a queue an end before its start.
    """
    queues = require_queues(reader, options)
    starting = options.starting or Position()
    ending = options.ending or Position(default=LATEST)
    start = resolve(reader, queues, starting)
    end = resolve(reader, queues, ending)
    if ending.saved:  # a queue that was made after these offsets has nothing before them
        named = named_queues(ending)
        end |= {queue: start[queue] for queue in queues if queue not in named}
    inverted = [queue for queue in queues if start[queue] > end[queue]]
    for queue, latest in (reader.max_offsets(inverted) if inverted else {}).items():
        if start[queue] > latest:
            report_data_loss(
                f"{name_of(queue)} is to be read from offset {start[queue]} but ends at {latest}: "
                "was the topic recreated? failOnDataLoss=false reads what there is",
                options.fail_on_data_loss,
            )
        elif not starting.leaves_start_open(queue.topic, queue.broker_name, queue.queue_id):
            raise ConfigError(
                f"rocketmq: {name_of(queue)} is to be read from offset {start[queue]} to {end[queue]}: "
                "the end lies before the start; see options starting* and ending*"
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
    """Read what a task yields: the batches of its ranges, none if there are no ranges."""
    if partition.value:
        with plain_errors(options.namesrv_addr):
            yield from read_batches(
                open_reader(options), partition.value, options, arrow_schema(schema)
            )
