"""One read of a queue: by offset, through tags or a predicate, checked where the disk may lie. HOT.

The store knows no filter language: it finds the property bytes of a candidate and asks. Bodies are passed over
without being decoded. The work of one read is bounded twice, by units and by what a predicate's answers cost, so
that a read over records nobody wants ends early and makes progress. Apache: DefaultMessageStore.getMessage.
"""

from typing import Final, Protocol

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i64_be
from mypy_extensions import i64

from roquette.message.record_view import RecordView
from roquette.store.audit.unit_records import COLD_BYTES, WARM_BYTES, UnitRecords
from roquette.store.format.config import FlushDiskType, StoreConfig
from roquette.store.format.results import Found, GetStatus
from roquette.store.format.unit import FILLER_FROM, UNIT_SIZE, is_filler, tags_code_of
from roquette.store.log.commit_log import CommitLog, FileSource, LogSource
from roquette.store.queues.consume_queue import ConsumeQueue
from roquette.store.queues.consume_queues import ConsumeQueues

SCAN_UNITS: Final = (
    801  # units a filtered read looks at (Apache: 16,000 bytes of them, and one more)
)
SCAN_COST: Final = 200_000  # weight x (64 + property bytes) / 64 of the records one read asks about


class Predicate(Protocol):
    """Decides by their properties which records a reader wants."""

    @property
    def weight(self) -> int:
        """The cost of one answer, about the operators evaluated (1 is little)."""
        ...

    def matches(self, properties: bytes) -> bool:
        """Return True when the record with these property bytes is wanted; never raises."""
        ...


class RecordFilter:
    """Filter of the records a reader wants: at most one of the two is set, neither lets every record through.

    Attributes:
        codes: tags codes of the wanted tags. Compared as Apache does: the unit's low 32 bits, signed.
        predicate: evaluated on the properties of each record.
    """

    __slots__ = ("codes", "predicate")

    def __init__(self, codes: frozenset[int] | None, predicate: Predicate | None = None) -> None:
        self.codes: frozenset[int] | None = codes
        self.predicate: Predicate | None = predicate


MATCH_ALL: Final = RecordFilter(None)


class ReadRequest:
    """Read of a queue: up to `max_count` records and `max_bytes` (the first record always fits) from an offset on."""

    __slots__ = ("max_bytes", "max_count", "offset", "queue_id", "topic", "wanted")

    def __init__(
        self,
        topic: str,
        queue_id: int,
        offset: i64,
        max_count: i64,
        max_bytes: i64,
        wanted: RecordFilter = MATCH_ALL,
    ) -> None:
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.offset: i64 = offset
        self.max_count: i64 = max_count if max_count > 1 else 1
        self.max_bytes: i64 = max_bytes
        self.wanted: RecordFilter = wanted


