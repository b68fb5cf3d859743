"""Messages the broker has put again on its own account, found in the log after a crash.

A delayed message is delivered as a copy. The copy's prepared offset, which only transactions use otherwise,
says where its original stands: -1 less the original's physical offset, a number no transaction has. So the
log itself knows what was delivered: progress files may lag behind it, and yet nothing is delivered twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from roquette.errors import CorruptRecord
from roquette.message.record import decode_record
from roquette.message.record_view import RecordView
from roquette.store.format.log_reader import END, RECORD
from roquette.store.message_store import MessageStore


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
    for reader in store.log_readers(start):
        while (found := reader.advance()) != END:
            if found == RECORD and (copy := _copy_of(store, reader)) is not None:
                yield copy


def _copy_of(store: MessageStore, view: RecordView) -> Copy | None:
    prepared = view.prepared_offset()
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
