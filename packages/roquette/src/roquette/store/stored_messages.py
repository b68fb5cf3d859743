"""What a store holds, as readers see it: queues and their ends, records by queue, offset, time and key. HOT."""

from collections.abc import Callable, Iterator

from mypy_extensions import i64

from roquette.base.files import Files
from roquette.message.record_view import RecordView
from roquette.store.format.config import StoreConfig
from roquette.store.format.layout import StoreLayout
from roquette.store.format.log_reader import LogReader
from roquette.store.format.results import Found
from roquette.store.index.index import Index, KeySearch
from roquette.store.log import reading
from roquette.store.log.commit_log import NO_LIMIT, CommitLog
from roquette.store.log.reading import FileSource, LogSource, RawRead, SpansRead
from roquette.store.log_walk import log_readers
from roquette.store.queue_read import QueueRead, QueueReader, ReadRequest
from roquette.store.queues.consume_queues import ConsumeQueues


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

    def restore_record(self, start: int, record: bytes) -> None:
        """Put a record that was handed to the system back as it was; its size is the same. Raises OSError."""
        segment = self._log.find_segment(start)
        assert segment is not None
        segment.file.pwrite(record, start - segment.base_offset)

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
        """What reads ranges of the log in the executor; ranges the log has lost are left out."""
        return SpansRead(FileSource(self._log, self._log.end_offset), spans).run

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a queue's message, epoch ms; -1 when there is none."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return -1
        return reading.store_time_at(self._log, queue.physical_at(queue_offset))

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
        return reading.store_time_at(self._log, self._log.min_offset)

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
            stored = reading.store_time_from(self._log, queue.physical_at(middle))
            if stored < timestamp_ms or (upper and stored == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        return max(first, low - 1) if upper else low

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """The record that begins at a physical offset; None when none does."""
        return reading.record_at(self._log, physical_offset, size)

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
        """What a look-up found, in log order (DefaultMessageStore.queryMessage sorts); what is gone is left out."""
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
        """How far the log was handed to the system."""
        return self._log.wrote_offset

    @property
    def synced_offset(self) -> int:
        """How far the log is on the disk."""
        return self._log.synced
