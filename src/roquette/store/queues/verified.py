"""Reading what was in the log before this process began: every record is checked before it is served. HOT.

What this process has appended stands in the page cache as it was written. What it found may have come from a disk
that lies. So a read of such a part of a queue compares each record with its unit and its body with its CRC. A unit that
does not fit its record is told, and the record is looked for in the log between those beside it (`unit_search`). What
is not found is told and left out, and the next one is served.
"""

import logging
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from roquette.message.record_layout import PHYSICAL_AT, PLACE_END, QUEUE_ID_AT, QUEUE_OFFSET_AT
from roquette.message.record_view import SOUND, RecordView, is_of_queue
from roquette.store.config import StoreConfig
from roquette.store.index.keys import tags_code_of
from roquette.store.log.commit_log import CommitLog
from roquette.store.queues.consume_queue import FILLER_FROM, UNIT_SIZE, ConsumeQueue, is_filler
from roquette.store.queues.filtered import SCAN_COST, SCAN_UNITS, FileSource, Predicate, Source
from roquette.store.queues.unit_search import COLD_BYTES, WARM_BYTES, UnitSearch
from roquette.store.results import Found, GetStatus

log = logging.getLogger("roquette.store")

_MAX_CHECKED: Final = 1024  # tags codes of one queue
_NO_SHIFT: Final = -(1 << 62)


