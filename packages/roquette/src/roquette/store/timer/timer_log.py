"""The timer log: one unit for each timer message that was put into the wheel, in files of equal size. HOT.

| field | bytes | note |
|---|---|---|
| size | 4 | 52; in the blank at a file's end the bytes that are left |
| previous position | 8 | of the unit before it in the same slot, -1: none |
| magic | 4 | 1 message, with 2 it rolls, with 4 it recalls another one |
| write time | 8 | epoch ms, a multiple of the precision |
| delay | 4 | ms from there to the slot's time |
| physical offset, size | 8 + 4 | of the message in the commit log |
| topic hash | 4 | Java hash of the real topic |
| exact time | 8 | epoch ms at which the message is due, 0: not known; Apache writes 0 |

Positions count bytes from the first file's start. A unit never crosses files (Apache: TimerLog).
"""

import os
import struct
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from mypy_extensions import i64

from roquette.base.files import File, Files
from roquette.store.format.layout import offset_name, parse_offset_name
from roquette.store.format.segment import Segment

UNIT_SIZE: Final = 52
MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4
BLANK_MAGIC: Final = -875286124
_BLANK_SIZE: Final = 16
UNIT: Final = struct.Struct(">iqiqiqiiq")
BLANK: Final = struct.Struct(">iqi")


class TimerUnit(NamedTuple):
    """One unit of the timer log, and where it stands.

    Attributes:
        slot_ms: the time of its slot, before rounding.
        offset, size: of the message in the commit log.
        due_ms: when the message is due, epoch ms; 0: not known.
    """

    position: int
    prev: int
    magic: int
    write_ms: int
    slot_ms: int
    offset: int
    size: int
    due_ms: int

    @property
    def rolls(self) -> bool:
        """Is the message put into the timer again when this is due?"""
        return self.magic & MAGIC_ROLL != 0

    @property
    def recalls(self) -> bool:
        """Does it only take another message of its slot away?"""
        return self.magic & MAGIC_DELETE != 0 and self.magic & MAGIC_ROLL == 0


def unpack_unit(data: bytes, at: int, position: int) -> TimerUnit | None:
    """The unit in some bytes, which stand at a position of the timer log; None when they are none."""
    size, prev, magic, write_ms, delay, offset, length, _, due_ms = UNIT.unpack_from(data, at)
    if size != UNIT_SIZE or magic & ~0xF or not magic:
        return None
    return TimerUnit(position, prev, magic, write_ms, write_ms + delay, offset, length, due_ms)


