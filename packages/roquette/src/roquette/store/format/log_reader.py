"""Going through one commit log file record by record, over blanks, torn tails and damage: the only reader of the log. HOT.

Recovery, delivery marks, fsck, repair, grep, export and Spark's splits are built on it. Bytes come through `ReadAt`,
window by window. A record is sound as `RecordView.examine` says. After damage the next magic number whose record is
sound is where reading goes on. What is skipped is reported as leveldb's log reader reports it, bytes and reason:
`position`, `following` and `fault`.
"""

from typing import Final

from mypy_extensions import i64

from roquette.base.files import ReadAt
from roquette.message.record_layout import BLANK_MARK, MAGIC_START
from roquette.message.record_view import (
    BAD_BLANK,
    BAD_OFFSET,
    BLANK,
    CUT,
    HOLE,
    SOUND,
    TAIL,
    RecordView,
)

# Results of `LogReader.advance`.
RECORD: Final = 0
FAULT: Final = 1
END: Final = 2

# Ways in which the file ended.
OPEN: Final = 0  # zeros follow: the log ends here
FILLED: Final = 1  # a blank, or records up to the last byte
STOPPED: Final = 2  # at `stop`, before the end

_WINDOW: Final = 1 << 20
_OVERLAP: Final = 7  # bytes of a size and magic that may lie across two windows
_ZEROS: Final = bytes(_WINDOW + _OVERLAP)


