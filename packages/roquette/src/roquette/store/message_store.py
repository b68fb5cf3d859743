"""The store's facade: append a message, read a queue. One writer, no locks, no clock. HOT.

It is synchronous. What blocks (sync, allocation, deletion) leaves as a plan: the driver runs
`plan.run` in the executor and hands the plan back.
"""

import logging
from collections.abc import Callable, Iterator

from librt.strings import BytesWriter
from mypy_extensions import i64

from roquette.base.descriptors import NO_SPACE, SHORTAGE, shortage_words
from roquette.base.files import FileLock, Files
from roquette.errors import StoreClosed, StoreError, StoreFull, StoreShort
from roquette.message.properties import KeySpans
from roquette.message.record_layout import BLANK_SIZE, CODE_OF_TAGS, MAX_PROPERTIES, Draft, Place
from roquette.message.record_view import RecordView
from roquette.message.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from roquette.store.appenders import MOST_ARRIVALS, BatchAppender, RawAppender
from roquette.store.audit.index_audit import write_sums
from roquette.store.format.config import FlushDiskType, StoreConfig, raise_illegal
from roquette.store.format.layout import StoreLayout, refuse_other_kinds
from roquette.store.format.log_mark import begin_mark
from roquette.store.format.log_reader import LogReader
from roquette.store.format.results import Appended, Arrival, BatchAppended, Found
from roquette.store.index.index import Index, KeySearch
from roquette.store.log import commit_log
from roquette.store.log.commit_log import (
    NO_LIMIT,
    PENDING_LIMIT,
    CommitLog,
    FileSource,
    LogSource,
    RawRead,
    SpansRead,
)
from roquette.store.log_walk import log_readers
from roquette.store.queue_read import QueueRead, QueueReader, ReadRequest
from roquette.store.queues.consume_queue import ConsumeQueue
from roquette.store.queues.consume_queues import ConsumeQueues
from roquette.store.recovery import Recovery, RecoveryReport
from roquette.store.upkeep.retention import DiskGuard, DiskUsage
from roquette.store.upkeep.upkeep import (
    AllocationPlan,
    DeletionPlan,
    QueueFlushPlan,
    SyncPlan,
    Upkeep,
)

# Contents of a store, as readers see them: queues and their ends, records by queue, offset, time and key. HOT.


