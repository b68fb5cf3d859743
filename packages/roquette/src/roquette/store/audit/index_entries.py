"""The whole half of the index's audit: entries beside the log's records, chains from slot to entry. HOT.

Entries stand in the order of the log, so a check goes through both at once and holds one window of each. What a start
looks at, the other half, is in `index_audit`.
"""

import sys
from array import array
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from roquette.base.files import ReadAt, ReadFile, ReadFiles
from roquette.store.audit.findings import DAMAGE, NOTE, Findings, finding
from roquette.store.index.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexEntry,
    IndexHead,
    entry_seconds,
)

_WINDOW_ENTRIES: Final = 8192
_SLOT_WINDOW: Final = 1 << 20
_EMPTY: Final = bytes(ENTRY_SIZE)
_SWAP: Final = sys.byteorder == "little"
_SEARCH: Final = 512 << 20  # bytes looked through for the place of the first entry


class IndexView(IndexHead):
    """One index file as it is checked: `end` is the number of the next entry as the entries say."""

    __slots__ = ("end", "path", "size")

    def __init__(self, path: str, size: i64, head: bytes, slots: i64) -> None:
        super().__init__(slots, (size - HEADER_SIZE - slots * SLOT_SIZE) // ENTRY_SIZE)
        self.read_header(head)
        self.path: str = path
        self.size: i64 = size
        self.end: i64 = self.count if 1 <= self.count <= self.capacity else 1

    def physical_of(self, source: ReadAt, number: i64) -> i64:
        """The physical offset in an entry. Raises OSError."""
        return read_i64_be(source.pread(8, self.entry_at(number) + 4), 0)


def find_slots(
    source: ReadAt, number: int, physical: int, key_hash: int, default_slots: int
) -> int:
    """Return the number of hash slots of a file; 0 when that cannot be told.

    A file does not say it, but entries stand behind the slots, and of one entry is known what it says.

    Args:
        number: of that entry. `physical`: the offset it has. `key_hash`: its hash; -1: not known.
    """
    size = source.size
    wanted = physical.to_bytes(8, "big", signed=True)
    if key_hash >= 0:
        wanted = key_hash.to_bytes(4, "big") + wanted
    elif physical == 0:
        return 0
    skipped = (4 if key_hash < 0 else 0) + number * ENTRY_SIZE
    at = HEADER_SIZE + default_slots * SLOT_SIZE + skipped
    if at < size and source.pread(len(wanted), at) == wanted:
        return default_slots
    position, found = HEADER_SIZE, 0
    while position < min(size, _SEARCH):
        piece = source.pread(_SLOT_WINDOW + 16, position)
        at = piece.find(wanted)
        while at >= 0:
            entries_at = position + at - skipped
            slots = (entries_at - HEADER_SIZE) // SLOT_SIZE
            fits = (entries_at - HEADER_SIZE) % SLOT_SIZE == 0 and (
                size - entries_at
            ) % ENTRY_SIZE == 0
            if slots > 0 and fits:
                found = slots
                if number == 1:
                    return found
            at = piece.find(wanted, at + 1)
        position += _SLOT_WINDOW
    return found  # by the last entry: a record's last one is the last that has its offset


class EntryCheck(IndexEntry):
    """Every record has its entries, and every entry its record: told of the records in order.

    The fields hold the entry at hand, while there is one.

    Attributes:
        indexed: there are files; else nothing is looked at.
        begin: records behind this physical offset have all their entries.
    """

    __slots__ = (
        "_data",
        "_files",
        "_findings",
        "_first_known",
        "_number",
        "_place",
        "_source",
        "_start",
        "_tags_indexed",
        "_valid",
        "_views",
        "begin",
        "indexed",
    )  # fmt: skip

    def __init__(
        self, files: ReadFiles, views: list[IndexView], min_physical: i64, findings: Findings
    ) -> None:
        """`views`: oldest first. `min_physical`: the first byte the log still has."""
        super().__init__()
        self._files: ReadFiles = files
        self._views: list[IndexView] = views
        self._findings: Findings = findings
        self._source: ReadFile | None = None
        self._data: bytes = b""
        self._start: i64 = 0  # number of the first entry in the window
        self._place: int = -1  # of the file in the list
        self._number: i64 = 0
        self._first_known: bool = min_physical == 0  # the first file has none before it
        self._tags_indexed: bool = False
        self._valid: bool = False
        self.indexed: bool = len(views) > 0
        self.begin: i64 = views[0].begin_physical if views else -1
        if self.begin == min_physical:  # no older file of the index has been deleted
            self.begin -= 1

    def record(
        self, wanted: list[i64], tags_hash: i64, physical: i64, store_ms: i64, optional: bool
    ) -> None:
        """Compare a record with its entries: unique id, keys, and tags since 5.4. Raises OSError.

        Args:
            wanted: hashes of unique id and keys, in order. `tags_hash`: -1: it has none.
            optional: it may have no entries.
        """
        if wanted and optional and not self._is_at(physical, wanted[0]):
            wanted = []
        if not self._valid and not wanted:
            return
        if self._valid and self.physical < physical:
            self.pass_over(physical)
        self._match(wanted, tags_hash, physical, store_ms)

    def _is_at(self, physical: i64, key_hash: i64) -> bool:
        self.pass_over(physical)
        return self._valid and self.physical == physical and self.key_hash == key_hash

    def _match(self, wanted: list[i64], tags_hash: i64, physical: i64, store_ms: i64) -> None:
        found: i64 = 0
        tags_found = False
        count: i64 = len(wanted)
        strange: i64 = 0
        while self._valid and self.physical == physical:
            key_hash = self.key_hash
            if found < count and wanted[found] == key_hash:
                found += 1
            elif key_hash == tags_hash:
                tags_found = True
            elif key_hash not in wanted:
                strange += 1
                words = f"entry {self._number} has a hash that no key of its record at offset {physical} gives"
                self._fault("index_wrong", 0, words, self._number, DAMAGE)
            seconds = self._seconds_of(store_ms)
            if self.seconds != seconds >= 0:
                words = f"entry {self._number} says {self.seconds} seconds, its record at offset {physical} gives {seconds}"
                self._fault("index_time", 12, words, self._number, DAMAGE)
            self._advance()
        if tags_found:
            self._tags_indexed = True
        if strange:
            return
        if found < count and not self._valid:
            words = f"the index ends before the record at offset {physical}, which has keys"
            self._fault("index_behind", 0, words, -1, DAMAGE)
        elif found < count:
            words = f"{count - found} of {count} keys of the record at offset {physical} are not in the index"
            self._fault("index_missing", 0, words, -1, DAMAGE)
        elif tags_hash >= 0 and not tags_found and self._tags_indexed:
            words = f"the tags of the record at offset {physical} are not in the index"
            self._fault("index_missing", 0, words, -1, NOTE)

    def _fault(self, kind: str, byte: i64, words: str, number: i64, severity: str) -> None:
        view = self._views[self._place]
        place: int = view.entry_at(self._number) + byte
        self._findings.add_run(kind, view.path, place, words, number, severity)

    def pass_over(self, end: i64) -> None:
        """Name the entries of records before an offset that no record came for. Raises OSError."""
        while self._valid and self.physical < end:
            if self.physical > self.begin:
                words = f"entry {self._number} points at offset {self.physical}, where no record with keys begins"
                self._fault("index_orphan", 4, words, self._number, DAMAGE)
            self._advance()

    def seek(self, offset: i64) -> None:
        """Begin with the records from a physical offset on. Raises OSError."""
        place = 0
        last = len(self._views) - 1
        while place < last and self._views[place].end_physical < offset:
            place += 1
        self._valid = False
        if last < 0:
            return
        self._open(place)
        view = self._views[place]
        low: i64 = 1
        high: i64 = view.end
        while low < high:
            middle: i64 = (low + high) // 2
            self._load(middle)
            if self.physical < offset:
                low = middle + 1
            else:
                high = middle
        self._number = low - 1
        self._advance()

    def _advance(self) -> None:
        number: i64 = self._number + 1
        while number >= self._views[self._place].end:
            if self._place + 1 >= len(self._views):
                self._valid = False
                self.close()
                return
            self._open(self._place + 1)
            number = 1
        self._load(number)
        self._valid = True

    def _open(self, place: int) -> None:
        self.close()
        self._place = place
        self._source = self._files.open_file(self._views[place].path)
        self._data = b""

    def _load(self, number: i64) -> None:
        at: i64 = (number - self._start) * ENTRY_SIZE
        if at < 0 or at + ENTRY_SIZE > len(self._data):
            source = self._source
            assert source is not None
            view = self._views[self._place]
            self._data = source.pread(_WINDOW_ENTRIES * ENTRY_SIZE, view.entry_at(number))
            self._start = number
            at = 0
        self._number = number
        self.look_at(self._data, at)

    def _seconds_of(self, store_ms: i64) -> i64:
        """Return the seconds the entry at hand should have for its record's store time; -1: that is not known.

        The first entry of a file reckons from the end of the file before.
        """
        begin = self._views[self._place].begin_ms
        if self._number == 1:
            begin = 0
            if self._place > 0:
                before = self._views[self._place - 1]
                if before.end_ms <= 0 or before.count != before.end:
                    return -1
                begin = before.end_ms
            elif not self._first_known:
                return -1
        return entry_seconds(begin, store_ms)

    def close(self) -> None:
        """Release the file."""
        if self._source is not None:
            self._source.close()
            self._source = None


def find_end(source: ReadAt, view: IndexView) -> int:
    """Number of the first entry that was never written: a killed broker's header may know fewer."""
    low: i64 = view.end
    high: i64 = view.capacity
    while low < high:
        middle: i64 = (low + high) // 2
        if source.pread(ENTRY_SIZE, view.entry_at(middle)) == _EMPTY:
            high = middle
        else:
            low = middle + 1
    return low


class ChainCheck:
    """Every entry names the one its slot held before; the slots hold the newest; the header counts them."""

    __slots__ = ("_crashed", "_findings", "_log_end", "_used", "_view")

    def __init__(self, view: IndexView, log_end: i64, findings: Findings) -> None:
        self._view: IndexView = view
        self._log_end: i64 = log_end
        self._findings: Findings = findings
        self._used: i64 = 0
        self._crashed = False

    def run(self, source: ReadAt, crashed: bool) -> None:
        """Look at all of a file; of a killed broker's turn slots, entries and records are there or not. Raises OSError."""
        view = self._view
        self._crashed = crashed
        slots = array("i", bytes(4 * view.slots))
        self._entries(source, slots)
        self._slots(source, slots)
        self._rest(source, crashed)
        severity = NOTE if crashed else "damage"
        if view.count != view.end or view.count < 1:
            words = (
                f"the header counts {view.count} as the next entry, the entries end at {view.end}"
            )
            self._findings.add(finding("index_header", view.path, 36, words, severity))
        elif view.slots_used != self._used and view.end > 1:
            words = f"the header says {view.slots_used} slots are in use, {self._used} are"
            self._findings.add(finding("index_header", view.path, 32, words, severity))

    def _entries(self, source: ReadAt, slots: "array[int]") -> None:
        view = self._view
        floor: i64 = 0
        number: i64 = 1
        count: i64 = view.slots
        path = view.path
        entry = IndexEntry()
        while number < view.end:
            left: i64 = view.end - number
            left = min(left, _WINDOW_ENTRIES)
            data = source.pread(left * ENTRY_SIZE, view.entry_at(number))
            at: i64 = 0
            end: i64 = len(data) - len(data) % ENTRY_SIZE
            if end == 0:
                return
            while at < end:
                entry.look_at(data, at)
                physical = entry.physical
                previous = entry.previous
                slot: i64 = entry.key_hash % count
                known: int = slots[slot]
                if known != previous:
                    words = f"entry {number} of slot {slot} says {previous} was before it, it was {known}"
                    place = view.entry_at(number) + 16
                    self._findings.add(finding("index_chain", path, place, words))
                slots[slot] = number
                if known == 0:
                    self._used += 1
                if physical < floor or physical >= self._log_end:
                    why = "before its predecessor's" if physical < floor else "behind the log's end"
                    words = f"entry {number} points at offset {physical}, {why}"
                    place = view.entry_at(number) + 4
                    severity = NOTE if self._crashed and physical >= floor else "damage"
                    self._findings.add_run("index_orphan", path, place, words, number, severity)
                else:
                    floor = physical
                number += 1
                at += ENTRY_SIZE

    def _slots(self, source: ReadAt, slots: "array[int]") -> None:
        wanted = array("i", slots)
        if _SWAP:
            wanted.byteswap()
        view = self._view
        flat = memoryview(wanted).cast("B")
        position: i64 = 0
        total: i64 = view.slots * SLOT_SIZE
        while position < total:
            data = source.pread(min(_SLOT_WINDOW, total - position), HEADER_SIZE + position)
            size: i64 = len(data)
            if size == 0:
                return
            if data != flat[position : position + size]:
                self._wrong_slots(data, position, slots)
            position += size

    def _wrong_slots(self, data: bytes, position: i64, slots: "array[int]") -> None:
        at: i64 = 0
        end: i64 = len(data) - 3
        while at < end:
            slot: i64 = (position + at) // SLOT_SIZE
            found: int = read_i32_be(data, at)
            known: int = slots[slot]
            if found != known:
                words = f"slot {slot} says its newest entry is {found}, it is {known}"
                place = HEADER_SIZE + position + at
                severity = NOTE if self._crashed and found >= self._view.end else "damage"
                self._findings.add(finding("index_chain", self._view.path, place, words, severity))
            at += SLOT_SIZE

    def _rest(self, source: ReadAt, crashed: bool) -> None:
        """Behind the last entry nothing was ever written; nor was entry 0."""
        view = self._view
        if source.pread(ENTRY_SIZE, view.entry_at(0)) != _EMPTY:
            words = "entry 0 is never used, and is not empty"
            self._findings.add(finding("index_tail", view.path, view.entry_at(0), words))
        position: i64 = view.entry_at(view.end)
        while position < view.size:
            data = source.pread(_SLOT_WINDOW, position)
            if not data:
                return
            if data != bytes(len(data)):
                at: i64 = len(data) - len(data.lstrip(b"\0"))
                words = "bytes behind the last entry"
                severity = NOTE if crashed else "damage"
                item = finding("index_tail", view.path, position + at, words, severity)
                self._findings.add(item)
                return
            position += len(data)
