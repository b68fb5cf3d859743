"""Are all index files there, and as the last stop left them? What is not is made again from the log.

A start asks `IndexAudit`, which reads headers, sums and the records at the files' ends; fsck calls `audit_whole`, which
reads all of a file. What both look at is stated once: `lost_files`, `header_faults`.

`index.sums` beside the index has a line for each file since it is full, and for the last one at a clean stop: name, size, number of the next entry,
physical offset of its last record, CRC-32 of header, slots and entries. Apache's broker does not know it: a file that has more
entries by now is taken as it is. Where there are no sums, the files' ranges tell: no record with keys stands between
the end of one and the beginning of the next.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from roquette.base.checksum import crc32
from roquette.base.files import Files, ReadAt
from roquette.errors import CorruptRecord
from roquette.message.record import decode_record
from roquette.message.record_layout import BLANK_MAGIC, StoredRecord
from roquette.store.audit.findings import Findings, finding
from roquette.store.audit.index_entries import ChainCheck, IndexView
from roquette.store.format.layout import StoreLayout
from roquette.store.format.unit import key_hashes, may_lack_entries
from roquette.store.index.index_file import IndexFile, IndexHead
from roquette.store.log.commit_log import CommitLog, record_at, store_time_at

log = logging.getLogger("roquette.store")

SUMS: Final = "index.sums"
_CHECKED_BYTES: Final = (
    1 << 30
)  # of index files compared with their sums at a start, the newest first
_CHUNK: Final = 1 << 20
_GAP_RECORDS: Final = 2_000  # looked at between two files


@dataclass(frozen=True, slots=True)
class IndexSum:
    """Facts known of one index file."""

    name: str
    size: int
    count: int
    end_physical: int
    crc: int


def parse_sums(data: bytes) -> list[IndexSum]:
    """The lines of `index.sums`, by name; invalid ones are left out."""
    found: list[IndexSum] = []
    for line in data.decode("ascii", "replace").splitlines():
        words = line.split()
        if len(words) == 5 and all(word.isdecimal() for word in words):
            found.append(IndexSum(words[0], *[int(word) for word in words[1:]]))
    return sorted(found, key=lambda one: one.name)


def is_keyed(record: StoredRecord) -> bool:
    """Must the index have entries of a record?"""
    return not may_lack_entries(record.topic) and bool(key_hashes(record))


def lost_files(
    known: Iterable[IndexSum], size_of: Callable[[str], int], min_physical: int
) -> Iterator[tuple[str, int, str]]:
    """Name and size of each file that is missing or not of the size that was written, and words.

    Args:
        size_of: bytes of a file by its name; -1: it is missing.
        min_physical: the first byte the log still has: a file of older records may be missing.
    """
    for one in known:
        size = size_of(one.name)
        if size < 0 and one.end_physical >= min_physical:
            words = f"the index file is missing; its last record is at offset {one.end_physical}"
            yield one.name, size, words
        elif 0 <= size != one.size:
            yield one.name, size, f"{size} bytes, {one.size} were written"


def header_faults(
    head: IndexHead, first: int, last: int, store_time_of: Callable[[int], int]
) -> Iterator[tuple[int, str]]:
    """Find where a header does not name the first and the last record and their store times: the byte, and words.

    Args:
        first, last: the physical offsets in the first and the last entry.
        store_time_of: of the record at a physical offset, epoch ms; -1: it is gone.
    """
    for at, what, physical, named, named_ms in (
        (16, "first", first, head.begin_physical, head.begin_ms),
        (24, "last", last, head.end_physical, head.end_ms),
    ):
        if physical != named:
            words = f"is at offset {named}, the entries say {physical}"
            yield at, f"the header says the {what} record {words}"
        elif 0 <= (stored := store_time_of(physical)) != named_ms:
            words = f"was stored at {named_ms}, the record says {stored}"
            yield at - 16, f"the header says the {what} record {words}"


def audit_whole(
    view: IndexView,
    source: ReadAt,
    log_end: int,
    crashed: bool,
    store_time_of: Callable[[int], int],
    found: Findings,
) -> None:
    """Look at all of a file; `crashed`: of a killed broker's turn slots, entries and header are there or not. Raises OSError."""
    ChainCheck(view, log_end, found).run(source, crashed)
    if view.end <= 1 or (crashed and view.count != view.end):
        return
    first, last = view.physical_of(source, 1), view.physical_of(source, view.end - 1)
    for at, words in header_faults(view, first, last, store_time_of):
        found.add(finding("index_header", view.path, at, words))


def write_sums(files: Files, layout: StoreLayout, index_files: list[IndexFile]) -> None:
    """Say what some index files are, now that they are on the disk; what is said of others stays. Blocks."""
    known = {one.name: one for one in _load(files, layout)}
    present = set(files.list_dir(layout.index))
    for index_file in index_files:
        name, count = os.path.basename(index_file.path), int(index_file.count)
        old = known.get(name)
        same = old is not None and old.count == count and index_file.full
        crc = old.crc if old is not None and same else _crc_of(index_file)
        end = int(index_file.end_physical)
        known[name] = IndexSum(name, int(index_file.file.size), count, end, crc)
    lines = [
        f"{one.name} {one.size} {one.count} {one.end_physical} {one.crc}\n"
        for one in known.values()
        if one.name in present
    ]
    path = os.path.join(layout.root, SUMS)
    try:
        files.write_atomic(path, "".join(lines).encode(), keep_backup=False)
    except OSError as error:
        log.warning("%s not written error=%s", path, error)


