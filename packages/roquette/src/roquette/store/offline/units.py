"""The units of one consume queue, read from its files through a small window. HOT."""

from typing import Final

from mypy_extensions import i64

from roquette.base.files import ReadFiles
from roquette.store.format.unit import UNIT_SIZE, UnitView
from roquette.store.offline.store_dir import LogFile, QueueDir

WINDOW_UNITS: Final = 512  # 10 KiB: a store may have ten thousand queues
_EMPTY: Final = bytes(UNIT_SIZE)


class QueueUnits(UnitView):
    """Gives units by queue offset; after `load` has said True the fields hold one.

    No file stays open: a window serves hundreds of units.

    Attributes:
        first, limit: queue offsets of the first place and behind the last one.
    """

    __slots__ = (
        "_end", "_files", "_names", "_segment_size", "_start", "_window", "first", "limit", "queue_id", "topic",
    )  # fmt: skip

    def __init__(self, files: ReadFiles, queue: QueueDir, segment_size: i64) -> None:
        """`segment_size`: bytes of a file of the log."""
        super().__init__()
        self._files: ReadFiles = files
        self._segment_size: i64 = segment_size
        self._names: list[LogFile] = queue.files
        self.topic: str = queue.topic
        self.queue_id: int = queue.queue_id
        first: int = queue.first
        limit: int = queue.limit
        self.first: i64 = first
        self.limit: i64 = limit
        self._window: bytes = b""
        self._start: i64 = 0  # queue offset of the window's first unit
        self._end: i64 = 0

    @property
    def exists(self) -> bool:
        """Has it any file?"""
        return len(self._names) > 0

    def load(self, offset: i64) -> bool:
        """Read the unit at a queue offset; False where no file has a place for it. Raises OSError."""
        if (offset < self._start or offset >= self._end) and not self._fill(offset):
            return False
        self.look_at(self._window, (offset - self._start) * UNIT_SIZE)
        return True

    @property
    def filler(self) -> bool:
        """Does the unit stand for no message?"""
        return self.fills(self._segment_size)

    def next_written(self, offset: i64) -> i64:
        """The first offset from one on whose place is not all zeros; `limit` when there is none."""
        while offset < self.limit:
            if (offset < self._start or offset >= self._end) and not self._fill(offset):
                offset += 1
                continue
            rest = self._window[(offset - self._start) * UNIT_SIZE :]
            if rest != bytes(len(rest)):
                at: i64 = 0
                while rest[at : at + UNIT_SIZE] == _EMPTY:
                    at += UNIT_SIZE
                return offset + at // UNIT_SIZE
            offset = self._end
        return self.limit

    def _fill(self, offset: i64) -> bool:
        byte: i64 = offset * UNIT_SIZE
        for file in self._names:
            base: i64 = file.base
            size: i64 = file.size
            if base <= byte and byte + UNIT_SIZE <= base + size:
                source = self._files.open_file(file.path)
                try:
                    self._window = source.pread(WINDOW_UNITS * UNIT_SIZE, byte - base)
                finally:
                    source.close()
                self._start = offset
                self._end = offset + len(self._window) // UNIT_SIZE
                return self._end > offset
        return False

    def forget(self) -> None:
        """Give the window's memory back."""
        self._window = b""
        self._start = 0
        self._end = 0

    def place(self, offset: i64) -> tuple[str, int]:
        """File and byte of a unit, for people; the last file when there is no place for it."""
        byte: i64 = offset * UNIT_SIZE
        for file in self._names:
            if file.base <= byte < file.base + file.size:
                return file.path, byte - file.base
        if self._names:
            last = self._names[-1]
            return last.path, byte - last.base
        return "", -1
