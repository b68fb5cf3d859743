"""Units found at start, compared with their records. HOT.

What this process has appended stands in the page cache as it was written. What it found may have come from a disk
that lies. So a read of such a part of a queue compares each record with its unit and its body with its CRC. A unit that
does not fit its record is logged, and the record is looked for in the log between those beside it (`unit_search`). A
record that is not found is logged and left out, and the next one is served.
"""

import logging
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from roquette.message.record_layout import (
    BLANK_MAGIC,
    PHYSICAL_AT,
    PLACE_END,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
)
from roquette.message.record_view import SOUND, RecordView, is_of_queue
from roquette.store.format.unit import FILLER_FROM, UNIT_SIZE, tags_code_of
from roquette.store.log.commit_log import LogSource
from roquette.store.queues.consume_queue import ConsumeQueue

# The record of a queue whose unit is damaged, found by going through the log where it must be. HOT.


WARM_BYTES: Final = 8 << 20  # gone through on the loop for one unit
COLD_BYTES: Final = 256 << 20  # and in the executor
_WINDOW: Final = 1 << 18


class UnitSearch:
    """Searches for records of one queue, within so many bytes of the log in all."""

    __slots__ = ("_budget", "_queue_id", "_segment_size", "_source", "_topic", "_view", "found_at")

    def __init__(self, source: LogSource, topic: bytes, queue_id: int, budget: i64) -> None:
        self._source: LogSource = source
        self._view: RecordView = RecordView()
        self._topic: bytes = topic
        self._queue_id: int = queue_id
        self._segment_size: i64 = source.segment_size
        self._budget: i64 = budget
        self.found_at: i64 = -1  # of the record last found

    def between(self, low: i64, high: i64, place: i64) -> bytes:
        """The record with a queue offset from a record boundary on, before `high`; empty when there is none."""
        offset: i64 = low
        window = b""
        base: i64 = 0
        while offset < high and self._budget > 0:
            at: i64 = offset - base
            if at + PLACE_END > len(window) or not window:
                base, at = offset, 0
                left: i64 = self._segment_size - offset % self._segment_size
                window = self._source.read(offset, offset + (left if left < _WINDOW else _WINDOW))
                if len(window) < 8:
                    return b""
            length: int = read_i32_be(window, at)
            size: i64 = length
            magic: int = read_i32_be(window, at + 4)
            if magic == BLANK_MAGIC:
                size = self._segment_size - offset % self._segment_size
            elif magic not in (RECORD_MAGIC_V1, RECORD_MAGIC_V2) or size < PLACE_END:
                return b""
            elif (
                at + PLACE_END <= len(window)
                and read_i32_be(window, at + QUEUE_ID_AT) == self._queue_id
                and read_i64_be(window, at + QUEUE_OFFSET_AT) == place
            ):
                record = self._source.read(offset, offset + size)
                if is_of_queue(self._view, record, size, offset, self._topic, self._queue_id):
                    self.found_at = offset
                    return record
            offset += size
            self._budget -= size
        return b""

    def before(self, high: i64, min_physical: i64, place: i64) -> bytes:
        """The same where no boundary is known: file after file of the log, from that of `high` back."""
        start: i64 = high - high % self._segment_size
        while start + self._segment_size > min_physical and self._budget > 0 and start >= 0:
            record = self.between(max(start, min_physical), high, place)
            if record:
                return record
            start -= self._segment_size
        return b""


log = logging.getLogger("roquette.store")

_MAX_CHECKED: Final = 1024  # tags codes of one queue
_UNKNOWN_SHIFT: Final = -(1 << 62)