def _load(files: Files, layout: StoreLayout) -> list[IndexSum]:
    path = os.path.join(layout.root, SUMS)
    return parse_sums(files.read_bytes(path)) if files.exists(path) else []


def _crc_of(index_file: IndexFile) -> int:
    crc = 0
    for position in range(0, index_file.used, _CHUNK):
        size = min(_CHUNK, index_file.used - position)
        crc = crc32(index_file.file.pread(size, position), crc)
    return crc


class IndexAudit:
    """One look at the index of a store that is being opened.

    Args:
        clean: the last process stopped cleanly.
    """

    def __init__(
        self, files: Files, layout: StoreLayout, commit_log: CommitLog, *, clean: bool
    ) -> None:
        self._files = files
        self._layout = layout
        self._log = commit_log
        self._clean = clean
        self._sums = {one.name: one for one in _load(files, layout)}

    def first_bad(self, index_files: list[IndexFile]) -> tuple[int, str]:
        """The first file that must be made again with all behind it, and why; -1: none."""
        names = [os.path.basename(index_file.path) for index_file in index_files]
        found: list[tuple[int, str]] = []
        low = self._log.min_offset
        # What has its size and was not loaded is of other settings, and left alone.
        known = [
            one for name, one in self._sums.items() if name not in names and one.end_physical >= low
        ]
        for name, _, words in lost_files(known, self._size_of, low):
            self._files.remove(os.path.join(self._layout.index, name))
            found.append((sum(other < name for other in names), f"{name}: {words}"))
        left = _CHECKED_BYTES
        for place in range(len(index_files) - 1, -1, -1):
            index_file = index_files[place]
            left -= index_file.used
            words = self._wrong_header(index_file, place == len(index_files) - 1)
            if not words and left >= 0:
                words = self._wrong_sum(index_file, names[place], place == len(index_files) - 1)
            if not words:
                words = self._gap_before(index_files, place)
            if words:
                found.append((place, f"{names[place]}: {words}"))
        return min(found, default=(-1, ""))

    def _size_of(self, name: str) -> int:
        path = os.path.join(self._layout.index, name)
        if not self._files.exists(path):
            return -1
        file = self._files.open_file(path)
        try:
            return file.size
        finally:
            file.close()

    def _wrong_header(self, index_file: IndexFile, newest: bool) -> str:
        if newest and not self._clean:
            return self._wrong_begin(index_file)  # all else is mended anyway
        if index_file.count == 1:
            return "" if newest else "its header counts no entries"
        first, last = index_file.physical_of(1), index_file.physical_of(index_file.count - 1)
        faults = header_faults(index_file, first, last, partial(store_time_at, self._log))
        return next((words for _, words in faults), "")

    def _wrong_begin(self, index_file: IndexFile) -> str:
        """Does the begin fit a record's store time? It is needed where the file's first record is gone from the log."""
        number = int(index_file.count) - 1
        if number < 1 or index_file.physical_of(1) >= self._log.min_offset:
            return ""
        stored = store_time_at(self._log, index_file.physical_of(number))
        seconds = (stored - index_file.begin_ms) // 1000
        if stored < 0 or max(0, seconds) == index_file.seconds_of(number):
            return ""
        return f"its header says that it begins at {index_file.begin_ms}, its entries say otherwise"

    def _wrong_sum(self, index_file: IndexFile, name: str, newest: bool) -> str:
        known = self._sums.get(name)
        if known is None or (newest and not self._clean):
            return ""
        if index_file.count < known.count:
            return f"{known.count - index_file.count} entries are gone"
        if index_file.count > known.count:
            return ""  # another broker, or one that was killed, has gone on with it
        return (
            "" if _crc_of(index_file) == known.crc else "its bytes are not those that were written"
        )

    def _gap_before(self, index_files: list[IndexFile], place: int) -> str:
        begin = int(index_files[place].begin_physical)
        if index_files[place].count == 1:
            return ""
        if place == 0:
            return self.gap(self._log.min_offset, begin, skip=False)
        end = int(index_files[place - 1].end_physical)
        if begin < end:
            return "it begins before the end of the file before it"
        return self.gap(end, begin, skip=True)

    def gap(self, start: int, end: int, *, skip: bool) -> str:
        """A record with keys from `start` on, or behind that one, before `end`."""
        offset, size = start, self._log.segment_size
        for _ in range(_GAP_RECORDS):
            if not 0 <= offset < end:
                return ""
            data = record_at(self._log, offset, None)
            if data is None:
                head = self._log.read(offset, offset + 8)
                if head[4:] != BLANK_MAGIC.to_bytes(4, "big", signed=True):
                    return ""
                offset += size - offset % size
                continue
            try:
                keyed = not (skip and offset == start) and is_keyed(decode_record(data, 0, False))
            except CorruptRecord:
                return ""
            if keyed:
                return (
                    f"the record at offset {offset} of the log comes before it, and is in no file"
                )
            offset += len(data)
        return ""