class QueueReader:
    """Reads the queues of a store.

    Cold is what lies farther back than the page cache is assumed to reach (Apache: checkInDiskByCommitOffset): smaller
    limits then.
    """

    __slots__ = (
        "_cold_limits",
        "_hot_bytes",
        "_limited_behind",
        "_limits",
        "_log",
        "_memory_size",
        "_queues",
        "_sync_flush",
    )

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, config: StoreConfig, memory_size: i64
    ) -> None:
        self._log: CommitLog = log
        self._queues: ConsumeQueues = queues
        self._memory_size: i64 = memory_size
        # What is not on the disk yet is not there for readers then.
        self._sync_flush: bool = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.reconfigure(config)

    def reconfigure(self, config: StoreConfig) -> None:
        """Take over the limits."""
        self._hot_bytes: i64 = self._memory_size * config.memory_ratio // 100
        self._limited_behind: i64 = self._memory_size * config.hot_ratio // 100
        self._cold_limits: tuple[i64, i64] = (config.max_count_on_disk, config.max_bytes_on_disk)
        self._limits: tuple[i64, i64] = (config.max_count_in_memory, config.max_bytes_in_memory)

    def is_cold(self, physical_offset: i64) -> bool:
        """May a read there have to wait for the disk?"""
        return self._log.end_offset - physical_offset > self._hot_bytes

    def lies_cold(self, topic: str, queue_id: int, offset: i64) -> bool:
        """Does the message at a queue's offset lie where coldDataFlowControlEnable limits reading?"""
        queue = self._queues.find(topic, queue_id)
        if (
            queue is None
            or not queue.min_offset(self._log.min_offset) <= offset < queue.next_offset
        ):
            return False
        return self._log.end_offset - queue.physical_at(offset) > self._limited_behind

    def read(self, request: ReadRequest, defer_cold: bool) -> "Found | QueueRead":
        """Read from an offset on. With `defer_cold`, a read that may have to wait for the disk is returned to be run."""
        queue = self._queues.find(request.topic, request.queue_id)
        if queue is None:
            return Found(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        first: i64 = queue.min_offset(self._log.min_offset)
        last: i64 = queue.next_offset
        offset = request.offset
        if last == 0:
            return Found(GetStatus.NO_MESSAGE_IN_QUEUE, 0, first, last)
        if offset < first:
            return Found(GetStatus.OFFSET_TOO_SMALL, first, first, last)
        if offset == last:
            return Found(GetStatus.OFFSET_OVERFLOW_ONE, offset, first, last)
        if offset > last:
            return Found(GetStatus.OFFSET_OVERFLOW_BADLY, last, first, last)
        cold = self.is_cold(queue.physical_at(offset))
        deferred = cold and defer_cold
        visible_end = self._log.visible_end(self._sync_flush)
        source = (
            FileSource(self._log, visible_end) if deferred else LogSource(self._log, visible_end)
        )
        read = QueueRead(source, queue, request, first)
        max_count, max_bytes = self._cold_limits if cold else self._limits
        read.limit(max_count, max_bytes)
        read.cold = cold
        if offset < queue.opened_end:
            read.check_units(queue, COLD_BYTES if deferred else WARM_BYTES)
        if deferred and read.may_block():
            return read
        return read.run()


NO_VIEW: Final = RecordView()  # of reads that look at no record


class QueueRead:
    """One read of a queue whose offset is within it."""

    __slots__ = (
        "_bytes_limit", "_check", "_count_limit", "_first", "_found", "_last", "_offset", "_source", "_spans", "_units",
        "_view", "_wanted", "cold",
    )  # fmt: skip

    def __init__(
        self, source: LogSource, queue: ConsumeQueue, request: ReadRequest, first: i64
    ) -> None:
        wanted = request.wanted
        self._source: LogSource = source
        self._wanted: RecordFilter = wanted
        self._offset: i64 = request.offset
        self._first: i64 = first
        self._last: i64 = queue.next_offset
        self._count_limit: i64 = request.max_count
        self._bytes_limit: i64 = request.max_bytes
        unit_limit: i64 = request.max_count
        if unit_limit < SCAN_UNITS and (wanted.codes is not None or wanted.predicate is not None):
            unit_limit = SCAN_UNITS
        self._units: bytes = queue.read_units(request.offset, unit_limit)
        self._view: RecordView = NO_VIEW if wanted.predicate is None else RecordView()
        self._check: UnitRecords | None = None
        self._spans: bytes = b""
        self._found: Found | None = None
        self.cold: bool = False

    def limit(self, max_count: i64, max_bytes: i64) -> None:
        """Read no more records and bytes than this, whatever was asked for."""
        self._count_limit = min(self._count_limit, max_count)
        self._bytes_limit = min(self._bytes_limit, max_bytes)

    def check_units(self, queue: ConsumeQueue, budget: i64) -> None:
        """The first unit was found at start: check each record. `budget`: bytes of the log to go through for damaged units."""
        self._check = UnitRecords(self._source, queue, self._units, self._offset, budget)

    def may_block(self) -> bool:
        """Must records be read to go on? By units alone it may turn out that none is wanted."""
        if self._check is not None or self._wanted.predicate is not None:
            return True
        return self._scan().count > 0

    def run(self) -> Found:
        """Choose and read the records. Blocks if the disk must be asked."""
        found = self._found
        if found is None:
            found = self._scan()
        source = self._source
        spans = self._spans
        at: i64 = 0
        while at < len(spans):
            found.runs.append(source.read(read_i64_be(spans, at), read_i64_be(spans, at + 8)))
            at += 16
        return found

    def _scan(self) -> Found:
        """Choose the records."""
        units = self._units
        source = self._source
        check = self._check
        codes = self._wanted.codes
        predicate = self._wanted.predicate
        view = self._view if check is None else check.view
        weight: i64 = 0 if predicate is None else predicate.weight
        found = Found(GetStatus.FOUND, 0, self._first, self._last)
        spans = BytesWriter()  # begin and end, 8 bytes each; neighbours in the log are one
        start: i64 = -1
        stop = start
        count: i64 = 0
        total = cost = position = count
        end: i64 = len(units)
        visible_end: i64 = source.visible_end
        removed = False
        while position < end and count < self._count_limit and cost < SCAN_COST:
            offset = read_i64_be(units, position)
            size: int = read_i32_be(units, position + 8)
            if visible_end < offset + size <= source.end and 0 < size < FILLER_FROM:
                break  # not there yet for readers
            # The low half of the 8 bytes, read as a signed int32, is Java's (int) cast.
            if (
                codes is not None
                and read_i32_be(units, position + 16) not in codes
                and (check is None or check.trusts_code(position))
            ):
                position += UNIT_SIZE
                continue
            if (size >= FILLER_FROM or offset < source.min_physical) and (
                check is None or is_filler(offset, size, source.segment_size)
            ):
                removed = True
                position += UNIT_SIZE
                continue
            if count and total + size > self._bytes_limit:
                break
            if check is not None:
                if not check.find(position):
                    removed = removed or check.repeated
                    position += UNIT_SIZE
                    continue
                if codes is not None and tags_code_of(check.view.properties()) not in codes:
                    if check.doubt(position):  # units passed over may be as wrong
                        return self._scan()
                    position += UNIT_SIZE
                    continue
            position += UNIT_SIZE
            if predicate is not None:
                text = source.properties(view, offset, size) if check is None else view.properties()
                cost += weight * (64 + len(text)) // 64
                if not predicate.matches(text):
                    continue
            count += 1
            total += size if check is None else len(check.record)
            if check is not None:
                found.runs.append(check.record)
            elif offset == stop:
                stop += size
            else:
                if stop >= 0:
                    write_i64_be(spans, start)
                    write_i64_be(spans, stop)
                start, stop = offset, offset + size
        if stop >= 0:
            write_i64_be(spans, start)
            write_i64_be(spans, stop)
        self._spans = spans.getvalue()
        found.count, found.size = count, total
        return self._end_scan(found, position // UNIT_SIZE, removed)

    def _end_scan(self, found: Found, scanned: i64, removed: bool) -> Found:
        if found.count == 0:
            found.status = (
                GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
            )
            if scanned == 0:  # the next record is not visible yet: wait for it
                found.status = GetStatus.OFFSET_OVERFLOW_ONE
        found.next_begin_offset = self._offset + scanned
        found.cold = self.cold
        self._found = found
        return found
