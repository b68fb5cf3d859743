"""One file of the commit log: written by descriptor once a turn, read through a map. HOT.

Linux keeps one page cache for both, so a mapped read sees what pwrite put there. Writing through
the map would fault every fresh page on the loop thread and die of SIGBUS on a full disk.
"""

import mmap
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from roquette.base.files import File

MAPPED: Final = 1 << 16
"""What is read at once through the map, in bytes: it holds the interpreter while pages come from the disk."""


class Segment:
    """A file of fixed size. Positions: `synced` <= `wrote` <= `appended` <= `size`."""

    __slots__ = (
        "_map",
        "_pending",
        "appended",
        "base_offset",
        "file",
        "size",
        "synced",
        "tail",
        "wrote",
    )

    def __init__(self, file: File, base_offset: i64, size: i64, used: i64) -> None:
        """`used`: bytes that are already there and durable."""
        assert 0 <= used <= size
        assert file.size == size
        self.file: File = file
        self.base_offset: i64 = base_offset
        self.size: i64 = size
        self.appended: i64 = used
        self.wrote: i64 = used
        self.synced: i64 = used
        self._map: mmap.mmap = file.map(False)
        self._pending: list[bytes] = []
        self.tail: BytesWriter = BytesWriter()  # what is pending behind `_pending`

    def append(self, data: bytes) -> None:
        """Take bytes; they reach the file with `write_pending`."""
        end: i64 = self.appended + len(data)
        assert end <= self.size
        self._end_tail()
        self._pending.append(data)
        self.appended = end

    def note_tail(self, size: i64) -> None:
        """So many bytes were written to `tail`."""
        self.appended += size
        assert self.appended <= self.size

    def _end_tail(self) -> None:
        if len(self.tail):
            self._pending.append(self.tail.getvalue())
            self.tail.truncate(0)

    def write_pending(self) -> None:
        """Hand what was appended to the system in one call. Raises OSError."""
        self._end_tail()
        if self._pending:
            data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
            self.file.pwrite(data, self.wrote)
            self._pending = []
            self.wrote += len(data)
            assert self.wrote == self.appended

    def pread(self, size: i64, position: i64) -> bytes:
        """`size` bytes, a copy; fewer at the end of the file."""
        if position + size > self.wrote:
            self.write_pending()
        if size > MAPPED:
            return self.file.pread(size, position)
        return self._map[position : position + size]

    def fill(self) -> None:
        """Count the rest as used: a blank record stands there."""
        self.write_pending()
        self.tail = BytesWriter()  # it gives its memory back
        self.appended = self.size
        self.wrote = self.size

    def reset(self, used: i64) -> None:
        """Set the end in recovery; the bytes before it are as durable as they will ever be."""
        assert not self._pending
        assert not len(self.tail)
        self.appended = used
        self.wrote = used
        self.synced = used
