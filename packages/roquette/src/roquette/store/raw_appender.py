"""Takes the bytes of a master's log as they are: whole records get their units and index entries at once. HOT.

Pieces end where the master cut them, often within a record. The log has whole records only: what follows them is held
in memory until the rest comes. A sector with half of a header in it would pass for a record after a power cut.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from roquette.base.javatypes import java_text
from roquette.errors import CorruptRecord, OffsetOutOfRange
from roquette.message.names import SCHEDULE_TOPIC
from roquette.message.properties import KeySpans
from roquette.message.record_layout import BLANK_SIZE
from roquette.message.record_view import (
    BAD_PARTS,
    BAD_SIZE,
    BLANK,
    FAULT_WORDS,
    SOUND,
    RecordView,
)
from roquette.message.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from roquette.store.format.config import StoreConfig
from roquette.store.format.results import Arrival
from roquette.store.index.index import Index
from roquette.store.log.commit_log import CommitLog
from roquette.store.queues.consume_queue import ConsumeQueue
from roquette.store.queues.consume_queues import ConsumeQueues, TopicQueues
from roquette.store.reput import Reput, parse_delay_levels

_SCHEDULE: Final = SCHEDULE_TOPIC.encode()
_MOST_HELD: Final = 64 << 20  # bytes of one record; what clients send takes 16 MiB at most
_WIDEST_GAP: Final = 1_000_000  # units of lost messages that one record may ask for
_MISPLACED: Final = 1000
# Arrivals that nobody may see yet; who waits for older ones asks again by itself.
MOST_ARRIVALS: Final = 100_000


class RawAppender:
    """What a replica does with the bytes it gets.

    Attributes:
        held: bytes behind the log's end, of a record that is not whole yet.
        last_ms: the store time of the last record; last_offset: where it begins, -1: there was none.
    """

    __slots__ = (
        "_checks", "_index", "_log", "_name", "_need", "_pieces", "_queues", "_reput", "_spans", "_topic", "_view", "_whole",
        "held", "last_ms", "last_offset",
    )  # fmt: skip

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, index: Index | None, config: StoreConfig
    ) -> None:
        self._log: CommitLog = log
        self._queues: ConsumeQueues = queues
        self._index: Index | None = index
        # What does not follow its queue's last record gets its unit there.
        delays = parse_delay_levels(config.delay_levels)
        self._reput: Reput = Reput(queues, None, delays, config.segment_size)
        self._spans: KeySpans = KeySpans()
        self._view: RecordView = RecordView()
        self._name: bytes = b""
        self._topic: TopicQueues | None = None  # of that name
        self._pieces: list[bytes] = []  # what is held
        self._need: i64 = BLANK_SIZE  # bytes to hold until more can be said of the record
        self._checks: bool = False  # bodies of this piece
        self._whole: i64 = 0  # records before this position are dispatched
        self.held: i64 = 0
        self.last_ms: i64 = 0
        self.last_offset: i64 = -1

    def begin_at(self, offset: i64) -> None:
        """Begin an empty log at the offset that a master names."""
        log = self._log
        active = log.active
        base: i64 = 0 if offset == 1 else offset
        empty = active is None or (active.appended == 0 and log.min_offset == base)
        if base % log.segment_size != 0 or not empty:
            raise OffsetOutOfRange(
                f"the commit log has {log.min_offset} to {log.end_offset}, in files of {log.segment_size} "
                f"bytes: it cannot begin at {offset}"
            )
        if active is None:
            log.begin(base)
        self._hold(b"\0" if offset == 1 else b"")

    def _hold(self, data: bytes) -> None:
        """Forget what is held; `data` is held instead."""
        self._pieces = [data] if data else []
        self.held = len(data)
        self._need = BLANK_SIZE

    def append(self, offset: i64, data: bytes, arrivals: list[Arrival], checks: bool) -> None:
        """Append a piece; `arrivals` grows by its messages. `checks`: bodies by their CRC, too.

        Raises:
            OffsetOutOfRange: it does not begin at the end, or crosses a file's end. Nothing was appended.
            CorruptRecord: it holds no sound record. OSError: no room. The whole records before that were appended,
            nothing is held.
        """
        log = self._log
        segment_size: i64 = log.segment_size
        if log.active is None and offset % segment_size == 0:
            log.begin(offset)
            self._hold(b"")
        start: i64 = log.end_offset
        if offset == start and self.held:
            self._hold(b"")
        active = log.active
        if active is None or offset != start + self.held:
            raise OffsetOutOfRange(
                f"bytes of the commit log from {offset} on do not fit: it ends at {start}"
            )
        limit: i64 = start - start % segment_size + segment_size
        if offset + len(data) > limit:
            raise OffsetOutOfRange(
                f"{len(data)} bytes of the commit log from {offset} on cross the end of a file of "
                f"{segment_size} bytes (mappedFileSizeCommitLog must be the same on both brokers)"
            )
        self._pieces.append(data)
        self.held += len(data)
        if self.held < self._need and start + self.held < limit:
            return
        source = b"".join(self._pieces)
        self._hold(b"")
        if active.appended == active.size:
            log.roll()
        self._whole, self._checks = 0, checks
        self._topic = None  # it may have been deleted
        try:
            self._take(source, start, limit - start, arrivals)
        finally:
            whole = self._whole
            if whole:
                log.append(source if whole == len(source) else source[:whole])
            if len(arrivals) > MOST_ARRIVALS:
                del arrivals[: MOST_ARRIVALS // 2]
        if whole < len(source):
            self._pieces = [source[whole:]]
            self.held = len(source) - whole

    def _take(self, source: bytes, start: i64, room: i64, arrivals: list[Arrival]) -> None:
        """Dispatch the records that have become whole. `room`: bytes until the file ends."""
        view = self._view
        size: i64 = len(source)
        at: i64 = 0
        self._need = BLANK_SIZE
        while size - at >= BLANK_SIZE:
            fault = view.find_size(source, at, room - at)
            if fault == SOUND and view.size > _MOST_HELD:
                fault = BAD_SIZE
            if fault == SOUND or fault == BLANK:
                if at + view.size > size:
                    self._need = view.size
                    return
                following = at + view.size
                if fault == SOUND:
                    fault = self._look(source, at, start + at)
                    if fault == SOUND:
                        self._dispatch(start + at, arrivals)
                        at = following
                        self._whole = at
                        continue
                else:
                    self._whole = following
                    return
            raise self._unsound(start + at, fault)
        if size == room and at < room:
            raise self._unsound(start + at, BAD_PARTS)

    def _look(self, source: bytes, at: i64, physical: i64) -> i64:
        view = self._view
        fault = view.find(source, at)
        if fault == SOUND:
            fault = view.check_place(physical)
        if fault == SOUND:
            fault = view.check_topic()
        return view.check_body() if fault == SOUND and self._checks else fault

    def _unsound(self, physical: i64, fault: i64) -> CorruptRecord:
        return CorruptRecord(
            f"the master's commit log has no sound record at offset {physical}: {FAULT_WORDS[fault]}"
        )

    def _dispatch(self, physical: i64, arrivals: list[Arrival]) -> None:
        """Give the record in the view to its queue and the index."""
        view = self._view
        kind = view.sys_flag & TRANSACTION_MASK
        name = view.data[view.topic_at : view.topic_at + view.topic_size]
        entry = self._topic
        if entry is None or name != self._name:
            topic = java_text(name)
            entry = self._queues.topics.get(topic) or self._queues.topic(topic)
            self._topic = entry
            self._name = name
        index = self._index
        if index is not None and index.full:
            index.reserve(view.store_ms)
        keys = BytesWriter()
        code = entry.keys.collect(view.properties(), self._spans, physical, keys)
        if kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK:
            if name == _SCHEDULE:
                code = self._reput.tags_code(view.record())
            offset = self._put_unit(entry, physical, code)
            if offset >= 0:
                queue_id: int = view.queue_id
                arrivals.append(Arrival(entry.topic, queue_id, offset, code, physical, view.size))
        if kind != TRANSACTION_ROLLBACK and index is not None:
            index.put_batch(keys.getvalue(), view.store_ms)
        self.last_ms = view.store_ms
        self.last_offset = physical

    def _put_unit(self, entry: TopicQueues, physical: i64, code: i64) -> i64:
        """Append the unit; returns its queue offset, -1 when the record belongs to another queue than it says."""
        view = self._view
        queue_id: int = view.queue_id
        queue = entry.queues.get(queue_id)
        if queue is None:
            queue = self._queues.create(entry.topic, queue_id)
        offset: i64 = queue.next_offset
        if view.queue_offset != offset or (offset > 0 and queue.file_count == 0):
            return self._put_elsewhere(entry, queue, physical)
        queue.reserve()
        queue.append(physical, view.size, code)
        if not queue.dirty:
            self._queues.mark_dirty(queue)
        return offset

    def _put_elsewhere(self, entry: TopicQueues, queue: ConsumeQueue, physical: i64) -> i64:
        """Append the unit of a record that does not follow the queue's last one, as recovery does.

        The log began later, the topic was deleted and made again, or messages between were lost to damage.
        """
        view = self._view
        if queue.file_count and view.queue_offset > queue.next_offset + _WIDEST_GAP:
            raise self._unsound(physical, BAD_PARTS)
        reput = self._reput
        if len(reput.misplaced) > _MISPLACED:
            reput.misplaced.clear()
        queue_id: int = view.queue_id
        reput.rebuild(view.record(), {(entry.topic, queue_id): None})
        if physical in reput.misplaced:
            return -1
        return entry.queues[queue_id].next_offset - 1
