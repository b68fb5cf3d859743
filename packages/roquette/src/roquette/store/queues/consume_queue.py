"""One topic queue: 20-byte units in files of equal size. HOT.

A file is named by the byte offset of its first unit. For the units see `unit`. A turn's units are
written through a map, after the log that they point to; files are allocated before they are mapped.
"""

import errno
import mmap
import os
from collections import OrderedDict
from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from roquette.base.descriptors import KEEPS_DESCRIPTOR, SHORTAGE
from roquette.base.files import File, Files
from roquette.store.format.layout import SECTOR, offset_name
from roquette.store.format.unit import (
    FILLER,
    FILLER_FROM,
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    UnitView,
    passing_unit,
)

# Mapped files of queue units, and how many of them are open at a time. HOT.
# A mapped file needs no descriptor (`base.mapping`), but the system bounds the maps of a process as well. So what was not written for longest is closed when there are too many, and opened again when somebody needs it.


_LOOKS: Final = 64  # at files that may be closed, for one
_MANY: Final = 8  # closed at once when the system has no more
_HELPED: Final = SHORTAGE if KEEPS_DESCRIPTOR else frozenset((errno.ENOMEM,))  # by closing maps


class Holder:
    """The queue that a file is part of."""

    __slots__ = ()

    def written_to(self, opened: "QueueFile") -> i64:
        """The queue offset behind the file's last unit."""
        raise NotImplementedError

    def is_unsynced(self, opened: "QueueFile") -> bool:
        """Has it units that no sync was planned for?"""
        raise NotImplementedError

    def write_units(self) -> None:
        """Put what was added into the file."""
        raise NotImplementedError

    def let_go(self, opened: "QueueFile") -> None:
        """Use it no more, synced if need be. Raises OSError: it stays."""
        raise NotImplementedError


class QueueFile:
    """One mapped file of units."""

    __slots__ = ("base", "file", "holder", "map", "number", "seen", "solid")

    def __init__(self, file: File, solid: bool, holder: Holder, base: i64) -> None:
        """`solid`: it has all its blocks. Others, as Apache leaves them, are not touched through the map."""
        self.file: File = file
        self.solid: bool = solid
        self.holder: Holder = holder
        self.base: i64 = base  # queue offset of its first unit
        self.map: mmap.mmap = file.map(True)
        self.number: int = 0  # of its opening
        self.seen: i64 = -1  # how far it was written at the last look
        file.rest()

    def read(self, start: i64, end: i64) -> bytes:
        """The bytes of a range."""
        return self.map[start:end] if self.solid else self.file.pread(end - start, start)


class OpenFiles:
    """The open files of all queues, those opened or found written to last at the end.

    Attributes:
        fresh: queues that have units which are not in their files yet.
    """

    __slots__ = ("_crowded", "_openings", "_row", "files", "fresh", "limit")

    def __init__(self, files: Files) -> None:
        self.files: Files = files
        self.limit: int = files.map_limit
        self.fresh: list[Holder] = []
        self._row: OrderedDict[int, QueueFile] = OrderedDict()
        self._openings: int = 0
        self._crowded: bool = False

    def open(
        self, path: str, size: i64, create: bool, solid: bool, holder: Holder, base: i64
    ) -> QueueFile:
        """Open and map a file of `size` bytes. Raises OSError, a shortage only when closing others does not help."""
        if len(self._row) >= self.limit:
            self._close(1)
        try:
            opened = QueueFile(self.files.open_file(path, size, create), solid, holder, base)
        except OSError as error:
            if error.errno not in _HELPED or not self._close(_MANY):
                raise
            opened = QueueFile(self.files.open_file(path, size, create), solid, holder, base)
        self._openings += 1
        opened.number = self._openings
        self._row[opened.number] = opened
        return opened

    def write_units(self) -> None:
        """Put what was added to the queues into their files."""
        if self.fresh:
            for queue in self.fresh:
                queue.write_units()
            self.fresh = []

    def take_crowded(self) -> bool:
        """Was a file closed since the last call that was not synced? Then queues should be synced more often."""
        crowded, self._crowded = self._crowded, False
        return crowded

    def forget(self, opened: QueueFile | None) -> None:
        """A file is open no more."""
        if opened is not None:
            self._row.pop(opened.number, None)

    def _close(self, count: int) -> int:
        """Close up to so many; returns how many."""
        closed = 0
        while closed < count and self._row:
            opened = self._pick()
            self._row[opened.number] = opened  # until it is closed
            if opened.holder.is_unsynced(opened):
                self._crowded = True
            opened.holder.let_go(opened)
            self._row.pop(opened.number, None)
            closed += 1
        return closed

    def _pick(self) -> QueueFile:
        """One that was not written to since the last look, synced if there is such a one; taken out of the row."""
        unsynced: QueueFile | None = None
        for _ in range(min(_LOOKS, len(self._row))):
            _, opened = self._row.popitem(last=False)
            end = opened.holder.written_to(opened)
            if end == opened.seen and not opened.holder.is_unsynced(opened):
                return opened
            if end == opened.seen and unsynced is None:
                unsynced = opened
            opened.seen = end
            self._row[opened.number] = opened
        if unsynced is None:
            _, unsynced = self._row.popitem(last=False)
        else:
            del self._row[unsynced.number]
        return unsynced