class VerifiedRead:
    """One read of a queue whose offset is within it; `run` may block when the source does."""

    __slots__ = (
        "_budget",
        "_bytes_limit",
        "_checked",
        "_codes",
        "_count_limit",
        "_first",
        "_floor",
        "_lead",
        "_max_offset",
        "_min_physical",
        "_near",
        "_predicate",
        "_queue",
        "_queue_id",
        "_queue_offset",
        "_search",
        "_segment_size",
        "_source",
        "_topic",
        "_units",
        "_view",
        "_visible_end",
        "_written_end",
    )

    def __init__(
        self,
        source: Source,
        queue: ConsumeQueue,
        units: bytes,
        queue_offset: i64,
        codes: set[int] | frozenset[int] | None,
        predicate: Predicate | None,
        count_limit: i64,
        bytes_limit: i64,
        min_physical: i64,
        visible_end: i64,
        written_end: i64,
        segment_size: i64,
        budget: i64,
    ) -> None:
        """`budget`: bytes of the log gone through for damaged units."""
        self._source: Source = source
        self._view: RecordView = RecordView()
        self._budget: i64 = budget
        self._search: UnitSearch | None = None
        self._checked: set[int] = queue.checked_codes
        self._queue: ConsumeQueue = queue
        self._floor: i64 = -1  # end of the last sound record, -1: not known
        self._topic: bytes = queue.topic.encode()
        self._queue_id: int = queue.queue_id
        self._first: i64 = queue.min_offset(min_physical)
        self._max_offset: i64 = queue.next_offset
        self._units: bytes = units
        before = queue.read_units(queue_offset - 1, 1)
        after = queue.read_units(queue_offset + len(units) // UNIT_SIZE, 1)
        self._near: bytes = before + units + after
        self._lead: i64 = len(before)
        self._queue_offset: i64 = queue_offset
        self._codes: set[int] | frozenset[int] | None = codes
        self._predicate: Predicate | None = predicate
        self._count_limit: i64 = count_limit
        self._bytes_limit: i64 = bytes_limit
        self._min_physical: i64 = min_physical
        self._visible_end: i64 = visible_end
        self._written_end: i64 = written_end
        self._segment_size: i64 = segment_size

    def run(self) -> Found:
        """Scan, read and check; the answer has its records, each a run of its own."""
        runs: list[bytes] = []
        spans: list[tuple[i64, i64]] = []
        units = self._units
        codes = self._codes
        predicate = self._predicate
        weight: i64 = predicate.weight if predicate is not None else 0
        count: i64 = 0
        total: i64 = 0
        cost: i64 = 0
        position: i64 = 0
        end: i64 = len(units)
        removed = hidden = False
        while position < end and count < self._count_limit and cost < SCAN_COST:
            offset = read_i64_be(units, position)
            size: int = read_i32_be(units, position + 8)
            if (
                codes is not None
                and read_i32_be(units, position + 16) not in codes
                and self._is_credible(position)
            ):
                position += UNIT_SIZE
                continue
            if size >= FILLER_FROM and is_filler(offset, size, self._segment_size):
                removed = True
                position += UNIT_SIZE
                continue
            if count and total + size > self._bytes_limit:
                break
            if size > 0 and self._visible_end < offset + size <= self._written_end:
                hidden = True  # it is not there yet for readers: they wait for it
                break
            record = b""
            # Behind the queue's first offset there is nothing that the log has lost.
            if offset >= self._min_physical and size > 0 and offset + size <= self._visible_end:
                record = self._source.read(offset, offset + size)
            place: i64 = self._queue_offset + position // UNIT_SIZE
            sound = self._is_sound(record, size, offset)
            if sound and self._view.queue_offset != place:
                if self._is_repeated(
                    position
                ):  # the record was served, or will be, at its own place
                    removed = True
                    position += UNIT_SIZE
                    continue
                sound = self._is_shifted(position)
            if not sound and not self._is_at_home(record, place, size):
                record = self._find(position, place)
                sound = self._view.find(record, 0) == SOUND
                if self._search is not None:
                    offset, size = self._search.found_at, len(record)
            position += UNIT_SIZE
            if not sound:
                self._tell(place, offset)
                continue
            self._floor = offset + size
            if codes is not None and tags_code_of(self._view.properties()) not in codes:
                if not self._queue.doubtful:
                    self._tell_unit(place)
                    self._queue.doubtful = True
                    return self.run()
                continue
            if predicate is not None:
                properties = self._view.properties()
                cost += weight * (64 + len(properties)) // 64
                if not predicate.matches(properties):
                    continue
            runs.append(record)
            spans.append((offset, offset + size))
            count += 1
            total += size
        found = self._found(runs, spans, total, position // UNIT_SIZE, removed)
        if hidden and not position:
            found.status = GetStatus.OFFSET_OVERFLOW_ONE
        return found

    def _is_sound(self, record: bytes, size: i64, offset: i64) -> bool:
        """Is this a sound record of the queue? Its parts are in the view then."""
        return is_of_queue(self._view, record, size, offset, self._topic, self._queue_id)

    def _is_credible(self, position: i64) -> bool:
        """May a unit be passed over for its tags code? Of each code the first one is compared with its record."""
        units = self._near
        at: i64 = position + self._lead
        offset = read_i64_be(units, at)
        size: int = read_i32_be(units, at + 8)
        if size <= 0 or (at >= UNIT_SIZE and read_i64_be(units, at - UNIT_SIZE) > offset):
            return False
        high = read_i64_be(units, at + 12)
        if size >= FILLER_FROM or (high in self._checked and not self._queue.doubtful):
            return True
        record = self._source.read(offset, offset + size)
        if not self._is_sound(record, size, offset):
            return False
        if tags_code_of(self._view.properties()) != high:
            if not self._queue.doubtful:
                self._tell_unit(self._queue_offset + position // UNIT_SIZE)
            self._queue.doubtful = True
            return False
        if len(self._checked) < _MAX_CHECKED:
            self._checked.add(high)
        return True

    def _is_at_home(self, record: bytes, place: i64, size: i64) -> bool:
        """Is it the unit's own record that is damaged? Then there is no other one to look for."""
        return len(record) >= PLACE_END and (
            read_i32_be(record, 0) == size
            and read_i32_be(record, QUEUE_ID_AT) == self._queue_id
            and read_i64_be(record, QUEUE_OFFSET_AT) == place
        )

    def _find(self, position: i64, place: i64) -> bytes:
        """The record whose unit is damaged; empty when the log has none."""
        units = self._near
        at: i64 = position + self._lead
        low: i64 = self._floor
        if low < 0 and at >= UNIT_SIZE:
            low = self._end_of(units, at - UNIT_SIZE, place - 1)
        high: i64 = self._visible_end
        after: i64 = at + UNIT_SIZE
        while after < len(units):
            if self._end_of(units, after, place + (after - at) // UNIT_SIZE) >= 0:
                high = read_i64_be(units, after)
                break
            after += UNIT_SIZE
        search = self._search
        if search is None:
            search = UnitSearch(
                self._source, self._topic, self._queue_id, self._segment_size, self._budget
            )
            self._search = search
        if low >= 0:
            record = search.between(low, high, place)
        else:
            record = search.before(high, self._min_physical, place)
        if record:
            self._tell_unit(place)
        return record

    def _end_of(self, units: bytes, at: i64, place: i64) -> i64:
        """Where a unit's record ends; -1 when the unit is damaged, too."""
        offset = read_i64_be(units, at)
        size: int = read_i32_be(units, at + 8)
        if size <= 0 or size >= FILLER_FROM or offset < self._min_physical:
            return -1
        record = self._source.read(offset, offset + size)
        if len(record) < PLACE_END or read_i64_be(record, PHYSICAL_AT) != offset:
            return -1
        return offset + size if self._is_at_home(record, place, size) else -1

    def _is_repeated(self, position: i64) -> bool:
        """Does a unit only keep the place of a lost message, by saying what the one beside it says?"""
        units = self._near
        at: i64 = position + self._lead
        unit = units[at : at + UNIT_SIZE]
        return (at >= UNIT_SIZE and units[at - UNIT_SIZE : at] == unit) or units[
            at + UNIT_SIZE : at + 2 * UNIT_SIZE
        ] == unit

    def _is_shifted(self, position: i64) -> bool:
        """Does a record stand at another place than it says because Apache's broker has put it there?

        That happens to all records of a queue from one on, so a neighbour is shifted by as much. The newest one
        may be the first of them.
        """
        units = self._near
        at: i64 = position + self._lead
        offset = read_i64_be(units, at)
        place: i64 = self._queue_offset + position // UNIT_SIZE
        shift: i64 = self._shift(units, at, place)
        before: i64 = _NO_SHIFT
        if at >= UNIT_SIZE:
            if read_i64_be(units, at - UNIT_SIZE) >= offset:
                return False
            before = self._shift(units, at - UNIT_SIZE, place - 1)
        if shift == before:
            return True
        if at + UNIT_SIZE >= len(units):
            return before != _NO_SHIFT and place + 1 == self._max_offset and shift == before + 1
        if read_i64_be(units, at + UNIT_SIZE) <= offset:
            return False
        return shift == self._shift(units, at + UNIT_SIZE, place + 1)

    def _shift(self, units: bytes, at: i64, place: i64) -> i64:
        offset = read_i64_be(units, at)
        head = self._source.read(offset, offset + PHYSICAL_AT)
        return read_i64_be(head, QUEUE_OFFSET_AT) - place if len(head) == PHYSICAL_AT else _NO_SHIFT

    def _found(
        self,
        runs: list[bytes],
        spans: list[tuple[i64, i64]],
        total: i64,
        scanned: i64,
        removed: bool,
    ) -> Found:
        status = GetStatus.FOUND
        if not runs:
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
        found = Found(status, self._queue_offset + scanned, self._first, self._max_offset)
        found.runs = runs
        found.spans = spans
        found.count = len(runs)
        found.size = total
        return found

    def _tell_unit(self, place: i64) -> None:
        log.error(
            "damaged unit of a queue, the message is taken from the log topic=%s queue=%d offset=%d: "
            "see `roquette store fsck`",
            self._topic.decode(),
            self._queue_id,
            place,
        )

    def _tell(self, place: i64, offset: i64) -> None:
        log.error(
            "damaged message not served topic=%s queue=%d offset=%d commit log offset=%d: "
            "see `roquette store fsck`",
            self._topic.decode(),
            self._queue_id,
            place,
            offset,
        )


def read_verified(
    config: StoreConfig,
    commit_log: CommitLog,
    queue: ConsumeQueue,
    queue_offset: i64,
    max_count: i64,
    max_bytes: i64,
    codes: set[int] | frozenset[int] | None,
    predicate: Predicate | None,
    hot_bytes: i64,
    visible_end: i64,
    defer_cold: bool,
) -> Found:
    """`reading.read_units`, or with a predicate `filtered.read_filtered`, of records found at start.

    A deferred cold read is not made: the answer carries its plan.
    """
    cold = commit_log.end_offset - queue.physical_at(queue_offset) > hot_bytes
    count_limit: i64 = config.max_count_on_disk if cold else config.max_count_in_memory
    bytes_limit: i64 = config.max_bytes_on_disk if cold else config.max_bytes_in_memory
    deferred = cold and defer_cold
    max_count = max(max_count, 1)
    unit_limit = max_count
    if codes is not None or predicate is not None:
        unit_limit = max(SCAN_UNITS, max_count)
    read = VerifiedRead(
        FileSource(commit_log) if deferred else Source(commit_log),
        queue,
        queue.read_units(queue_offset, unit_limit),
        queue_offset,
        codes,
        predicate,
        min(max_count, count_limit),
        min(max_bytes, bytes_limit),
        commit_log.min_offset,
        min(visible_end, commit_log.end_offset),
        commit_log.end_offset,
        config.segment_size,
        COLD_BYTES if deferred else WARM_BYTES,
    )
    if deferred:
        found = Found(GetStatus.FOUND, queue_offset, read._first, queue.next_offset)
        found.cold = True
        found.plan = read.run
        return found
    found = read.run()
    found.cold = cold
    return found
