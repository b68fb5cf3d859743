"""Do timer log, wheel and timer queue say the same? The cheap half for a start and fsck, the whole one for fsck. HOT.

The cheap half is one pass over the timer log as far as its checkpoint vouches for it: the chain of each slot that is
still to be delivered is made again of the units, in the order in which they stand: each names the one before it, the
wheel names the first and the last of them and how many they are, and each stands for a message of the timer queue.
An unreadable unit is noticed by what should name it: the next unit of its slot, or the slot. Units of slots that are
delivered may be anything.

The whole half looks at every unit and every slot by itself, those of delivered slots and Apache's, too.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from mypy_extensions import i64

from roquette.store.timer.timer_log import (
    BLANK,
    BLANK_MAGIC,
    MAGIC_DELETE,
    UNIT,
    UNIT_SIZE,
    TimerUnit,
    unpack_unit,
)
from roquette.store.timer.timer_wheel import WheelSlot

AUDIT_UNITS: Final = 4096  # of one window
_MAGICS: Final = (1, 3, 5, 7)
_PRECISIONS: Final = (
    1000,
    500,
    200,
    100,
)  # that a wheel may have: Apache's checkpoint does not say


class TimerAudit:
    """The cheap half: one pass over the timer log, then over the wheel, see `faults`."""

    __slots__ = (
        "_at", "_counts", "_current", "_fault", "_firsts", "_lasts", "_low", "_min_physical", "_offset", "_place",
        "_precision", "_queue", "_read_ms", "_units",
    )  # fmt: skip

    def __init__(
        self,
        queue: Iterator[list[tuple[int, int]]],
        precision_ms: i64,
        read_ms: i64,
        low: i64,
        min_physical: i64,
    ) -> None:
        """
        Args:
            queue: physical offset and size of the timer queue's messages in order, window by window.
            read_ms: slots before it are delivered.
            low: where the timer log begins.
        """
        self._queue: Iterator[list[tuple[int, int]]] = queue
        self._precision: i64 = precision_ms
        self._read_ms: i64 = read_ms
        self._low: i64 = low
        self._min_physical: i64 = min_physical
        self._firsts: dict[int, int] = {}
        self._lasts: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._current: set[int] = set()  # messages of the slot that is being delivered
        self._units: list[tuple[int, int]] = []  # of the queue, at hand
        self._place: i64 = 0
        self._offset: i64 = -1  # of the message of the unit before
        self._fault: str = ""
        self._at: int = -1  # in the timer log

    def faults(
        self,
        windows: Iterable[tuple[int, bytes]],
        slots: Iterable[tuple[int, int, int, int]],
        end: int,
    ) -> Iterator[tuple[int, int, str]]:
        """Find the faults: the position in the timer log, else -1; the slot's place in `slots`, else -1; and words.

        A start needs the first only. Behind a wrong unit nothing is looked at.

        Args:
            windows: position and bytes of the timer log before `end`, in order.
            slots: time in ms, first and last position, number; those that have units from `end` on are passed over.
        """
        read_ms: int = self._read_ms  # no i64: a damaged slot's time may be larger than one
        for position, data in windows:
            if not self._feed(data, position):
                yield self._at, -1, self._fault
                return
        for place, (slot_ms, first, last, number) in enumerate(slots):
            if slot_ms < read_ms:
                continue
            words = "" if last >= end else self._wrong_slot(slot_ms, first, last, number)
            self._lasts.pop(slot_ms, None)
            if words:
                yield -1, place, f"the slot of {slot_ms}: {words}"
        missing = min(self._lasts, default=-1)
        if missing >= 0:
            words = f"the slot of {missing} is not in the wheel, the timer log has units of it"
            yield -1, -1, words

    def _feed(self, data: bytes, position: i64) -> bool:
        """The next units; bytes that are no unit are skipped. False when something is wrong."""
        at: i64 = 0
        for size, prev, magic, write_ms, delay, offset, length, _, _ in UNIT.iter_unpack(
            data[: len(data) - len(data) % UNIT_SIZE]
        ):
            if size == UNIT_SIZE and magic in _MAGICS:
                slot_ms = write_ms + delay
                if slot_ms >= self._read_ms and not self._take(
                    position + at, prev, magic, slot_ms, offset, length
                ):
                    return False
            at += UNIT_SIZE
        return True

    def _take(
        self, position: i64, prev: i64, magic: int, slot_ms: i64, offset: i64, size: i64
    ) -> bool:
        slot: int = slot_ms
        known = self._lasts.get(slot, -1)
        if slot_ms % self._precision:
            return self._wrong(position, f"the unit's time {slot_ms} is that of no slot")
        if prev == -1 or known < 0:
            if prev >= self._low or prev < -1:
                return self._wrong(position, f"the unit names {prev} as the one before it")
            self._firsts[slot] = position
            self._counts[slot] = 0
        elif prev != known:
            return self._wrong(position, f"the unit names {prev} as the one before it, not {known}")
        self._lasts[slot] = position
        self._counts[slot] += -1 if magic & MAGIC_DELETE else 1
        if slot_ms == self._read_ms and not magic & MAGIC_DELETE:
            self._current.add(position)
        if offset <= self._offset:
            return self._wrong(position, f"the unit's message at {offset} is before the last one's")
        self._offset = offset
        if offset >= self._min_physical and not self._is_queued(offset, size):
            return self._wrong(
                position, f"the timer queue has no message at offset {offset}, size {size}"
            )
        return True

    def _is_queued(self, offset: i64, size: i64) -> bool:
        while True:
            units = self._units
            while self._place < len(units):
                found, length = units[self._place]
                if found >= offset:
                    return found == offset and length == size
                self._place += 1
            self._units = next(self._queue, [])
            self._place = 0
            if not self._units:
                return False

    def _wrong(self, position: i64, words: str) -> bool:
        self._fault, self._at = words, position
        return False

    def _wrong_slot(self, slot_ms: int, first: int, last: int, number: int) -> str:
        known = self._lasts.get(slot_ms, -1)
        if known != last:
            return f"its newest unit should be at {last} of the timer log, it is at {known}"
        if known < 0:
            return "it names no unit, and the timer log has none of it"
        oldest, count = self._firsts[slot_ms], self._counts[slot_ms]
        if slot_ms == self._read_ms:  # the one that is being delivered
            if first == oldest:
                return ""  # what is delivered of it is known by its copies
            count -= sum(position < first for position in self._current)
            oldest = first if first - UNIT_SIZE in self._current else oldest
        if first != oldest:
            return f"its oldest unit should be at {first} of the timer log, it is at {oldest}"
        return "" if number == count else f"it says {number} messages, the timer log has {count}"


# The whole half.


def unit_faults(
    windows: Iterable[tuple[int, bytes]], file_end: int, stands: Callable[[int, int], bool]
) -> Iterator[tuple[int, str, bool]]:
    """Find the faults of one file: the position, words, and whether its units end there; the last may have no words.

    Args:
        windows: position and bytes in order, of whole units but for the last.
        stands: is there a message of the timer at a physical offset, of a size, as far as that can be known?
    """
    end = -1
    for position, data in windows:
        for at in range(0, len(data) - UNIT_SIZE + 1, UNIT_SIZE):
            unit = unpack_unit(data, at, position + at)
            if unit is None:
                left, _, magic = BLANK.unpack_from(data, at)
                blank = magic == BLANK_MAGIC and left == file_end - position - at
                sound = blank or data[at : at + UNIT_SIZE] == bytes(UNIT_SIZE)
                words = "" if sound else "neither a unit of the timer log nor its end"
                yield position + at, words, True
                return
            end = unit.position + UNIT_SIZE
            if unit.prev >= unit.position or unit.prev < -1:
                yield unit.position, f"the unit names {unit.prev} as the one before it", False
            elif not stands(unit.offset, unit.size):
                words = f"the unit points at offset {unit.offset}, size {unit.size}, where no such record is"
                yield unit.position, words, False
    if end >= 0:
        yield end, "", True


def slot_fault(
    slot: WheelSlot, places: int, end: int, unit_at: Callable[[int], TimerUnit | None]
) -> tuple[str, bool]:
    """Find the fault of a slot of a wheel of so many places; True: it is the slot alone, whatever the timer log has.

    Args:
        end: of the timer log. `unit_at`: the unit at a position of it; None: there is none.
    """
    if slot.tick < 0 or slot.tick % places != slot.ordinal:
        return f"slot {slot.ordinal} has the time of another one", True
    if slot.last >= end:
        return f"its newest unit should be at {slot.last}, the timer log ends at {end}", False
    unit = unit_at(slot.last)
    if unit is None:
        return f"its newest unit should be at {slot.last} of the timer log, where none is", False
    for width in _PRECISIONS:
        if unit.slot_ms // width == slot.tick:
            return "", False
    return f"its newest unit at {slot.last} of the timer log is of another time", False
