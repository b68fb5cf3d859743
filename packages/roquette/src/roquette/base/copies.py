"""Copies of files for a backup: a hard link where a file changes no more, else its bytes with their holes."""

import errno
import os
import stat
from typing import Final

from roquette.base import system_calls

_CHUNK: Final = 1 << 20
_NO_LINK: Final = frozenset(
    (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSYS)
)
_ZEROS: Final = bytes(_CHUNK)


def link_or_copy(source: str, target: str) -> bool:
    """A second name for a file, or a copy where the file system has none (another disk); whether it was linked.

    Raises:
        OSError: FileNotFoundError among them, when the source is gone.
    """
    try:
        os.link(source, target)
        return True
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
    copy_bytes(source, target)
    return False


def copy_bytes(source: str, target: str) -> int:
    """Copy a file front to back, with its mode, onto the disk; runs of zeros become holes. Returns its size.

    A file that grows at its end meanwhile is copied up to some byte of what was appended. Raises OSError.
    """
    old = os.open(source, os.O_RDONLY | system_calls.CLOSE_ON_EXEC)
    try:
        how = os.fstat(old)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system_calls.CLOSE_ON_EXEC
        new = os.open(target, flags, stat.S_IMODE(how.st_mode))
        try:
            at = 0
            while at < how.st_size:
                chunk = system_calls.pread(old, min(_CHUNK, how.st_size - at), at)
                if not chunk:
                    break  # it was cut meanwhile
                if chunk != _ZEROS[: len(chunk)]:
                    _write(new, chunk, at)
                at += len(chunk)
            # Zeros at the end were not written either.
            os.truncate(new, how.st_size)
            os.fsync(new)
        finally:
            os.close(new)
    finally:
        os.close(old)
    return how.st_size


def _write(descriptor: int, data: bytes, position: int) -> None:
    rest = memoryview(data)
    while rest:
        done = system_calls.pwrite(descriptor, bytes(rest), position)
        rest, position = rest[done:], position + done


def file_stamp(path: str) -> tuple[int, int, int]:
    """Return a stamp that changes when a file is written or replaced: time, size and inode; zeros when it is not there."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino
