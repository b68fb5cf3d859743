"""One hash index file: which records carry a key. HOT.

| part | bytes |
|---|---|
| header | begin timestamp 8, end timestamp 8, begin physical 8, end physical 8, slots used 4, count 4 |
| slots | 4 each: number of the newest entry whose hash falls here, 0 for none |
| entries | 20 each: hash 4, physical offset 8, seconds since begin 4, previous entry's number 4 |

The count begins at 1: entry 0 is never used (Apache: IndexFile, IndexHeader). The header in the
file follows the entries: Apache's broker, should it come after a kill, appends
behind its count. Recovery trusts the entries, which prove themselves: each names the entry
that its slot held before.
"""

import mmap
import sys
from typing import Any, Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from roquette.base.files import File
from roquette.store.format.layout import SECTOR

HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = 20
MAX_SECONDS: Final = 0x7FFFFFFF
_CHUNK_ENTRIES: Final = 4096


def index_file_size(slots: int, capacity: int) -> int:
    """Bytes of a file with so many slots and places for entries."""
    return HEADER_SIZE + slots * SLOT_SIZE + capacity * ENTRY_SIZE


def entry_seconds(begin_ms: i64, store_ms: i64) -> i64:
    """Return an entry's seconds for its record's store time, in a file that begins at `begin_ms`; 0: it has no begin yet."""
    if begin_ms <= 0 or store_ms < begin_ms:
        return 0
    seconds: i64 = (store_ms - begin_ms) // 1000
    return seconds if seconds < MAX_SECONDS else MAX_SECONDS


_SWAP: Final = sys.byteorder == "little"


def _big_endian(value: i64) -> i64:
    """A native int32 with its bytes turned round, as int32: the view of the slots is native."""
    if not _SWAP:
        return value
    turned: i64 = (
        (value >> 24) & 0xFF | (value >> 8) & 0xFF00 | (value & 0xFF00) << 8 | (value & 0xFF) << 24
    )
    return turned - 0x100000000 if turned & 0x80000000 else turned


class IndexHead:
    """The header of an index file, and where its parts are.

    Attributes:
        begin_ms, end_ms, begin_physical, end_physical: store times and offsets of the first and the last record.
        slots, capacity: hash slots, and places for entries. `entries_at`: the byte behind the slots.
        count: number of the next entry.
    """

    __slots__ = (
        "begin_ms", "begin_physical", "capacity", "count", "end_ms", "end_physical", "entries_at", "slots", "slots_used",
    )  # fmt: skip

    def __init__(self, slots: i64, capacity: i64) -> None:
        self.slots: i64 = slots
        self.capacity: i64 = capacity
        self.entries_at: i64 = HEADER_SIZE + slots * SLOT_SIZE
        self.begin_ms: i64 = 0
        self.end_ms: i64 = 0
        self.begin_physical: i64 = 0
        self.end_physical: i64 = 0
        self.slots_used: i64 = 0
        self.count: i64 = 1

    def read_header(self, head: bytes) -> None:
        """Take the numbers of a header."""
        slots_used: int = read_i32_be(head, 32)
        count: int = read_i32_be(head, 36)
        self.begin_ms = read_i64_be(head, 0)
        self.end_ms = read_i64_be(head, 8)
        self.begin_physical = read_i64_be(head, 16)
        self.end_physical = read_i64_be(head, 24)
        self.slots_used = slots_used
        self.count = count

    def entry_at(self, number: i64) -> i64:
        """Byte of an entry in the file."""
        return self.entries_at + number * ENTRY_SIZE


class IndexEntry:
    """One entry: hash of the key, the record's offset, seconds since the file's begin, number of the entry before it."""

    __slots__ = ("key_hash", "physical", "previous", "seconds")

    def __init__(self) -> None:
        self.key_hash: i64 = 0
        self.physical: i64 = 0
        self.seconds: i64 = 0
        self.previous: i64 = 0

    def look_at(self, entries: bytes, at: i64) -> None:
        """Take the fields from some bytes."""
        key_hash: int = read_i32_be(entries, at)
        seconds: int = read_i32_be(entries, at + 12)
        previous: int = read_i32_be(entries, at + 16)
        self.key_hash = key_hash
        self.physical = read_i64_be(entries, at + 4)
        self.seconds = seconds
        self.previous = previous


