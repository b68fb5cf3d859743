"""Reading a queue through a predicate over each record's properties (SQL92). HOT.

The store knows no filter language: it finds the property bytes of a candidate and asks. Bodies are passed over
without being decoded. The work of one read is bounded twice: by units, as for tags, and by what the questions cost, so that a
read over records nobody wants ends early and makes progress. Apache: DefaultMessageStore.getMessage.
"""

from typing import Final, Protocol

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from roquette.base.files import File
from roquette.message.record_layout import HEAD_SIZE
from roquette.message.record_view import SOUND, RecordView
from roquette.store.config import StoreConfig
from roquette.store.log.commit_log import CommitLog
from roquette.store.queues.consume_queue import FILLER_FROM, UNIT_SIZE, ConsumeQueue
from roquette.store.results import Found, GetStatus

SCAN_UNITS: Final = 801  # units one read looks at (Apache: 16,000 bytes of them, and one more)
SCAN_COST: Final = 200_000  # weight x (64 + property bytes) / 64 of the records one read asks about
_WHOLE: Final = 1024  # a record up to this size is taken in one piece


class Predicate(Protocol):
    """Which records a reader wants. `weight`: what one answer costs, about the operators asked (1 is little)."""

    @property
    def weight(self) -> int:
        """See above."""
        ...

    def matches(self, properties: bytes) -> bool:
        """Whether the record with these property bytes is wanted; never raises."""
        ...


class Source:
    """Where records come from: the map of the log."""

    __slots__ = ("_log", "_view")

    def __init__(self, commit_log: CommitLog) -> None:
        self._log: CommitLog = commit_log
        self._view: RecordView = RecordView()

    def read(self, start: i64, end: i64) -> bytes:
        """Bytes of one segment; fewer where the log has no more."""
        return self._log.read(start, end)

    def properties(self, offset: i64, size: i64) -> bytes:
        """Property bytes of the record at a physical offset, without its body when that is long."""
        view = self._view
        if size <= _WHOLE:
            if view.find(self.read(offset, offset + size), 0) != SOUND:
                return b""
        elif view.find_head(self.read(offset, offset + HEAD_SIZE), 0) != SOUND or (
            view.find_tail(self.read(offset + view.body_at + view.body_size, offset + size))
            != SOUND
        ):
            return b""
        return view.properties()


class FileSource(Source):
    """The same by pread, for the executor: a page fault on the loop would stop the whole process."""

    __slots__ = ("_base", "_files", "_segment_size")

    def __init__(self, commit_log: CommitLog) -> None:
        super().__init__(commit_log)
        self._base: i64 = commit_log.min_offset
        self._segment_size: i64 = commit_log.segment_size
        # Kept here, deleted files stay readable.
        self._files: list[File] = [segment.file for segment in commit_log.segments]

    def read(self, start: i64, end: i64) -> bytes:
        """Blocks."""
        index: i64 = (start - self._base) // self._segment_size
        if start < self._base or index >= len(self._files) or end <= start:
            return b""
        return self._files[index].pread(end - start, (start - self._base) % self._segment_size)


class Selection:
    """What one filtered scan yields, as `consume_queue.Scan` does for tags."""

    __slots__ = ("count", "removed", "scanned", "size", "spans")

    def __init__(self) -> None:
        self.spans: list[tuple[i64, i64]] = []
        self.count: i64 = 0
        self.size: i64 = 0
        self.scanned: i64 = 0
        self.removed: bool = False


