"""From a stored record to what is derived from it: queue unit, index entries."""

from typing import Final

from roquette.base.javatypes import java_hash, whole_number
from roquette.errors import ConfigError
from roquette.message.names import SCHEDULE_TOPIC
from roquette.message.properties import TAGS, property_value
from roquette.message.record_layout import SMALLEST_RECORD, StoredRecord
from roquette.message.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from roquette.store.format.unit import encode_unit
from roquette.store.index.index import Index
from roquette.store.queues.consume_queue import ConsumeQueue
from roquette.store.queues.consume_queues import ConsumeQueues

_ASKS: Final = 1_000_000  # of queues, for the unit of a record that fits nowhere: some seconds
_STRANGE_OFFSETS: Final = 10_000  # places that a queue may have without any record
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> list[int]:
    """Milliseconds of levels 1, 2, 3 ... from "1s 5s 10s" (Apache: ScheduleMessageService).

    Raises:
        ConfigError: it is not that.
    """
    found: list[int] = []
    for word in text.split():
        number, unit = word[:-1], _UNIT_MS.get(word[-1])
        if unit is None or not (number.isascii() and number.isdecimal()) or len(number) > 9:
            raise ConfigError(
                f'messageDelayLevel: "{word}" is no delay; write numbers with s, m, h or d, like "1s 5m 2h"'
            )
        found.append(int(number) * unit)
    if not found:
        raise ConfigError('messageDelayLevel names no level; write delays like "1s 5m 2h"')
    return found