class UnitRecords:
    """Finds the sound record of each unit of one read; a unit is named by its position in the read's units.

    Attributes:
        record: the one that `find` has found; its parts are in `view`.
        repeated: `find` met a unit that only repeats another one.
    """

    __slots__ = (
        "_budget", "_end", "_first", "_floor", "_lead_size", "_neighbour_units", "_queue", "_queue_id", "_search",
        "_source", "_topic", "record", "repeated", "view",
    )  # fmt: skip

    def __init__(
        self, source: LogSource, queue: ConsumeQueue, units: bytes, first: i64, budget: i64
    ) -> None:
        """`first`: queue offset of the first unit. `budget`: bytes of the log to go through for damaged units."""
        self._source: LogSource = source
        self._queue: ConsumeQueue = queue
        self._topic: bytes = queue.topic.encode()
        self._queue_id: int = queue.queue_id
        self._end: i64 = queue.next_offset
        self._first: i64 = first
        before = queue.read_units(first - 1, 1)
        after = queue.read_units(first + len(units) // UNIT_SIZE, 1)
        self._neighbour_units: bytes = before + units + after
        self._lead_size: i64 = len(before)
        self._budget: i64 = budget
        self._search: UnitSearch | None = None
        self._floor: i64 = -1  # end of the last sound record, -1: not known
        self.view: RecordView = RecordView()
        self.record: bytes = b""
        self.repeated: bool = False

    def find(self, position: i64) -> bool:
        """Find the sound record of a unit, there or elsewhere; what is lost is logged."""
        units = self._neighbour_units
        at: i64 = position + self._lead_size
        offset = read_i64_be(units, at)
        size: int = read_i32_be(units, at + 8)
        place: i64 = self._first + position // UNIT_SIZE
        source = self._source
        self.repeated = False
        record = b""
        # Behind the queue's first offset there is nothing that the log has lost.
        if offset >= source.min_physical and size > 0 and offset + size <= source.visible_end:
            record = source.read(offset, offset + size)
        sound = self._is_sound(record, size, offset)
        if sound and self.view.queue_offset != place:
            self.repeated = self._is_repeated(position)
            if self.repeated:  # the record was served, or will be, at its own place
                return False
            sound = self._is_shifted(position)
        if not sound and not self._is_at_home(record, place, size):
            record = self._look_for(position, place)
            sound = self.view.find(record, 0) == SOUND
            if sound and self._search is not None:
                offset, size = self._search.found_at, len(record)
        if not sound:
            self._log_skipped(place, offset)
            return False
        self._floor = offset + size
        self.record = record
        return True

    def doubt(self, position: i64) -> bool:
        """The tags code of a unit is not its record's: from now on none of the queue is trusted. False if none was."""
        if self._queue.doubtful:
            return False
        self._log_unit(self._first + position // UNIT_SIZE)
        self._queue.doubtful = True
        self._floor = -1
        return True

    def _is_sound(self, record: bytes, size: i64, offset: i64) -> bool:
        """Is this a sound record of the queue? Its parts are in the view then."""
        return is_of_queue(self.view, record, size, offset, self._topic, self._queue_id)

    def trusts_code(self, position: i64) -> bool:
        """May a unit be passed over for its tags code? Of each code the first one is compared with its record."""
        units = self._neighbour_units
        at: i64 = position + self._lead_size
        offset = read_i64_be(units, at)
        size: int = read_i32_be(units, at + 8)
        if size <= 0 or (at >= UNIT_SIZE and read_i64_be(units, at - UNIT_SIZE) > offset):
            return False
        high = read_i64_be(units, at + 12)
        if size >= FILLER_FROM or (high in self._queue.checked_codes and not self._queue.doubtful):
            return True
        record = self._source.read(offset, offset + size)
        if not self._is_sound(record, size, offset):
            return False
        if tags_code_of(self.view.properties()) != high:
            if not self._queue.doubtful:
                self._log_unit(self._first + position // UNIT_SIZE)
            self._queue.doubtful = True
            return False
        if len(self._queue.checked_codes) < _MAX_CHECKED:
            self._queue.checked_codes.add(high)
        return True

    def _is_at_home(self, record: bytes, place: i64, size: i64) -> bool:
        """Is it the unit's own record that is damaged? Then there is no other one to look for."""
        return len(record) >= PLACE_END and (
            read_i32_be(record, 0) == size
            and read_i32_be(record, QUEUE_ID_AT) == self._queue_id
            and read_i64_be(record, QUEUE_OFFSET_AT) == place
        )

    def _look_for(self, position: i64, place: i64) -> bytes:
        """The record whose unit is damaged; empty when the log has none."""
        units = self._neighbour_units
        at: i64 = position + self._lead_size
        low: i64 = self._floor
        if low < 0 and at >= UNIT_SIZE:
            low = self._end_of(units, at - UNIT_SIZE, place - 1)
        high: i64 = self._source.visible_end
        after: i64 = at + UNIT_SIZE
        while after < len(units):
            if self._end_of(units, after, place + (after - at) // UNIT_SIZE) >= 0:
                high = read_i64_be(units, after)
                break
            after += UNIT_SIZE
        search = self._search
        if search is None:
            search = UnitSearch(self._source, self._topic, self._queue_id, self._budget)
            self._search = search
        if low >= 0:
            record = search.between(low, high, place)
        else:
            record = search.before(high, self._source.min_physical, place)
        if record:
            self._log_unit(place)
        return record

    def _end_of(self, units: bytes, at: i64, place: i64) -> i64:
        """Return the end of a unit's record; -1 when the unit is damaged, too."""
        offset = read_i64_be(units, at)
        size: int = read_i32_be(units, at + 8)
        if size <= 0 or size >= FILLER_FROM or offset < self._source.min_physical:
            return -1
        record = self._source.read(offset, offset + size)
        if len(record) < PLACE_END or read_i64_be(record, PHYSICAL_AT) != offset:
            return -1
        return offset + size if self._is_at_home(record, place, size) else -1

    def _is_repeated(self, position: i64) -> bool:
        """Does a unit only keep the place of a lost message, by saying what the one beside it says?"""
        units = self._neighbour_units
        at: i64 = position + self._lead_size
        unit = units[at : at + UNIT_SIZE]
        return (at >= UNIT_SIZE and units[at - UNIT_SIZE : at] == unit) or units[
            at + UNIT_SIZE : at + 2 * UNIT_SIZE
        ] == unit

    def _is_shifted(self, position: i64) -> bool:
        """Does a record stand at another place than it says because Apache's broker has put it there?

        That happens to all records of a queue from one on, so a neighbour is shifted by as much. The newest one
        may be the first of them.
        """
        units = self._neighbour_units
        at: i64 = position + self._lead_size
        offset = read_i64_be(units, at)
        place: i64 = self._first + position // UNIT_SIZE
        shift: i64 = self._shift(units, at, place)
        before: i64 = _UNKNOWN_SHIFT
        if at >= UNIT_SIZE:
            if read_i64_be(units, at - UNIT_SIZE) >= offset:
                return False
            before = self._shift(units, at - UNIT_SIZE, place - 1)
        if shift == before:
            return True
        if at + UNIT_SIZE >= len(units):
            return before != _UNKNOWN_SHIFT and place + 1 == self._end and shift == before + 1
        if read_i64_be(units, at + UNIT_SIZE) <= offset:
            return False
        return shift == self._shift(units, at + UNIT_SIZE, place + 1)

    def _shift(self, units: bytes, at: i64, place: i64) -> i64:
        offset = read_i64_be(units, at)
        head = self._source.read(offset, offset + PHYSICAL_AT)
        return (
            read_i64_be(head, QUEUE_OFFSET_AT) - place
            if len(head) == PHYSICAL_AT
            else _UNKNOWN_SHIFT
        )

    def _log_unit(self, place: i64) -> None:
        log.error(
            "damaged unit of a queue, the message is taken from the log topic=%s queue=%d offset=%d: "
            "see `roquette store fsck`",
            self._topic.decode(),
            self._queue_id,
            place,
        )

    def _log_skipped(self, place: i64, offset: i64) -> None:
        log.error(
            "damaged message not served topic=%s queue=%d offset=%d commit log offset=%d: "
            "see `roquette store fsck`",
            self._topic.decode(),
            self._queue_id,
            place,
            offset,
        )
