"""`frame.write.format("rocketmq")` and `frame.writeStream.format("rocketmq")`: rows to messages, in Arrow batches.

A task sends its rows and ends well only when the broker has acknowledged every one of them; a task that Spark
runs again sends again. So a message is stored at least once; with deliveryGuarantee=idempotent each one carries
the same id every time (property __SPARK_ID), by which `roquette_spark.sink.duplicates` finds those that came twice.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.client.core.route_cache import ordered_queues
from roquette.errors import ClientError, ConfigError, RouteNotFound
from roquette.message.message import MessageQueue
from roquette.message.message_id import UniqueIds, host_bytes
from roquette.message.properties import encode_properties
from roquette.message.record import ENTRY_SIZE, encode_batch
from roquette_spark.sink.rows import Entry, RowEncoder, Rows, WriteColumns, write_columns
from roquette_spark.values.errors import APPEND_ONLY, SourceError, plain_errors
from roquette_spark.values.options import IDEMPOTENT, WriteOptions
from roquette_spark.workers.send_window import Chunk, WindowLimits
from roquette_spark.workers.sender import BlockingSender, SenderConfig

# Messages to chunks: as many as a request may hold, for one queue, in order.


BATCH_BYTES: Final = 1 << 20  # a batch request is closed at about this size
_MAX_HELD: Final = 32 << 20  # bytes in unfinished batches of all queues
_ADDED: Final = encode_properties({"WAIT": "true"})


@dataclass(slots=True)
class _OpenBatch:
    """The unfinished batch of one queue, or of a topic's messages that may go to any."""

    topic: str
    queue: MessageQueue | None
    entries: list[Entry] = field(default_factory=list)
    size: int = 0
    first_row: int = 0


class ChunkBuilder:
    """Collects messages and hands chunks on.

    Args:
        send: takes a chunk; may wait.
        batch_rows: messages of one chunk at most.
        max_message_size: the broker's bound for a body, and so for a batch.
    """

    def __init__(
        self, send: Callable[[Chunk], None], batch_rows: int, max_message_size: int
    ) -> None:
        self._send = send
        self._batch_rows = batch_rows
        self._batch_bytes = min(BATCH_BYTES, max_message_size)
        self._lanes: dict[str | MessageQueue, _OpenBatch] = {}
        self._held = 0

    def add(self, rows: Rows, first_row: int) -> None:
        """Take messages, in order; the first is row `first_row` of the task."""
        topics, queues, singles = rows.topics, rows.queues, rows.singles
        for index, entry in enumerate(rows.entries):
            topic = topics if isinstance(topics, str) else topics[index]
            queue = queues[index] if queues is not None else None
            lane = self._lanes.get(topic if queue is None else queue)
            if lane is None:
                lane = self._lanes[topic if queue is None else queue] = _OpenBatch(topic, queue)
            if singles and index in singles:
                # What is open goes first, so that the order within the queue is kept.
                self._close(lane)
                self._send_single(lane, entry, singles[index], first_row + index)
                continue
            size = len(entry[1]) + len(entry[2]) + ENTRY_SIZE
            if lane.entries and lane.size + size > self._batch_bytes:
                self._close(lane)
            if not lane.entries:
                lane.first_row = first_row + index
            lane.entries.append(entry)
            lane.size += size
            self._held += size
            if len(lane.entries) >= self._batch_rows:
                self._close(lane)
            elif self._held > _MAX_HELD:
                self.flush()

    def flush(self) -> None:
        for lane in self._lanes.values():
            self._close(lane)
        self._lanes.clear()

    def _close(self, lane: _OpenBatch) -> None:
        if not lane.entries:
            return
        if len(lane.entries) == 1:
            self._send_single(lane, lane.entries[0], 0, lane.first_row)
        else:
            self._send(
                Chunk(
                    lane.topic,
                    lane.queue,
                    encode_batch(lane.entries),
                    _ADDED,
                    batch=True,
                    first_row=lane.first_row,
                    rows=len(lane.entries),
                )
            )
        self._held -= lane.size
        lane.entries = []
        lane.size = 0

    def _send_single(self, lane: _OpenBatch, entry: Entry, sys_flag: int, row: int) -> None:
        flag, body, properties = entry
        self._send(
            Chunk(
                lane.topic,
                lane.queue,
                body,
                properties.decode() + _ADDED,
                batch=False,
                first_row=row,
                rows=1,
                flag=flag,
                sys_flag=sys_flag,
            )
        )


