"""Messages to chunks: as many as a request may hold, for one queue, in order."""

from collections.abc import Callable
from typing import Final

from roquette.message.batch import ENTRY_SIZE, encode_batch
from roquette.message.message import MessageQueue
from roquette.message.properties import encode_properties
from roquette_spark.sink.rows import Entry, Rows
from roquette_spark.workers.send_window import Chunk

BATCH_BYTES: Final = 1 << 20  # a batch request is closed at about this size
_MAX_HELD: Final = 32 << 20  # bytes in unfinished batches of all queues
_ADDED: Final = encode_properties({"WAIT": "true"})


class _OpenBatch:
    """The unfinished batch of one queue, or of a topic's messages that may go to any."""

    __slots__ = ("entries", "first_row", "queue", "size", "topic")

    def __init__(self, topic: str, queue: MessageQueue | None) -> None:
        self.topic = topic
        self.queue = queue
        self.entries: list[Entry] = []
        self.size = 0
        self.first_row = 0


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
        """Hand on every unfinished batch."""
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
