"""`spark.readStream.format("rocketmq")`: micro-batches between recorded offsets.

Spark's checkpoint holds the offsets and is the truth: after a restart Spark asks for the same range again,
and the same queue and offset always give the same message.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from roquette.base.clock import Clock, SystemClock
from roquette.message.message import MessageQueue
from roquette.spark.batch_reader import QueuePartition, read_partition
from roquette.spark.offsets import (
    DataLoss,
    Offsets,
    QueueRange,
    decode_offsets,
    encode_offsets,
    share_limit,
    split_ranges,
)
from roquette.spark.options import LATEST, Position, ReadOptions
from roquette.spark.positions import check_available, find_queues, resolve
from roquette.spark.queues import QueueReader, open_reader


class QueueEnds:
    """The end of every queue, asked of the brokers at most once per poll interval."""

    def __init__(self, reader: QueueReader, options: ReadOptions, clock: Clock) -> None:
        self._reader = reader
        self._options = options
        self._clock = clock
        self._queues: list[MessageQueue] = []
        self._queues_at_ms = 0
        self._ends: Offsets = {}
        self._ends_at_ms = 0
        self._frozen = False

    def freeze(self) -> None:
        """Ask once more and then never again: no queue and no message that comes later counts."""
        self._queues_at_ms = self._ends_at_ms = 0
        self.find()
        self._frozen = True

    def find(self) -> Offsets:
        """The offset after the newest message, of each queue that exists."""
        if self._frozen:
            return self._ends
        now_ms = self._clock.now_ms()
        if now_ms - self._queues_at_ms >= self._options.partition_discovery_interval_ms:
            self._queues = find_queues(self._reader, self._options.topics)
            self._queues_at_ms = now_ms
            self._ends_at_ms = 0
        if now_ms - self._ends_at_ms >= self._options.offset_poll_interval_ms:
            self._ends = {queue: self._reader.max_offset(queue) for queue in self._queues}
            self._ends_at_ms = now_ms
        return self._ends


class RocketmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in Spark's source process for planning; a pickled copy reads in each worker."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        self._ends: QueueEnds | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_schema": self._schema, "_options": self._options, "_ends": None}

    def _queue_ends(self) -> QueueEnds:
        if self._ends is None:
            self._ends = QueueEnds(open_reader(self._options), self._options, SystemClock())
        return self._ends

    def initialOffset(self) -> dict[str, object]:
        """Where a query without a checkpoint begins: option startingOffsets or startingTimestamp."""
        reader = open_reader(self._options)
        queues = find_queues(reader, self._options.topics)
        position = self._options.starting or Position(default=LATEST)
        return encode_offsets(resolve(reader, queues, position))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Option maxOffsetsPerTrigger, or no limit."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Trigger.AvailableNow reads up to what exists now."""
        self._queue_ends().freeze()

    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> dict[str, object]:
        """Where the next micro-batch ends: within the limit, shared among queues by lag."""
        reader = open_reader(self._options)
        begin = decode_offsets(start)
        ends = dict(self._queue_ends().find())
        for queue, offset in begin.items():
            if queue not in ends and self._options.fail_on_data_loss:
                raise DataLoss(
                    f"rocketmq: {queue.topic} {queue.broker_name} queue {queue.queue_id} is gone; "
                    "failOnDataLoss=false goes on without it"
                )
            if ends.get(queue, -1) < offset:
                if queue in ends and self._options.fail_on_data_loss:
                    raise DataLoss(
                        f"rocketmq: {queue.topic} {queue.broker_name} queue {queue.queue_id} ends at "
                        f"{ends[queue]}, before offset {offset} that was read: was the topic recreated?"
                    )
                ends[queue] = offset
        if isinstance(limit, ReadMaxRows):
            for queue in ends:
                if queue not in begin:
                    begin[queue] = reader.min_offset(queue)
            ends = share_limit(begin, ends, limit.max_rows)
        return encode_offsets(ends)

    def reportLatestOffset(self) -> dict[str, object] | None:
        """What the query's progress shows as latestOffset: the newest known ends."""
        return encode_offsets(self._queue_ends().find())

    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> list[QueuePartition]:
        """The ranges of one micro-batch. A queue without a start is new: it begins at its earliest."""
        reader = open_reader(self._options)
        begin, ends = decode_offsets(start), decode_offsets(end)
        work = {queue for queue in ends if ends[queue] > begin.get(queue, -1)}
        starts = {
            queue: begin[queue] if queue in begin else reader.min_offset(queue)
            for queue in sorted(work)
        }
        starts = check_available(
            reader, starts, ends, fail_on_data_loss=self._options.fail_on_data_loss
        )
        ranges = split_ranges(
            [QueueRange(queue, offset, ends[queue]) for queue, offset in starts.items()],
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [QueuePartition(each) for each in ranges]

    def read(self, partition: QueuePartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one range."""
        return read_partition(partition, self._options, self._schema)

    def commit(self, end: Mapping[str, object]) -> None:
        """Nothing to do: progress lives in Spark's checkpoint."""

    def stop(self) -> None:
        """Nothing to do, and Spark does not call it dependably."""
