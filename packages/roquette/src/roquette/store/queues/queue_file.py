"""Mapped files of queue units, and how many of them are open at a time. HOT.

A mapped file needs no descriptor (`base.mapping`), but the system bounds the maps of a process as well. So what
was not written for longest is closed when there are too many, and opened again when somebody needs it.
"""

import errno
import mmap
from collections import OrderedDict
from typing import Final

from mypy_extensions import i64

from roquette.base.descriptors import KEEPS_DESCRIPTOR, SHORTAGE
from roquette.base.files import File, Files

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
    """The open files of all queues, those opened or found written to last at the end."""

    __slots__ = ("_crowded", "_openings", "_row", "files", "limit")

    def __init__(self, files: Files) -> None:
        self.files: Files = files
        self.limit: int = files.map_limit
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
