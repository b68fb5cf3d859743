"""Files that are only looked at: for tools that must change nothing, on any medium.

`ReadAt` and `ReadFiles` are all that the offline tools ask for, so a bucket or an archive can stand in for the
operating system's files.
"""

import errno
import os
import stat
from typing import Final, Protocol, runtime_checkable

from roquette.base import system_calls
from roquette.base.files import File, Files
from roquette.errors import StoreError

_BUFFER: Final = 1 << 20
_BUSY: Final = frozenset((errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK))


class ReadAt(Protocol):
    """Bytes at positions."""

    @property
    def size(self) -> int:
        """How many bytes there are."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from a position on; fewer at the end only. Raises OSError."""
        ...


class ReadFile(ReadAt, Protocol):
    """An open file."""

    def close(self) -> None:
        """Release it; closing twice is harmless."""
        ...


class ReadFiles(Protocol):
    """A tree of files; paths are joined by `/`."""

    def open(self, path: str) -> ReadFile:
        """The file at a path. Raises OSError."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty when there is no such directory."""
        ...

    def is_dir(self, path: str) -> bool:
        """Is there a directory?"""
        ...

    def file_size(self, path: str) -> int:
        """Size of a file in bytes; -1 if it is missing."""
        ...


@runtime_checkable
class Dated(Protocol):
    """A tree of files that knows when they were written."""

    def modified_ms(self, path: str) -> int:
        """When a file was last written, epoch milliseconds. Raises OSError."""
        ...


class OsReadFile:
    """A file of the operating system, opened for reading."""

    __slots__ = ("_fd", "_size")

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | system_calls.CLOSE_ON_EXEC)
        self._size = os.fstat(self._fd).st_size

    @property
    def size(self) -> int:
        return self._size

    def read(self, position: int, size: int) -> bytes:
        found = system_calls.pread(self._fd, size, position)
        while (
            len(found) < size and position + len(found) < self._size
        ):  # the system's limit of one call
            more = system_calls.pread(self._fd, size - len(found), position + len(found))
            if not more:
                break
            found += more
        return found

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()


class OsReadFiles:
    """The operating system's files, never opened for writing."""

    def open(self, path: str) -> ReadFile:
        return OsReadFile(path)

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def file_size(self, path: str) -> int:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return -1
        return found.st_size if stat.S_ISREG(found.st_mode) else -1

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000


class SeamFile:
    """An open file of a `Files`."""

    def __init__(self, file: File) -> None:
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def read(self, position: int, size: int) -> bytes:
        return self._file.pread(size, position)

    def close(self) -> None:
        self._file.close()


class SeamReadFiles:
    """What a `Files` holds, for those who only look: say a store in memory after a power cut."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def open(self, path: str) -> ReadFile:
        return SeamFile(self._files.open_file(path))

    def list_dir(self, path: str) -> list[str]:
        try:
            return self._files.list_dir(path)
        except NotADirectoryError:
            return []

    def is_dir(self, path: str) -> bool:
        return bool(self.list_dir(path))

    def file_size(self, path: str) -> int:
        if not self._files.exists(path) or self.is_dir(path):
            return -1
        try:
            file = self._files.open_file(path)
        except IsADirectoryError:  # an empty one
            return -1
        try:
            return file.size
        finally:
            file.close()

    def modified_ms(self, path: str) -> int:
        return self._files.modified_ms(path)


def read_all(files: ReadFiles, path: str, limit: int) -> bytes:
    """A whole (small) file, at most `limit` bytes of it. Raises OSError."""
    source = files.open(path)
    try:
        return source.read(0, min(source.size, limit))
    finally:
        source.close()


class StoreGuard:
    """Keeps brokers away from a directory while a tool looks at it or mends it.

    Our broker locks the file `lock` with flock, Apache's with fcntl (byte 0): one does not see the other's, so
    both are asked for. A reader opens the file for reading only and changes nothing.
    """

    def __init__(self, path: str, exclusive: bool = False) -> None:
        """Raises StoreError when a broker has the store, OSError when the file cannot be opened.

        Args:
            path: of the lock file; without such a file, or with no path at all, a reader has nothing to wait for.
            exclusive: keep other readers away too, and make the file when it is missing.
        """
        self._fd = -1
        how = os.O_RDWR | os.O_CREAT if exclusive else os.O_RDONLY
        try:
            self._fd = os.open(path, how | system_calls.CLOSE_ON_EXEC, 0o644)
        except FileNotFoundError:
            if exclusive:
                raise
            return
        try:
            system_calls.try_lock(self._fd, exclusive=exclusive, records=True)
        except OSError as error:
            self.release()
            if error.errno not in _BUSY:
                return  # a file system without locks
            raise StoreError(f"{path} is locked: a running process uses this store") from error

    def release(self) -> None:
        """Let others in; releasing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LineFile:
    """A new text file that a tool writes, buffered; not durable before `close`."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | system_calls.CLOSE_ON_EXEC, 0o644
        )
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, text: str) -> None:
        """Take some text. Raises OSError."""
        data = text.encode("utf-8", "surrogatepass")
        self._parts.append(data)
        self._size += len(data)
        if self._size >= _BUFFER:
            self._write_out()

    def _write_out(self) -> None:
        data = memoryview(b"".join(self._parts))
        self._parts, self._size = [], 0
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Write out and sync. Raises OSError."""
        if self._fd >= 0:
            try:
                self._write_out()
                os.fsync(self._fd)
            finally:
                os.close(self._fd)
                self._fd = -1