log = logging.getLogger("roquette_spark")

_SLICE_ROWS: Final = 10_000  # of an Arrow batch at a time: bounds what is encoded but not sent


def sender_config(options: WriteOptions) -> SenderConfig:
    tls, credentials = options.access
    return SenderConfig(
        namesrv_addr=options.namesrv_addr,
        producer_group=options.producer_group,
        send_timeout_ms=options.send_timeout_ms,
        require_send_ok=options.require_send_ok,
        auto_create_topics=options.auto_create_topic,
        tls=tls,
        credentials=credentials,
        limits=WindowLimits(
            max_in_flight=options.max_in_flight,
            deadline_ms=options.send_deadline_ms,
            retry_times=options.retry_times,
            rate=options.rate_limit,
        ),
    )


@dataclass
class SentPartition(WriterCommitMessage):
    """Report of one task: `rows` were acknowledged, in `requests` attempts.

    Attributes:
        busy: answers that asked for patience. `failures`: other failed attempts.
        weak: messages that were stored, but not flushed or replicated in time.
    """

    partition_id: int
    rows: int
    requests: int
    busy: int
    failures: int
    weak: int


@dataclass(frozen=True)
class WriteTask:
    """Task of a write: columns, options, and what was decided once for all tasks.

    Attributes:
        queues: of the one topic, if it is one; settled once, so that all tasks hash keys over the same.
        write_id: part of the ids of a batch write; streams have their query's and batch's instead.
    """

    options: WriteOptions
    columns: WriteColumns
    queues: tuple[MessageQueue, ...]
    write_id: str

    def run(self, batches: Iterator[pa.RecordBatch], context: TaskContext | None) -> SentPartition:
        """Send all rows of a partition and wait for the last acknowledgement.

        Raises:
            BadRow: a row cannot be a message. NotStored: a message was not acknowledged.
            SourceError: the task is tried again, which option repeatTasks forbids.
        """
        options = self.options
        if not options.repeat_tasks and context is not None and context.attemptNumber():
            raise SourceError(
                "rocketmq: a task ended while it sent, and must not be tried again (repeatTasks=false): the next run "
                "looks what is stored"
            )
        partition_id = context.partitionId() if context is not None else 0
        sender = open_sender(options)
        sender.begin()
        encoder = RowEncoder(
            options,
            self.columns,
            queues_of=QueueTable(sender, options, self.queues),
            next_ids=IdMaker(
                sender.local_host(self.queues[0].topic if self.queues else options.topic)
            ),
            id_prefix=self._id_prefix(context, partition_id),
        )
        builder = ChunkBuilder(sender.offer, options.rows_per_request, options.max_message_size)
        row = 0
        for batch in batches:
            for start in range(0, batch.num_rows, _SLICE_ROWS):
                part = batch.slice(start, _SLICE_ROWS)
                builder.add(encoder.encode(part, row), row)
                row += part.num_rows
        builder.flush()
        counts = sender.finish()
        if counts.rows != row:
            raise ClientError(f"rocketmq: {counts.rows} of {row} rows were acknowledged")
        return SentPartition(
            partition_id, row, counts.requests, counts.busy, counts.failures, counts.weak
        )

    def _id_prefix(self, context: TaskContext | None, partition_id: int) -> str | None:
        if self.options.guarantee != IDEMPOTENT or self.options.id_column:
            return None
        return f"{self.write_id or stream_write_id(context)}/{partition_id}/"


class QueueTable:
    """The queues of each topic, asked once per task: a route that changes moves no key within a task."""

    def __init__(
        self, sender: BlockingSender, options: WriteOptions, pinned: Sequence[MessageQueue]
    ) -> None:
        self._sender = sender
        self._options = options
        self._found: dict[str, Sequence[MessageQueue]] = {}
        if pinned:
            self._found[pinned[0].topic] = pinned

    def __call__(self, topic: str) -> Sequence[MessageQueue]:
        """The queues in hashing order. Raises RouteNotFound."""
        queues = self._found.get(topic)
        if queues is None:
            queues = self._found[topic] = find_queues(self._sender, topic, self._options)
        return queues


