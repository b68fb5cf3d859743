"""Units of a queue that no record of the log claims: fillers, old ones, or damage. HOT."""

from typing import Final

from mypy_extensions import i64

from roquette.base.files import ReadFile, ReadFiles
from roquette.message.record_view import SOUND
from roquette.store.audit.findings import NOTE, Findings
from roquette.store.format.log_reader import LogReader
from roquette.store.format.unit import UNIT_SIZE, UnitView
from roquette.store.offline.store_dir import LogFile, QueueDir, StoreDir

# The units of one consume queue, read from its files through a small window. HOT.


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


MULTI_DISPATCH: Final = b"INNER_MULTI_DISPATCH\x01"
NO_CRASH: Final = (1 << 63) - 1  # behind whatever a damaged unit says
_PEEK: Final = 4096  # bytes read for one record looked up
_MAX_LOOK_UPS: Final = 2_000  # records looked up for units nobody claims, of one gap


class LogLookup:
    """Look-up of the record that stands at a physical offset: for the few units that no record claimed."""

    __slots__ = ("_file", "_files", "_source", "_store")

    def __init__(self, files: ReadFiles, store: StoreDir) -> None:
        self._files: ReadFiles = files
        self._store: StoreDir = store
        self._file: LogFile | None = None
        self._source: ReadFile | None = None

    def claims(self, topic: str, queue_id: int, offset: i64, physical: i64, size: i64) -> bool:
        """Does a sound record of this queue, with this queue offset, stand there? Raises OSError."""
        return self.place_of(topic, queue_id, offset, physical, size) == offset

    def place_of(self, topic: str, queue_id: int, offset: i64, physical: i64, size: i64) -> i64:
        """The queue offset of the sound record that stands there, if it is one of this queue; else -1.

        Of a record that several queues share it is the `offset` given. Raises OSError.
        """
        file = self._file
        if file is None or not file.base <= physical < file.base + file.size:
            file = self._store.file_of(physical)
            self.close()
            if file is None:
                return -1
            self._file = file
            self._source = self._files.open_file(file.path)
        source = self._source
        assert source is not None
        at: i64 = physical - file.base
        reader = LogReader(source, file.base, False, at)
        reader.window = _PEEK
        if reader.look() != SOUND or reader.size != size or reader.queue_id != queue_id:
            return -1
        name = reader.data[reader.topic_at : reader.topic_at + reader.topic_size]
        if name == topic.encode():
            return reader.queue_offset
        text = reader.data[reader.properties_at : reader.properties_at + reader.properties_size]
        return offset if MULTI_DISPATCH in text and topic.encode() in text else -1

    def close(self) -> None:
        """Release the file."""
        if self._source is not None:
            self._source.close()
        self._source = None
        self._file = None


def check_units(
    units: QueueUnits,
    start: i64,
    end: i64,
    min_physical: i64,
    lookup: LogLookup,
    found: Findings,
    cut_from: i64 = NO_CRASH,
) -> None:
    """Look at units that no record claimed: what keeps places, and units of records the log has dropped, are well.

    Args:
        cut_from: the log's end in a store that was not closed: units are written at once, records at a turn's end, and
            recovery cuts the units whose records did not come.
    """
    offset: i64 = start
    looked: i64 = 0
    while offset < end and looked < _MAX_LOOK_UPS:
        if not units.load(offset):
            words = (
                f"no file has a place for queue offset {offset} of {units.topic}/{units.queue_id}"
            )
            path, position = units.place(offset)
            found.add_run("queue_file", path, position, words, offset)
            looked += 1
        elif units.empty:
            path, position = units.place(offset)
            words = f"the unit of {units.topic}/{units.queue_id} offset {offset} is empty, later ones are not"
            found.add_run("unit_hole", path, position, words, offset)
            looked += 1
        elif not units.filler and (units.physical >= min_physical or units.size <= 0):
            looked += 1
            physical = units.physical
            if physical >= cut_from:
                path, position = units.place(offset)
                words = (
                    f"the unit of {units.topic}/{units.queue_id} offset {offset} points behind the log's end: "
                    "a broker cuts it at its next start"
                )
                found.add_run("unit_ahead", path, position, words, offset, NOTE)
            elif not _stands_for(units, offset, lookup):
                path, position = units.place(offset)
                words = (
                    f"the unit of {units.topic}/{units.queue_id} offset {offset} points at offset {physical}, "
                    f"size {units.size}, where no record of this queue and offset stands"
                )
                found.add_run("unit_orphan", path, position, words, offset)
        offset += 1


def _stands_for(units: QueueUnits, offset: i64, lookup: LogLookup) -> bool:
    """Is the loaded unit that of its record, or one that repeats it in the place of a lost message?"""
    physical = units.physical
    size = units.size
    place = lookup.place_of(units.topic, units.queue_id, offset, physical, size)
    if place == offset or place < 0:
        return place == offset
    repeated: bool = units.load(place) and units.physical == physical and units.size == size
    units.load(offset)
    return repeated


def check_tail(
    units: QueueUnits,
    start: i64,
    min_physical: i64,
    lookup: LogLookup,
    found: Findings,
    cut_from: i64,
) -> None:
    """Behind the unit of the newest record nothing is written."""
    looked: i64 = 0
    offset = units.next_written(start)
    while offset < units.limit and looked < _MAX_LOOK_UPS:
        units.load(offset)
        if units.size <= 0 or (not units.filler and units.physical >= min_physical):
            looked += 1
        check_units(units, offset, offset + 1, min_physical, lookup, found, cut_from)
        offset = units.next_written(offset + 1)
