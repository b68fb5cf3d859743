"""The index: hash files in a row, the newest written, all asked for a key."""

import logging
import os
from collections.abc import Callable

from librt.strings import read_i64_be
from mypy_extensions import i64

from roquette.base.files import Files
from roquette.base.javatypes import java_hash
from roquette.store.format.layout import index_name
from roquette.store.format.unit import REPEATS, positive_hash
from roquette.store.index.index_file import IndexFile, index_file_size

log = logging.getLogger("roquette.store")


class KeySearch:
    """A look-up that goes on where it stopped: the chain of a key that many messages have, say their tag,
    can be as long as a file has entries, and nobody else is served while it is followed.

    Attributes:
        found: physical offsets so far, newest first.
    """

    __slots__ = ("_begin_ms", "_end_ms", "_files", "_hash", "_max", "_number", "_place", "found")

    def __init__(
        self, files: list[IndexFile], key_hash: int, max_count: int, begin_ms: int, end_ms: int
    ) -> None:
        self._files: list[IndexFile] = files  # the newest first
        self._hash: int = key_hash
        self._max: int = max_count
        self._begin_ms: int = begin_ms
        self._end_ms: int = end_ms
        self._place: int = -1  # the file at hand
        self._number: int = 0  # its entry to go on with
        self.found: list[int] = []

    def step(self, budget: int) -> bool:
        """Look at `budget` entries at most in each file that is met; True when all is found."""
        if self._number > 0:
            return self._follow(budget) and self.step(budget)
        while self._may_go_on():
            self._place += 1
            index_file = self._files[self._place]
            if index_file.may_cover(self._begin_ms, self._end_ms):
                self._number = index_file.newest(self._hash)
                if not self._follow(budget):
                    return False
        return True

    def _may_go_on(self) -> bool:
        if len(self.found) >= self._max or self._place + 1 >= len(self._files):
            return False
        return self._place < 0 or self._files[self._place].begin_ms >= self._begin_ms

    def _follow(self, budget: int) -> bool:
        self._number = self._files[self._place].find_from(
            self._number, self._hash, self.found, self._max, self._begin_ms, self._end_ms, budget
        )
        index_file = self._files[self._place]
        if index_file.damaged and not index_file.told:
            index_file.told = True
            log.error(
                "index file damaged, not every message is found by its keys path=%s: it is made again at a start "
                "without it; see `roquette store fsck`",
                index_file.path,
            )
        return self._number == 0


class Index:
    """Index files in order of time (Apache: IndexService). Entries of a record are put at append."""

    def __init__(self, files: Files, directory: str, slots: int, capacity: int) -> None:
        self._files = files
        self._directory = directory
        self._slots = slots
        self._capacity = capacity
        self._index_files: list[IndexFile] = []
        self._active: IndexFile | None = None
        self._torn = False
        self.full = True  # the next entry needs another file first
        self.directory_dirty = False
        self._left: list[
            tuple[int, i64, i64]
        ] = []  # entries that found no space: at most one record's, or one batch's

    @property
    def file_count(self) -> int:
        """Index files on disk."""
        return len(self._index_files)

    @property
    def end_physical(self) -> int:
        """Physical offset of the newest record indexed; 0 when there is none."""
        return self._index_files[-1].end_physical if self._index_files else 0

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the newest record indexed; 0 when there is none."""
        return self._index_files[-1].end_ms if self._index_files else 0

    def load(self) -> None:
        """Open the files there are. Files of another size than configured are left alone.

        Raises:
            OSError: no space to fill a file that has holes.
        """
        size = index_file_size(self._slots, self._capacity)
        for name in self._files.list_dir(self._directory):
            path = os.path.join(self._directory, name)
            if not name.isdecimal():
                continue
            if self._torn:
                self._files.remove(path)
                continue
            file = self._files.open_file(path)
            found = file.size
            if found == size:
                file.allocate(
                    size
                )  # Apache leaves holes, and a store into one kills on a full disk
                self._index_files.append(IndexFile(file, path, self._slots, self._capacity))
                continue
            file.close()
            if found == 0:  # a crash came between creation and allocation: nothing after it counts
                self._torn = True
                self._files.remove(path)
            else:
                log.warning("index file of other settings ignored path=%s", path)
        self._activate()

    def _activate(self) -> None:
        self._active = self._index_files[-1] if self._index_files else None
        self.full = self._active is None or self._active.full

    def recover(
        self,
        trusted_ms: int,
        trusted_offset: int,
        log_end: int,
        store_time_of: Callable[[int], int],
    ) -> int | None:
        """Mend the files that a crash may have torn.

        Args:
            trusted_ms: the checkpoint: files that were full before it were synced whole.
            trusted_offset: the same by the offset of their last record; 0: not known.
            log_end: records from here on do not exist any more.
            store_time_of: store time of the record at a physical offset, -1 when it is gone.

        Returns:
            The physical offset from which records must be indexed again; None when there are no
            index files at all.
        """
        redo: int | None = 0 if self._torn else None
        for place, index_file in enumerate(self._index_files):
            ended = index_file.end_ms
            whole = index_file.full and ended > 0 and index_file.end_physical < log_end
            if trusted_offset:
                whole = whole and index_file.end_physical < trusted_offset
            else:
                whole = whole and ended < trusted_ms
            if whole and place < len(self._index_files) - 1:
                redo = index_file.end_physical  # its later keys may be in the next file
                continue
            first = store_time_of(index_file.physical_of(1))
            if first >= 0:
                index_file.begin_ms = first
            again = index_file.rebuild(log_end)
            if again >= 0:
                redo = again
            elif redo is None:
                redo = 0
            # Later files can only hold what comes after the hole: they are made again.
            self._drop_from(place if index_file.count == 1 else place + 1)
            break
        self._activate()
        return redo

    def take_sealed(self) -> list[IndexFile]:
        """The files that are full and were not asked for before."""
        found = [one for one in self._index_files if one.full and not one.summed]
        for one in found:
            one.summed = True
        return found

    @property
    def index_files(self) -> list[IndexFile]:
        """Oldest first."""
        return self._index_files

    def drop_from(self, index: int) -> None:
        """Remove files that are to be made again: this one and all behind it."""
        self._drop_from(index)
        self._activate()

    def _drop_from(self, index: int) -> None:
        for gone in self._index_files[index:]:
            gone.close()
            self._files.remove(gone.path)
            self.directory_dirty = True
        del self._index_files[index:]

    def reserve(self, now_ms: int) -> None:
        """Make sure the next entry has a file. Raises OSError (disk full); nothing has changed."""
        if not self.full:
            return
        last = self._index_files[-1] if self._index_files else None
        name = index_name(now_ms)
        if last is not None and name <= os.path.basename(last.path):
            name = str(int(os.path.basename(last.path)) + 1)  # the clock went back
        else:
            self._files.make_dirs(self._directory)
        while self._files.exists(path := os.path.join(self._directory, name)):
            name = str(int(name) + 1)  # a file of other settings, left alone
        size = index_file_size(self._slots, self._capacity)
        try:
            file = self._files.open_file(path, size, create=True)
            self._files.sync_dir(self._directory)  # a missing older file could not be noticed
            if last is None:
                self._files.sync_dir(os.path.dirname(self._directory))
        except OSError:
            self._files.remove(path)
            raise
        opened = IndexFile(file, path, self._slots, self._capacity)
        file.read_ahead(False)  # of a new file: or each touch fills megabytes with zeros
        if last is not None:
            last.file.read_ahead(True)
            opened.continue_from(last.end_physical, last.end_ms)
        self._index_files.append(opened)
        self.directory_dirty = True
        self._activate()
        left, self._left = self._left, []
        for key_hash, physical_offset, stored_ms in left:
            self.put(key_hash, physical_offset, stored_ms)

    def put(self, key_hash: i64, physical_offset: i64, store_ms: i64) -> None:
        """Index one record under one positive key hash, with `REPEATS` where the next may have the same; files roll as
        they fill. Raises OSError.
        """
        active = self._active
        if active is None or self.full:
            if not self._reserve_or_keep(key_hash, physical_offset, store_ms):
                return
            active = self._active
            assert active is not None
        repeats = key_hash >= REPEATS
        active.put(key_hash - REPEATS if repeats else key_hash, physical_offset, store_ms, repeats)
        if active.full:
            active.write_entries()
            self.full = True

    def _reserve_or_keep(self, key_hash: i64, physical_offset: i64, store_ms: i64) -> bool:
        """Have a file for an entry. When there is no space in the midst of one record's keys, its others are kept
        until there is, and no other record comes before them; False then. Raises OSError before a record's first.
        """
        try:
            self.reserve(store_ms)
        except OSError as error:
            if not self._index_files or self.end_physical != physical_offset:
                raise
            log.error("no other index file can be made: %s", error)
            self._left.append((key_hash, physical_offset, store_ms))
            return False
        return True

    def put_message(self, hashes: list[int], physical_offset: i64, store_ms: i64) -> None:
        """Index one record under positive key hashes."""
        for key_hash in hashes:
            self.put(key_hash, physical_offset, store_ms)

    def put_batch(self, keys: bytes, store_ms: i64) -> None:
        """Index records that stand in the log: positive key hash, as `put` takes it, and physical offset, 8 bytes each.

        Entries that find no space are kept until there is; no other record comes before them.
        """
        position: i64 = 0
        end: i64 = len(keys)
        while position < end:
            key_hash = read_i64_be(keys, position)
            physical = read_i64_be(keys, position + 8)
            try:
                self.put(key_hash, physical, store_ms)
            except OSError as error:
                log.error("no other index file can be made: %s", error)
                while position < end:
                    key_hash = read_i64_be(keys, position)
                    physical = read_i64_be(keys, position + 8)
                    self._left.append((key_hash, physical, store_ms))
                    position += 16
            position += 16

    def write_entries(self) -> None:
        """Bring the entries since the last call into the file: at the end of a turn, as the log."""
        if self._active is not None:
            self._active.write_entries()

    def search(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> KeySearch:
        """Look for records that may carry the key, newest first, in steps."""
        key_hash = positive_hash(java_hash(f"{topic}#{key}"))
        return KeySearch(self._index_files[::-1], key_hash, max_count, begin_ms, end_ms)

    def take_dirty(self) -> list[IndexFile]:
        """The files to sync, their headers brought up to date."""
        dirty = [index_file for index_file in self._index_files if index_file.dirty]
        for index_file in dirty:
            index_file.write_header()
            index_file.dirty = False
        return dirty

    def drop_files_before(self, min_physical: int) -> list[str]:
        """Forget files whose every record is gone from the log; returns their paths to delete."""
        gone: list[str] = []
        while len(self._index_files) > 1 and self._index_files[0].end_physical < min_physical:
            gone.append(self._index_files.pop(0).path)
        return gone

    @property
    def directory(self) -> str:
        """The directory of the files."""
        return self._directory

    def close(self) -> None:
        """Release maps and files."""
        self.write_entries()
        for index_file in self._index_files:
            index_file.close()
        self._index_files = []
