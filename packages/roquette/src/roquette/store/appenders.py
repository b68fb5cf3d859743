"""Appending to the log: batches of a producer, and the raw bytes that a replica receives. HOT."""

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from roquette.base.javatypes import java_text
from roquette.errors import BatchTooLarge, CorruptRecord, MessageIllegal, OffsetOutOfRange
from roquette.message.names import SCHEDULE_TOPIC
from roquette.message.properties import KEYS_MARK, KeySpans, find_property
from roquette.message.record import BatchCursor, write_record
from roquette.message.record_layout import BLANK_SIZE, MAX_PROPERTIES, Draft, Place
from roquette.message.record_view import BAD_PARTS, BAD_SIZE, BLANK, FAULT_WORDS, SOUND, RecordView
from roquette.message.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from roquette.store.format.config import StoreConfig, raise_illegal
from roquette.store.format.results import Arrival, BatchAppended
from roquette.store.format.unit import UNIT_SIZE
from roquette.store.index.index import Index
from roquette.store.log.commit_log import PENDING_LIMIT, CommitLog
from roquette.store.queues.consume_queue import ConsumeQueue
from roquette.store.queues.consume_queues import ConsumeQueues, TopicQueues
from roquette.store.reput import Reput, parse_delay_levels

# Takes the bytes of a master's log as they are: whole records get their units and index entries at once. HOT.
# Pieces end where the master cut them, often within a record. The log has whole records only: what follows them is held in memory until the rest comes. A sector with half of a header in it would pass for a record after a power cut.


_SCHEDULE: Final = SCHEDULE_TOPIC.encode()
_MOST_HELD: Final = 64 << 20  # bytes of one record; what clients send takes 16 MiB at most
_WIDEST_GAP: Final = 1_000_000  # units of lost messages that one record may ask for
_MISPLACED: Final = 1000
# Arrivals that nobody may see yet; who waits for older ones asks again by itself.
MOST_ARRIVALS: Final = 100_000


