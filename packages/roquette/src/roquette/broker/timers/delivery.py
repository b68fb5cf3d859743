"""Messages with an arbitrary time of delivery: from their queue into the wheel, and out of it when due. HOT.

Pure but for the store: work is planned, its records are read (by the driver, in the executor when they are
old), and applied. Everything a piece of work changes, it changes in one call, so that progress and log agree
whenever the driver lets others run. Apache: TimerMessageStore's enqueue and dequeue services.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from roquette.base.javatypes import java_hash, whole_number
from roquette.broker.floor.writer import MessageWriter, fitting
from roquette.broker.timers.timer_metrics import TimerMetrics
from roquette.errors import CorruptRecord
from roquette.message import names, properties
from roquette.message.names import topic_error
from roquette.message.properties import UNIQ_KEY, decode_properties, property_value
from roquette.message.record import decode_record
from roquette.message.record_layout import MAX_PROPERTIES, StoredRecord
from roquette.store.format.unit import FILLER_FROM
from roquette.store.message_store import MessageStore
from roquette.store.queue_read import ReadRequest
from roquette.store.timer.timer_log import CurrentSlot, DueSlot, TimerUnit
from roquette.store.timer_store import TimerStore

log = logging.getLogger("roquette.broker.timer")

ENQUEUE_BATCH: Final = 256  # messages of one piece of work: the loop is held for a few ms at most
DELIVER_BATCH: Final = 256
COLD_BATCH: Final = 1024  # where most of the time is waiting for the disk
_JOIN_GAP: Final = 16_384  # bytes between two records that are read along rather than sought over
_JOIN_SIZE: Final = 1 << 20
_NEVER: Final = 2**63 - 1  # Java's Long.MAX_VALUE: such a message was never in the wheel
_MAX_MS: Final = 2**62
_NOT_HERE: Final = names.NOT_ALLOWED_SEND | {names.TIMER_TOPIC}
TASK: Final = "timer"


class TimerWork:
    """Records to read, and what to do with them."""

    __slots__ = ("cold", "kind", "places", "slot", "units")

    def __init__(
        self,
        kind: str,
        places: list[tuple[int, int]],
        units: list[TimerUnit],
        cold: bool,
        slot: DueSlot | CurrentSlot | None = None,
    ) -> None:
        self.kind: str = (
            kind  # enqueue, recalls, deliver (a past slot) or current (that of this moment)
        )
        self.slot: DueSlot | CurrentSlot | None = slot
        self.places: list[tuple[int, int]] = places  # physical offset and size
        self.units: list[TimerUnit] = units
        self.cold: bool = cold  # the disk may have to be asked


class Timers:
    """Drives one timer store.

    Args:
        delivered: told topic and record size of each delivery.
    """

    def __init__(
        self,
        store: MessageStore,
        timer_store: TimerStore,
        writer: MessageWriter,
        now_ms: int,
        delivered: Callable[[str, int], None],
    ) -> None:
        self._store: MessageStore = store
        self.storage: TimerStore = timer_store
        self._writer: MessageWriter = writer
        self.metrics: TimerMetrics = TimerMetrics(now_ms)
        self._delivered: Callable[[str, int], None] = delivered
        self._recalled: set[str] = set()  # keys taken back in the slot being delivered
        self.enqueued: int = 0
        self.dequeued: int = 0
        self.dropped: int = 0  # messages that cannot be delivered, each with a line in the log

    def behind(self) -> int:
        """Messages of the queue that are not in the wheel yet."""
        return self._store.max_offset(names.TIMER_TOPIC, 0) - self.storage.queue_offset

    # Planning

    def enqueue_work(self) -> TimerWork | None:
        """The next messages of the timer queue; None when all are in the wheel."""
        storage = self.storage
        if storage.queue_offset >= self._store.max_offset(names.TIMER_TOPIC, 0):
            return None
        low = self._store.min_offset(names.TIMER_TOPIC, 0)
        if storage.queue_offset < low:
            log.error("timer queue moved from=%d to=%d", storage.queue_offset, low)
            storage.queue_offset = low
        units = self._store.queue_units(names.TIMER_TOPIC, 0, storage.queue_offset, ENQUEUE_BATCH)
        places = [(offset, 0 if size >= FILLER_FROM else size) for offset, size, _ in units or ()]
        return TimerWork("enqueue", places, [], self._any_cold(places)) if places else None

    def delivery_work(self, now_ms: int) -> TimerWork | None:
        """The next messages that are due; None when there are none. May be empty: ask again."""
        storage = self.storage
        if not storage.turn(now_ms):
            return None
        slot = storage.slot
        if slot is None:
            return self._current_work(now_ms)
        units = storage.due(COLD_BATCH)
        if units is None:
            return TimerWork("deliver", [], [], False)
        if slot.recalls:
            return self._recall_work(slot)
        if not units:
            storage.advance(0)
            return TimerWork("deliver", [], [], False)
        places = [(unit.offset, unit.size) for unit in units]
        cold = self._any_cold(places)
        # Records in memory are read in the turn of the loop that applies them: fewer hold it less long.
        if not cold:
            units = units[:DELIVER_BATCH]
            places = places[:DELIVER_BATCH]
        return TimerWork("deliver", places, units, cold, slot)

    def _current_work(self, now_ms: int) -> TimerWork:
        current = self.storage.current
        if current is None:
            return TimerWork("deliver", [], [], False)
        if current.recalls:
            return self._recall_work(current)
        units = self.storage.take(now_ms, DELIVER_BATCH)
        places = [(unit.offset, unit.size) for unit in units]
        return TimerWork("current", places, units, self._any_cold(places), current)

    def _recall_work(self, slot: DueSlot | CurrentSlot) -> TimerWork:
        recalls = slot.recalls[-COLD_BATCH:]
        places = [(unit.offset, unit.size) for unit in recalls]
        return TimerWork("recalls", places, recalls, self._any_cold(places), slot)

    def _any_cold(self, places: list[tuple[int, int]]) -> bool:
        oldest = min([offset for offset, size in places if size > 0], default=-1)
        return oldest >= 0 and self._store.is_cold(oldest)

    # Reading

    def read(self, work: TimerWork) -> list[bytes]:
        """The records, at once; empty bytes for those the log has lost."""
        read_log = self._store.read_log
        return [read_log(offset, offset + size) for offset, size in work.places]

    def plan_read(self, places: list[tuple[int, int]]) -> "ColdRecords":
        """Return what reads old records, with neighbours read together; blocks, for the executor."""
        low = self._store.min_physical_offset
        order = sorted(
            (offset, size, index)
            for index, (offset, size) in enumerate(places)
            if offset >= low and size > 0
        )
        spans: list[tuple[int, int]] = []
        members: list[list[tuple[int, int, int]]] = []
        segment_size = self._store.config.segment_size
        for offset, size, index in order:
            if (
                spans
                and offset - spans[-1][1] <= _JOIN_GAP
                and offset + size - spans[-1][0] <= _JOIN_SIZE
                and offset // segment_size == spans[-1][0] // segment_size
            ):
                spans[-1] = (spans[-1][0], max(spans[-1][1], offset + size))
            else:
                spans.append((offset, offset + size))
                members.append([])
            members[-1].append((offset - spans[-1][0], size, index))
        return ColdRecords(self._store.plan_spans(spans), members, len(places))

    # Applying

    def apply(self, work: TimerWork, records: list[bytes], now_ms: int) -> None:
        """Apply a piece of work.

        Raises:
            RefusedForNow: the store takes nothing at present. What was done before is done.
            OSError: no room for the timer's files.
        """
        if work.kind == "enqueue":
            self._enqueue(work, records, now_ms)
        elif work.kind == "recalls":
            assert work.slot is not None
            self._collect_recalls(work.slot, len(work.units), records)
        elif work.units:
            assert work.slot is not None
            self._deliver(work, records, now_ms)

    def _enqueue(self, work: TimerWork, records: list[bytes], now_ms: int) -> None:
        storage = self.storage
        for index in range(len(records)):
            record = _decode(records[index], work.places[index][0])
            # A unit can be wrong: the record that names this place of the queue is the message.
            if record is None or record.queue_offset != storage.queue_offset:
                record = self._by_place(storage.queue_offset)
            known = record is None or storage.is_delivered(record.queue_offset)
            if record is None and work.places[index][1]:
                self._lose(storage.queue_offset, work.places[index][0], now_ms)
            if not known and record is not None:
                try:
                    taken = self._enqueue_one(record, record.size, now_ms)
                except Exception as error:  # noqa: BLE001 - `SetAside` judges
                    again = partial(self._enqueue_one, record, record.size, now_ms)
                    taken = self._again(record, error, again, now_ms) is not False
                # It waits for deliveries, or for `turn` to see that the clock went back: from here on next time.
                if not taken:
                    return
            storage.queue_offset += 1

    def _by_place(self, queue_offset: int) -> StoredRecord | None:
        """The message at an offset of the timer queue, whatever its unit says."""
        found = self._store.read_queue(ReadRequest(names.TIMER_TOPIC, 0, queue_offset, 1, 1))
        return _decode(found.runs[0], -1) if found.count else None

    def _enqueue_one(self, record: StoredRecord, size: int, now_ms: int) -> bool:
        text = record.properties
        due_ms = whole_number(property_value(text, properties.TIMER_OUT_MS), _MAX_MS)
        topic = property_value(text, properties.REAL_TOPIC)
        if due_ms < 0 or topic is None:
            self._drop(record, "it says no time or no topic", now_ms)
            return True
        if self.storage.is_passed(record.queue_offset, due_ms):
            return True
        recall = property_value(text, properties.TIMER_DEL_UNIQKEY) is not None
        late = self.storage.is_late(due_ms, now_ms)
        if late is None:
            return False
        if late:
            if not recall:
                self._put(record, _NEVER, now_ms)
            return True
        if not self.storage.add(
            due_ms,
            record.physical_offset,
            size,
            java_hash(topic),
            recall=recall,
            now_ms=now_ms,
            exact_ms=_exact_ms(record),
        ):
            return False
        self.enqueued += 1
        if not recall:  # it may take nothing away, or be the second
            self.metrics.add(topic, 1, now_ms)
        return True

    def _collect_recalls(
        self, slot: DueSlot | CurrentSlot, count: int, records: list[bytes]
    ) -> None:
        for data in records:
            record = _decode(data, -1)
            if record is not None:
                key = property_value(record.properties, properties.TIMER_DEL_UNIQKEY)
                topic = property_value(record.properties, properties.REAL_TOPIC)
                if key is not None and key.partition("+")[0] == topic:  # of its own topic alone
                    slot.recalled.add(key)
        del slot.recalls[len(slot.recalls) - count :]

    def _deliver(self, work: TimerWork, records: list[bytes], now_ms: int) -> None:
        units, done, found_end = work.units, 0, self.storage.found_end
        assert work.slot is not None
        self._recalled = work.slot.recalled
        try:
            for index in range(len(units)):
                unit = units[index]
                record = _decode(records[index], unit.offset, True)
                if record is None:
                    self._lose(-1, unit.offset, now_ms)
                elif not self.storage.is_delivered(record.queue_offset):
                    early = unit.position < found_end and _is_early(record, now_ms)
                    try:
                        if unit.rolls or early:
                            self._roll(record, unit.write_ms, now_ms)
                        else:
                            self._deliver_one(record, unit.write_ms, now_ms)
                    except Exception as error:  # noqa: BLE001 - `SetAside` judges
                        again = self._roll if unit.rolls or early else self._deliver_one
                        deliver = partial(again, record, unit.write_ms, now_ms)
                        self._again(record, error, deliver, now_ms)
                done += 1
        finally:
            # After an error too: what was delivered must not be delivered again.
            if work.kind == "current":
                self.storage.settle(done)
            else:
                self.storage.advance(done)

    def _deliver_one(self, record: StoredRecord, write_ms: int, now_ms: int) -> None:
        if self._recalled:
            topic = property_value(record.properties, properties.REAL_TOPIC)
            uniq_key = property_value(record.properties, UNIQ_KEY)
            if f"{topic}+{uniq_key}" in self._recalled:
                self.metrics.add(topic or "", -1, now_ms)
                return
        self._put(record, write_ms, now_ms)
        self.dequeued += 1

    def _put(self, record: StoredRecord, write_ms: int, now_ms: int) -> None:
        """Deliver one message to its real topic (TimerMessageStore.convert, doPut)."""
        text = record.properties
        topic = property_value(text, properties.REAL_TOPIC)
        queue = property_value(text, properties.REAL_QID)
        queue_id = whole_number(queue, 0x7FFFFFFF)
        if topic is None or queue_id < 0 or topic in _NOT_HERE or topic_error(topic) is not None:
            words = f"its real topic is {topic}/{'' if queue is None else queue[:20]}"
            self._drop(record, words, now_ms)
            return
        # It has rolled, or its last property is not closed.
        if f"\x02{properties.TIMER_DEQUEUE_MS}\x01" in text or not text.endswith("\x02"):
            named = decode_properties(text)
            named[properties.TIMER_ENQUEUE_MS] = str(write_ms)
            named[properties.TIMER_DEQUEUE_MS] = str(now_ms)
            full = fitting(named)
        else:
            full = (
                f"{text}{properties.TIMER_ENQUEUE_MS}\x01{write_ms}\x02"
                f"{properties.TIMER_DEQUEUE_MS}\x01{now_ms}\x02"
            )
        self._append(topic, queue_id, full, record, now_ms)
        if write_ms != _NEVER:
            self.metrics.add(topic, -1, now_ms)

    def _roll(self, record: StoredRecord, write_ms: int, now_ms: int) -> None:
        """Put a message that is not due yet into the timer queue again."""
        named = decode_properties(record.properties)
        times = whole_number(named.get(properties.TIMER_ROLL_TIMES), 0x7FFFFFFE)
        named[properties.TIMER_ROLL_TIMES] = str(max(times, 0) + 1)
        named[properties.TIMER_ENQUEUE_MS] = str(write_ms)
        named[properties.TIMER_DEQUEUE_MS] = str(now_ms)
        self._append(names.TIMER_TOPIC, 0, fitting(named), record, now_ms)
        if properties.TIMER_DEL_UNIQKEY not in named:
            self.metrics.add(named.get(properties.REAL_TOPIC, ""), -1, now_ms)

    def _append(
        self, topic: str, queue_id: int, full: str, record: StoredRecord, now_ms: int
    ) -> None:
        if len(full) > MAX_PROPERTIES // 4 and len(full.encode()) > MAX_PROPERTIES:
            full = record.properties  # no room for the two times: delivered without them
        done = self._writer.put_copy(topic, queue_id, full, record, now_ms)
        self._delivered(topic, done.size)

    def _again(
        self, record: StoredRecord, error: Exception, work: Callable[[], bool | None], now_ms: int
    ) -> bool | None:
        return self._writer.aside.again(TASK, record, error, work, now_ms)

    def _lose(self, queue_offset: int, offset: int, now_ms: int) -> None:
        """A message is damaged: it is not delivered, with its wrong body or without."""
        self.dropped += 1
        reason = "its record is damaged, or gone with its file of the log"
        self._writer.aside.put_place(
            TASK, names.TIMER_TOPIC, 0, queue_offset, offset, reason, now_ms
        )

    def _drop(self, record: StoredRecord, why: str, now_ms: int) -> None:
        self.dropped += 1
        self._writer.aside.put(TASK, record, why, now_ms)


class ColdRecords:
    """Reads neighbouring records in spans, and cuts them apart."""

    __slots__ = ("_count", "_members", "_read")

    def __init__(
        self,
        read: Callable[[], list[bytes]],
        members: list[list[tuple[int, int, int]]],
        count: int,
    ) -> None:
        self._read: Callable[[], list[bytes]] = read
        self._members: list[list[tuple[int, int, int]]] = members
        self._count: int = count

    def run(self) -> list[bytes]:
        """Block until the records are here, in the order they were asked for."""
        found = [b""] * self._count
        for data, inside in zip(self._read(), self._members, strict=False):
            for start, size, index in inside:
                found[index] = data[start : start + size]
        return found


def _decode(data: bytes, offset: int, check_crc: bool = False) -> StoredRecord | None:
    """The record; None when the log has lost it. `offset`: where it must be, -1: anywhere."""
    if len(data) < 92:
        return None
    try:
        record = decode_record(data, 0, check_crc)
    except CorruptRecord:
        return None
    return record if offset in (-1, record.physical_offset) else None


def _is_early(record: StoredRecord, now_ms: int) -> bool:
    """Is a unit of the timer log wrong about when its message is due? What the message says counts."""
    out = property_value(record.properties, properties.TIMER_OUT_MS)
    if out is None or not out.isdecimal() or len(out) > 15:
        return False
    exact_ms = _exact_ms(record)
    return now_ms < (exact_ms if 0 <= exact_ms - int(out) <= 1000 else int(out))


def _exact_ms(record: StoredRecord) -> int:
    """The time of delivery a message asked for; 0 if its properties no longer say (TimerRules.slot_of)."""
    text = record.properties
    delay = property_value(text, properties.TIMER_DELAY_SEC)
    unit = 1000
    if delay is None:
        delay, unit = property_value(text, properties.TIMER_DELAY_MS), 1
    if delay is None:
        wanted = property_value(text, properties.TIMER_DELIVER_MS)
        return int(wanted) if wanted is not None and wanted.isdecimal() and len(wanted) < 16 else 0
    if property_value(text, properties.TIMER_ROLL_TIMES) is not None:
        return 0  # the time it was sent at is not the record's store time
    return (
        record.store_timestamp_ms + int(delay) * unit
        if delay.isdecimal() and len(delay) < 16
        else 0
    )
