"""One open file of the operating system, with or without a descriptor that is kept for it."""

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from roquette.base.descriptors import LINUX, NO_SPACE, OLD_MMAP, Spares
from roquette.errors import StoreError

# The file calls that Linux has and other systems lack, each with what serves there.
# Servers run on Linux and macOS, the client on Windows as well. `tests/base/test_other_systems.py` hides the missing names and runs both.


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


CLOSE_ON_EXEC: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY: Final[int] = getattr(os, "O_DIRECTORY", 0)
_NO_FALLOCATE: Final = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))


def _pread(fd: int, size: int, position: int) -> bytes:
    os.lseek(fd, position, os.SEEK_SET)
    return os.read(fd, size)


def _pwrite(fd: int, data: bytes, position: int) -> int:
    os.lseek(fd, position, os.SEEK_SET)
    return os.write(fd, data)


def _full_sync(fd: int) -> None:
    """On macOS fsync stops at the drive's cache; F_FULLFSYNC does not (its man page fsync(2))."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(fd)
    else:
        fcntl.fcntl(fd, full)


pread = getattr(os, "pread", _pread)
pwrite = getattr(os, "pwrite", _pwrite)
sync_data = getattr(os, "fdatasync", _full_sync)


def read_at(fd: int, size: int, position: int) -> bytes:
    """Up to `size` bytes; fewer at the end of the file only, though a call has a limit, and stops before a bad sector."""
    found: bytes = pread(fd, size, position)
    while len(found) < size and (more := pread(fd, size - len(found), position + len(found))):
        found += more
    return found


def reserve(fd: int, size: int) -> bool:
    """Give a file its blocks up to `size` bytes, holes included; False: the system has no call for it.

    Raises:
        OSError: the disk is full.
    """
    call = getattr(os, "posix_fallocate", None)
    if call is None:
        return False
    try:
        call(fd, 0, size)
    except OSError as error:
        if error.errno not in _NO_FALLOCATE:
            raise
        return False
    return True


def advise_map(memory: mmap.mmap, *, read_ahead: bool) -> None:
    """Have the system read around a page that is touched, or that page alone; nothing where it cannot be told."""
    advice = getattr(mmap, "MADV_NORMAL" if read_ahead else "MADV_RANDOM", None)
    if advice is not None:
        memory.madvise(advice)


def advise_descriptor(fd: int, *, read_ahead: bool) -> None:
    """The same of reads by a descriptor."""
    call = getattr(os, "posix_fadvise", None)
    if call is not None:
        call(fd, 0, 0, os.POSIX_FADV_NORMAL if read_ahead else os.POSIX_FADV_RANDOM)


def open_directory(path: str) -> int | None:
    """A descriptor to sync a directory by; None where directories cannot be opened (Windows)."""
    if os.name == "nt" or fcntl is None:
        return None
    return os.open(path, os.O_RDONLY | _DIRECTORY)


def try_lock(fd: int, *, exclusive: bool, records: bool) -> None:
    """Take flock's lock of an open file; with `records` also that of its first byte, as Java's locks are.

    Raises:
        OSError: another process has it.
        StoreError: this system has no such locks.
    """
    if fcntl is None:
        raise StoreError(
            "a store needs file locks that this system lacks: brokers and store tools run on Linux "
            "and macOS, the client runs here too"
        )
    kind = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
    fcntl.flock(fd, kind)
    if records:
        fcntl.lockf(fd, kind, 1, 0)


def usable_cpus() -> int:
    """Return the number of processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


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
        fd = self._fd
        if fd < 0:
            self._call(lambda fd: self._pwrite(fd, data, position, 0))
        elif (written := pwrite(fd, data, position)) < len(data):
            self._pwrite(fd, data, position, written)

    def _pwrite(self, fd: int, data: bytes, position: int, written: int) -> None:
        while written < len(data):  # a signal or a nearly full disk shortens a write
            more = pwrite(fd, data[written:], position + written)
            if more <= 0:
                raise OSError(errno.EIO, "the system takes no more bytes", self._path)
            written += more

    def pread(self, size: int, position: int) -> bytes:
        try:
            return self._call(lambda fd: read_at(fd, size, position))
        except FileNotFoundError:
            if self._map is None:
                raise
            return self._map[position : position + size]  # it was deleted

    def map(self, writable: bool) -> mmap.mmap:

        self._map = self._call(lambda fd: map_file(fd, writable=writable))
        if not self._read_ahead:
            advise_map(self._map, read_ahead=False)
        return self._map

    def read_ahead(self, on: bool) -> None:
        self._read_ahead = on  # descriptors that are opened later are told when they are
        if self._map is not None:
            advise_map(self._map, read_ahead=on)
        if self._fd >= 0:
            self._call(lambda fd: advise_descriptor(fd, read_ahead=on))

    def sync(self) -> None:
        try:
            fd = self._borrow()
        except FileNotFoundError:
            return  # it was deleted: after a loss of power it is not missed
        try:
            self._syncs.run(sync_data, fd, self._path)
        finally:
            self._give_back(fd)

    @property
    def descriptor(self) -> int | None:
        return self._fd if self._fd >= 0 and not self._rests else None

    def allocate(self, size: int) -> None:
        try:
            if not self._call(lambda fd: reserve(fd, size)):
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
        fd = self._spares.run(os.open, self._path, os.O_RDWR | CLOSE_ON_EXEC)
        if not self._read_ahead:
            advise_descriptor(fd, read_ahead=False)
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


