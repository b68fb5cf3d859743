"""Going over the log's records in order, each checked, until one is not sound: there the log ends."""

import enum
import logging
from collections.abc import Callable

from roquette.message.record import peek_size_magic
from roquette.message.record_layout import BLANK_MAGIC, StoredRecord
from roquette.message.record_view import SOUND, RecordView
from roquette.store.log.commit_log import CommitLog
from roquette.store.log.log_holes import Beyond

log = logging.getLogger("roquette.store")

_WINDOW = 1 << 20
_SECTOR = 512
_PROGRESS = 256 << 20  # bytes of log between two lines that tell of a long walk

Passing = Callable[[bytes, int, int], int]


def walk(
    log_: CommitLog,
    start: int,
    check_crc: bool,
    on_record: Callable[[StoredRecord], None],
    synced: int = 0,
    passing: Passing | None = None,
    beyond: Beyond | None = None,
    last_ms: Callable[[], int] = lambda: 0,
) -> int:
    """Give every sound record from `start` on to `on_record`; returns where the log ends.

    Args:
        synced: what lies before was on the disk, so no crash has torn it.
        passing: goes past records that need no attention: see `log_scan`.
        beyond: says where the log goes on behind an unsound place. `last_ms`: store time of the record before.
    """
    reader = RecordReader(log_, check_crc)
    offset = shown = start
    while True:
        if passing is not None:
            offset = reader.skip(offset, passing)
        if offset - shown >= _PROGRESS:
            shown = offset
            log.info(
                "recovery: read the log from %d to %d, it ends before %d",
                start,
                offset,
                log_.end_offset,
            )
        if reader.blank_at(offset):
            offset += log_.segment_size - offset % log_.segment_size
            continue
        record = reader.record_at(offset)
        if record is not None and not (offset >= synced and reader.is_torn(record)):
            on_record(record)
            offset += record.size
            continue
        following = offset if beyond is None else beyond.past(offset, last_ms())
        if following == offset:
            return offset
        offset = following


class RecordReader:
    """Decodes records in order out of a window that moves along the log."""

    def __init__(self, log_: CommitLog, check_crc: bool) -> None:
        self._log = log_
        self._check_crc = check_crc
        self._start = 0
        self._window = b""
        self._view = RecordView()

    def _reach(self, offset: int, size: int) -> int:
        """Have `size` bytes from an offset on in the window; returns their position, -1: cannot."""
        position = offset - self._start
        if position < 0 or position + size > len(self._window):
            left = self._log.segment_size - offset % self._log.segment_size
            self._start = offset
            self._window = self._log.read(offset, offset + min(max(size, _WINDOW), left))
            position = 0
        return position if position + size <= len(self._window) else -1

    def skip(self, offset: int, passing: Passing) -> int:
        """Let `passing` go on from an offset as far as it can; returns how far."""
        position = self._reach(offset, 8)
        if position < 0:
            return offset
        return self._start + passing(self._window, position, self._start)

    def blank_at(self, offset: int) -> bool:
        """Does the blank that fills a file begin here?"""
        position = self._reach(offset, 8)
        if position < 0:
            return False
        size, magic = peek_size_magic(self._window, position)
        left = self._log.segment_size - offset % self._log.segment_size
        return magic == BLANK_MAGIC and size == left

    def sound_at(self, offset: int) -> bool:
        """Is there a record or a blank?"""
        return self.blank_at(offset) or self.record_at(offset) is not None

    def is_torn(self, record: StoredRecord) -> bool:
        """Did a sector of it never reach the disk?"""
        torn = _torn(record)
        following = record.physical_offset + record.size
        return torn is Torn.SURELY or (torn is Torn.PERHAPS and not self.sound_at(following))

    def record_at(self, offset: int) -> StoredRecord | None:
        """The sound record that begins here."""
        position = self._reach(offset, 8)
        if position < 0:
            return None
        size, _ = peek_size_magic(self._window, position)
        left = self._log.segment_size - offset % self._log.segment_size
        if size <= 0 or size > left:
            return None
        position = self._reach(offset, size)
        if position < 0:
            return None
        view = self._view
        if view.examine(self._window, position, offset, self._check_crc) != SOUND:
            return None
        return view.record()


class Torn(enum.Enum):
    """Is a sector of a record missing?"""

    SURELY = "a whole sector of the properties is zeros"
    PERHAPS = "the properties' end in the last sector is zeros"


def _torn(record: StoredRecord) -> Torn | None:
    """Did a sector of the properties never reach the disk?

    The CRC covers the body only: such a record passes it, with zeros for properties. Where a sector holds other
    parts of the record, too, these would not fit. Nobody sends a sector full of zeros as properties; zeros at the
    end may be meant, and count only when nothing sound follows (`MessageStore` lets no properties end so).
    """
    text = record.properties
    if "\0" not in text:
        return None
    data = text.encode(errors="surrogatepass")
    end = record.physical_offset + record.size
    first = start = end - len(data)
    while start < end:
        stop = min(end, start - start % _SECTOR + _SECTOR)
        # One byte in: of the length before it, the half in this sector may rightly be 0.
        begins = start % _SECTOR == 0 or (start == first and start % _SECTOR == 1)
        if begins and not any(data[start - first : stop - first]):
            return Torn.SURELY if stop % _SECTOR == 0 else Torn.PERHAPS
        start = stop
    return None