class RawAppender:
    """Appender of the bytes a replica gets from its master.

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
        properties = view.properties()
        self._spans.scan(properties)
        code = entry.keys.collect(properties, self._spans, physical, keys)
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
        reput.end_rebuild()  # the next record has not come yet
        if physical in reput.misplaced:
            return -1
        return entry.queues[queue_id].next_offset - 1


# Appends the messages of a client batch: one write to each file, no object per message. HOT.
# A message is stored as it came in the batch: Apache's MessageExtEncoder (5.5) adds nothing of the batch's own, whose UNIQ_KEY, sent by clients of 5.x, would hide the id of every message.


MAX_BATCH_KEYS: Final = 32_768  # besides the first of each message


class BatchPart:
    """Messages that stand in one file of the log and of their queue: records, queue units and index entries."""

    __slots__ = ("first_size", "keys", "records", "units")

    def __init__(self, first_size: i64, records: BytesWriter) -> None:
        self.first_size: i64 = first_size  # of the first record
        self.records: BytesWriter = records
        self.units: BytesWriter = BytesWriter()
        self.keys: BytesWriter = BytesWriter()  # key hash and physical offset, 8 bytes each


class BatchAppender:
    """Appender of a batch: what it appends stands in order, in one queue, with queue offsets that follow each other.

    All messages are encoded before the log, the queue, the index or `arrivals` change: whatever fails while that
    is done leaves nothing behind.
    """

    __slots__ = ("_index", "_log", "_queues", "_records", "_spans", "_store_host")

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, index: Index | None, store_host: bytes
    ) -> None:
        self._log: CommitLog = log
        self._queues: ConsumeQueues = queues
        self._index: Index | None = index
        self._store_host: bytes = store_host
        self._spans: KeySpans = KeySpans()
        self._records: BytesWriter = BytesWriter()  # of a first part, unless it is large

    def check(self, batch: bytes, fixed: i64, config: StoreConfig, max_record: i64) -> None:
        """Look at every message before one is appended; `fixed` is a record's size without body and properties.

        Raises:
            MessageIllegal: the batch is empty or torn, or a message breaks a limit.
        """
        max_body: i64 = config.max_message_size
        cursor = BatchCursor(batch)
        count = 0
        most = config.max_batch_messages
        texts: i64 = 0
        try:
            while cursor.advance():
                body: i64 = cursor.body_end - cursor.body_start
                text: i64 = cursor.properties_end - cursor.properties_start
                size: i64 = fixed + body + text
                texts += text
                if body > max_body or text > MAX_PROPERTIES or size > max_record:
                    raise_illegal(config, body, text, size)
                # A zero byte at a record's end looks torn to recovery.
                if text and batch[cursor.properties_end - 1] == 0:
                    raise MessageIllegal("the properties of a batch's message end in a zero byte")
                count += 1
                if count > most:
                    raise BatchTooLarge(
                        f"the batch has more than {most} messages (maxBatchMessages)"
                    )
        except CorruptRecord as error:
            raise MessageIllegal(f"the batch is not one: {error}") from None
        if not count:
            raise MessageIllegal("the batch has no message")
        if texts > MAX_BATCH_KEYS:  # fewer bytes cannot hold so many words
            self._check_keys(batch)

    def _check_keys(self, batch: bytes) -> None:
        """Each word of KEYS becomes an entry of the index, on the loop."""
        words = 0
        cursor = BatchCursor(batch)
        while cursor.advance():
            properties = cursor.properties
            if b" " in properties:
                start, end = find_property(properties, 0, len(properties), KEYS_MARK)
                words += properties.count(b" ", start, end)
        if words > MAX_BATCH_KEYS:
            raise BatchTooLarge(f"the messages of the batch have more than {MAX_BATCH_KEYS} keys")

    def append(
        self, entry: TopicQueues, draft: Draft, now_ms: i64, arrivals: list[Arrival]
    ) -> BatchAppended:
        """Append the messages of a batch that `check` has passed; `arrivals` grows by one for each.

        Raises:
            OSError: a file could not grow. Messages before that point stand in the log and its queue.
        """
        queue_id = int(draft.queue_id)
        queue = entry.queues.get(queue_id)
        done = BatchAppended(0 if queue is None else queue.next_offset)
        parts = self._encode(entry, draft, now_ms, done)
        if queue is None:
            queue = self._queues.create(entry.topic, queue_id)
        start = 0
        for part in parts:
            self._give(queue, part, now_ms)
            end = start + len(part.units) // UNIT_SIZE
            arrivals.extend(done.messages[start:end])
            start = end
        return done

    def _encode(
        self, entry: TopicQueues, draft: Draft, now_ms: i64, done: BatchAppended
    ) -> list[BatchPart]:
        """All that is to be written; says in `done` where it will stand."""
        born_host = draft.born_host
        store_host = self._store_host
        fixed: i64 = entry.fixed_size + len(born_host) + len(store_host)
        queue_id = int(draft.queue_id)
        cursor = BatchCursor(draft.body)
        message = Draft(draft.topic, draft.queue_id, b"", b"", draft.born_ms, born_host)
        message.sys_flag = draft.sys_flag
        message.reconsume_times = draft.reconsume_times
        place = Place(entry.name, store_host, now_ms, done.queue_offset, self._log.end_offset)
        # Memory that grows is copied; what a large batch needs is not kept.
        records = self._records if len(draft.body) <= PENDING_LIMIT else BytesWriter()
        records.truncate(0)
        parts: list[BatchPart] = []
        part: BatchPart | None = None
        while cursor.advance():
            message.flag = cursor.flag
            message.body = cursor.body
            message.properties = cursor.properties
            size: i64 = fixed + len(message.body) + len(message.properties)
            physical = self._log.next_place(place.physical_offset, size)
            offset = place.queue_offset
            if (
                part is None
                or physical != place.physical_offset
                or offset % self._queues.units_per_file == 0
            ):
                part = BatchPart(size, BytesWriter() if parts else records)
                parts.append(part)
            place.physical_offset = physical
            write_record(part.records, message, place)
            self._spans.scan(message.properties)
            code = entry.keys.collect(message.properties, self._spans, physical, part.keys)
            write_i64_be(part.units, physical)
            write_i32_be(part.units, i32(size))
            write_i64_be(part.units, code)
            done.messages.append(Arrival(entry.topic, queue_id, offset, code, physical, size))
            done.size += size
            place.queue_offset = offset + 1
            place.physical_offset = physical + size
        done.end_offset = place.physical_offset
        return parts

    def _give(self, queue: ConsumeQueue, part: BatchPart, now_ms: i64) -> None:
        """Give a part to the log, the queue and the index. Raises OSError: nothing of it was given."""
        index = self._index
        queue.reserve()
        if index is not None and index.full:
            index.reserve(now_ms)
        self._log.place(part.first_size)
        self._log.append(part.records.getvalue())
        queue.append_units(part.units.getvalue())
        if not queue.dirty:
            self._queues.mark_dirty(queue)
        if index is not None:
            index.put_batch(part.keys.getvalue(), now_ms)