# Map a file without keeping a descriptor for it: docs/decisions/0018-maps-without-descriptors.md.
# Python's `mmap` keeps a copy of the descriptor it is given, before 3.13 whether wanted or not. A mapping of the system needs none. So on Linux a place is taken by an anonymous `mmap`, which has no descriptor, and the file is put there by the system's own call: the object reads, writes and lets go of the memory as any other.


_FIXED: Final = 0x10  # MAP_FIXED of linux/mman.h
_NO_RESERVE: Final = 0x4000  # MAP_NORESERVE

_abandoned: list[mmap.mmap] = []


class _Buffer(ctypes.Structure):
    """Py_buffer, as the stable interface of Python 3.11 declares it."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("owner", ctypes.py_object),
        ("size", ctypes.c_ssize_t),
        ("item_size", ctypes.c_ssize_t),
        ("read_only", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("sub_offsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def map_file(fd: int, *, writable: bool) -> mmap.mmap:
    """The whole of an open file as memory; `fd` may be closed afterwards. Raises OSError."""
    size = os.fstat(fd).st_size
    if LINUX and OLD_MMAP and size > 0:
        return _replaced(fd, size, writable)
    return _plain(fd, writable)


def _plain(fd: int, writable: bool) -> mmap.mmap:
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    if not OLD_MMAP:
        return mmap.mmap(fd, 0, access=access, trackfd=False)  # type: ignore[call-arg,unused-ignore]
    return mmap.mmap(fd, 0, access=access)


def _replaced(fd: int, size: int, writable: bool) -> mmap.mmap:
    """An anonymous map with the file's pages put in its place."""
    rights = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    try:
        place = mmap.mmap(-1, size, flags=flags, prot=rights)
    except OSError:  # a system that counts every anonymous page, perhaps
        return _plain(fd, writable)
    start = _address(place)
    shared = mmap.MAP_SHARED | _FIXED
    if _map_at(start, size, rights, shared, fd, 0) == start:
        return place
    number = ctypes.get_errno()
    seen = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    if _look_at(
        start, size, seen
    ):  # the old pages are gone: somebody else may be there when it is let go of
        _abandoned.append(place)
    raise OSError(number, os.strerror(number))


def _address(memory: mmap.mmap) -> int:
    found = _Buffer()
    _get_buffer(memory, ctypes.byref(found), 0)
    start = found.start
    _release_buffer(ctypes.byref(found))
    assert start
    return int(start)


if LINUX and OLD_MMAP:
    # With the interpreter's lock held: no thread of ours comes between the steps.
    _c = ctypes.PyDLL(None, use_errno=True)
    _map_at = _c.mmap
    _map_at.restype = ctypes.c_void_p
    _map_at.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    _look_at = _c.mincore
    _look_at.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    _get_buffer = ctypes.pythonapi.PyObject_GetBuffer
    _get_buffer.argtypes = (ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
    _release_buffer = ctypes.pythonapi.PyBuffer_Release
    _release_buffer.argtypes = (ctypes.c_void_p,)
