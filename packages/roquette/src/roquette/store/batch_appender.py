"""Appends the messages of a client batch: one write to each file, no object per message. HOT.

A message is stored as it came in the batch: Apache's MessageExtEncoder (5.5) adds nothing of the batch's own,
whose UNIQ_KEY, sent by clients of 5.x, would hide the id of every message.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from roquette.errors import BatchTooLarge, CorruptRecord, MessageIllegal
from roquette.message.batch import BatchCursor
from roquette.message.draft import Draft, Place
from roquette.message.properties import KEYS_MARK, KeySpans, find_property
from roquette.message.record import write_record
from roquette.message.record_layout import MAX_PROPERTIES
from roquette.store.format.config import StoreConfig
from roquette.store.format.limits import raise_illegal
from roquette.store.format.results import Arrival, BatchAppended
from roquette.store.format.unit import UNIT_SIZE
from roquette.store.index.index import Index
from roquette.store.log.commit_log import CommitLog
from roquette.store.queues.consume_queue import ConsumeQueue
from roquette.store.queues.consume_queues import ConsumeQueues, TopicQueues

MAX_BATCH_KEYS: Final = 32_768  # besides the first of each message


class BatchPart:
    """Messages that stand in one file of the log and of their queue: records, queue units and index entries."""

    __slots__ = ("first_size", "keys", "records", "units")

    def __init__(self, first_size: i64) -> None:
        self.first_size: i64 = first_size  # of the first record
        self.records: BytesWriter = BytesWriter()
        self.units: BytesWriter = BytesWriter()
        self.keys: BytesWriter = BytesWriter()  # key hash and physical offset, 8 bytes each


class BatchAppender:
    """What is appended here stands in order, in one queue, with queue offsets that follow each other.

    All messages are encoded before the log, the queue, the index or `arrivals` change: whatever fails while that
    is done leaves nothing behind.
    """

    __slots__ = ("_index", "_log", "_queues", "_spans", "_store_host")

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, index: Index | None, store_host: bytes
    ) -> None:
        self._log: CommitLog = log
        self._queues: ConsumeQueues = queues
        self._index: Index | None = index
        self._store_host: bytes = store_host
        self._spans: KeySpans = KeySpans()

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
        fresh: list[Arrival] = []
        parts = self._encode(entry, draft, now_ms, done, fresh)
        if queue is None:
            queue = self._queues.create(entry.topic, queue_id)
        start = 0
        for part in parts:
            self._give(queue, part, now_ms)
            end = start + len(part.units) // UNIT_SIZE
            arrivals.extend(fresh[start:end])
            start = end
        return done

    def _encode(
        self,
        entry: TopicQueues,
        draft: Draft,
        now_ms: i64,
        done: BatchAppended,
        fresh: list[Arrival],
    ) -> list[BatchPart]:
        """All that is to be written; says in `done` and `fresh` where it will stand."""
        born_host = draft.born_host
        store_host = self._store_host
        fixed: i64 = entry.fixed_size + len(born_host) + len(store_host)
        queue_id = int(draft.queue_id)
        cursor = BatchCursor(draft.body)
        message = Draft(draft.topic, draft.queue_id, b"", b"", draft.born_ms, born_host)
        message.sys_flag = draft.sys_flag
        message.reconsume_times = draft.reconsume_times
        place = Place(entry.name, store_host, now_ms, done.queue_offset, self._log.end_offset)
        ids = BytesWriter()
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
                part = BatchPart(size)
                parts.append(part)
            place.physical_offset = physical
            write_record(part.records, message, place)
            code = entry.keys.collect(message.properties, self._spans, physical, part.keys)
            write_i64_be(part.units, physical)
            write_i32_be(part.units, i32(size))
            write_i64_be(part.units, code)
            fresh.append(Arrival(entry.topic, queue_id, offset, code, physical, size))
            ids.write(store_host)
            write_i64_be(ids, physical)
            done.count += 1
            done.size += size
            place.queue_offset = offset + 1
            place.physical_offset = physical + size
        done.end_offset = place.physical_offset
        done.message_ids = ids.getvalue()
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