_MOST_UNITS: Final = 4_096 * UNIT_SIZE  # bytes of units that are not in their file yet
_DAMAGED_FIRST: Final = 8  # units passed over in search of the first one


class ConsumeQueue(Holder):
    """The units of one queue. `next_offset` is the queue offset the next message gets."""

    __slots__ = (
        "_directory",
        "_files",
        "_first_base",
        "_loaded",
        "_map",
        "_map_base",
        "_min_known_for",
        "_min_offset",
        "_open_files",
        "_units",
        "_units_per_file",
        "checked_codes",
        "directory_dirty",
        "dirty",
        "doubtful",
        "flushed_offset",
        "limit",
        "next_offset",
        "opened_end",
        "queue_id",
        "topic",
    )

    def __init__(
        self, open_files: OpenFiles, directory: str, topic: str, queue_id: int, units_per_file: i64
    ) -> None:
        self._open_files: OpenFiles = open_files
        self._files: Files = open_files.files
        self._directory: str = directory
        self.topic: str = topic
        self.queue_id: int = queue_id
        self._units_per_file: i64 = units_per_file
        self._first_base: i64 = 0  # queue offset of the first file's first unit
        self._loaded: list[QueueFile | None] = []  # one place per file, opened when first used
        self.next_offset: i64 = 0
        self.limit: i64 = 0  # the queue offset at which the last file ends
        self._map: mmap.mmap | None = None  # the last file's
        self._map_base: i64 = 0
        self._units: BytesWriter | None = None  # the last ones, which are not in the map yet
        self._min_offset: i64 = 0
        self._min_known_for: i64 = -1
        self.flushed_offset: i64 = 0
        self.opened_end: i64 = (
            0  # units before it were found at start: what they point to is checked
        )
        self.doubtful: bool = False  # a unit was met whose tags code is not its record's
        self.checked_codes: set[int] = set()  # tags codes that stand in records found at start
        self.dirty: bool = False
        self.directory_dirty: bool = False

    def attach(self, first_base: i64, file_count: int) -> None:
        """Say which files exist on disk: queue offset of the first, and how many follow on."""
        assert first_base % self._units_per_file == 0
        self._first_base = first_base
        self._loaded = [None] * file_count
        self.limit = first_base + file_count * self._units_per_file
        self.next_offset = self.limit
        self.flushed_offset = self.limit
        self._map = None
        self._min_known_for = -1

    @property
    def file_count(self) -> int:
        """Files on disk."""
        return len(self._loaded)

    @property
    def first_base(self) -> i64:
        """The queue offset of the first unit there is a file for."""
        return self._first_base

    @property
    def directory(self) -> str:
        """The directory of the files."""
        return self._directory

    def file_path(self, base: i64) -> str:
        """The path of the file whose first unit has queue offset `base`."""
        return os.path.join(self._directory, offset_name(base * UNIT_SIZE))

    def reserve(self) -> None:
        """Make sure the next unit has a file. Raises OSError (disk full); nothing has changed."""
        if self.next_offset < self.limit and self._map is not None:
            return
        self.write_units()
        per_file = self._units_per_file
        if not self._loaded:
            self._first_base = self.next_offset - self.next_offset % per_file
            self.limit = self._first_base
        base: i64 = self.limit
        if self.next_offset < self.limit:  # the last file exists but is not open yet
            base = self.limit - per_file
        opened = self._open(base, True)
        opened.file.read_ahead(False)  # or a touch fills megabytes behind its end with zeros
        if base == self.limit:
            if self._loaded and (full := self._loaded[-1]) is not None:
                full.file.read_ahead(True)
            self._loaded.append(opened)
            self.limit = base + per_file
            self.directory_dirty = True
        elif not opened.solid:
            opened.file.allocate(per_file * UNIT_SIZE)
            opened.solid = True
        self._map = opened.map
        self._map_base = base

    def may_be_torn(self, queue_offset: i64) -> bool:
        """Does a unit lie in two sectors, and not before what was synced? A crash can leave half of it."""
        if queue_offset < self.flushed_offset:
            return False
        return queue_offset % self._units_per_file * UNIT_SIZE % SECTOR > SECTOR - UNIT_SIZE

    def mend(self, queue_offset: i64, physical_offset: i64, size: i64, tags_code: i64) -> bool:
        """Write a unit again unless it is whole; True when it was not."""
        self.write_units()
        opened = self._open(queue_offset - queue_offset % self._units_per_file, False)
        position = queue_offset % self._units_per_file * UNIT_SIZE
        unit = UNIT.pack(physical_offset, size, tags_code)
        if opened.read(position, position + UNIT_SIZE) == unit:
            return False
        opened.file.pwrite(unit, position)
        self.flushed_offset = min(self.flushed_offset, queue_offset)
        return True

    def append(self, physical_offset: i64, size: i64, tags_code: i64) -> None:
        """Add one unit; `reserve` was called before. `write_units` puts it into the file."""
        assert self._map is not None
        units = self._fresh()
        write_i64_be(units, physical_offset)
        write_i32_be(units, i32(size))
        write_i64_be(units, tags_code)
        self.next_offset += 1
        if len(units) >= _MOST_UNITS:  # recovery has no turns
            self.write_units()

    def append_units(self, units: bytes) -> None:
        """Add encoded units, no more than fit the last file, after `reserve`."""
        self._fresh().write(units)
        self.next_offset += len(units) // UNIT_SIZE
        self.write_units()

    def write_units(self) -> None:
        """Put what was added into the file: at the end of a turn, after the log; and before who looks at the file."""
        units = self._units
        if units is not None:
            unit_map = self._map
            assert unit_map is not None
            end: i64 = (self.next_offset - self._map_base) * UNIT_SIZE
            unit_map[end - len(units) : end] = units.getvalue()
            self._units = None

    def _fresh(self) -> BytesWriter:
        units = self._units
        if units is None:
            units = self._units = BytesWriter()
            self._open_files.fresh.append(self)
        return units

    def start_at(self, queue_offset: i64, unit: bytes = FILLER) -> None:
        """Let an empty queue begin at an offset: fillers, or other units, stand before it in its file."""
        assert not self._loaded
        self.next_offset = queue_offset
        self.flushed_offset = queue_offset
        self.reserve()
        unit_map = self._map
        assert unit_map is not None
        count: i64 = queue_offset - self._map_base
        unit_map[: count * UNIT_SIZE] = unit * count
        self.flushed_offset = self._map_base
        self._min_known_for = -1

    def skip_to(self, queue_offset: i64, next_physical: i64, segment_size: i64) -> None:
        """Fill the places up to an offset: their messages are lost to the log.

        Apache's broker takes a unit it finds no record for to be one of a log file that was deleted, and passes over
        the units of the rest of that file (DefaultMessageStore.getMessage, nextPhyFileStartOffset). So such a unit
        stands here only when the next record lies in a later file; it names the last byte of the record before it,
        and a size that is too large for any file. Else the unit before is repeated: who pulls may get that message
        once more, but nothing sound is passed over, and what the queue says of the log's end stays true.

        Args:
            next_physical: where the next record of the queue begins; -1 when none is known.
        """
        before = self.read_units(self.next_offset - 1, 1)
        last = passing_unit(before, next_physical, segment_size)
        while self.next_offset < queue_offset:
            self.reserve()
            self.append_units(last)

    def settle(self, queue_offset: i64) -> None:
        """Set the end that loading found; what lies behind it is wiped unless it is zeros."""
        per_file = self._units_per_file
        if queue_offset < self.limit - per_file:
            self.truncate(queue_offset)
            return
        base: i64 = self.limit - per_file
        last = self._open(base, False)
        first: i64 = (queue_offset - base) * UNIT_SIZE
        rest = last.read(first, per_file * UNIT_SIZE)
        if rest != bytes(len(rest)):
            self.truncate(queue_offset)
            return
        self.next_offset = queue_offset
        self.flushed_offset = queue_offset  # its map is written to only after `reserve`

    def truncate(self, queue_offset: i64) -> None:
        """Drop the units from an offset on: zeros over them, whole files removed, all synced."""
        if queue_offset >= self.next_offset:
            return
        self.write_units()
        assert queue_offset >= self._first_base
        per_file = self._units_per_file
        keep: i64 = -(-(queue_offset - self._first_base) // per_file)
        keep = max(keep, 1)
        while len(self._loaded) > keep:
            self.limit -= per_file
            gone = self._loaded.pop()
            self._open_files.forget(gone)
            if gone is not None:
                gone.file.close()
            self._files.remove(self.file_path(self.limit))
            self.directory_dirty = True
        base: i64 = self.limit - per_file
        last = self._open(base, False)
        first: i64 = (queue_offset - base) * UNIT_SIZE
        rest = last.read(first, per_file * UNIT_SIZE).rstrip(b"\0")
        if rest:  # by a call: a store into a hole of a full disk kills
            last.file.pwrite(bytes(len(rest)), first)
        last.file.sync()
        if self.directory_dirty:
            self._files.sync_dir(self._directory)
            self.directory_dirty = False
        self.next_offset = queue_offset
        self.flushed_offset = min(self.flushed_offset, queue_offset)
        self._map = None
        self._min_known_for = -1

    def _open(self, base: i64, create: bool) -> QueueFile:
        index: i64 = (base - self._first_base) // self._units_per_file
        if index < len(self._loaded):
            known = self._loaded[index]
            if known is not None:
                return known
        if create and not self._loaded:
            self._files.make_dirs(self._directory)
        size: i64 = self._units_per_file * UNIT_SIZE
        # What is not the last file is full. The last one, found at start, is made solid by `reserve`.
        solid = index < len(self._loaded) - 1 or index == len(self._loaded)
        opened = self._open_files.open(self.file_path(base), size, create, solid, self, base)
        if index < len(self._loaded):
            self._loaded[index] = opened
        return opened

    def read_units(self, queue_offset: i64, count: i64) -> bytes:
        """The units from an offset on, up to `count`, within one file; empty when there are none."""
        end: i64 = queue_offset + count
        end = min(end, self.next_offset)
        if queue_offset < self._first_base or queue_offset >= end:
            return b""
        self.write_units()
        if self._map is not None and queue_offset >= self._map_base:
            first: i64 = (queue_offset - self._map_base) * UNIT_SIZE
            return self._map[first : first + (end - queue_offset) * UNIT_SIZE]
        base: i64 = queue_offset - queue_offset % self._units_per_file
        end = min(end, base + self._units_per_file)
        opened = self._open(base, False)
        return opened.read((queue_offset - base) * UNIT_SIZE, (end - base) * UNIT_SIZE)

    def units_at(self, offset: int, count: int) -> list[tuple[int, int, int]] | None:
        """Units from an offset on: physical offset, size, tags code; None when there is none at it."""
        found: list[tuple[int, int, int]] = []
        unit = UnitView()
        while len(found) < count:
            units = self.read_units(offset + len(found), count - len(found))
            if not units:
                break
            for position in range(0, len(units), UNIT_SIZE):
                unit.look_at(units, position)
                found.append((unit.physical, unit.size, unit.code))
        return found or None

    def unit_at(self, queue_offset: i64) -> UnitView | None:
        """One unit; None when there is none."""
        units = self.read_units(queue_offset, 1)
        if not units:
            return None
        unit = UnitView()
        unit.look_at(units, 0)
        return unit

    def physical_at(self, queue_offset: i64) -> i64:
        """The physical offset of one unit; -1 when there is none or it is a filler in front."""
        unit = self.unit_at(queue_offset)
        if unit is None or (unit.physical == 0 and unit.size == FILLER_SIZE):
            return -1
        return unit.physical

    def end_physical(self) -> i64:
        """The byte after the last record this queue points to; 0 when it points to none."""
        return self.end_physical_at(self.next_offset - 1) if self.next_offset else 0

    def end_physical_at(self, queue_offset: i64) -> i64:
        """The byte after the record of one unit; 0 when there is no such unit."""
        unit = self.unit_at(queue_offset)
        return 0 if unit is None else unit.end

    def points_to(self, queue_offset: i64, physical_offset: i64, size: i64) -> bool:
        """Is this the place and size of the record in a unit?"""
        unit = self.unit_at(queue_offset)
        return unit is not None and unit.physical == physical_offset and unit.size == size

    def first_behind(self, physical_end: i64) -> i64:
        """The first unit whose record ends behind an offset of the log. Ends only grow."""
        low: i64 = self._first_base
        high: i64 = self.next_offset
        while low < high:
            middle: i64 = (low + high) // 2
            if self.end_physical_at(middle) > physical_end:
                high = middle
            else:
                low = middle + 1
        return low

    def min_offset(self, min_physical: i64) -> i64:
        """The first queue offset whose record the log still has (Apache: correctMinOffset)."""
        if self._min_known_for != min_physical:
            self._min_offset = self._find_first(min_physical)
            self._min_known_for = min_physical
        return self._min_offset

    def _find_first(self, min_physical: i64) -> i64:
        low: i64 = self._first_base
        high: i64 = self.next_offset
        while low < high:  # fillers stand in front and count as older than everything
            middle: i64 = (low + high) // 2
            physical = self.physical_at(middle)
            if physical < 0 or physical < min_physical:
                low = middle + 1
            else:
                high = middle
        if low - 2 >= self._first_base and self.physical_at(low - 2) >= min_physical:
            low = self._first_base  # a damaged unit has led astray
            while self.physical_at(low) < min_physical:
                low += 1
        for _ in range(
            _DAMAGED_FIRST
        ):  # a damaged unit does not look like one of an expired record
            unit = self.unit_at(low - 1)
            if unit is None or (unit.physical >= 0 and unit.size > 0):
                break
            low -= 1
        return low

    def drop_files_before(self, min_physical: i64) -> list[str]:
        """Forget files whose every record is gone from the log; returns their paths to delete."""
        gone: list[str] = []
        while len(self._loaded) > 1:
            last_of_first: i64 = self._first_base + self._units_per_file - 1
            physical = self.physical_at(last_of_first)
            if physical >= min_physical:
                break
            gone.append(self.file_path(self._first_base))
            self._open_files.forget(self._loaded.pop(0))
            self._first_base += self._units_per_file
        return gone

    def unflushed_files(self) -> list[File]:
        """The files written since `flushed_offset`, for a sync."""
        found: list[File] = []
        self.write_units()
        if self.flushed_offset >= self.next_offset:
            return found
        base: i64 = self.flushed_offset - self.flushed_offset % self._units_per_file
        base = max(base, self._first_base)
        while base < self.next_offset:
            found.append(self._open(base, False).file)
            base += self._units_per_file
        return found

    def forget(self) -> None:
        """Let go of the files without closing them: a sync in the executor may still hold one."""
        self._units = None
        for opened in self._loaded:
            self._open_files.forget(opened)
        self._map = None
        self._loaded = []

    def written_to(self, opened: QueueFile) -> i64:
        end: i64 = opened.base + self._units_per_file
        return min(end, self.next_offset)

    def is_unsynced(self, opened: QueueFile) -> bool:
        return self.flushed_offset < self.written_to(opened)

    def let_go(self, opened: QueueFile) -> None:
        self.write_units()
        if self.is_unsynced(
            opened
        ):  # the system forgets a write that failed when nobody has the file open
            opened.file.sync()
            if self.flushed_offset >= opened.base:
                self.flushed_offset = self.written_to(opened)
        index: i64 = (opened.base - self._first_base) // self._units_per_file
        if 0 <= index < len(self._loaded) and self._loaded[index] is opened:
            self._loaded[index] = None
        if self._map is opened.map:
            self._map = None

    def close(self) -> None:
        """Release files; maps go with their last reference. What was added since the last turn is lost, as in a crash."""
        self._units = None
        for opened in self._loaded:
            self._open_files.forget(opened)
            if opened is not None:
                opened.file.close()
        self._map = None
        self._loaded = [None] * len(self._loaded)


def count_valid(units: bytes, physical_floor: i64) -> i64:
    """Count the sound units from the first on: sizes above 0, offsets that only grow, or a unit repeated.

    A filler is sound anywhere. `physical_floor`: the end of the record before the first unit.
    """
    position: i64 = 0
    end: i64 = len(units)
    floor = physical_floor
    while position < end:
        offset = read_i64_be(units, position)
        size: int = read_i32_be(units, position + 8)
        if size <= 0 or offset < 0:
            break
        if size < FILLER_FROM:
            if offset < floor and offset + size != floor:
                break
            floor = offset + size
        elif offset != 0 and offset + 1 < floor:
            break
        position += UNIT_SIZE
    return position // UNIT_SIZE
