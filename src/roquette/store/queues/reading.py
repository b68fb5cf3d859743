"""Reading the log behind a queue: records, store times, searches by time. HOT."""

from collections.abc import Callable
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from roquette.base.files import File
from roquette.message.record_layout import HEAD_SIZE, SMALLEST_RECORD
from roquette.message.record_view import SOUND, RecordView
from roquette.store.config import StoreConfig
from roquette.store.log.commit_log import CommitLog
from roquette.store.queues.consume_queue import UNIT_SIZE, ConsumeQueue, scan_units
from roquette.store.results import Found, GetStatus

_FILTER_SCAN_BYTES: Final = 16_000  # of units: so far one filtered read looks ahead


def read_units(
    config: StoreConfig,
    commit_log: CommitLog,
    queue: ConsumeQueue,
    queue_offset: i64,
    max_count: i64,
    max_bytes: i64,
    codes: set[int] | frozenset[int] | None,
    hot_bytes: i64,
    visible_end: i64,
    defer_cold: bool,
) -> Found:
    """One read of a queue whose offset is known to be within it.

    Records behind `visible_end` are not there yet for readers.

    Cold means farther back than the page cache is assumed to reach (Apache:
    checkInDiskByCommitOffset): smaller limits then.
    """
    min_physical: i64 = commit_log.min_offset
    end: i64 = commit_log.end_offset
    cold = end - queue.physical_at(queue_offset) > hot_bytes
    count_limit: i64 = config.max_count_on_disk if cold else config.max_count_in_memory
    bytes_limit: i64 = config.max_bytes_on_disk if cold else config.max_bytes_in_memory
    max_count = max(max_count, 1)
    unit_limit: i64 = max_count
    if codes is not None:
        unit_limit = _FILTER_SCAN_BYTES // UNIT_SIZE + 1
        unit_limit = max(unit_limit, max_count)
    units = queue.read_units(queue_offset, unit_limit)
    scan = scan_units(
        units,
        codes,
        max_count if max_count < count_limit else count_limit,
        max_bytes if max_bytes < bytes_limit else bytes_limit,
        min_physical,
        visible_end,
    )
    status = GetStatus.FOUND
    if scan.count == 0 and scan.scanned == 0:
        status = GetStatus.OFFSET_OVERFLOW_ONE  # the next record is not visible yet: wait for it
    elif scan.count == 0:
        status = GetStatus.MESSAGE_WAS_REMOVING if scan.removed else GetStatus.NO_MATCHED_MESSAGE
    first: i64 = queue.min_offset(min_physical)
    found = Found(status, queue_offset + scan.scanned, first, queue.next_offset)
    found.count = scan.count
    found.size = scan.size
    found.spans = scan.spans
    found.cold = cold
    if not (cold and defer_cold):
        runs: list[bytes] = []
        for span in scan.spans:
            runs.append(commit_log.read(span[0], span[1]))
        found.runs = runs
    return found


class ColdRead:
    """Reads spans of the log with pread: called in the executor, where blocking is fine."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: list[tuple[File, int, int]]) -> None:
        self._pieces: list[tuple[File, int, int]] = pieces  # keeps deleted files readable

    def run(self) -> list[bytes]:
        """Block until the bytes are here."""
        return [file.pread(size, position) for file, size, position in self._pieces]


def plan_pread(commit_log: CommitLog, spans: list[tuple[i64, i64]]) -> Callable[[], list[bytes]]:
    """What reads spans without touching a map: a page fault there would stop the whole process."""
    pieces: list[tuple[File, int, int]] = []
    for start, end in spans:
        segment = commit_log.find_segment(start)
        if segment is not None:
            pieces.append((segment.file, end - start, start - segment.base_offset))
    return ColdRead(pieces).run


def record_at(commit_log: CommitLog, offset: int, size: int | None) -> bytes | None:
    """The record that begins at a physical offset; None when none does."""
    if offset < 0:
        return None
    if size is None:
        size = commit_log.record_size(offset)
    if size < SMALLEST_RECORD:
        return None
    data = commit_log.read(offset, offset + size)
    view = RecordView()
    fault = view.find(data, 0)
    if fault != SOUND or view.size != size or view.check_place(offset) != SOUND:
        return None
    return data


def store_time_at(commit_log: CommitLog, offset: int) -> int:
    """The store time (epoch ms) of the record at a physical offset; -1 when there is none."""
    if offset < 0:
        return -1
    view = RecordView()
    fault = view.find_head(commit_log.read(offset, offset + HEAD_SIZE), 0)
    if fault != SOUND or view.check_place(offset) != SOUND:
        return -1
    return view.store_ms


def offset_by_time(
    commit_log: CommitLog, queue: ConsumeQueue, timestamp_ms: int, upper: bool
) -> int:
    """A queue offset for a store time (Apache: ConsumeQueue.getOffsetInQueueByTime).

    Lower: the first message stored at or after the time; the end of the queue when there is none.
    Upper: the last message stored at or before the time; the first one when there is none.
    """
    low = queue.min_offset(commit_log.min_offset)
    first, high = low, queue.next_offset
    while low < high:
        middle = (low + high) // 2
        stored = _time_of_unit(commit_log, queue.physical_at(middle))
        if stored < timestamp_ms or (upper and stored == timestamp_ms):
            low = middle + 1
        else:
            high = middle
    if not upper:
        return low
    return low - 1 if low > first else first


def _time_of_unit(commit_log: CommitLog, physical: int) -> int:
    """The store time of a unit's record; in the place of a lost one, that of the next log file that has any."""
    stored = store_time_at(commit_log, physical)
    while stored < 0:
        segment = commit_log.find_segment(physical)
        if segment is None:
            break
        physical = segment.base_offset + segment.size
        stored = store_time_at(commit_log, physical)
    return stored


def units_at(queue: ConsumeQueue, offset: int, count: int) -> list[tuple[int, int, int]] | None:
    """Units from an offset on: physical offset, size, tags code; None when there is none at it."""
    found: list[tuple[int, int, int]] = []
    while len(found) < count:
        units = queue.read_units(offset + len(found), count - len(found))
        if not units:
            break
        for position in range(0, len(units), UNIT_SIZE):
            found.append(
                (
                    read_i64_be(units, position),
                    read_i32_be(units, position + 8),
                    read_i64_be(units, position + 12),
                )
            )
    return found or None
