"""Appends the messages of a client batch: one write to each file, no object per message. HOT.

A message is stored as it came in the batch: Apache's MessageExtEncoder (5.5) adds nothing of the batch's own,
whose UNIQ_KEY, sent by clients of 5.x, would hide the id of every message.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from roquette.base.javatypes import java_text
from roquette.errors import BatchTooLarge, CorruptRecord, MessageIllegal
from roquette.message.batch import BatchCursor
from roquette.message.properties import KEYS_MARK, KeySpans, find_property
from roquette.message.record import write_record
from roquette.message.record_layout import MAX_PROPERTIES
from roquette.store.config import StoreConfig
from roquette.store.index.index import Index
from roquette.store.limits import raise_illegal
from roquette.store.log.commit_log import CommitLog
from roquette.store.queues.consume_queue import UNIT_SIZE, ConsumeQueue
from roquette.store.queues.consume_queues import ConsumeQueues, TopicQueues
from roquette.store.results import Arrival, BatchAppended

MAX_BATCH_KEYS: Final = 32_768  # besides the first of each message


class Part:
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
        spaces = 0
        try:
            while cursor.advance():
                body: i64 = cursor.body_end - cursor.body_start
                text: i64 = cursor.properties_end - cursor.properties_start
                size: i64 = fixed + body + text
                if body > max_body or text > MAX_PROPERTIES or size > max_record:
                    raise_illegal(config, body, text, size)
                properties = cursor.properties
                if properties.endswith(b"\0"):  # at a record's end they look torn to recovery
                    raise MessageIllegal("the properties of a batch's message end in a zero byte")
                spaces += properties.count(b" ")
                count += 1
                if count > most:
                    raise BatchTooLarge(
                        f"the batch has more than {most} messages (maxBatchMessages)"
                    )
        except CorruptRecord as error:
            raise MessageIllegal(f"the batch is not one: {error}") from None
        if not count:
            raise MessageIllegal("the batch has no message")
        if spaces > MAX_BATCH_KEYS:
            self._check_keys(batch)

    def _check_keys(self, batch: bytes) -> None:
        """Each word of KEYS becomes an entry of the index, on the loop."""
        words = 0
        cursor = BatchCursor(batch)
        while cursor.advance():
            properties = cursor.properties
            start, end = find_property(properties, 0, len(properties), KEYS_MARK)
            words += properties.count(b" ", start, end)
        if words > MAX_BATCH_KEYS:
            raise BatchTooLarge(f"the messages of the batch have more than {MAX_BATCH_KEYS} keys")

    def append(
        self,
        entry: TopicQueues,
        queue_id: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
        batch: bytes,
        now_ms: int,
        arrivals: list[Arrival],
    ) -> BatchAppended:
        """Append the messages of a batch that `check` has passed; `arrivals` grows by one for each.

        Raises:
            OSError: a file could not grow. Messages before that point stand in the log and its queue.
        """
        queue = entry.queues.get(queue_id)
        done = BatchAppended(0 if queue is None else queue.next_offset)
        fresh: list[Arrival] = []
        parts = self._encode(
            entry,
            queue_id,
            sys_flag,
            born_ms,
            born_host,
            reconsume_times,
            batch,
            now_ms,
            done,
            fresh,
        )
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
        queue_id: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
        batch: bytes,
        now_ms: int,
        done: BatchAppended,
        fresh: list[Arrival],
    ) -> list[Part]:
        """All that is to be written; says in `done` and `fresh` where it will stand."""
        fixed: i64 = entry.fixed_size + len(born_host) + len(self._store_host)
        ids = BytesWriter()
        cursor = BatchCursor(batch)
        parts: list[Part] = []
        part: Part | None = None
        offset: i64 = done.queue_offset
        physical: i64 = self._log.end_offset
        while cursor.advance():
            body = cursor.body
            properties = cursor.properties
            size: i64 = fixed + len(body) + len(properties)
            place = self._log.next_place(physical, size)
            if part is None or place != physical or offset % self._queues.units_per_file == 0:
                part = Part(size)
                parts.append(part)
            physical = place
            write_record(
                part.records,
                entry.name,
                i32(queue_id),
                i32(cursor.flag),
                offset,
                physical,
                i32(sys_flag),
                born_ms,
                born_host,
                now_ms,
                self._store_host,
                i32(reconsume_times),
                0,
                body,
                properties,
            )
            code = self._dispatch(part, entry, properties, physical, size)
            fresh.append(Arrival(entry.topic, queue_id, offset, code, physical, size, now_ms))
            ids.write(self._store_host)
            write_i64_be(ids, physical)
            done.count += 1
            done.size += size
            offset += 1
            physical += size
        done.end_offset = physical
        done.message_ids = ids.getvalue()
        return parts

    def _give(self, queue: ConsumeQueue, part: Part, now_ms: i64) -> None:
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

    def _dispatch(
        self, part: Part, entry: TopicQueues, properties: bytes, physical: i64, size: i64
    ) -> i64:
        """Collect the record's queue unit and its index entries; returns its tags code."""
        spans = self._spans
        spans.scan(properties)
        code: i64 = 0
        tags_key: i64 = -1
        if spans.tags_end > spans.tags_start:
            tags = entry.keys.tag_hashes(java_text(properties[spans.tags_start : spans.tags_end]))
            code = tags.code
            tags_key = tags.key
        units = part.units
        write_i64_be(units, physical)
        write_i32_be(units, i32(size))
        write_i64_be(units, code)
        if self._index is not None:
            self._collect_keys(part.keys, entry, properties, tags_key, physical)
        return code

    def _collect_keys(
        self,
        keys: BytesWriter,
        entry: TopicQueues,
        properties: bytes,
        tags_key: i64,
        physical: i64,
    ) -> None:
        """Index entries in Apache's order: unique id, each word of KEYS, tags."""
        spans = self._spans
        if spans.uniq_end > spans.uniq_start:
            write_i64_be(keys, entry.keys.hash_of(properties, spans.uniq_start, spans.uniq_end))
            write_i64_be(keys, physical)
        start = spans.keys_start
        while start < spans.keys_end:
            end = start
            while end < spans.keys_end and properties[end] != 32:
                end += 1
            if end > start:
                write_i64_be(keys, entry.keys.hash_of(properties, start, end))
                write_i64_be(keys, physical)
            start = end + 1
        if tags_key >= 0:
            write_i64_be(keys, tags_key)
            write_i64_be(keys, physical)
