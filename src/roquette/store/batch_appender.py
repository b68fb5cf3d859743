"""Appends the messages of a client batch: one write to each file, no object per message. HOT.

A message is stored as it came in the batch: Apache's MessageExtEncoder (5.5) adds nothing of the batch's own,
whose UNIQ_KEY, sent by clients of 5.x, would hide the id of every message.
"""

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from roquette.errors import CorruptRecord, MessageIllegal
from roquette.message.batch import BatchCursor
from roquette.message.record import MAX_PROPERTIES, write_record
from roquette.store.commit_log import CommitLog
from roquette.store.config import StoreConfig
from roquette.store.consume_queue import ConsumeQueue
from roquette.store.consume_queues import ConsumeQueues, TopicQueues
from roquette.store.index import Index
from roquette.store.keys import KeySpans
from roquette.store.limits import raise_illegal
from roquette.store.results import Arrival, BatchAppended


class BatchAppender:
    """What is appended here stands in order, in one queue, with queue offsets that follow each other."""

    __slots__ = (
        "_chunk",
        "_index",
        "_log",
        "_queue",
        "_queues",
        "_spans",
        "_store_host",
        "_units",
    )

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, index: Index | None, store_host: bytes
    ) -> None:
        self._log: CommitLog = log
        self._queues: ConsumeQueues = queues
        self._index: Index | None = index
        self._store_host: bytes = store_host
        self._spans: KeySpans = KeySpans()
        self._chunk: BytesWriter = BytesWriter()  # records not yet given to the log
        self._units: BytesWriter = BytesWriter()  # their queue units
        self._queue: ConsumeQueue | None = None

    def check(self, batch: bytes, fixed: i64, config: StoreConfig, max_record: i64) -> None:
        """Look at every message before one is appended; `fixed` is a record's size without body and properties.

        Raises:
            MessageIllegal: the batch is empty, torn or not text where text belongs, or a message breaks a limit.
        """
        max_body: i64 = config.max_message_size
        cursor = BatchCursor(batch)
        count = 0
        try:
            while cursor.advance():
                body: i64 = cursor.body_end - cursor.body_start
                text: i64 = cursor.properties_end - cursor.properties_start
                size: i64 = fixed + body + text
                if body > max_body or text > MAX_PROPERTIES or size > max_record:
                    raise_illegal(config, body, text, size)
                properties = cursor.properties
                if not properties.isascii():
                    properties.decode()
                if properties.endswith(b"\0"):  # at a record's end they look torn to recovery
                    raise MessageIllegal("the properties of a batch's message end in a zero byte")
                count += 1
        except (CorruptRecord, UnicodeDecodeError) as error:
            raise MessageIllegal(f"the batch is not one: {error}") from None
        if not count:
            raise MessageIllegal("the batch has no message")

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
        queue = entry.queues.get(queue_id) or self._queues.create(entry.topic, queue_id)
        self._queue = queue
        fixed: i64 = entry.fixed_size + len(born_host) + len(self._store_host)
        done = BatchAppended(queue.next_offset)
        ids = BytesWriter()
        cursor = BatchCursor(batch)
        name = entry.name
        topic = entry.topic
        offset: i64 = queue.next_offset
        physical: i64 = 0
        log_room: i64 = 0
        unit_room: i64 = 0
        try:
            while cursor.advance():
                body = cursor.body
                properties = cursor.properties
                size: i64 = fixed + len(body) + len(properties)
                if size > log_room or unit_room == 0:
                    self._give()
                    queue.reserve()
                    unit_room = queue.room
                    physical = self._log.place(size)
                    log_room = self._log.room
                if self._index is not None and self._index.full:
                    self._index.reserve(now_ms)
                write_record(
                    self._chunk,
                    name,
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
                code = self._dispatch(entry, properties, physical, size, now_ms)
                arrivals.append(Arrival(topic, queue_id, offset, code, physical, size, now_ms))
                ids.write(self._store_host)
                write_i64_be(ids, physical)
                done.count += 1
                done.size += size
                offset += 1
                physical += size
                log_room -= size
                unit_room -= 1
        finally:
            self._give()
            self._queue = None
        done.end_offset = physical
        done.message_ids = ids.getvalue()
        return done

    def _give(self) -> None:
        """Give what was collected to the log and the queue."""
        queue = self._queue
        records = self._chunk.getvalue()
        if records and queue is not None:
            self._log.append(records)
            queue.append_units(self._units.getvalue())
            if not queue.dirty:
                self._queues.mark_dirty(queue)
            self._chunk = BytesWriter()
            self._units = BytesWriter()

    def _dispatch(
        self, entry: TopicQueues, properties: bytes, physical: i64, size: i64, now_ms: i64
    ) -> i64:
        """Collect the record's queue unit and put its keys in the index; returns its tags code."""
        spans = self._spans
        spans.scan(properties)
        code: i64 = 0
        tags_key: i64 = -1
        if spans.tags_end > spans.tags_start:
            tags = entry.keys.tag_hashes(properties[spans.tags_start : spans.tags_end])
            code = tags.code
            tags_key = tags.key
        write_i64_be(self._units, physical)
        write_i32_be(self._units, i32(size))
        write_i64_be(self._units, code)
        if self._index is not None:
            self._put_keys(self._index, entry, properties, tags_key, physical, now_ms)
        return code

    def _put_keys(
        self,
        index: Index,
        entry: TopicQueues,
        properties: bytes,
        tags_key: i64,
        physical: i64,
        now_ms: i64,
    ) -> None:
        """Index entries in Apache's order: unique id, each word of KEYS, tags."""
        spans = self._spans
        if spans.uniq_end > spans.uniq_start:
            index.put(
                entry.keys.hash_of(properties, spans.uniq_start, spans.uniq_end), physical, now_ms
            )
        start = spans.keys_start
        while start < spans.keys_end:
            end = start
            while end < spans.keys_end and properties[end] != 32:
                end += 1
            if end > start:
                index.put(entry.keys.hash_of(properties, start, end), physical, now_ms)
            start = end + 1
        if tags_key >= 0:
            index.put(tags_key, physical, now_ms)
