"""Messages the broker has put again on its own account, found in the log after a crash.

A delayed message is delivered as a copy. The copy's prepared offset, which only transactions use otherwise,
says where its original stands: -1 less the original's physical offset, a number no transaction has. So the
log itself knows what was delivered: progress files may lag behind it, and yet nothing is delivered twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from librt.strings import read_i32_be, read_i64_be

from roquette.errors import CorruptRecord
from roquette.message.record import decode_record
from roquette.message.record_layout import BLANK_MAGIC, HEAD_SIZE
from roquette.message.record_view import SOUND, RecordView
from roquette.store.message_store import MessageStore

_WINDOW: Final = 1 << 20


def copy_mark(physical_offset: int) -> int:
    """The prepared offset of a copy of the record at a physical offset."""
    return -1 - physical_offset


@dataclass(slots=True, frozen=True)
class Copy:
    """One copy: which message of which queue it delivers, and when it was stored."""

    topic: str
    queue_id: int
    queue_offset: int
    store_ms: int


def scan_delivery_marks(store: MessageStore, start: int) -> Iterator[Copy]:
    """Every copy whose original the log still has, from a record boundary on. Blocks."""
    offset = max(start, store.min_physical_offset)
    end = store.max_physical_offset
    segment_size = store.config.segment_size
    window, base = b"", 0
    while offset < end:
        position = offset - base
        if position < 0 or position + HEAD_SIZE > len(window):
            base, position = offset, 0
            left = segment_size - offset % segment_size
            window = store.read_log(offset, offset + min(_WINDOW, left))
        if len(window) - position < 8:
            return
        size = read_i32_be(window, position)
        if read_i32_be(window, position + 4) == BLANK_MAGIC:
            offset += segment_size - offset % segment_size
            continue
        if size <= 0:
            return
        if len(window) - position >= HEAD_SIZE or position + size <= len(window):
            copy = _copy_at(store, window, position)
            if copy is not None:
                yield copy
        offset += size


def _copy_at(store: MessageStore, window: bytes, position: int) -> Copy | None:
    view = RecordView()
    if view.find_head(window, position) != SOUND:
        return None
    prepared = read_i64_be(window, view.after_hosts + 4)
    if prepared >= 0:
        return None
    data = store.record_at(-1 - prepared)
    if data is None:
        return None
    try:
        original = decode_record(data, 0, False)
    except CorruptRecord:
        return None
    return Copy(original.topic, original.queue_id, original.queue_offset, view.store_ms)


class DeliveredBitmap:
    """Which messages of one queue are delivered: a bit each."""

    __slots__ = ("_base", "_bits", "count", "last_ms")

    def __init__(self, first: int, end: int) -> None:
        """For queue offsets from `first` to before `end`."""
        self._base = first
        self._bits = bytearray((max(0, end - first) + 7) // 8)
        self.count = 0
        self.last_ms = 0  # store time of the latest copy

    def add(self, queue_offset: int, store_ms: int) -> None:
        """One is. Offsets outside the range are of no interest."""
        place = queue_offset - self._base
        if 0 <= place < 8 * len(self._bits):
            self._bits[place >> 3] |= 1 << (place & 7)
            self.count += 1
            self.last_ms = max(self.last_ms, store_ms)

    def __contains__(self, queue_offset: int) -> bool:
        place = queue_offset - self._base
        return 0 <= place < 8 * len(self._bits) and bool(self._bits[place >> 3] >> (place & 7) & 1)
