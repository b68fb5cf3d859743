"""The file calls that Linux has and other systems lack, each with what serves there.

Servers run on Linux and macOS, the client on Windows as well. `tests/base/test_other_systems.py` hides the
missing names and runs both.
"""

import errno
import mmap
import os
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from roquette.errors import StoreError

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