def select(
    units: bytes,
    source: Source,
    predicate: Predicate,
    max_count: i64,
    max_bytes: i64,
    min_physical: i64,
    visible_end: i64,
) -> Selection:
    """Ask about record after record until enough are found or enough was asked; the first unit is always looked at."""
    found = Selection()
    run_start: i64 = -1
    run_end: i64 = -1
    count: i64 = 0
    total: i64 = 0
    cost: i64 = 0
    weight: i64 = predicate.weight
    position: i64 = 0
    end: i64 = len(units)
    while position < end and count < max_count and cost < SCAN_COST:
        offset = read_i64_be(units, position)
        size: int = read_i32_be(units, position + 8)
        if size >= FILLER_FROM or offset < min_physical:
            found.removed = True
            position += UNIT_SIZE
            continue
        if offset + size > visible_end or (count and total + size > max_bytes):
            break
        properties = source.properties(offset, size)
        cost += weight * (64 + len(properties)) // 64
        position += UNIT_SIZE
        if not predicate.matches(properties):
            continue
        if offset != run_end:
            if run_end >= 0:
                found.spans.append((run_start, run_end))
            run_start = offset
        run_end = offset + size
        count += 1
        total += size
    if run_end >= 0:
        found.spans.append((run_start, run_end))
    found.count = count
    found.size = total
    found.scanned = position // UNIT_SIZE
    return found


class FilteredRead:
    """One filtered read of a queue whose offset is within it; `run` may block when the source does."""

    __slots__ = (
        "_count_limit",
        "_first",
        "_max_bytes",
        "_max_offset",
        "_min_physical",
        "_predicate",
        "_queue_offset",
        "_source",
        "_units",
        "_visible_end",
    )

    def __init__(
        self,
        source: Source,
        predicate: Predicate,
        units: bytes,
        queue_offset: i64,
        first: i64,
        max_offset: i64,
        count_limit: i64,
        max_bytes: i64,
        min_physical: i64,
        visible_end: i64,
    ) -> None:
        self._source: Source = source
        self._predicate: Predicate = predicate
        self._units: bytes = units
        self._queue_offset: i64 = queue_offset
        self._first: i64 = first
        self._max_offset: i64 = max_offset
        self._count_limit: i64 = count_limit
        self._max_bytes: i64 = max_bytes
        self._visible_end: i64 = visible_end
        self._min_physical: i64 = min_physical

    def run(self) -> Found:
        """Scan and read; the answer has its records."""
        selection = select(
            self._units,
            self._source,
            self._predicate,
            self._count_limit,
            self._max_bytes,
            self._min_physical,
            self._visible_end,
        )
        status = GetStatus.FOUND
        if selection.scanned == 0:
            status = GetStatus.OFFSET_OVERFLOW_ONE  # not visible yet: wait for it
        elif selection.count == 0:
            status = GetStatus.NO_MATCHED_MESSAGE
            if selection.removed:
                status = GetStatus.MESSAGE_WAS_REMOVING
        found = Found(status, self._queue_offset + selection.scanned, self._first, self._max_offset)
        found.count = selection.count
        found.size = selection.size
        found.spans = selection.spans
        runs: list[bytes] = []
        for span in selection.spans:
            runs.append(self._source.read(span[0], span[1]))
        found.runs = runs
        return found


def read_filtered(
    config: StoreConfig,
    commit_log: CommitLog,
    queue: ConsumeQueue,
    queue_offset: i64,
    max_count: i64,
    max_bytes: i64,
    predicate: Predicate,
    hot_bytes: i64,
    visible_end: i64,
    defer_cold: bool,
) -> Found:
    """`reading.read_units` with a predicate. A deferred cold read is not made: the answer carries its plan."""
    cold = commit_log.end_offset - queue.physical_at(queue_offset) > hot_bytes
    count_limit: i64 = config.max_count_on_disk if cold else config.max_count_in_memory
    bytes_limit: i64 = config.max_bytes_on_disk if cold else config.max_bytes_in_memory
    deferred = cold and defer_cold
    source = FileSource(commit_log) if deferred else Source(commit_log)
    first: i64 = queue.min_offset(commit_log.min_offset)
    max_count = max(max_count, 1)
    read = FilteredRead(
        source,
        predicate,
        queue.read_units(queue_offset, max(SCAN_UNITS, max_count)),
        queue_offset,
        first,
        queue.next_offset,
        min(max_count, count_limit),
        min(max_bytes, bytes_limit),
        commit_log.min_offset,
        visible_end,
    )
    if not deferred:
        found = read.run()
        found.cold = cold
        return found
    found = Found(GetStatus.FOUND, queue_offset, first, queue.next_offset)
    found.cold = True
    found.plan = read.run
    return found
