"""Ranges of queues to Arrow batches: pull, check that nothing is missing, decode."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from roquette.message.properties import SYSTEM
from roquette_spark.errors import SourceError
from roquette_spark.options import ReadOptions
from roquette_spark.source.decode import RecordColumns, RecordDecoder
from roquette_spark.source.offsets import DataLoss, QueueRange
from roquette_spark.source.positions import name_of, report_data_loss
from roquette_spark.source.queues import BlockingQueueReader, pull_filter


def read_batches(
    reader: BlockingQueueReader,
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
    reader: BlockingQueueReader, works: Iterable[QueueRange], options: ReadOptions
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
    reader: BlockingQueueReader, work: QueueRange, options: ReadOptions
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
    reader: BlockingQueueReader, work: QueueRange, offset: int, options: ReadOptions
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
