"""The timer wheel: which timer log records are due in which slot of time. HOT.

| field | bytes | note |
|---|---|---|
| time | 8 | epoch ms divided by the precision; 0 in an empty slot |
| first position | 8 | of the slot's oldest record in the timer log |
| last position | 8 | of its newest one, where the chain of previous positions begins |
| number | 4 | messages less recalls |
| magic | 4 | unused, kept |

Two turns of seven days in seconds make 1,209,600 slots (Apache: TimerWheel, Slot). The slots are held in
memory and reach the file only by `take_dirty`, so that the file never speaks of timer log records that are
not on the disk, and never forgets a slot whose messages are not.
"""

import mmap
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from roquette.base.files import File, Files
from roquette.store.format.checkpoint import TimerCheckpoint, write_checkpoint
from roquette.store.format.layout import StoreLayout

SLOT_SIZE: Final = 32
SLOTS_TOTAL: Final = 7 * 86_400  # of one turn, whatever the precision
BLANK_SLOTS: Final = 60
_SLOT: Final = struct.Struct(">qqqii")
_PAGE: Final = 4096
_PAGE_SLOTS: Final = _PAGE // SLOT_SIZE
_RUN_PAGES: Final = 256  # so many neighbouring pages are written at once
_LOAD_PAGES: Final = 16
_EMPTY: Final = bytes(SLOT_SIZE)


class WheelSlot(NamedTuple):
    """One slot in use: `tick` is its time in units of the precision."""

    ordinal: int
    tick: int
    first: int
    last: int
    number: int


def slots_in(page: bytes, first_ordinal: int) -> list[WheelSlot]:
    """The slots in use in some bytes of a wheel, whose first slot has the ordinal `first_ordinal`."""
    if page == bytes(len(page)):
        return []
    whole = page[: len(page) - len(page) % SLOT_SIZE]
    return [
        WheelSlot(first_ordinal + place, tick, first, last, number)
        for place, (tick, first, last, number, _) in enumerate(_SLOT.iter_unpack(whole))
        if tick
    ]


