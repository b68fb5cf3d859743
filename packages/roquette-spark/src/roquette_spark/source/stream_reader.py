"""`spark.readStream.format("rocketmq")`: micro-batches between recorded offsets.

Spark's checkpoint holds the offsets and is the truth: after a restart Spark asks for the same range again,
and the same queue and offset always give the same message.
"""

import contextlib
import logging
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from roquette.base.clock import Clock, SystemClock
from roquette.errors import ClientError, ConnectError, RequestTimeout, RouteNotFound
from roquette.message.message import MessageQueue
from roquette_spark.source.batch_reader import QueuePartition, plan_tasks, read_partition
from roquette_spark.source.columns import record_starts
from roquette_spark.source.queues import (
    bounds_of,
    check_available,
    check_lives,
    find_queues,
    find_restarts,
    lives_before,
    missing_error,
    missing_queue_text,
    name_of,
    open_reader,
    report_data_loss,
    require_queues,
    resolve,
    suspects,
)
from roquette_spark.values.errors import plain_errors
from roquette_spark.values.offsets import (
    Offsets,
    decode_begin,
    decode_closed,
    decode_offsets,
    decode_seen,
    encode_offsets,
    share_limit,
)
from roquette_spark.values.options import ReadOptions
from roquette_spark.values.positions_json import LATEST, Position
from roquette_spark.workers.reader import BlockingReader

# Ends of queues within a limit of bytes, from samples of its records' sizes.


_SAMPLE = 8  # records per sample: a record may have 4 MiB
_physical_offset = struct.Struct(">q").unpack_from


@dataclass(frozen=True, slots=True)
class _Sample:
    count: int
    size: int
    first_at: int  # where the first record lies in its broker's log
    end_at: int  # where the last one ends


def limit_bytes(reader: BlockingReader, start: Offsets, end: Offsets, limit: int) -> Offsets:
    """Move from `start` towards `end` by about `limit` bytes of stored records, shared by lag.

    The log positions of what waits are an upper bound: when they fit, nothing is estimated. Otherwise the
    sizes of records at both ends and in the middle of a queue's backlog stand for the rest. Every queue with lag
    moves by a message at least, over the limit if need be: none starves beside a large one, and no large message
    stops the stream.
    """
    lags = {queue: end[queue] - start[queue] for queue in start if end.get(queue, 0) > start[queue]}
    samples: dict[MessageQueue, list[_Sample]] = {}
    for queue in lags:
        places = sorted(
            {
                start[queue],
                (start[queue] + end[queue]) // 2,
                max(start[queue], end[queue] - _SAMPLE),
            }
        )
        found = [_sample(reader, queue, place, end[queue]) for place in places]
        samples[queue] = [sample for sample in found if sample is not None]
    if _span(samples) <= limit:
        return dict(end)
    means = {queue: _mean(samples[queue]) for queue in lags}
    total = sum(lags[queue] * means[queue] for queue in lags)
    if total <= limit:
        return dict(end)
    moved = {queue: max(1, int(lag * limit / total)) for queue, lag in lags.items()}
    return {**end, **{queue: start[queue] + moved[queue] for queue in lags}}


def _sample(reader: BlockingReader, queue: MessageQueue, offset: int, end: int) -> _Sample | None:
    data = reader.pull(queue, offset, min(_SAMPLE, end - offset)).records
    positions = record_starts(data).tolist()
    if not positions:
        return None  # gone meanwhile: the read tells
    first_at = int(_physical_offset(data, positions[0] + 28)[0])
    last_at = int(_physical_offset(data, positions[-1] + 28)[0])
    return _Sample(len(positions), len(data), first_at, last_at + len(data) - positions[-1])


def _mean(samples: list[_Sample]) -> float:
    count = sum(sample.count for sample in samples)
    return sum(sample.size for sample in samples) / count if count else 1.0


def _span(samples: dict[MessageQueue, list[_Sample]]) -> int:
    """Return the size of the stretches of their brokers' logs in which all these lie."""
    spans: dict[str, tuple[int, int]] = {}
    for queue, found in samples.items():
        for sample in found:
            low, high = spans.get(queue.broker_name, (sample.first_at, sample.end_at))
            spans[queue.broker_name] = min(low, sample.first_at), max(high, sample.end_at)
    return sum(high - low for low, high in spans.values())


