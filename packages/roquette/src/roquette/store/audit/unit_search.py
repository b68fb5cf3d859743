"""The record of a queue whose unit is damaged, found by going through the log where it must be. HOT."""

from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from roquette.message.record_layout import (
    BLANK_MAGIC,
    PLACE_END,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
)
from roquette.message.record_view import RecordView, is_of_queue
from roquette.store.log.reading import LogSource

WARM_BYTES: Final = 8 << 20  # gone through on the loop for one unit
COLD_BYTES: Final = 256 << 20  # and in the executor
_WINDOW: Final = 1 << 18


class UnitSearch:
    """Searches for records of one queue, within so many bytes of the log in all."""

    __slots__ = ("_budget", "_queue_id", "_segment_size", "_source", "_topic", "_view", "found_at")

    def __init__(self, source: LogSource, topic: bytes, queue_id: int, budget: i64) -> None:
        self._source: LogSource = source
        self._view: RecordView = RecordView()
        self._topic: bytes = topic
        self._queue_id: int = queue_id
        self._segment_size: i64 = source.segment_size
        self._budget: i64 = budget
        self.found_at: i64 = -1  # of the record last found

    def between(self, low: i64, high: i64, place: i64) -> bytes:
        """The record with a queue offset from a record boundary on, before `high`; empty when there is none."""
        offset: i64 = low
        window = b""
        base: i64 = 0
        while offset < high and self._budget > 0:
            at: i64 = offset - base
            if at + PLACE_END > len(window) or not window:
                base, at = offset, 0
                left: i64 = self._segment_size - offset % self._segment_size
                window = self._source.read(offset, offset + (left if left < _WINDOW else _WINDOW))
                if len(window) < 8:
                    return b""
            length: int = read_i32_be(window, at)
            size: i64 = length
            magic: int = read_i32_be(window, at + 4)
            if magic == BLANK_MAGIC:
                size = self._segment_size - offset % self._segment_size
            elif magic not in (RECORD_MAGIC_V1, RECORD_MAGIC_V2) or size < PLACE_END:
                return b""
            elif (
                at + PLACE_END <= len(window)
                and read_i32_be(window, at + QUEUE_ID_AT) == self._queue_id
                and read_i64_be(window, at + QUEUE_OFFSET_AT) == place
            ):
                record = self._source.read(offset, offset + size)
                if is_of_queue(self._view, record, size, offset, self._topic, self._queue_id):
                    self.found_at = offset
                    return record
            offset += size
            self._budget -= size
        return b""

    def before(self, high: i64, min_physical: i64, place: i64) -> bytes:
        """The same where no boundary is known: file after file of the log, from that of `high` back."""
        start: i64 = high - high % self._segment_size
        while start + self._segment_size > min_physical and self._budget > 0 and start >= 0:
            record = self.between(max(start, min_physical), high, place)
            if record:
                return record
            start -= self._segment_size
        return b""