class Reput:
    """Gives records of the log to queues and index, once each, however often they come."""

    def __init__(
        self, queues: ConsumeQueues, index: Index | None, delay_ms: list[int], segment_size: int
    ) -> None:
        """`segment_size`: bytes of a file of the log."""
        self._queues = queues
        self._segment_size = segment_size
        self._index = index
        self._delay_ms = delay_ms
        self.index_from = 0
        self.mends = False  # look at every unit that is there, whole
        self.dispatched = 0
        self.gaps: dict[tuple[str, int], None] = {}
        # Queues whose records stand behind others with the same or a greater offset, and how many did so.
        self.shifted: dict[tuple[str, int], int] = {}
        # By topic and queue, records that begin it anew, or whose place is damaged, which no CRC covers: what follows tells.
        self._firsts: dict[str, dict[int, StoredRecord]] = {}
        self._begun: dict[tuple[str, int], int] = {}  # physical offset of each queue's last one
        self._asks = _ASKS
        self.misplaced: dict[
            int, None
        ] = {}  # physical offsets of records whose queue is another than they say

    def tags_code(self, record: StoredRecord) -> int:
        """The unit's tags code: hash of TAGS, or when a delayed record is due.

        Apache: CommitLog.checkMessageAndReturnSize, MessageExtBrokerInner.tagsString2tagsCode.
        """
        if record.topic == SCHEDULE_TOPIC:
            level = whole_number(property_value(record.properties, "DELAY"), 0x7FFFFFFF)
            if level > 0:
                place = min(level, len(self._delay_ms)) - 1
                return record.store_timestamp_ms + self._delay_ms[place]
        tags = property_value(record.properties, TAGS)
        return java_hash(tags) if tags else 0

    def dispatch(self, record: StoredRecord) -> None:
        """Queue unit and index entries of one record, unless they are there already."""
        kind = record.sys_flag & TRANSACTION_MASK
        if kind not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            self._dispatch_unit(record)
        if kind != TRANSACTION_ROLLBACK:
            self._dispatch_keys(record)

    def rebuild_keys(self, record: StoredRecord) -> None:
        """Only the index entries of one record, to rebuild an index."""
        if record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            self._dispatch_keys(record)

    def rebuild(self, record: StoredRecord, queues: dict[tuple[str, int], None]) -> None:
        """Like `dispatch`, for the units of some queues, which are rebuilt from the log's start; `end_rebuild` ends it."""
        place = (record.topic, record.queue_id)
        if record.sys_flag & TRANSACTION_MASK in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            return
        if record.queue_offset == 0:
            self._begun[place] = record.physical_offset
        elif self._firsts.get(record.topic):
            self._judge_firsts(record)
        if place not in queues:
            return
        queue = self._queue(record)
        if self._is_misplaced(queue, record):
            return
        if self._begins_anew(queue, record):
            self._firsts.setdefault(record.topic, {})[record.queue_id] = record
        else:
            self._rebuild_unit(queue, record)

    def _judge_firsts(self, record: StoredRecord) -> None:
        """Did those that say so begin their queues anew? All queues of a topic that is made again begin at 0: one that goes on,
        over what came between the last unit of such a queue and its new first record, says that it was not. One that lacks a
        message says whose that record was."""
        firsts, offset = self._firsts[record.topic], record.queue_offset
        queue = self._queue(record)
        skips_from = queue.physical_at(queue.next_offset - 1) if offset > queue.next_offset else 0
        begun = self._begun.get((record.topic, record.queue_id), -1)
        for queue_id, first in list(firsts.items()):
            other = self._queue(first)
            if queue_id == record.queue_id:
                goes_on = offset >= max(2, queue.next_offset)
            else:
                goes_on = begun < other.physical_at(other.next_offset - 1)
                goes_on = goes_on or 0 < skips_from < first.physical_offset
                if not goes_on:
                    continue
            del firsts[queue_id]
            if goes_on:
                self.misplaced[first.physical_offset] = None
            else:
                self._rebuild_unit(self._queues.reset(queue), first)

    def end_rebuild(self) -> None:
        """The log's end has come."""
        for firsts in self._firsts.values():
            for first in firsts.values():
                self._rebuild_unit(self._queues.reset(self._queue(first)), first)
        self._firsts.clear()
        self._begun.clear()

    def _rebuild_unit(self, queue: ConsumeQueue, record: StoredRecord) -> None:
        if queue.file_count == 0:
            self._start(queue, record)
        elif record.queue_offset > queue.next_offset:
            queue.skip_to(record.queue_offset, record.physical_offset, self._segment_size)
        self._append(queue, record)

    def _start(self, queue: ConsumeQueue, record: StoredRecord) -> None:
        """Begin a queue with the first record the log has of it.

        In the log's very first file Apache's broker would pass over the record with the fillers in front of it
        (see `ConsumeQueue.skip_to`): there, its own unit stands in their places.
        """
        if record.queue_offset and record.physical_offset < self._segment_size:
            code = self.tags_code(record)
            unit = encode_unit(record.physical_offset, record.size, code)
            queue.start_at(record.queue_offset, unit)
        else:
            queue.start_at(record.queue_offset)

    def _is_misplaced(self, queue: ConsumeQueue, record: StoredRecord) -> bool:
        """Is the header damaged that says where a record belongs? No CRC covers it.

        Asked of records that do not follow their queue's last one: another queue has a unit for such a one. Not asked
        without end: a power cut may have torn thousands of queues.
        """
        offset, place = record.queue_offset, (record.topic, record.queue_id)
        if offset > record.physical_offset // SMALLEST_RECORD + _STRANGE_OFFSETS:
            self.misplaced[record.physical_offset] = None  # so many records are not in front of it
            return True
        if offset == queue.next_offset or (
            0 < offset < queue.next_offset and place in self.shifted
        ):
            return False
        if record.physical_offset not in self.misplaced:
            others = self._queues.all() if queue.file_count and self._asks > 0 else []
            self._asks -= len(others)
            if not any(_holds(other, record) for other in others if other is not queue):
                return False
            self.misplaced[record.physical_offset] = None
        return True

    def _dispatch_unit(self, record: StoredRecord) -> None:
        if (record.topic, record.queue_id) in self.gaps:
            return
        queue = self._queue(record)
        offset = record.queue_offset
        if record.physical_offset < queue.end_physical():
            known = queue.physical_at(offset)
            if known == record.physical_offset:
                whole = queue.points_to(offset, known, record.size)
                if self.mends or not whole or queue.may_be_torn(offset):
                    self._mend(queue, record)
                return
            if _holds(queue, record) or self._is_misplaced(queue, record):
                return
            # A crash has lost a file of the queue, or the topic was deleted and made again since.
            self.gaps[(record.topic, record.queue_id)] = None
            return
        if self._is_misplaced(queue, record):
            return
        if 0 < offset < queue.next_offset and queue.file_count:
            # A damaged unit, or Apache's broker gave the offset twice.
            self.gaps[(record.topic, record.queue_id)] = None
            return
        if (
            self._begins_anew(queue, record)  # as it says: what follows it may deny it
            or offset > queue.next_offset
            or (queue.file_count == 0 and offset > 0)
        ):
            self.gaps[(record.topic, record.queue_id)] = None
            return
        self._append(queue, record)

    def _begins_anew(self, queue: ConsumeQueue, record: StoredRecord) -> bool:
        """Was the topic deleted and made again before this record came?

        A queue begins at 0 then. Another offset that is not the next one was given twice: Apache's broker does
        so after it has left a record undispatched (CommitLog.recoverNormally passes over the first one that the
        queues do not have). Its messages stay where they are, one behind the other.
        """
        if record.queue_offset >= queue.next_offset or not queue.file_count:
            return False
        if record.queue_offset == 0:
            return True
        place = (record.topic, record.queue_id)
        self.shifted[place] = self.shifted.get(place, 0) + 1
        return False

    def _mend(self, queue: ConsumeQueue, record: StoredRecord) -> None:
        code = self.tags_code(record)
        if queue.mend(record.queue_offset, record.physical_offset, record.size, code):
            self._queues.mark_dirty(queue)
            self.dispatched += 1

    def _queue(self, record: StoredRecord) -> ConsumeQueue:
        found = self._queues.find(record.topic, record.queue_id)
        return found or self._queues.create(record.topic, record.queue_id)

    def _append(self, queue: ConsumeQueue, record: StoredRecord) -> None:
        queue.reserve()
        queue.append(record.physical_offset, record.size, self.tags_code(record))
        self._queues.mark_dirty(queue)
        self.dispatched += 1

    def _dispatch_keys(self, record: StoredRecord) -> None:
        index = self._index
        if index is None or record.physical_offset < self.index_from:
            return
        hashes = self._queues.topic(record.topic).keys.hashes_of(record.properties)
        index.put_message(hashes, record.physical_offset, record.store_timestamp_ms)


def _holds(queue: ConsumeQueue, record: StoredRecord) -> bool:
    """Does any unit of the queue point to the record? Places only grow."""
    low, high = queue.first_base, queue.next_offset
    while low < high:
        middle = (low + high) // 2
        if queue.physical_at(middle) < record.physical_offset:
            low = middle + 1
        else:
            high = middle
    return queue.physical_at(low) == record.physical_offset