class IndexFile(IndexHead):
    """A mapped index file. Entries are numbered 1 .. capacity - 1.

    Entries are written together by `write_entries`: a turn's are neighbours. So is the slot of the last key that repeats,
    as tags do; other slots are written at once.
    """

    __slots__ = (
        "_entries",
        "_kept_number",
        "_kept_slot",
        "_map",
        "_slot_view",
        "_written",
        "damaged",
        "dirty",
        "file",
        "path",
        "summed",
        "told",
    )

    def __init__(self, file: File, path: str, slots: i64, capacity: i64) -> None:
        super().__init__(slots, capacity)
        self.file: File = file
        self.path: str = path
        self._map: mmap.mmap = file.map(True)
        file.rest()
        self._slot_view: memoryview = memoryview(self._map)[HEADER_SIZE : self.entries_at].cast("i")
        self._entries: BytesWriter = BytesWriter()  # those from `_written` on
        self._written: i64 = 1
        self._kept_slot: i64 = -1  # is to get `_kept_number`
        self._kept_number: i64 = 0
        self.dirty: bool = False
        self.summed: bool = False  # `index.sums` has a line of it, or will
        self.damaged: bool = False  # a search has met an entry that cannot be where it is
        self.told: bool = False  # the log names the damage
        self.load_header()

    def load_header(self) -> None:
        """Read the numbers of the header; of a new file they are all 0, and the count is 1."""
        self.read_header(self._map[:HEADER_SIZE])
        if not 1 <= self.count <= self.capacity:
            self.count = 1
        self._written = self.count

    def continue_from(self, end_physical: i64, end_ms: i64) -> None:
        """Let a new file begin where the full one before it ends, as Apache's constructor does."""
        if end_physical > 0:
            self.begin_physical = end_physical
            self.end_physical = end_physical
        if end_ms > 0:
            self.begin_ms = end_ms
            self.end_ms = end_ms

    @property
    def full(self) -> bool:
        """No entry fits any more."""
        return self.count >= self.capacity

    def put(
        self, key_hash: i64, physical_offset: i64, store_ms: i64, repeats: bool = False
    ) -> None:
        """Add an entry for a positive key hash; the caller has seen that the file is not full.

        `repeats`: the next record may have the same key.
        """
        number = self.count
        entries = self._entries
        slots = self._slot_view
        slot: i64 = key_hash % self.slots
        place: Any = slot  # one object for both looks
        kept = slot == self._kept_slot
        previous = self._kept_number if kept else _big_endian(slots[place])
        if previous <= 0 or previous > number:
            previous = 0
            self.slots_used += 1
        seconds = entry_seconds(self.begin_ms, store_ms)
        write_i32_be(entries, i32(key_hash))
        write_i64_be(entries, physical_offset)
        write_i32_be(entries, i32(seconds))
        write_i32_be(entries, i32(previous))
        if repeats and not kept:
            self._write_slot()
            self._kept_slot = slot
        if repeats or kept:
            self._kept_number = number
        else:
            slots[place] = _big_endian(number)
        if number <= 1:  # Apache reckons the first entry's seconds before it sets the begin
            self.begin_physical = physical_offset
            self.begin_ms = store_ms
        number += 1
        self.count = number
        self.end_physical = physical_offset
        self.end_ms = store_ms
        self.dirty = True
        if number - self._written >= _CHUNK_ENTRIES:  # recovery has no turns
            self.write_entries()

    def write_entries(self) -> None:
        """Put the entries since the last call into the map."""
        if self._written == self.count:
            return
        start: i64 = self.entry_at(self._written)
        end: i64 = self.entry_at(self.count)
        self._map[start:end] = self._entries.getvalue()
        self._entries = BytesWriter()
        self._written = self.count
        self._write_slot()
        self._write_header()

    def _write_slot(self) -> None:
        if self._kept_slot >= 0:
            self._slot_view[self._kept_slot] = _big_endian(self._kept_number)
            self._kept_slot = -1

    def write_header(self) -> None:
        """Bring the file up to date; done before a sync."""
        self.write_entries()
        self._write_header()

    def _write_header(self) -> None:
        header = BytesWriter()
        write_i64_be(header, self.begin_ms)
        write_i64_be(header, self.end_ms)
        write_i64_be(header, self.begin_physical)
        write_i64_be(header, self.end_physical)
        write_i32_be(header, i32(self.slots_used))
        write_i32_be(header, i32(self.count))
        self._map[:HEADER_SIZE] = header.getvalue()

    def may_cover(self, begin_ms: i64, end_ms: i64) -> bool:
        """Do the two time ranges touch? (Apache: IndexFile.isTimeMatched)"""
        return begin_ms <= self.end_ms and end_ms >= self.begin_ms

    def newest(self, key_hash: i64) -> i64:
        """Number of the newest entry in a hash's slot; 0 when there is none."""
        self.write_entries()
        number: i64 = _big_endian(self._slot_view[key_hash % self.slots])
        return number if number < self.count else 0

    def find_from(
        self,
        number: i64,
        key_hash: i64,
        found: list[i64],
        max_count: i64,
        begin_ms: i64,
        end_ms: i64,
        budget: i64,
    ) -> i64:
        """Add physical offsets of records whose key has this hash to `found`, newest first.

        Times in the file are whole seconds, so the ends of the range are inexact, as in Apache.

        Args:
            number: the entry to begin with.
            max_count: how many `found` may hold.
            budget: how many entries are looked at.

        Returns:
            The entry to go on with; 0 at the end.
        """
        index_map = self._map
        while number > 0 and len(found) < max_count:
            if budget <= 0:
                return number
            budget -= 1
            entry_at: i64 = self.entry_at(number)
            entry = index_map[entry_at : entry_at + ENTRY_SIZE]
            seconds: int = read_i32_be(entry, 12)
            known: int = read_i32_be(entry, 0)
            if seconds < 0 or known < 0 or known % self.slots != key_hash % self.slots:
                self.damaged = True
                break
            stored_ms: i64 = self.begin_ms + seconds * 1000
            if known == key_hash and begin_ms <= stored_ms <= end_ms:
                found.append(read_i64_be(entry, 4))
            previous: int = read_i32_be(entry, 16)
            if previous >= number or stored_ms < begin_ms:
                break
            number = previous
        return 0

    def find(self, key_hash: i64, max_count: i64, begin_ms: i64, end_ms: i64) -> list[i64]:
        """All of it at once: see `find_from`."""
        found: list[i64] = []
        number = self.newest(key_hash)
        self.find_from(number, key_hash, found, max_count, begin_ms, end_ms, self.count)
        return found

    def rebuild(self, log_end: i64) -> i64:
        """Keep the longest sound prefix of entries; rebuild slots and header.

        The begin timestamp is taken from the header: the caller sets it before, if it knows better.

        After a power cut any sector may be old. Entries of the last record are dropped too: the
        record may have had more keys, and recovery dispatches it again.

        Returns:
            The physical offset from which records are to be indexed again: behind the last one kept, for that of the
            one dropped may be wrong; -1 when no entry is left.
        """
        begin_ms: i64 = self.begin_ms
        self._kept_slot = -1
        self._clear(HEADER_SIZE, self.entries_at)
        self.slots_used = 0
        count: i64 = self._sound_prefix(log_end)
        if count > 1:
            last: i64 = self.physical_of(count - 1)
            while count > 1 and self.physical_of(count - 1) == last:
                count -= 1
                self._take_back(count)
        self._clear(self.entry_at(count), len(self._map))
        self.count = count
        self._written = count
        self._entries = BytesWriter()
        self.dirty = True
        if count == 1:
            self.begin_ms = 0
            self.end_ms = 0
            self.begin_physical = 0
            self.end_physical = 0
        else:
            self.begin_physical = self.physical_of(1)
            self.end_physical = self.physical_of(count - 1)
            entry_at: i64 = self.entry_at(count - 1)
            seconds: int = read_i32_be(self._map[entry_at : entry_at + ENTRY_SIZE], 12)
            self.end_ms = begin_ms + seconds * 1000
        return self.end_physical + 1 if count > 1 else -1

    def _clear(self, first: i64, limit: i64) -> None:
        """Zeros over a range of the file; what holds none but zeros is not touched: most of a file never was."""
        while first < limit:
            end: i64 = first + _CHUNK_ENTRIES * ENTRY_SIZE
            end = min(end, limit)
            zeros = bytes(end - first)
            if self._map[first:end] != zeros:
                self._map[first:end] = zeros
            first = end

    def _sound_prefix(self, log_end: i64) -> i64:
        slots = self._slot_view
        number: i64 = 1
        floor: i64 = 0
        last_seconds: i64 = 0
        while number < self.capacity:
            chunk_at: i64 = self.entry_at(number)
            chunk = self._map[chunk_at : chunk_at + _CHUNK_ENTRIES * ENTRY_SIZE]
            position: i64 = 0
            end: i64 = len(chunk)
            while position < end:
                key_hash: int = read_i32_be(chunk, position)
                physical = read_i64_be(chunk, position + 4)
                seconds: int = read_i32_be(chunk, position + 12)
                previous: int = read_i32_be(chunk, position + 16)
                if key_hash < 0 or physical < floor or physical >= log_end or seconds < 0:
                    return number
                if (
                    key_hash == 0
                ):  # nothing was written here, or a sector was lost: keys of a hash 0 come again
                    return number
                slot: i64 = key_hash % self.slots
                before = _big_endian(slots[slot])
                if before != previous:
                    return number
                in_two = (chunk_at + position) % SECTOR > SECTOR - ENTRY_SIZE
                if in_two and seconds == 0 and previous == 0 and last_seconds > 0:
                    return number  # the half in the second sector may be lost
                last_seconds = seconds
                if before == 0:
                    self.slots_used += 1
                slots[slot] = _big_endian(number)
                floor = physical
                number += 1
                position += ENTRY_SIZE
        return number

    @property
    def used(self) -> int:
        """Bytes of header, slots and entries."""
        used: i64 = self.entry_at(self.count)
        return used

    def seconds_of(self, number: i64) -> int:
        """Seconds since the file's begin, in an entry."""
        entry_at: i64 = self.entry_at(number)
        return read_i32_be(self._map[entry_at : entry_at + ENTRY_SIZE], 12)

    def physical_of(self, number: i64) -> i64:
        """The physical offset in an entry."""
        entry_at: i64 = self.entry_at(number)
        return read_i64_be(self._map[entry_at : entry_at + ENTRY_SIZE], 4)

    def _take_back(self, number: i64) -> None:
        entry_at: i64 = self.entry_at(number)
        entry = self._map[entry_at : entry_at + ENTRY_SIZE]
        key_hash: int = read_i32_be(entry, 0)
        previous: int = read_i32_be(entry, 16)
        self._slot_view[key_hash % self.slots] = _big_endian(previous)
        if previous == 0:
            self.slots_used -= 1

    def close(self) -> None:
        """Release the file; the map goes with its last reference."""
        self.file.close()
