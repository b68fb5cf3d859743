"""Going through one commit log file record by record, over blanks, torn tails and damage. HOT.

Bytes come through `ReadAt`, window by window. A record is sound when its parts add up to its size, it names the
physical offset at which it stands and, if asked for, its body matches its CRC. After damage the next magic number
whose record is sound is where reading goes on.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from roquette.base.checksum import crc32
from roquette.base.read_files import ReadAt
from roquette.message.record import (
    BLANK_MAGIC,
    MAX_TOPIC_V1,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
    StoredRecord,
    decode_record,
)

# What `Scanner.advance` finds.
RECORD: Final = 0
FAULT: Final = 1
END: Final = 2

# Why a record is not sound; FAULT_NAMES and FAULT_WORDS say it in words.
SOUND: Final = 0
BAD_MAGIC: Final = 1
BAD_SIZE: Final = 2
BAD_PARTS: Final = 3
BAD_OFFSET: Final = 4
BAD_CRC: Final = 5
HOLE: Final = 6
TAIL: Final = 7
CUT: Final = 8
BAD_BLANK: Final = 9
BAD_WHOLE_CRC: Final = 10
BLANK: Final = 11  # not a fault: the file ends here

FAULT_NAMES: Final = (
    "sound", "magic", "size", "structure", "offset", "crc", "hole", "tail", "cut", "blank", "crc",
)  # fmt: skip
FAULT_WORDS: Final = (
    "a sound record",
    "no record or blank begins here: the magic number is wrong",
    "the record's size is impossible",
    "the parts of the record do not add up to its size",
    "the record names another physical offset than the one it stands at",
    "the body does not match its CRC",
    "zeros where a record should be, and records behind them",
    "bytes behind the last sound record",
    "the file ends within a record",
    "the blank at the file's end has the wrong size",
    "the record does not match the CRC over all of it",
)

# How the file ended.
OPEN: Final = 0  # zeros follow: the log ends here
FILLED: Final = 1  # a blank, or records up to the last byte
STOPPED: Final = 2  # at `stop`, before the end

MIN_SIZE: Final = 91  # of a record: two IPv4 hosts, no body, topic or properties
_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20
_WINDOW: Final = 1 << 20
_MARK: Final = b"\xda\xa3\x20"
_BLANK_MARK: Final = b"\xcb\xd4\x31\x94"
WHOLE_CRC: Final = b"__CRC32#\x01"
WHOLE_CRC_SIZE: Final = 20  # name, separator, ten digits, separator
_OVERLAP: Final = 7  # bytes of a size and magic that may lie across two windows
_ZEROS: Final = bytes(_WINDOW + _OVERLAP)


class Scanner:
    """One file from a position on. After `advance` has said RECORD the fields tell where its parts lie in `data`.

    Attributes:
        position: of the record, the fault or the end within the file.
        following: where reading goes on; behind a fault, the end of the damaged stretch.
        fault: why, when `advance` said FAULT. `known`: the record's header could be read all the same.
        ending: OPEN, FILLED or STOPPED, when it said END.
        blank_at: where the blank at the file's end begins; -1 when there is none.
    """

    __slots__ = (
        "_check", "_open_end", "_source", "_start", "_stop", "_sync", "_written", "at", "base", "blank_at", "body_at",
        "body_size", "data", "ending", "fault", "following", "known", "limit", "nominal", "physical",
        "position", "properties_at", "properties_size", "queue_id", "queue_offset", "size", "store_ms",
        "sys_flag", "topic_at", "topic_size", "window",
    )  # fmt: skip

    def __init__(
        self,
        source: ReadAt,
        base: i64,
        check_crc: bool,
        start: i64 = 0,
        stop: i64 = -1,
        sync: bool = False,
        nominal: i64 = 0,
        window: i64 = _WINDOW,
    ) -> None:
        """
        Args:
            base: the physical offset of the file's first byte; -1: the first sound record says it.
            start: position to begin at. `stop`: records that begin here or later are left out; -1: none.
            sync: `start` may lie within a record: begin with the first sound one behind it.
            nominal: the size the whole file has, when this may be a piece of it; 0: it is whole.
            window: bytes read at once.
        """
        self._source: ReadAt = source
        self.window: i64 = window
        self._check: bool = check_crc
        self._start: i64 = 0
        self._stop: i64 = stop
        self._sync: bool = sync
        self._open_end: bool = False
        self._written: bool = False
        self.data: bytes = b""
        self.base: i64 = base
        limit: int = source.size
        self.limit: i64 = limit
        self.nominal: i64 = nominal if nominal > limit else limit
        self.at: i64 = 0
        self.position: i64 = start
        self.following: i64 = start
        self.fault: i64 = SOUND
        self.known: bool = False
        self.ending: i64 = OPEN
        self.blank_at: i64 = -1
        self.size: i64 = 0
        self.queue_id: i64 = 0
        self.queue_offset: i64 = 0
        self.physical: i64 = 0
        self.sys_flag: i64 = 0
        self.store_ms: i64 = 0
        self.body_at: i64 = 0
        self.body_size: i64 = 0
        self.topic_at: i64 = 0
        self.topic_size: i64 = 0
        self.properties_at: i64 = 0
        self.properties_size: i64 = 0

    def advance(self) -> i64:
        """Go to the next record, fault or end. Raises OSError."""
        if self._sync:
            self._sync = False
            found = self._find_sound(self.following)
            self.following = found if found >= 0 else self.limit
            self._open_end = found < 0
        position = self.following
        self.position = position
        if 0 <= self._stop <= position:
            return self._end(STOPPED)
        if position >= self.limit:
            return self._end(OPEN if self._open_end else FILLED)
        fault = self._examine(position, self._check)
        self.fault = fault
        if fault == SOUND:
            self.following = position + self.size
            return RECORD
        if fault == BLANK:
            self.blank_at = position
            self.following = self.limit
            return self._end(FILLED)
        if self.known:
            self.following = position + self.size
            return FAULT
        return self._damage(position, fault)

    def record(self) -> StoredRecord:
        """The record, decoded; after RECORD, or after a FAULT whose header is `known`."""
        return decode_record(self.data, self.at, False)

    def _end(self, ending: i64) -> i64:
        self.ending = ending
        return END

    def _reach(self, position: i64, size: i64) -> bool:
        """Have bytes in `data`, the first of them at `at`; False when the file has fewer."""
        at: i64 = position - self._start
        if at < 0 or at + size > len(self.data):
            if position + size > self.limit:
                return False
            self.data = self._source.read(position, size if size > self.window else self.window)
            self._start = position
            at = 0
        self.at = at
        return at + size <= len(self.data)

    def _examine(self, position: i64, check: bool) -> i64:
        """Read the header of what stands at a position, and say what is wrong with it. Sets the fields."""
        self.known = False
        if not self._reach(position, 8):
            return CUT
        data = self.data
        magic: int = read_i32_be(data, self.at + 4)
        total: int = read_i32_be(data, self.at)
        size: i64 = total
        if magic == BLANK_MAGIC:
            return BLANK if size == self.nominal - position else BAD_BLANK
        if magic != RECORD_MAGIC_V1 and magic != RECORD_MAGIC_V2:  # noqa: PLR1714 - two integer compares
            return BAD_MAGIC
        if size < MIN_SIZE or size > self.nominal - position:
            return BAD_SIZE
        if not self._reach(position, size):
            return CUT
        if not self._parts(size, magic == RECORD_MAGIC_V1):
            return BAD_PARTS
        if self.base < 0:
            self.base = self.physical - position
        if self.physical != self.base + position:
            return BAD_OFFSET
        self.known = True
        return self._crc_fault() if check else SOUND

    def _parts(self, size: i64, v1: bool) -> bool:
        """Find the parts of a record whose bytes are all in `data`; do they add up to its size?"""
        data = self.data
        at = self.at
        flags: int = read_i32_be(data, at + 36)
        rest: i64 = size - MIN_SIZE
        place: i64 = at + 56
        if flags & _BORN_V6:
            place += 12
            rest -= 12
        stored_at = place
        place += 16
        if flags & _STORE_V6:
            place += 12
            rest -= 12
        if rest < 0:
            return False
        place += 12
        length: int = read_i32_be(data, place)
        body_size: i64 = length
        if body_size < 0 or body_size > rest:
            return False
        rest -= body_size
        self.body_at = place + 4
        self.body_size = body_size
        place += 4 + body_size
        topic_size: i64 = 0
        if v1:
            topic_size = data[place]
            if topic_size > MAX_TOPIC_V1:
                return False
            place += 1
        else:
            if rest < 1:
                return False
            short: int = read_i16_be(data, place)
            topic_size = short
            rest -= 1
            place += 2
        if topic_size <= 0 or topic_size > rest:
            return False
        self.topic_at = place
        self.topic_size = topic_size
        place += topic_size
        rest -= topic_size
        text: int = read_i16_be(data, place)
        if text != rest:
            return False
        self.properties_at = place + 2
        self.properties_size = rest
        self.size = size
        queue_id: int = read_i32_be(data, at + 12)
        self.queue_id = queue_id
        self.queue_offset = read_i64_be(data, at + 20)
        self.physical = read_i64_be(data, at + 28)
        self.sys_flag = flags
        self.store_ms = read_i64_be(data, stored_at)
        return True

    def _crc_fault(self) -> i64:
        """Compare the CRCs of the record in the fields: of the body, and Apache's optional one of all."""
        data = self.data
        wanted: int = read_i32_be(data, self.at + 8)
        body = data[self.body_at : self.body_at + self.body_size]
        if crc32(body) & 0x7FFFFFFF != wanted:
            return BAD_CRC
        end: i64 = self.at + self.size
        if self.properties_size >= WHOLE_CRC_SIZE and data.startswith(
            WHOLE_CRC, end - WHOLE_CRC_SIZE
        ):
            digits = data[end - 11 : end - 1]
            if (
                not digits.isdigit()
                or int(digits[::-1]) != crc32(data[self.at : end - WHOLE_CRC_SIZE]) & 0x7FFFFFFF
            ):
                return BAD_WHOLE_CRC
        return SOUND

    def _damage(self, position: i64, fault: i64) -> i64:
        """Nothing sound begins at a position: find where reading can go on, or the log's end."""
        self._written = False
        following = self._find_sound(position)
        self.known = False
        if following >= 0:
            self.following = following
            self.fault = HOLE if self._zeros(position, following) else fault
            return FAULT
        self.following = self.limit
        if not self._written:
            return self._end(OPEN)
        self._open_end = True
        self.fault = fault if fault in (CUT, BAD_BLANK, BAD_OFFSET) else TAIL
        return FAULT

    def _zeros(self, start: i64, end: i64) -> bool:
        """Is there nothing but zeros between two positions?"""
        while start < end:
            size: i64 = end - start
            size = min(size, _WINDOW)
            piece = self._source.read(start, size)
            if not piece:
                return True
            if piece != _ZEROS[: len(piece)]:
                return False
            start += len(piece)
        return True

    def _find_sound(self, position: i64) -> i64:
        """The first position from one on at which a sound record or the right blank begins; -1: none.

        Sets `_written` when anything but zeros stands on the way.
        """
        while position < self.limit:
            piece = self._source.read(position, _WINDOW + _OVERLAP)
            end: i64 = len(piece)
            if piece != (_ZEROS if end == len(_ZEROS) else bytes(end)):
                self._written = True
                hit: i64 = self._next_mark(piece, 4)
                while hit >= 0:
                    fault = self._examine(position + hit - 4, True)
                    if fault in (SOUND, BLANK):
                        return position + hit - 4
                    hit = self._next_mark(piece, hit + 1)
            if end <= _WINDOW:
                return -1
            position += end - _OVERLAP
        return -1

    def _next_mark(self, piece: bytes, start: i64) -> i64:
        """Where the next magic number stands; -1 when there is none."""
        mark: i64 = piece.find(_MARK, start)
        blank: i64 = piece.find(_BLANK_MARK, start)
        if mark < 0 or 0 <= blank < mark:
            return blank
        return mark
