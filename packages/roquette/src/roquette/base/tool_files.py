"""Tools' own work with a store's files: keep brokers away from them, and write down what was found."""

import errno
import os
from typing import Final

from roquette.base import system_calls
from roquette.errors import StoreError

_BUFFER: Final = 1 << 20
_BUSY: Final = frozenset((errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK))


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
