"""One open file of the operating system, with or without a descriptor that is kept for it."""

import errno
import mmap
import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from roquette.base import system_calls
from roquette.base.descriptors import NO_SPACE, Spares

T = TypeVar("T")

ZEROS: Final = bytes(1 << 20)
_DESCRIPTORS: Final = threading.Lock()  # held for moments, when a file's descriptor changes hands


class SyncState:
    """Remembers the first sync that failed, and lets no other one run after it."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: str | None = None

    def run(self, call: Callable[[int], None], fd: int, path: str) -> None:
        """Sync one descriptor; raises OSError."""
        if self.error is not None:
            raise OSError(errno.EIO, f"not synced after an earlier failure: {self.error}", path)
        try:
            call(fd)
        except OSError as error:
            if error.errno not in NO_SPACE:  # a full disk loses nothing that was promised
                self.error = f"{path}: {error.strerror}"
            raise


class OsFile:
    """A file of the operating system."""

    __slots__ = (
        "_borrowed",
        "_closed",
        "_fd",
        "_map",
        "_path",
        "_read_ahead",
        "_rests",
        "_spares",
        "_syncs",
    )

    def __init__(
        self, path: str, fd: int, syncs: "SyncState | None" = None, spares: Spares | None = None
    ) -> None:
        self._path = path
        self._fd = fd
        self._syncs = syncs or SyncState()
        self._spares = spares or Spares(0)
        self._rests = False
        self._closed = False
        self._read_ahead = True
        self._borrowed = 0  # calls in other threads that use the descriptor now
        self._map: mmap.mmap | None = (
            None  # while it lives, so does the system's record of failed writes
        )

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._call(lambda fd: os.fstat(fd).st_size)

    def pwrite(self, data: bytes, position: int) -> None:
        if self._fd >= 0:
            self._pwrite(self._fd, data, position)
        else:
            self._call(lambda fd: self._pwrite(fd, data, position))

    def _pwrite(self, fd: int, data: bytes, position: int) -> None:
        written = system_calls.pwrite(fd, data, position)
        while written < len(data):  # a signal or a nearly full disk shortens a write
            more = system_calls.pwrite(fd, data[written:], position + written)
            if more <= 0:
                raise OSError(errno.EIO, "the system takes no more bytes", self._path)
            written += more

    def pread(self, size: int, position: int) -> bytes:
        try:
            return self._call(lambda fd: system_calls.read_at(fd, size, position))
        except FileNotFoundError:
            if self._map is None:
                raise
            return self._map[position : position + size]  # it was deleted

    def map(self, writable: bool) -> mmap.mmap:
        from roquette.base.mapping import map_file  # ctypes, for stores alone

        self._map = self._call(lambda fd: map_file(fd, writable=writable))
        if not self._read_ahead:
            system_calls.advise_map(self._map, read_ahead=False)
        return self._map

    def read_ahead(self, on: bool) -> None:
        self._read_ahead = on  # descriptors that are opened later are told when they are
        if self._map is not None:
            system_calls.advise_map(self._map, read_ahead=on)
        if self._fd >= 0:
            self._call(lambda fd: system_calls.advise_descriptor(fd, read_ahead=on))

    def sync(self) -> None:
        try:
            fd = self._borrow()
        except FileNotFoundError:
            return  # it was deleted: after a loss of power it is not missed
        try:
            self._syncs.run(system_calls.sync_data, fd, self._path)
        finally:
            self._give_back(fd)

    @property
    def descriptor(self) -> int | None:
        return self._fd if self._fd >= 0 and not self._rests else None

    def allocate(self, size: int) -> None:
        try:
            if not self._call(lambda fd: system_calls.reserve(fd, size)):
                self._write_blocks(size)  # holes too: Apache leaves its files sparse
        except OSError as error:
            error.filename = error.filename or self._path
            raise

    def _write_blocks(self, size: int) -> None:
        """Reserve blocks by writing each: what is there again, zeros behind it. Never a hole, or a store into it
        would kill the process on a full disk."""
        position = 0
        while position < size:
            piece = self.pread(min(len(ZEROS), size - position), position)
            if not piece:
                piece = ZEROS[: size - position]
            self.pwrite(piece, position)
            position += len(piece)

    def truncate(self, size: int) -> None:
        self._call(lambda fd: os.ftruncate(fd, size))

    def rest(self) -> None:
        with _DESCRIPTORS:
            self._rests = True
            if self._borrowed or self._fd < 0:
                return
            fd, self._fd = self._fd, -1
        self._close(fd)

    def wake(self) -> None:
        with _DESCRIPTORS:
            if self._fd < 0 and not self._closed:
                self._fd = self._open()
            self._rests = self._closed

    def close(self) -> None:
        self._closed = True
        self.rest()

    def _call(self, call: Callable[[int], T]) -> T:
        fd = self._borrow()
        try:
            return call(fd)
        finally:
            self._give_back(fd)

    def _open(self) -> int:
        fd = self._spares.run(os.open, self._path, os.O_RDWR | system_calls.CLOSE_ON_EXEC)
        if not self._read_ahead:
            system_calls.advise_descriptor(fd, read_ahead=False)
        return fd

    def _borrow(self) -> int:
        """The descriptor, which nobody closes before it is given back; of a file that rests a fresh one."""
        with _DESCRIPTORS:
            if self._fd >= 0:
                self._borrowed += 1
                return self._fd
        return -1 if self._closed else self._open()

    def _give_back(self, fd: int) -> None:
        with _DESCRIPTORS:
            if fd == self._fd:
                self._borrowed -= 1
                if self._borrowed or not self._rests:
                    return
                self._fd = -1
        self._close(fd)

    def _close(self, fd: int) -> None:
        if fd >= 0:
            os.close(fd)
            self._spares.refill()

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