def find_queues(
    sender: BlockingSender, topic: str, options: WriteOptions
) -> Sequence[MessageQueue]:
    """The queues that keys of a topic are hashed over: those option orderedQueues names, else the route's."""
    if options.ordered_queues:
        return ordered_queues(topic, options.ordered_queues)
    return sender.queues(topic)


def stream_write_id(context: TaskContext | None) -> str:
    """Query and batch of the running stream: the same after a restart from its checkpoint."""
    query = batch = None
    if context is not None:
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        raise ConfigError(
            "rocketmq: this task does not know its stream's query and batch; give option idColumn"
        )
    return f"{query}/{batch}"


@lru_cache(maxsize=8)
def open_sender(options: WriteOptions) -> BlockingSender:
    """The sender of this process for these options: Spark reuses its Python workers, and so the connections."""
    return BlockingSender(sender_config(options))


class IdMaker:
    """Draws message ids, a slice's at once."""

    def __init__(self, host: str) -> None:
        entropy = Entropy()
        self._ids = UniqueIds(host_bytes(host, 0)[:-4], entropy.process_id, entropy.below(1 << 31))
        self._clock = SystemClock()

    def __call__(self, count: int) -> list[str]:
        return self._ids.next_ids(self._clock.now_ms(), count)


def plan_write(schema: StructType, options: WriteOptions, *, stream: bool) -> WriteTask:
    """Check columns and topic on the driver, before any task runs.

    Streams plan each batch and look here again when they commit it: there a name server that does not answer
    must not undo what was sent, so it is left to the tasks.

    Raises:
        ConfigError, RouteNotFound: as one line that says what to do.
    """
    columns = write_columns(schema, options)
    queues: Sequence[MessageQueue] = ()
    if options.topic:
        sender = BlockingSender(sender_config(options))
        try:
            queues = find_queues(sender, options.topic, options)
        except RouteNotFound as error:
            if not stream:
                raise RouteNotFound(
                    options.topic,
                    f"rocketmq: {error}; make it (roquette topic create), or set autoCreateTopic=true",
                ) from None
        except ClientError as error:
            if not stream:
                raise ConfigError(
                    f"rocketmq: no route of topic {options.topic} from namesrvAddr "
                    f"{options.namesrv_addr}: {error}"
                ) from None
        finally:
            sender.close()
    write_id = options.write_id
    if not write_id and not stream:
        write_id = Entropy().token(8)
    return WriteTask(options, columns, tuple(queues), write_id)


def refuse_overwrite(overwrite: bool) -> None:
    """A topic only grows. Raises ConfigError."""
    if overwrite:
        raise ConfigError(APPEND_ONLY)


def report(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    sent = [message for message in messages if isinstance(message, SentPartition)]
    log.info(
        "%s written rows=%d requests=%d busy=%d failures=%d weak=%d tasks=%d",
        what,
        sum(one.rows for one in sent),
        sum(one.requests for one in sent),
        sum(one.busy for one in sent),
        sum(one.failures for one in sent),
        sum(one.weak for one in sent),
        len(sent),
    )


class RocketmqBatchWriter(DataSourceArrowWriter):
    """Spark pickles it into the tasks, and calls commit or abort of that copy on the driver."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        self._task = plan_write(schema, options, stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentPartition:
        with plain_errors():
            return self._task.run(iterator, TaskContext.get())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        report(messages, "table")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Some task failed for good. Messages that were sent stay: there is no taking back."""
        report(messages, "aborted table")


class RocketmqStreamWriter(DataSourceStreamArrowWriter):
    """Spark creates one for each batch's plan and another for its commit."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        if options.write_id:
            raise ConfigError(
                "rocketmq: writeId is for tables: a stream's query and batch are its ids"
            )
        self._task = plan_write(schema, options, stream=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentPartition:
        with plain_errors():
            return self._task.run(iterator, TaskContext.get())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        report(messages, f"batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task failed for good; the query ends and sends the batch again when it is restarted."""
        report(messages, f"aborted batch {batchId}")