class LogReader(RecordView):
    """One file from a position on. After `advance` has said RECORD the fields tell where its parts lie in `data`.

    Attributes:
        position: of the record, the fault or the end within the file.
        following: where reading goes on; behind a fault, the end of the damaged stretch.
        fault: why, when `advance` said FAULT. `known`: the record's header could be read all the same.
        ending: OPEN, FILLED or STOPPED, when it said END.
        window: bytes read at once.
        blank_at: where the blank at the file's end begins; -1 when there is none.
    """

    __slots__ = (
        "_check", "_open_end", "_source", "_start", "_stop", "_written", "base", "blank_at", "ending",
        "fault", "following", "known", "limit", "nominal", "position", "window",
    )  # fmt: skip

    def __init__(
        self,
        source: ReadAt,
        base: i64,
        check_crc: bool,
        start: i64 = 0,
        stop: i64 = -1,
        nominal: i64 = 0,
    ) -> None:
        """
        Args:
            base: the physical offset of the file's first byte; -1: the first sound record says it.
            start: position to begin at. `stop`: records that begin here or later are left out; -1: none.
            nominal: the size the whole file has, when this may be a piece of it; 0: it is whole.
        """
        super().__init__()
        self._source: ReadAt = source
        self.window: i64 = _WINDOW
        self._check: bool = check_crc
        self._start: i64 = 0
        self._stop: i64 = stop
        self._open_end: bool = False
        self._written: bool = False
        self.base: i64 = base
        limit: int = source.size
        self.limit: i64 = limit
        self.nominal: i64 = nominal if nominal > limit else limit
        self.position: i64 = start
        self.following: i64 = start
        self.fault: i64 = SOUND
        self.known: bool = False
        self.ending: i64 = OPEN
        self.blank_at: i64 = -1

    def advance(self) -> i64:
        """Go to the next record, fault or end. Raises OSError."""
        position = self.following
        self.position = position
        if 0 <= self._stop <= position:
            return self._end(STOPPED)
        if position >= self.limit:
            return self._end(OPEN if self._open_end else FILLED)
        fault = self.look()
        if fault == SOUND:
            return RECORD
        if fault == BLANK:
            return self._end(FILLED)
        if self.known:
            self.following = position + self.size
            return FAULT
        return self._damage(position, fault)

    def synchronize(self) -> None:
        """`start` may lie within a record: begin with the first sound one at or behind it. Raises OSError."""
        found = self.find_sound(self.following)
        self.following = found if found >= 0 else self.limit
        self._open_end = found < 0

    def look(self) -> i64:
        """Tell what stands at `following`: SOUND, BLANK or a fault. Goes behind a record or a blank, and over no fault."""
        position = self.following
        self.position = position
        fault = self._examine(position, self._check)
        self.fault = fault
        if fault == SOUND:
            self.following = position + self.size
        elif fault == BLANK:
            self.blank_at = position
            self.following = self.limit
        return fault

    def _end(self, ending: i64) -> i64:
        self.ending = ending
        return END

    def _reach(self, position: i64, size: i64) -> bool:
        """Have bytes in `data`, the first of them at `at`; False when the file has fewer."""
        at: i64 = position - self._start
        if at < 0 or at + size > len(self.data):
            if position + size > self.limit:
                return False
            self.data = self._source.pread(size if size > self.window else self.window, position)
            self._start = position
            at = 0
        self.at = at
        return at + size <= len(self.data)

    def _examine(self, position: i64, check: bool) -> i64:
        """Find what stands at a position, and what is wrong with it. Sets the fields."""
        self.known = False
        if not self._reach(position, 8):
            return CUT
        fault = self.find_size(self.data, self.at, self.nominal - position)
        if fault != SOUND:
            return fault
        if not self._reach(position, self.size):
            return CUT
        fault = self.find(self.data, self.at)
        if fault != SOUND:
            return fault
        if self.base < 0:
            self.base = self.physical - position
        fault = self.check_place(self.base + position)
        if fault != SOUND:
            return fault
        self.known = True
        fault = self.check_topic()
        return self.check_body() if fault == SOUND and check else fault

    def _damage(self, position: i64, fault: i64) -> i64:
        """Nothing sound begins at a position: find where reading can go on, or the log's end."""
        self._written = False
        following = self.find_sound(position)
        self.known = False
        if following >= 0:
            self.following = following
            self.fault = HOLE if self.is_zeros(position, following) else fault
            return FAULT
        self.following = self.limit
        if not self._written:
            return self._end(OPEN)
        self._open_end = True
        self.fault = fault if fault in (CUT, BAD_BLANK, BAD_OFFSET) else TAIL
        return FAULT

    def is_zeros(self, start: i64, end: i64) -> bool:
        """Is there nothing but zeros between two positions?"""
        while start < end:
            size: i64 = end - start
            size = min(size, _WINDOW)
            piece = self._source.pread(size, start)
            if not piece:
                return True
            if piece != _ZEROS[: len(piece)]:
                return False
            start += len(piece)
        return True

    def find_sound(self, position: i64, check: bool = True, stop: i64 = -1) -> i64:
        """The first position from one on, before `stop`, at which a sound record or the right blank begins; -1: none.

        `check`: its body must match its CRC. Sets the fields, and `_written` when anything but zeros stands on the way.
        """
        if stop < 0 or stop > self.limit:
            stop = self.limit
        while position < stop:
            piece = self._source.pread(self.window + _OVERLAP, position)
            end: i64 = len(piece)
            if piece != (_ZEROS if end == len(_ZEROS) else bytes(end)):
                self._written = True
                self.data = piece
                self._start = position
                hit: i64 = self._next_mark(piece, 4)
                while 4 <= hit < stop - position + 4:
                    fault = self._examine(position + hit - 4, check)
                    if fault in (SOUND, BLANK):
                        return position + hit - 4
                    hit = self._next_mark(piece, hit + 1)
            if end <= self.window:
                return -1
            position += end - _OVERLAP
        return -1

    def _next_mark(self, piece: bytes, start: i64) -> i64:
        """Return the position of the next magic number; -1 when there is none."""
        mark: i64 = piece.find(MAGIC_START, start)
        blank: i64 = piece.find(BLANK_MARK, start)
        if mark < 0 or 0 <= blank < mark:
            return blank
        return mark