class TimerWheel:
    """The slots, by time in epoch ms. Its memory is that of the file: 38.7 MB at most."""

    __slots__ = ("_data", "_dirty", "_slots", "pending", "precision_ms")

    def __init__(self, precision_ms: int, slots_total: int = SLOTS_TOTAL) -> None:
        self.precision_ms: int = precision_ms
        self._slots: int = 2 * slots_total
        # Memory of no file: pages nobody has written to cost nothing.
        self._data: mmap.mmap = mmap.mmap(-1, self._slots * SLOT_SIZE)
        self._dirty: bytearray = bytearray(-(-self._slots // _PAGE_SLOTS))
        self.pending: int = 0  # the sum of the numbers

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._slots * SLOT_SIZE

    @property
    def span_ms(self) -> int:
        """Times closer together than this never share a place."""
        return self._slots * self.precision_ms

    def floor(self, time_ms: int) -> int:
        """The slot a time falls into."""
        return time_ms // self.precision_ms * self.precision_ms

    def find(self, time_ms: int) -> tuple[int, int, int] | None:
        """First position, last position and number of a slot; None when it is empty."""
        tick = time_ms // self.precision_ms
        found = _SLOT.unpack_from(self._data, tick % self._slots * SLOT_SIZE)
        return (found[1], found[2], found[3]) if found[0] == tick and tick > 0 else None

    def free(self, time_ms: int) -> bool:
        """Is the place of a slot empty, or the slot's own already?"""
        tick = time_ms // self.precision_ms
        found: int = _SLOT.unpack_from(self._data, tick % self._slots * SLOT_SIZE)[0]
        return found in (0, tick)

    def number(self, time_ms: int) -> int:
        """Messages of a slot."""
        found = self.find(time_ms)
        return found[2] if found is not None else 0

    def put(self, time_ms: int, first: int, last: int, number: int) -> None:
        """Write a slot; its place must be `free`."""
        tick = time_ms // self.precision_ms
        index = tick % self._slots
        before = _SLOT.unpack_from(self._data, index * SLOT_SIZE)
        assert before[0] in (0, tick), (before, tick)
        self.pending += number - before[3]
        _SLOT.pack_into(self._data, index * SLOT_SIZE, tick, first, last, number, before[4])
        self._dirty[index // _PAGE_SLOTS] = 1

    def clear(self, time_ms: int) -> None:
        """Empty a slot."""
        tick = time_ms // self.precision_ms
        index = tick % self._slots
        before = _SLOT.unpack_from(self._data, index * SLOT_SIZE)
        if before[0] != tick:
            return
        self.pending -= before[3]
        self._data[index * SLOT_SIZE : (index + 1) * SLOT_SIZE] = _EMPTY
        self._dirty[index // _PAGE_SLOTS] = 1

    def load(self, file: File) -> None:
        """Take over a file of the right size. Blocks."""
        data = self._data
        position = 0
        step = _PAGE * _LOAD_PAGES
        while position < len(data):
            piece = file.pread(min(step, len(data) - position), position)
            if piece and piece.count(0) != len(piece):  # untouched memory costs nothing
                data[position : position + len(piece)] = piece
            position += step
        self._drop_strays()
        self.pending = sum(number for _, _, _, number in self.slots())

    def _drop_strays(self) -> None:
        """Empty damaged slots: those that have the time of another place."""
        data, blank = self._data, bytes(_PAGE)
        for start in range(0, len(data), _PAGE):
            page = data[start : start + _PAGE]
            if page == blank[: len(page)]:
                continue
            for at in range(start, start + len(page), SLOT_SIZE):
                tick: int = _SLOT.unpack_from(data, at)[0]
                if tick < 0 or (tick and tick % self._slots != at // SLOT_SIZE):
                    data[at : at + SLOT_SIZE] = _EMPTY
                    self._dirty[at // _PAGE] = 1

    def slots(self) -> list[tuple[int, int, int, int]]:
        """Time in ms, first and last position and number of every slot in use."""
        found: list[tuple[int, int, int, int]] = []
        for start in range(0, len(self._data), _PAGE):
            for slot in slots_in(self._data[start : start + _PAGE], start // SLOT_SIZE):
                if slot.tick > 0:
                    time_ms = slot.tick * self.precision_ms
                    found.append((time_ms, slot.first, slot.last, slot.number))
        return found

    def take_dirty(self) -> list[tuple[int, bytes]]:
        """Return what must be written to the file: positions and bytes of changed pages. They count as clean now."""
        found: list[tuple[int, bytes]] = []
        flags = self._dirty
        page = flags.find(1)
        while page >= 0:
            end = page
            while end < len(flags) and flags[end] and end - page < _RUN_PAGES:
                flags[end] = 0
                end += 1
            found.append((page * _PAGE, self._data[page * _PAGE : end * _PAGE]))
            page = flags.find(1, end)
        return found

    def keep_dirty(self, pieces: list[tuple[int, bytes]]) -> None:
        """Pieces could not be written: their pages count as changed again."""
        for position, data in pieces:
            for page in range(position // _PAGE, -(-(position + len(data)) // _PAGE)):
                self._dirty[page] = 1


# Sync of the timer's files, in an order that a crash at any moment leaves sound.


@dataclass(eq=False)
class TimerFlushPlan:
    """Brings timer log, wheel and checkpoint to the disk, in this order. The commit log is there before.

    Attributes:
        touched: files of the timer log. `directories`: to be synced behind them.
        pieces: positions and bytes of the wheel, which has `wheel_size` bytes.
        commit_end: the commit log must be synced up to here before `run`.
    """

    files: Files
    layout: StoreLayout
    touched: list[File]
    directories: list[str]
    wheel_size: int
    pieces: list[tuple[int, bytes]]
    checkpoint: TimerCheckpoint
    commit_end: int
    error: OSError | None = None

    def run(self) -> None:
        """Block until all is on the disk; an error is kept for `TimerStore.flushed`."""
        try:
            for file in self.touched:
                file.sync()
            for directory in self.directories:
                self.files.sync_dir(directory)
            if self.pieces:
                write_wheel(self.files, self.layout.timer_wheel, self.wheel_size, self.pieces)
            path = self.layout.timer_checkpoint
            self.files.make_dirs(path.rpartition("/")[0])
            data = self.checkpoint.encode()
            write_checkpoint(self.files, path, data, len(data))
        except OSError as error:
            self.error = error


def write_wheel(files: Files, path: str, size: int, pieces: list[tuple[int, bytes]]) -> None:
    """Bring changed pages to the wheel's file, and sync it. Blocks."""
    known = files.exists(path)
    file = files.open_file(path, create=True)
    try:
        if file.size != size:
            file.truncate(size)  # without blocks, as Apache makes it
        for position, data in pieces:
            file.pwrite(data, position)
        file.sync()
    finally:
        file.close()
    if not known:
        files.sync_dir(path.rpartition("/")[0] or ".")
