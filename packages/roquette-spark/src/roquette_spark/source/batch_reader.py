"""`spark.read.format("rocketmq")`: a bounded read of every queue."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from roquette.errors import ConfigError
from roquette.message.properties import SYSTEM
from roquette_spark.source.decode import RecordColumns, RecordDecoder
from roquette_spark.source.queues import (
    check_available,
    name_of,
    named_queues,
    open_reader,
    pull_filter,
    report_data_loss,
    require_queues,
    resolve,
)
from roquette_spark.values.errors import SourceError, plain_errors
from roquette_spark.values.narrowing import narrowed
from roquette_spark.values.offsets import (
    DataLoss,
    Offsets,
    QueueRange,
    group_ranges,
    offsets_json,
    split_ranges,
)
from roquette_spark.values.options import ReadOptions, read_options
from roquette_spark.values.positions_json import LATEST, Position
from roquette_spark.values.schema import arrow_schema
from roquette_spark.workers.reader import BlockingReader

# Ranges of queues to Arrow batches: pull, check that nothing is missing, decode.


def read_batches(
    reader: BlockingReader,
    works: Sequence[QueueRange],
    options: ReadOptions,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """All messages of the ranges, in order, in batches of about `batch_rows` and `batch_bytes`.

    Raises:
        DataLoss: the broker lacks some of a range and `fail_on_data_loss` is set.
    """
    with_bodies = "body" in schema.names
    for (topic, broker_name), same in groupby(works, key=_place):
        decoder = RecordDecoder(
            schema,
            topic=topic,
            broker_name=broker_name,
            tags=exact_tags(options.tags),
            reserved=frozenset() if options.include_system_properties else SYSTEM,
        )
        for records in _joined_records(_checked_records(reader, same, options), options):
            for part in records.parts(options.batch_bytes) if with_bodies else (records,):
                batch = decoder.decode(part)
                if batch.num_rows:
                    yield batch


def _place(work: QueueRange) -> tuple[str, str]:
    return work.queue.topic, work.queue.broker_name


def _checked_records(
    reader: BlockingReader, works: Iterable[QueueRange], options: ReadOptions
) -> Iterator[RecordColumns]:
    """The records of one range after the other, checked."""
    complete = pull_filter(options).takes_all and options.fail_on_data_loss
    for work in works:
        for data, start, end in _chunks(reader, work, options):
            records = RecordColumns(data, start=start, end=end)
            if complete:
                _check_complete(work, records.queue_offsets, start, end)
            yield records


def _joined_records(
    found: Iterable[RecordColumns], options: ReadOptions
) -> Iterator[RecordColumns]:
    """Few records of several queues as one: to decode one row costs as much as to decode hundreds."""
    held: list[RecordColumns] = []
    rows = stored = 0
    for records in found:
        held.append(records)
        rows += records.count
        stored += records.stored_bytes
        if rows >= options.batch_rows or stored >= options.batch_bytes:
            yield RecordColumns.join(held)
            held, rows, stored = [], 0, 0
    if held:
        yield RecordColumns.join(held)


def exact_tags(expression: str) -> list[str]:
    """The tags of `A || B`; empty when the expression takes all."""
    if expression.strip() in {"", "*"}:
        return []
    return [tag.strip() for tag in expression.split("||") if tag.strip()]


def _chunks(
    reader: BlockingReader, work: QueueRange, options: ReadOptions
) -> Iterator[tuple[bytes, int, int]]:
    """Joined pulls: (records, first offset, offset after the last), together the whole range."""
    held: list[bytes] = []
    held_bytes = 0
    start = offset = work.start
    wanted = pull_filter(options)
    while offset < work.end:
        before = offset
        for pulled in reader.scan(work.queue, offset, work.end, wanted):
            if pulled.min_offset > offset:
                lost = min(pulled.min_offset, work.end)
                report_data_loss(
                    f"{_range_name(work)}: offsets {offset} to {lost} are gone, the oldest is "
                    f"{pulled.min_offset}; failOnDataLoss=false reads what there is",
                    options.fail_on_data_loss,
                )
            offset = min(pulled.next_offset, work.end)
            held.append(pulled.records)
            held_bytes += len(pulled.records)
            if offset - start >= options.batch_rows or held_bytes >= options.batch_bytes:
                yield b"".join(held), start, offset
                held, held_bytes, start = [], 0, offset
        if start < offset:
            yield b"".join(held), start, offset
            held, held_bytes = [], 0
        if offset <= before:
            offset = _skip_missing(reader, work, before, options)
        start = offset


def _skip_missing(
    reader: BlockingReader, work: QueueRange, offset: int, options: ReadOptions
) -> int:
    """A pull at `offset` brought nothing: say so, or go on where the broker has messages again."""
    low = reader.min_offsets([work.queue])[work.queue]
    high = reader.max_offsets([work.queue])[work.queue]
    if reader.from_replica(work.queue):
        raise SourceError(
            f"rocketmq: {_range_name(work)} cannot be read at offset {offset}: the master of "
            f"{work.queue.broker_name} is away and its replica has {low} to {high}; "
            "start the query again when the master is back"
        )
    if options.fail_on_data_loss or low <= offset < high:
        raise DataLoss(
            f"rocketmq: {_range_name(work)} cannot be read at offset {offset}: "
            f"the broker has {low} to {high}; failOnDataLoss=false skips what is gone"
        )
    return min(low, work.end) if offset < low else work.end


def _check_complete(work: QueueRange, found: np.ndarray, start: int, end: int) -> None:
    if len(found) == end - start and np.array_equal(found, np.arange(start, end)):
        return
    missing = np.setdiff1d(np.arange(start, end), found)
    first = int(missing[0]) if len(missing) else start
    raise DataLoss(
        f"rocketmq: {_range_name(work)}: offsets {start} to {end} came as {len(found)} messages, "
        f"the first hole is at {first}; failOnDataLoss=false reads what there is"
    )


def _range_name(work: QueueRange) -> str:
    return f"{name_of(work.queue)} (reading {work.start} to {work.end})"


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


def bounds(reader: BlockingReader, options: ReadOptions) -> tuple[Offsets, Offsets]:
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