# The ends of all queues of a stream, asked for no more often than options say; Trigger.AvailableNow freezes them.


log = logging.getLogger("roquette_spark")


class QueueEnds:
    """Queues are looked for once per discovery interval, their ends once per poll interval.

    Attributes:
        closed: ends of queues that took no messages any more when they were looked for last, or that are gone since then.
    """

    def __init__(self, reader: BlockingReader, options: ReadOptions, clock: Clock) -> None:
        self._reader = reader
        self._options = options
        self._clock = clock
        self._queues: list[MessageQueue] = []
        self._missing: list[str | MessageQueue] = []
        self._queues_at_ms = 0
        self._ends: Offsets = {}
        self._ends_at_ms = 0
        self._closing: set[MessageQueue] = set()
        self.closed: Offsets = {}
        self.frozen = False

    def freeze(self) -> None:
        """Ask once more and then never again: no queue and no message that comes later counts."""
        self._queues_at_ms = self._ends_at_ms = 0
        self.find()
        self.frozen = True

    @property
    def known(self) -> Offsets:
        """Ends of the last answer, without asking."""
        return self._ends

    def find(self) -> Offsets:
        """The offset after the newest message, of each queue that exists."""
        if self.frozen:
            return self._ends
        now_ms = self._clock.now_ms()
        if now_ms - self._queues_at_ms >= self._options.partition_discovery_interval_ms:
            self._discover(now_ms)
        if now_ms - self._ends_at_ms >= self._options.offset_poll_interval_ms:
            try:
                self._ends = self._reader.max_offsets(self._queues)
            except RouteNotFound:  # a queue has gone since they were looked for
                self._discover(now_ms)
                self._ends = self._reader.max_offsets(self._queues)
            self._ends_at_ms = now_ms
            gone = {q: end for q, end in self.closed.items() if q not in self._ends}
            self.closed = gone | {q: self._ends[q] for q in self._closing if q in self._ends}
        return self._ends

    def require(self, begun: Collection[str]) -> None:
        """Raises ConfigError when a topic or queue was asked for that never existed.

        Args:
            begun: topics the stream has offsets of; that these are gone now is for others to judge.
        """
        for what in self._missing:
            topic = what if isinstance(what, str) else what.topic
            if topic not in begun:
                raise missing_error(self._reader, self._options, what)

    def starts_of_new(self, known: Collection[MessageQueue]) -> Offsets:
        """The oldest offsets of queues that are not in `known`: where a stream begins to read them."""
        fresh = [queue for queue in self._ends if queue not in known]
        return bounds_of(self._reader, fresh, fail_on_data_loss=False) if fresh else {}

    def _discover(self, now_ms: int) -> None:
        self._queues_at_ms = now_ms
        try:
            self._queues, self._missing = find_queues(self._reader, self._options)
        except (ConnectError, RequestTimeout) as error:
            if not self._queues:
                raise
            log.warning("queues were not looked for: no name server answers error=%s", error)
        else:
            self._closing = self._reader.closed_queues({queue.topic for queue in self._queues})
        self._ends_at_ms = 0


class RocketmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in Spark's source process for planning; a pickled copy reads in each worker."""

    def __init__(
        self, schema: StructType, options: ReadOptions, clock: Clock | None = None
    ) -> None:
        self._schema = schema
        self._options = options
        self._clock = clock or SystemClock()
        self._ends: QueueEnds | None = None
        self._planned_at_ms = 0  # when a batch was planned last
        self._committed: Offsets = {}
        self._reported: set[MessageQueue] = set()  # queues whose loss or end is in the log
        self._compared = False  # whether all queues were compared with what was seen of them
        self._last: dict[str, object] = {}  # the end that was planned last

    def __getstate__(self) -> dict[str, object]:
        return {"_schema": self._schema, "_options": self._options}

    def _queue_ends(self) -> QueueEnds:
        if self._ends is None:
            self._ends = QueueEnds(open_reader(self._options), self._options, self._clock)
        return self._ends

    def initialOffset(self) -> dict[str, object]:
        """Return the start of a query without a checkpoint: options starting*."""
        with plain_errors(self._options.namesrv_addr):
            reader = open_reader(self._options)
            queues = require_queues(reader, self._options)
            position = self._options.starting or Position(default=LATEST)
            ends = self._queue_ends()
            frozen = ends.known if ends.frozen else None
            if (
                frozen is not None
            ):  # a queue made since then is read by the next run, from its start
                queues = [queue for queue in queues if queue in frozen]
            return encode_offsets(resolve(reader, queues, position, ends=frozen))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark hands it back to latestOffset, except where the trigger means all there is."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        if options.limits_by_topic is not None:
            return ReadMinRows(1)  # of Spark's limits none is by topic
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Trigger.AvailableNow reads up to what exists now, in the queues that exist now."""
        with plain_errors(self._options.namesrv_addr):
            self._queue_ends().freeze()

    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> dict[str, object]:
        """Return the end of the next micro-batch: within the limits, shared among queues by lag."""
        with plain_errors(self._options.namesrv_addr):
            known = decode_offsets(start)
            ends = self._queue_ends()
            there = dict(ends.find())
            # Before the ends are compared: a topic of another life may be shorter, or longer, than the old one was.
            fresh = self._restarts(start, known, there)
            begin = known | fresh
            target = self._target(begin, there, decode_closed(start) | ends.closed)
            if isinstance(limit, ReadAllAvailable):
                return self._planned(start, known, target, fresh)
            begin |= ends.starts_of_new(begin)
            waiting = sum(max(0, target[queue] - begin.get(queue, 0)) for queue in target)
            if not ends.frozen and not fresh and self._too_few(waiting):
                return dict(start)
            options = self._options
            if options.max_bytes_per_trigger is not None and waiting:
                backlog = {queue: offset for queue, offset in begin.items() if queue in target}
                target = limit_bytes(
                    open_reader(options), backlog, target, options.max_bytes_per_trigger
                )
            for topic, most in options.limits_by_topic or ():
                own = {queue: end for queue, end in target.items() if queue.topic == topic}
                target |= share_limit(begin, own, most)
            if options.max_offsets_per_trigger is not None:
                target = share_limit(begin, target, options.max_offsets_per_trigger)
            return self._planned(start, known, target, fresh)

    def _restarts(self, start: Mapping[str, object], known: Offsets, ends: Offsets) -> Offsets:
        """Return the starts of queues of topics that were created again since the last batch: an error, or a log line.

        All queues are compared once, later only those that have moved: one round trip.
        """
        seen, first = decode_seen(start), not self._compared
        self._compared = True
        doubtful = suspects(known, seen, ends, all_queues=first)
        if not doubtful:
            return {}
        found = find_restarts(open_reader(self._options), doubtful, seen, ends)
        for each in found.values():
            report_data_loss(each.why, self._options.fail_on_data_loss)
        return {queue: each.offset for queue, each in found.items()}

    def _planned(
        self, start: Mapping[str, object], known: Offsets, target: Offsets, fresh: Offsets
    ) -> dict[str, object]:
        """The end of a batch, with the store time and log position of the last message of each queue."""
        ends = self._queue_ends()
        closed = {q: end for q, end in decode_closed(start).items() if q not in ends.known}
        closed |= {q: end for q, end in ends.closed.items() if target.get(q) == end}
        if target == known and not fresh and closed == decode_closed(start):
            return dict(start)
        moved = {q: end for q, end in target.items() if q in fresh or end != known.get(q)}
        seen = {queue: life for queue, life in decode_seen(start).items() if queue not in moved}
        seen |= lives_before(open_reader(self._options), moved)
        self._last = encode_offsets(target, seen, fresh, closed)
        return self._last

    def _target(self, begin: Offsets, ends: Offsets, closed: Offsets) -> Offsets:
        """The ends of all queues, those that are gone or shorter than before where the stream is.

        Args:
            closed: ends of queues that took no messages any more.
        """
        self._queue_ends().require({queue.topic for queue in begin})
        for queue, offset in begin.items():
            if queue not in ends:
                self._judge_gone(queue, offset, closed.get(queue))
                ends[queue] = offset
            elif ends[queue] < offset:
                if not open_reader(self._options).from_replica(queue):
                    self._report_loss(
                        queue,
                        f"{name_of(queue)} ends at {ends[queue]}, before offset {offset} that was "
                        "read: was the topic recreated? failOnDataLoss=false waits until it is longer",
                    )
                ends[queue] = offset
            else:
                self._reported.discard(queue)
        return ends

    def _judge_gone(self, queue: MessageQueue, offset: int, closed: int | None) -> None:
        """A queue that went after all of it was read is no loss: by a smaller topic, a drained broker, another choice.

        Args:
            closed: its end when it took no messages any more; None: it was not seen so.
        """
        if queue in self._reported:
            return
        with contextlib.suppress(
            ClientError
        ):  # a queue without a route may still be known to its broker
            closed = open_reader(self._options).max_offsets([queue])[queue]
        if closed == offset:
            log.info("a queue is gone, all of it was read queue=%s end=%d", name_of(queue), offset)
            self._reported.add(queue)
            self._queue_ends().closed[queue] = offset
        else:
            self._report_loss(queue, missing_queue_text(queue, offset, closed))

    def _report_loss(self, queue: MessageQueue, what: str) -> None:
        """An error, or a line in the log: one, though Spark asks many times a second."""
        if queue not in self._reported:
            report_data_loss(what, self._options.fail_on_data_loss)
            self._reported.add(queue)

    def _too_few(self, waiting: int) -> bool:
        """Return True if minOffsetsPerTrigger says to wait. Past maxTriggerDelay any message is enough."""
        least = self._options.min_offsets_per_trigger
        if least is None:
            return False
        now_ms = self._clock.now_ms()
        late = now_ms - self._planned_at_ms >= self._options.max_trigger_delay_ms
        if waiting < least and not (late and waiting):
            return True
        self._planned_at_ms = now_ms
        return False

    def reportLatestOffset(self) -> dict[str, object] | None:
        """Return the latestOffset that the query's progress shows: the newest known ends."""
        known = self._queue_ends().known
        return encode_offsets(known) if known else None

    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> list[QueuePartition]:
        """The tasks of one micro-batch. A queue without a start is new: it begins at its earliest."""
        with plain_errors(self._options.namesrv_addr):
            reader, options = open_reader(self._options), self._options
            strict = options.fail_on_data_loss
            begin, ends = decode_offsets(start), decode_offsets(end)
            restarted = decode_begin(end)
            if strict and end != self._last:  # planned by a run that has ended since then
                what = "failOnDataLoss=false reads what there is"
                check_lives(reader, begin, decode_seen(start), what)
                check_lives(reader, ends, decode_seen(end), what)
            begin |= restarted
            fresh = [queue for queue in ends if queue not in begin and ends[queue]]
            begin |= bounds_of(reader, fresh, fail_on_data_loss=strict)
            starts = {queue: begin[queue] for queue in sorted(ends) if queue in begin}
            starts = check_available(reader, starts, ends, fail_on_data_loss=strict)
            return plan_tasks(starts, ends, options)

    def read(self, partition: QueuePartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._schema)

    def commit(self, end: Mapping[str, object]) -> None:
        """Mirror progress to the consumer group, with option commitOffsets. Spark calls it a batch late.

        A failure is a line in the log: progress lives in Spark's checkpoint.
        """
        if not self._options.commits:
            return
        offsets = decode_offsets(end)
        changed = {q: offset for q, offset in offsets.items() if self._committed.get(q) != offset}
        try:
            open_reader(self._options).commit_offsets(changed)
        except ClientError as error:
            log.warning("offsets were not committed group=%s error=%s", self._options.group, error)
        else:
            self._committed = offsets

    def stop(self) -> None:
        """Nothing to do, and Spark does not call it dependably."""