class TimerLog:
    """The files in order. One writer."""

    __slots__ = ("_directory", "_file_size", "_files", "directory_dirty", "segments")

    def __init__(self, files: Files, directory: str, file_size: int) -> None:
        self._files: Files = files
        self._directory: str = directory
        self._file_size: int = file_size
        self.segments: list[Segment] = []
        self.directory_dirty: bool = False

    @property
    def directory(self) -> str:
        """The directory of the files."""
        return self._directory

    @property
    def min_position(self) -> int:
        """The position at which the oldest file begins."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def end(self) -> int:
        """The position behind the last unit."""
        if not self.segments:
            return 0
        return self.segments[-1].base_offset + self.segments[-1].appended

    def append(
        self,
        prev: int,
        magic: int,
        write_ms: int,
        slot_ms: int,
        offset: int,
        size: int,
        topic_hash: int,
        due_ms: int = 0,
    ) -> int:
        """Append a unit; returns its position. Raises OSError when there is no room for another file."""
        last = self.segments[-1] if self.segments else None
        if last is None or last.appended + UNIT_SIZE + _BLANK_SIZE > last.size:
            last = self._roll(last)
        delay = min(max(slot_ms - write_ms, -(1 << 31)), (1 << 31) - 1)
        position: i64 = last.base_offset + last.appended
        last.append(
            UNIT.pack(
                UNIT_SIZE, prev, magic, slot_ms - delay, delay, offset, size, topic_hash, due_ms
            )
        )
        return position

    def _roll(self, last: Segment | None) -> Segment:
        base: i64 = 0
        if last is not None:
            base = last.base_offset + last.size
        else:
            self._files.make_dirs(self._directory)
        path = os.path.join(self._directory, offset_name(base))
        fresh = Segment(
            self._files.open_file(path, self._file_size, True), base, self._file_size, 0
        )
        if last is not None:
            last.append(BLANK.pack(last.size - last.appended, 0, BLANK_MAGIC))
            last.fill()
            last.file.rest()
        self.segments.append(fresh)
        self.directory_dirty = True
        return fresh

    def read(self, position: int) -> TimerUnit | None:
        """The unit at a position; None where there is none."""
        if position < 0 or not self.segments:
            return None
        index: i64 = (position - self.segments[0].base_offset) // self._file_size
        if position < self.segments[0].base_offset or index >= len(self.segments):
            return None
        segment = self.segments[index]
        at: i64 = position - segment.base_offset
        if at + UNIT_SIZE > segment.appended:
            return None
        return unpack_unit(segment.pread(UNIT_SIZE, at), 0, position)

    def windows(self, end: int, count: int) -> Iterator[tuple[int, bytes]]:
        """Position and bytes of up to `count` units in a row, from the oldest to before `end`."""
        for segment in self.segments:
            limit: i64 = min(end - segment.base_offset, segment.size)
            for at in range(0, limit, count * UNIT_SIZE):
                yield (
                    segment.base_offset + at,
                    segment.pread(min(count * UNIT_SIZE, limit - at), at),
                )

    def next_file(self, position: int) -> int:
        """Return the position at which the file after the one of `position` begins."""
        return position - position % self._file_size + self._file_size

    def write_pending(self) -> None:
        """Hand what was appended to the system. Raises OSError."""
        if self.segments:
            self.segments[-1].write_pending()

    def load(self) -> None:
        """Open the files, as if all were full; `truncate` must follow. Blocks."""
        names = [
            n for n in self._files.list_dir(self._directory) if parse_offset_name(n) is not None
        ]
        self.segments = []
        for name in names:
            base = int(name)
            path = os.path.join(self._directory, name)
            follows = not self.segments or base == self.segments[-1].base_offset + self._file_size
            if follows and base % self._file_size == 0:
                file = self._files.open_file(path)
                if file.size == self._file_size:
                    self.segments.append(Segment(file, base, self._file_size, self._file_size))
                    file.rest()
                    continue
                file.close()
            self._files.remove(path)
            self.directory_dirty = True

    def find_end(self) -> int:
        """The position behind the last unit of a log that was loaded but not truncated."""
        if not self.segments:
            return 0
        position: i64 = self.segments[-1].base_offset
        while self.read(position) is not None:
            position += UNIT_SIZE
        return position

    def truncate(self, end: int) -> None:
        """Let the log end at a position, and wipe what stands behind it. Blocks."""
        while self.segments and self.segments[-1].base_offset >= end:
            gone = self.segments.pop()
            gone.file.close()
            self._files.remove(gone.file.path)
            self.directory_dirty = True
        if self.segments:
            last = self.segments[-1]
            last.file.wake()
            last.reset(min(end - last.base_offset, last.size))
            _wipe(last, last.appended)

    def unsynced_files(self) -> list[File]:
        """Write what is pending, and say which files need a sync. Raises OSError."""
        self.write_pending()
        found: list[File] = []
        for segment in reversed(self.segments):
            if segment.synced == segment.wrote:
                break
            segment.synced = segment.wrote
            found.append(segment.file)
        found.reverse()
        return found

    def keep_unsynced(self) -> None:
        """A sync failed: all of it is due again."""
        for segment in self.segments:
            segment.synced = 0

    def drop(self) -> None:
        """Remove every file. Blocks."""
        for segment in self.segments:
            segment.file.close()
        self.segments = []
        for name in self._files.list_dir(self._directory):
            self._files.remove(os.path.join(self._directory, name))
        self.directory_dirty = True

    def detach_before(self, min_physical: int) -> list[str]:
        """Forget the oldest files whose last message the commit log has lost; returns paths to delete.

        Apache: deleteExpiredFileByOffsetForTimerLog.
        """
        gone: list[str] = []
        while len(self.segments) > 1:
            first = self.segments[0]
            room = (self._file_size - _BLANK_SIZE) // UNIT_SIZE
            last = self.read(first.base_offset + (room - 1) * UNIT_SIZE)
            if last is not None and last.offset >= min_physical:
                break
            gone.append(first.file.path)
            self.segments.pop(0)
        return gone

    def close(self) -> None:
        """Release the files."""
        for segment in self.segments:
            segment.file.close()
        self.segments = []


def _wipe(segment: Segment, position: int) -> None:
    """Zeros over what stands behind the end, so that no later reader takes it for units. Blocks."""
    step = 1 << 20
    while position < segment.size:
        data = segment.file.pread(min(step, segment.size - position), position)
        if data.count(0) == len(data):
            return
        segment.file.pwrite(bytes(len(data)), position)
        position += len(data)


# Reading one slot of the timer: the one of this moment by the millisecond, or a past one as it was filled. HOT.
# A slot is a chain from its newest unit to its oldest. For a past slot the first walk goes down the chain, remembers where every block begins and collects the recalls; then blocks are read from the oldest to the newest. So a slot of ten million messages costs a few thousand numbers.


BLOCK: Final = 4096  # units held at once
MAX_RECALLS: Final = 100_000  # of one slot; further ones have no effect


class DueSlot:
    """The units of one slot whose time has come. Its chain does not change any more."""

    __slots__ = (
        "_counted", "_cursor", "_first", "_heads", "_log", "recalled", "recalls", "slot_ms",
    )  # fmt: skip

    def __init__(self, log: TimerLog, slot_ms: int, first: int, last: int) -> None:
        """`first`: units before it are delivered already; they count for recalls only."""
        self._log: TimerLog = log
        self._first: int = first
        self._cursor: int = last
        self._heads: list[int] = []
        self._counted: int = 0
        self.slot_ms: int = slot_ms
        self.recalls: list[TimerUnit] = []  # not read yet
        self.recalled: set[str] = set()  # keys of those that were

    def walk(self, budget: int) -> bool:
        """Go on with the first walk, `budget` units at most; True when it is done."""
        log = self._log
        position = self._cursor
        while position >= 0 and budget > 0:
            unit = log.read(position)
            if unit is None:
                position = -1
                break
            if unit.recalls:
                if len(self.recalls) < MAX_RECALLS:
                    self.recalls.append(unit)
            elif position >= self._first:
                if self._counted % BLOCK == 0:
                    self._heads.append(position)
                self._counted += 1
            position = unit.prev if unit.prev < position else -1
            budget -= 1
        self._cursor = position
        return position < 0

    def next_block(self) -> list[TimerUnit]:
        """The oldest block not read yet, oldest unit first; empty at the end. After the walk."""
        if not self._heads:
            return []
        position = self._heads.pop()
        found: list[TimerUnit] = []
        while position >= self._first and len(found) < BLOCK:
            unit = self._log.read(position)
            if unit is None:
                break
            if not unit.recalls:
                found.append(unit)
            position = unit.prev if unit.prev < position else -1
        found.reverse()
        return found


class CurrentSlot:
    """The slot of this moment: its units are given out when each is due, not when the slot is over.

    What was given out is known here only, and by the copies in the commit log: the slot itself stays as it is
    until all of it is done. So the checkpoint must not pass `log_start` before.
    """

    __slots__ = (
        "_cursor", "_first", "_given", "_heap", "_log", "_seen", "_until", "end_ms", "log_start",
        "recalled", "recalls", "slot_ms",
    )  # fmt: skip

    def __init__(
        self, log: TimerLog, slot_ms: int, end_ms: int, first: int, log_start: int
    ) -> None:
        self._log: TimerLog = log
        self._first: int = first  # units before it are delivered already
        self._given: list[TimerUnit] = []  # taken and not settled
        self._heap: list[tuple[int, int]] = []  # when due, and the unit's position
        self._cursor: int = -1  # where the walk goes on
        self._until: int = -1  # where it ends: units up to here are known
        self._seen: int = -1  # the newest unit known, or being walked from
        self.slot_ms: int = slot_ms
        self.end_ms: int = end_ms  # the slot is over: units that name no exact time are due
        self.log_start: int = log_start  # the commit log's end when it began
        self.recalls: list[TimerUnit] = []  # not read yet
        self.recalled: set[str] = set()  # keys of those that were

    def walk(self, last: int, budget: int) -> bool:
        """Take in what has come up to the unit at `last`; True when all of it is known."""
        if self._cursor < 0 and last > self._seen:
            self._cursor, self._until, self._seen = last, self._seen, last
        position = self._cursor
        while position > self._until and budget > 0:
            unit = self._log.read(position)
            if unit is None:
                position = -1
                break
            if unit.recalls:
                if len(self.recalls) < MAX_RECALLS:
                    self.recalls.append(unit)
            elif position >= self._first:
                self._add(unit)
            position = unit.prev if unit.prev < position else -1
            budget -= 1
        done = position <= self._until
        self._cursor = -1 if done else position
        return done and last <= self._seen

    def _add(self, unit: TimerUnit) -> None:
        known = not unit.rolls and self.slot_ms < unit.due_ms <= self.end_ms
        heappush(self._heap, (unit.due_ms if known else self.end_ms, unit.position))

    @property
    def next_ms(self) -> int:
        """The time at which the next known unit is due; 0 when there is none."""
        return self._heap[0][0] if self._heap else 0

    @property
    def empty(self) -> bool:
        """Is nothing left of what is known?"""
        return not self._heap and not self._given

    def take(self, now_ms: int, limit: int) -> list[TimerUnit]:
        """Units that are due, the earliest first; `settle` must follow, or they come again."""
        self.settle(0)
        found = self._given
        heap = self._heap
        while heap and len(found) < limit and heap[0][0] <= now_ms:
            unit = self._log.read(heappop(heap)[1])
            if unit is not None:
                found.append(unit)
        return found

    def settle(self, count: int) -> None:
        """The first `count` of the units taken are dealt with, the others are due as they were: a clock that is set
        back must not make them later than the slot's end, or the slot would never be over."""
        for unit in self._given[count:]:
            self._add(unit)
        self._given = []