class StoredMessages:
    """The reading half of `MessageStore`; changes nothing of what is stored, unless that has rotted."""

    def __init__(self, config: StoreConfig, files: Files) -> None:
        self.config: StoreConfig = config
        self.layout: StoreLayout = StoreLayout(config.root_dir, config.commit_log_dir)
        self._files: Files = files
        self._log: CommitLog = CommitLog(
            files, self.layout.commit_log, self.layout.ahead, config.segment_size
        )
        self._log.read_ahead = config.data_read_ahead_enable
        self._queues: ConsumeQueues = ConsumeQueues(files, self.layout, config.queue_file_units)
        self._index: Index | None = None
        if config.index_enable:
            self._index = Index(
                files, self.layout.index, config.max_hash_slots, config.max_index_entries
            )
        self._reader: QueueReader = QueueReader(
            self._log, self._queues, config, files.memory_size()
        )

    def topics(self) -> list[str]:
        """Topics that have queues here."""
        return sorted(topic for topic, entry in self._queues.topics.items() if entry.queues)

    def queues_of(self, topic: str) -> list[int]:
        """Ids of a topic's queues here."""
        entry = self._queues.topics.get(topic)
        return sorted(entry.queues) if entry is not None else []

    def queues_from(self, topic: str, count: int) -> list[int]:
        """Ids from `count` on of queues that hold messages: a topic had more queues once."""
        return [
            queue_id
            for queue_id in self.queues_of(topic)
            if queue_id >= count
            and self.min_offset(topic, queue_id) < self.max_offset(topic, queue_id)
        ]

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first queue offset there is; 0 without a queue."""
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset(self._log.min_offset) if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset the next message gets; 0 without a queue."""
        queue = self._queues.find(topic, queue_id)
        return queue.next_offset if queue is not None else 0

    def read_queue(self, request: ReadRequest) -> Found:
        """Read records of a queue, also where the disk must be asked."""
        found = self._reader.read(request, False)
        assert isinstance(found, Found)
        return found

    def begin_read(self, request: ReadRequest) -> Found | QueueRead:
        """Read records of a queue, but return a read that may have to wait for the disk: run it in the executor."""
        return self._reader.read(request, True)

    def properties_at(self, physical_offset: int, size: int) -> bytes:
        """Property bytes of one record, as `Arrival` names it; empty when it is gone."""
        source = LogSource(self._log, self._log.end_offset)
        return source.properties(RecordView(), physical_offset, size)

    def read_log(self, start: int, end: int) -> bytes:
        """The log's bytes of a range within one file; shorter (or empty) where it has no more of them."""
        return self._log.read(start, end)

    def read_raw(self, start: int, max_bytes: int) -> bytes:
        """The log's bytes from an offset on, of one file, for a replica; empty where it has none. For warm bytes."""
        return self._log.read(start, min(start + max_bytes, self._log.end_offset))

    def restore_record(self, start: int, record: bytes) -> Callable[[], None]:
        """Put a record that was handed to the system back as it was; its size is the same. Raises OSError.

        Returns:
            What brings it to the disk, and blocks: no flush looks at that file again.
        """
        segment = self._log.find_segment(start)
        assert segment is not None
        segment.file.pwrite(record, start - segment.base_offset)
        sync: Callable[[], None] = segment.file.sync
        return sync

    def plan_raw(self, start: int, max_bytes: int) -> Callable[[], bytes]:
        """The same by pread in the executor, as far as the log was handed to the system."""
        end: i64 = min(start + max_bytes, self._log.wrote_offset)
        segment_end: i64 = start - start % self._log.segment_size + self._log.segment_size
        return RawRead(FileSource(self._log, end), start, min(end, segment_end)).run

    def log_readers(self, start: int) -> Iterator[LogReader]:
        """A reader of each file of the log from a record boundary on; they check no CRC."""
        return log_readers(self._log, max(start, self._log.min_offset), self._log.end_offset)

    def is_cold(self, physical_offset: int) -> bool:
        """May a read there have to wait for the disk? (Apache: checkInDiskByCommitOffset)."""
        return self._reader.is_cold(physical_offset)

    def lies_cold(self, topic: str, queue_id: int, offset: int) -> bool:
        """Does a queue's message lie where coldDataFlowControlEnable limits reading? (checkInColdAreaByCommitOffset)."""
        return self._reader.lies_cold(topic, queue_id, offset)

    def plan_spans(self, spans: list[tuple[i64, i64]]) -> Callable[[], list[bytes]]:
        """Return what reads ranges of the log in the executor; ranges the log has lost are left out."""
        return SpansRead(FileSource(self._log, self._log.end_offset), spans).run

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a queue's message, epoch ms; -1 when there is none."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return -1
        return commit_log.store_time_at(self._log, queue.physical_at(queue_offset))

    def units_until(self, physical_end: int, topic: str | None = None) -> int:
        """The queues' ends together, of records that end at or before an offset; `topic`: of its queues only."""
        return sum(
            queue.first_behind(physical_end)
            for queue in self._queues.all()
            if topic is None or queue.topic == topic
        )

    def queue_units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]] | None:
        """Units from an offset on: physical offset, size, tags code; None when the offset is not there."""
        queue = self._queues.find(topic, queue_id)
        return None if queue is None else queue.units_at(queue_offset, count)

    def earliest_store_time(self) -> int:
        """Store time of the oldest record of the log, epoch ms; -1 when it is empty."""
        return commit_log.store_time_at(self._log, self._log.min_offset)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False
    ) -> int:
        """A queue offset for a store time (Apache: ConsumeQueue.getOffsetInQueueByTime). 0 without a queue.

        Lower: the first message stored at or after the time; the end of the queue when there is none.
        Upper: the last message stored at or before the time; the first one when there is none.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        low = queue.min_offset(self._log.min_offset)
        first, high = low, queue.next_offset
        while low < high:
            middle = (low + high) // 2
            stored = commit_log.store_time_from(self._log, queue.physical_at(middle))
            if stored < timestamp_ms or (upper and stored == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        return max(first, low - 1) if upper else low

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """The record that begins at a physical offset; None when none does."""
        return commit_log.record_at(self._log, physical_offset, size)

    def search(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> KeySearch | None:
        """Begin a look-up by key or unique id, of maxMsgsNumBatch records at most; None without an index."""
        if self._index is None:
            return None
        limit = min(max_count, self.config.max_query_count)
        return self._index.search(topic, key, limit, begin_ms, end_ms)

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> list[bytes]:
        """The newest records that may carry a key or unique id, in log order; the reader verifies."""
        search = self.search(topic, key, max_count, begin_ms, end_ms)
        if search is None:
            return []
        while not search.step(1 << 20):
            pass
        return self.records_of(search.found)

    def records_of(self, offsets: list[int]) -> list[bytes]:
        """Return what a look-up found, in log order (DefaultMessageStore.queryMessage sorts); what is gone is left out."""
        visible: i64 = self._log.confirmed
        records = (self.record_at(offset) for offset in sorted(set(offsets)) if offset < visible)
        return [record for record in records if record is not None]

    @property
    def confirmed(self) -> int:
        """Readers see no record that ends behind this offset."""
        return self._log.confirmed

    def show_all(self) -> None:
        """Take the limit of `set_confirmed` away: another broker goes on with the open store."""
        self._log.confirmed = NO_LIMIT

    def set_confirmed(self, offset: int) -> None:
        """Show readers what ends up to an offset of the log, from now on; later it only grows.

        `take_arrivals` hands out what has become visible.
        """
        known = self._log.confirmed
        if known == NO_LIMIT or offset > known:
            self._log.confirmed = offset

    @property
    def index_last_timestamp_ms(self) -> int:
        """Store time of the newest record indexed."""
        return self._index.end_timestamp_ms if self._index is not None else 0

    @property
    def index_last_physical_offset(self) -> int:
        """Physical offset of the newest record indexed."""
        return self._index.end_physical if self._index is not None else 0

    @property
    def min_physical_offset(self) -> int:
        """The first byte the log still has."""
        return self._log.min_offset

    @property
    def max_physical_offset(self) -> int:
        """The byte after the last record appended."""
        return self._log.end_offset

    @property
    def wrote(self) -> int:
        """The offset up to which the log was handed to the system."""
        return self._log.wrote_offset

    @property
    def synced_offset(self) -> int:
        """The offset up to which the log is on the disk."""
        return self._log.synced


log = logging.getLogger("roquette.store")


class MessageStore(StoredMessages):
    """The writer of one broker's commit log, consume queues, index and checkpoint; it reads as `StoredMessages` does."""

    def __init__(self, config: StoreConfig, files: Files, store_host: bytes) -> None:
        """`store_host`: the address written into records, 4 or 16 bytes and the port as int32."""
        super().__init__(config, files)
        self._store_host: bytes = store_host
        self._upkeep: Upkeep = Upkeep(
            files, self.layout, config, self._log, self._queues, self._index
        )
        self._batches: BatchAppender = BatchAppender(
            self._log, self._queues, self._index, store_host
        )
        self._raw: RawAppender = RawAppender(self._log, self._queues, self._index, config)
        self._spans: KeySpans = KeySpans()
        self._keys: BytesWriter = BytesWriter()  # index entries of the message that is appended
        self._arrivals: list[Arrival] = []
        self._sync_flush: bool = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._max_body: i64 = config.max_message_size
        self._max_record: i64 = config.segment_size - BLANK_SIZE
        self._last_store_ms: i64 = 0
        self._opened_last: i64 = -1
        self._refusal: str | None = "the store is not open"
        self._full: bool = False  # the refusal is for want of space, and may pass
        self.failure: str | None = None  # why it cannot go on, for good
        self.disk: DiskGuard = DiskGuard(files, self.layout, config)
        # Why senders' messages are refused while acknowledgements and deliveries go on; None: they are not.
        self.send_refusal: str | None = None
        self._lock: FileLock | None = None

    def reconfigure(self, config: StoreConfig) -> None:
        """Take over settings that may change while the store is open; the others stay what they were."""
        self.config = config
        if config.data_read_ahead_enable is not self._log.read_ahead:
            self._log.set_read_ahead(config.data_read_ahead_enable)
        self._max_body = config.max_message_size
        self._reader.reconfigure(config)
        self._upkeep.config = config
        self.disk.reconfigure(config)

    # Life

    def open(self, now_ms: int, *, fill_damage: bool = True) -> RecoveryReport:
        """Recover and accept writes. Blocks.

        `fill_damage`: False for a replica. Damage of the log that recovery finds is not filled then: the log ends
        there, what is behind goes to `replaced`, and its master has the rest.

        Raises:
            StoreError: another process has the store, it is of another kind, or its files do not fit the configuration.
        """
        files, layout = self._files, self.layout
        refuse_other_kinds(files, layout)
        files.make_dirs(layout.root)
        lock = files.lock_file(layout.lock)
        try:
            self.disk.opening()
            checkpoint = self._upkeep.load_checkpoint()
            recovery = Recovery(
                files, self.config, self._log, self._queues, self._index, checkpoint
            )
            recovery.fill_damage = fill_damage
            report = recovery.run()
            self._log.mark = begin_mark(
                files, layout, report.min_physical_offset, report.max_physical_offset
            )
            self._lock = lock
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise StoreError(
                f"no space to open the store: {error}. Free space on the disk of {layout.root}"
            ) from error
        finally:
            if self._lock is None:
                lock.release()
        self._last_store_ms = report.last_store_ms
        self._opened_last = report.last_record_offset
        self.disk.reconfigure(self.config)
        self._upkeep.started(report.last_store_ms)
        files.open_file(layout.abort, create=True).close()  # before anything can be written
        files.sync_dir(layout.root)
        self._refusal = None
        for queue in self._queues.all():
            queue.opened_end = queue.next_offset
        changed = report.dispatched or report.rebuilt_index or report.damaged_bytes
        if report.abnormal or changed:
            self.flush_all()
        else:  # the stop before this start has synced everything
            self._upkeep.all_synced()
        if report.rebuilt_index:
            files.remove(layout.index_building)
        root, log_usage = self.disk.measure()
        self.check_disk(root, log_usage, now_ms)
        return report

    def close(self, now_ms: int) -> None:
        """Flush everything, say in the checkpoint so, and remove the abort file. Blocks.

        Raises:
            OSError: something could not be brought to the disk; the store is closed all the same.
        """
        if self._lock is None:
            return
        try:
            if self._refusal is None or self._full:
                self.flush_all()
                if self._index is not None:
                    write_sums(self._files, self.layout, self._index.index_files)
                self._log.drop_spare()
                self._files.remove(self.layout.abort)
                self._files.sync_dir(self.layout.root)
        finally:  # also when it failed: nothing is written once the abort file is gone
            self.abandon()

    def abandon(self) -> None:
        """Close it as it is, as if the process were killed: the next start recovers."""
        if self._lock is None:
            return
        self._refusal = "the store is closed"
        self._full = False
        self._queues.close()
        if self._index is not None:
            self._index.close()
        self._log.mark = None
        self._lock.release()
        self._lock = None

    def fail(self, why: str) -> None:
        """End the store's life as a writer, for good: what is on the disk is not known any more."""
        if self._refusal is None or self._full:
            log.error("store closed for writes: %s", why)
            self.failure = why
            self._refusal = why
            self._full = False

    @property
    def writable(self) -> bool:
        """Would an append be taken now?"""
        return self._refusal is None

    def _raise_refusal(self) -> None:
        words = self._refusal or ""
        raise StoreFull(words) if self._full else StoreClosed(words)

    def check_send(self) -> None:
        """Raises StoreFull while senders' messages are refused for want of space."""
        if self.send_refusal is not None:
            raise StoreFull(self.send_refusal)

    # Writing

    def append(self, draft: Draft, now_ms: i64) -> Appended:
        """Append one message; its queue unit, index entries and arrival follow at once.

        `write_pending` brings the bytes to the system.

        Raises:
            MessageIllegal: it breaks a limit. StoreFull: no space. StoreShort: no descriptors or memory for a file.
            StoreClosed: not open, or failed.
        """
        if self._refusal is not None:
            self._raise_refusal()
        entry = self._queues.topics.get(draft.topic) or self._queues.topic(draft.topic)
        data = draft.properties
        if data.endswith(b"\0"):
            data += b"\2"  # an empty property more: zeros at a record's end look torn to recovery
            draft.properties = data
        size: i64 = entry.fixed_size + len(data) + len(draft.body)
        size += len(draft.born_host) + len(self._store_host)
        large = len(draft.body) > self._max_body and not draft.own
        if large or len(data) > MAX_PROPERTIES or size > self._max_record:
            raise_illegal(self.config, len(draft.body), len(data), size, own=draft.own)
        kind = draft.sys_flag & TRANSACTION_MASK
        in_queue = kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK
        queue_id = int(draft.queue_id)
        queue = entry.queues.get(queue_id)
        physical: i64 = self._log.next_place(self._log.end_offset, size)
        offset: i64 = queue.next_offset if in_queue and queue is not None else 0
        keys = self._keys
        keys.truncate(0)
        spans = draft.spans
        if spans is None:
            spans = self._spans
            spans.scan(data)
        code = entry.keys.collect(data, spans, physical, keys)
        if draft.unit_code != CODE_OF_TAGS:
            code = draft.unit_code
        if queue is None:
            queue = self._queues.create(entry.topic, queue_id)
        self._make_room(queue if in_queue else None, size, now_ms)
        place = Place(entry.name, self._store_host, now_ms, offset, physical)
        self._log.append_draft(draft, place, size)  # from here on nothing fails
        if in_queue:
            queue.append(physical, size, code)
            if not queue.dirty:
                self._queues.mark_dirty(queue)
            arrival = Arrival(entry.topic, queue_id, offset, code, physical, size)
            self._arrivals.append(arrival)
        self._last_store_ms = now_ms
        if kind != TRANSACTION_ROLLBACK and self._index is not None:
            self._index.put_batch(keys.getvalue(), now_ms)
        if self._log.pending_bytes >= PENDING_LIMIT:
            self.write_pending()
        return Appended(physical, offset, size, physical + size)

    def _make_room(self, queue: ConsumeQueue | None, size: i64, now_ms: i64) -> None:
        """Make room everywhere before anything changes; the record goes where `next_place` said."""
        try:
            if queue is not None:
                queue.reserve()
            if self._index is not None and self._index.full:
                self._index.reserve(now_ms)
            self._log.place(size)
        except OSError as error:
            raise self._no_room(error) from error

    def _no_room(self, error: OSError) -> StoreError:
        if self._log.broken:
            self._fail_write(error)
        if error.errno in SHORTAGE:
            return StoreShort(shortage_words(error))
        words = self.disk.no_space(error)
        self.send_refusal = self.disk.refusal
        return StoreFull(words)

    def _fail_write(self, error: OSError) -> None:
        # The queues already point to what could not be written: nothing more may be promised.
        self.fail(f"writing the commit log failed: {error}")
        raise StoreClosed(f"writing the commit log failed: {error}") from error

    def append_batch(self, draft: Draft, now_ms: i64) -> BatchAppended:
        """Append the messages of one client batch (`message.batch`), in order.

        Raises:
            MessageIllegal: nothing was appended. StoreClosed: as `append`. StoreFull, StoreShort: the first
            messages may have been appended.
        """
        if self._refusal is not None:
            self._raise_refusal()
        entry = self._queues.topics.get(draft.topic) or self._queues.topic(draft.topic)
        fixed: i64 = entry.fixed_size + len(draft.born_host) + len(self._store_host)
        self._batches.check(draft.body, fixed, self.config, self._max_record)
        self._last_store_ms = now_ms
        try:
            done = self._batches.append(entry, draft, now_ms, self._arrivals)
        except OSError as error:
            raise self._no_room(error) from error
        if self._log.pending_bytes >= PENDING_LIMIT:
            self.write_pending()
        return done

    def begin_log(self, offset: int) -> None:
        """Let the empty log of a replica begin at the start of a file.

        Offset 1 stands for 0: that byte, the first of a length and always zero, is taken as received. A slave of
        Apache's protocol that reports 0 would get the master's last file only.

        Raises:
            StoreError: the log has bytes, or a file elsewhere; `cut.drop_log` lets it begin anew. And as `append`.
        """
        if self._refusal is not None:
            self._raise_refusal()
        try:
            self._raw.begin_at(offset)
        except OSError as error:
            raise self._no_room(error) from error

    @property
    def last_record_offset(self) -> int:
        """The offset of the log's last record when it was opened, or of the last one that `append_raw` took; -1: none."""
        return max(self._opened_last, self._raw.last_offset)

    @property
    def raw_end(self) -> int:
        """The begin of the next piece for `append_raw`: the log's end, and what is held of a record behind it."""
        return self._log.end_offset + self._raw.held

    def append_raw(self, offset: int, data: bytes, checks: bool = False) -> None:
        """Append bytes of a master's log, a piece of one of its files; whole records become readable as by `append`.

        1 MiB of the smallest records takes some 20 ms: give no more at once. What follows the last whole record is held
        in memory until the rest of it comes. So after a restart, or when the master is asked again, the next piece begins
        at the log's end.

        Raises:
            OffsetOutOfRange: it begins neither at `raw_end` nor at the log's end, or crosses a file's end.
            CorruptRecord: a record is not sound, with `checks` by its body's CRC. StoreFull, StoreShort, StoreClosed: as `append`. Of what the last
            four refuse, the whole records before that point were appended; the next piece begins at the log's end.
        """
        if self._refusal is not None:
            self._raise_refusal()
        try:
            self._raw.append(offset, data, self._arrivals, checks)
        except OSError as error:
            raise self._no_room(error) from error
        finally:
            self._last_store_ms = max(self._last_store_ms, self._raw.last_ms)
        if self._log.pending_bytes >= PENDING_LIMIT:
            self.write_pending()

    def go_on_from(self, topic: str, queue_id: int, offset: int, log_end: int) -> None:
        """A replica's queue gives no offset before that one: it was next when the master's log ended at `log_end` and had
        nothing of the queue. Raises as `append`."""
        if self._refusal is not None:
            self._raise_refusal()
        try:
            self._queues.go_on_from(topic, queue_id, offset, log_end, self._log.segment_size)
        except OSError as error:
            raise self._no_room(error) from error

    def write_pending(self) -> None:
        """Hand what was appended to the system: before replies leave and before a sync.

        Raises:
            StoreClosed: the write failed; none of what was appended since may be acknowledged.
        """
        try:
            self._log.write_pending()
        except OSError as error:
            self._fail_write(error)
        self._queues.open_files.write_units()  # units point to what the system has
        if self._index is not None:
            self._index.write_entries()

    def take_arrivals(self) -> list[Arrival]:
        """Return what readers can see since the last call: under SYNC_FLUSH, only what is on the disk; in a group of
        replicas, only what is confirmed.

        A message that a power cut or another master may still take back is shown to nobody, since its queue offset
        would then be given to another one.
        """
        arrivals = self._arrivals
        visible = self._log.visible_end(self._sync_flush)
        if not arrivals or arrivals[-1].physical_offset + arrivals[-1].size <= visible:
            self._arrivals = []
            return arrivals
        count = 0
        for arrival in arrivals:
            if arrival.physical_offset + arrival.size > visible:
                break
            count += 1
        if len(arrivals) - count > MOST_ARRIVALS:
            del arrivals[count : count + MOST_ARRIVALS // 2]
        if not count:
            return []
        self._arrivals = arrivals[count:]
        return arrivals[:count]

    def delete_topic(self, topic: str) -> None:
        """Drop a topic's queues; the log forgets its records when their files expire."""
        self._queues.drop_topic(topic)
        self._upkeep.queues_dropped()
        self._arrivals = [arrival for arrival in self._arrivals if arrival.topic != topic]

    def drop_queues_before(self, topic: str, log_end: int) -> None:
        """Drop queues of a topic that was deleted when the log ended there; what came later is of another of its name."""
        if self._queues.drop_before(topic, log_end):
            self._upkeep.queues_dropped()

    # Upkeep, driven from outside

    def plan_sync(self) -> SyncPlan | None:
        """Write what is pending and plan its sync; None: nothing to do, or one is under way."""
        if self._refusal is not None and not self._full:
            return None
        self.write_pending()
        return self._upkeep.plan_sync(self._last_store_ms)

    def synced(self, plan: SyncPlan) -> int:
        """A sync has run, or was put off; returns how far the log is durable now.

        Raises:
            StoreClosed: it failed. It is never tried again, and nothing may be acknowledged.
        """
        if plan.error is not None:
            self.fail(f"syncing the commit log failed: {plan.error}")
            raise StoreClosed(f"syncing the commit log failed: {plan.error}") from plan.error
        if plan.short is not None:
            self._upkeep.sync_later(plan)
        else:
            self._upkeep.synced(plan)
        return self._log.synced

    def plan_queue_flush(self, now_ms: int | None = None) -> QueueFlushPlan | None:
        """Plan a sync of queues (about each second); without a (steady) time of all of them.

        A store that did not open plans nothing: its checkpoint would vouch for what nobody has looked at.
        """
        if self._refusal is not None and not self._full:
            return None
        return self._upkeep.plan_queue_flush(now_ms, self._last_store_ms)

    def queues_flushed(self, plan: QueueFlushPlan) -> None:
        """A queue flush has run. Raises StoreClosed when it failed."""
        if plan.error is not None:
            self.fail(f"syncing consume queues failed: {plan.error}")
            raise StoreClosed(f"syncing consume queues failed: {plan.error}") from plan.error
        if plan.short is not None:
            self._upkeep.flush_later(plan)
        else:
            self._upkeep.queues_flushed(plan)

    def flush_all(self) -> None:
        """Bring everything and the checkpoint to the disk. Blocks. Raises OSError: files could not be opened for it."""
        while (sync := self.plan_sync()) is not None:  # one that was put off does not hold all
            sync.run()
            self.synced(sync)
            if sync.short is not None:
                raise sync.short
        for _ in range(2):
            flush = self.plan_queue_flush()
            if flush is not None:
                flush.run()
                self.queues_flushed(flush)
                if flush.short is not None:
                    raise flush.short
                if not flush.again:
                    break

    def plan_allocation(self) -> AllocationPlan | None:
        """Plan to make the next commit log file ahead; None when it is too early or done."""
        return self._upkeep.plan_allocation()

    def allocated(self, plan: AllocationPlan) -> None:
        """An allocation has run."""
        self._upkeep.allocated(plan)

    def check_disk(
        self, root: DiskUsage, log_usage: DiskUsage | None = None, now_ms: int = 0
    ) -> None:
        """Refuse messages while a disk is too full, with words that help; allow them again after.

        Above the limits senders are refused (`check_send`); acknowledgements, deliveries and ends of transactions
        go on until next to nothing is left. `log_usage`: of the commit log's disk, if it has one of its own.
        """
        disk = self.disk
        disk.check(root, log_usage, self._upkeep.log_state(), now_ms)
        self.send_refusal = disk.refusal
        if self._refusal is None or self._full:
            self._full = disk.exhausted
            self._refusal = disk.refusal if disk.exhausted else None
        self._upkeep.disk_checked(disk.refusal is not None)

    def plan_retention(
        self,
        now_ms: int,
        disk_usage: DiskUsage | None = None,
        manual: bool = False,
        log_usage: DiskUsage | None = None,
        elapsed_ms: int | None = None,
    ) -> DeletionPlan | None:
        """Forget expired files and plan their deletion; the usages are those of `check_disk`.

        Args:
            manual: an operator asks, so the hour of the day does not matter.
            elapsed_ms: monotonic time, so that a wall-clock jump deletes nothing; if None, `now_ms` is trusted.
        """
        if disk_usage is not None:
            self.check_disk(disk_usage, log_usage, now_ms)
        return self._upkeep.plan_retention(
            now_ms, self.disk.disks, self._last_store_ms, manual, elapsed_ms, self.disk.kept
        )

    def plan_queue_cleaning(self) -> DeletionPlan | None:
        """Forget queue and index files whose records are gone from the log, and plan their deletion."""
        return self._upkeep.plan_queue_cleaning()
