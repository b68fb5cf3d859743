"""Delay levels: messages wait in SCHEDULE_TOPIC_XXXX, one queue per level, and are put again when due.

Pure but for the store: `step` gets the time, `DelayFeature` calls it every 100 ms.
Apache: ScheduleMessageService.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from roquette.base.javatypes import whole_number
from roquette.broker.floor.clock import StoredTimes
from roquette.broker.floor.config_files import DelayProgress
from roquette.broker.floor.set_aside import sound_records
from roquette.broker.floor.writer import MessageWriter, fitting
from roquette.message import names, properties
from roquette.message.names import topic_error
from roquette.message.properties import decode_properties
from roquette.message.record_layout import StoredRecord
from roquette.store.cut import Copy
from roquette.store.message_store import MessageStore
from roquette.store.queue_read import ReadRequest
from roquette.wire.bodies import DataVersion, DelayOffsetSerializeWrapper

log = logging.getLogger("roquette.broker.delay")

TASK = "delay-levels"
_READ_COUNT = 32  # records read at once
_READ_BYTES = 262_144
_STEP_BUDGET = 256  # messages delivered per level and step, so that the loop is never held for long


class DelayLevels:
    """Moves due messages from the level queues to where they belong.

    Progress is the queue offset of the next message per level, kept in delayOffset.json. What was delivered
    after the file was written is recognised by the copies in the log (`copies`), so a crash doubles nothing.
    """

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        level_ms: Sequence[int],
        times: StoredTimes,
        now_ms: int,
        delivered: Callable[[str, int], None],
    ) -> None:
        self._store = store
        self._writer = writer
        self._level_ms = level_ms
        self._times = times
        self._delivered = delivered  # told topic and record size of each delivery
        self._offsets: dict[int, int] = {}
        self._wake_ms: dict[int, int] = {}  # level -> when its first message is due, steady time
        self.data_version = DataVersion(counter=0, state_version=0, timestamp=now_ms)
        self.dirty = False
        self.scan_from = -1  # physical offset of the first copy the file may not know of; -1: none
        self._captured: DelayProgress | None = None

    def load(
        self, offsets: Mapping[int, int], version: DataVersion | None, log_offset: int = -1
    ) -> None:
        """Take over what a file held, corrected to what the queues hold (correctDelayOffset)."""
        for level, offset in offsets.items():
            if 1 <= level <= len(self._level_ms):
                low = self._store.min_offset(names.SCHEDULE_TOPIC, level - 1)
                high = self._store.max_offset(names.SCHEDULE_TOPIC, level - 1)
                fixed = min(max(offset, low), high)
                if fixed != offset:
                    log.warning(
                        "delay offset corrected level=%d from=%d to=%d", level, offset, fixed
                    )
                self._offsets[level] = fixed
        if version is not None:
            self.data_version = version
        self.scan_from = log_offset

    def load_nothing(self) -> None:
        """There is no file: a crash came before the first one, or nothing was ever delayed."""
        queues = range(len(self._level_ms))
        if any(self._store.max_offset(names.SCHEDULE_TOPIC, queue) for queue in queues):
            self.scan_from = 0

    def note_copy(self, copy: Copy) -> None:
        """The log holds a copy of a level's message: that one and those before it are delivered."""
        level = copy.queue_id + 1
        if copy.topic == names.SCHEDULE_TOPIC and copy.queue_offset >= self._offsets.get(level, 0):
            self._offsets[level] = copy.queue_offset + 1
            self.dirty = True

    def progress(self) -> dict[int, tuple[int, int]]:
        """Level -> (offset of the next message, end of the queue), for levels ever used."""
        return {
            level: (
                self._offsets.get(level, 0),
                self._store.max_offset(names.SCHEDULE_TOPIC, level - 1),
            )
            for level in range(1, len(self._level_ms) + 1)
            if level in self._offsets or self._store.max_offset(names.SCHEDULE_TOPIC, level - 1) > 0
        }

    def capture(self, log_offset: int) -> None:
        """Take the picture that is written next: of now, when the log ends at `log_offset`."""
        self._captured = self.picture(log_offset)
        self.dirty = False

    def picture(self, log_offset: int) -> DelayProgress:
        """The progress of now, when the log ends at `log_offset`."""
        return DelayProgress(
            offset_table=dict(self._offsets),
            data_version=self.data_version,
            log_offset=log_offset,
        )

    def to_wrapper(self) -> DelayOffsetSerializeWrapper:
        """The content of delayOffset.json: the last picture taken."""
        return self._captured or DelayProgress(
            offset_table=dict(self._offsets), data_version=self.data_version
        )

    def step(self, now_ms: int, steady_ms: int) -> bool:
        """Deliver what is due by steady time; True when more is due than one step may do.

        Raises:
            RefusedForNow: the store takes nothing at present. Progress is kept up to the last delivered one.
        """
        more = False
        for level in range(1, len(self._level_ms) + 1):
            if level not in self._wake_ms or steady_ms >= self._wake_ms[level]:
                more = self._step_level(level, now_ms, steady_ms) or more
        return more

    def _step_level(self, level: int, now_ms: int, steady_ms: int) -> bool:
        queue_id = level - 1
        offset = self._offsets.get(level, 0)
        if offset >= self._store.max_offset(names.SCHEDULE_TOPIC, queue_id):
            return False
        budget = _STEP_BUDGET
        while budget > 0:
            found = self._store.read_queue(
                ReadRequest(names.SCHEDULE_TOPIC, queue_id, offset, _READ_COUNT, _READ_BYTES)
            )
            if not found.count:
                moved = found.next_begin_offset
                if moved != offset:
                    log.warning("delay queue moved level=%d from=%d to=%d", level, offset, moved)
                    self._advance(level, moved, now_ms)
                return False
            for record in sound_records(self._store, names.SCHEDULE_TOPIC, queue_id, offset, found):
                self._note_gap(queue_id, offset, record.queue_offset, now_ms)
                due_ms = self._due_ms(record, level, steady_ms)
                if due_ms > steady_ms:
                    self._wake_ms[level] = due_ms
                    return False
                try:
                    self._deliver(record, now_ms)
                except Exception as error:  # noqa: BLE001 - `SetAside` judges
                    again = partial(self._deliver, record, now_ms)
                    self._writer.aside.again(TASK, record, error, again, now_ms)
                offset = record.queue_offset + 1
                self._advance(level, offset, now_ms)
                budget -= 1
            if offset < found.next_begin_offset:  # the last ones were damaged
                self._note_gap(queue_id, offset, found.next_begin_offset, now_ms)
                offset = found.next_begin_offset
                self._advance(level, offset, now_ms)
        return True

    def _note_gap(self, queue_id: int, offset: int, end: int, now_ms: int) -> None:
        """Messages of the queue that cannot be read are an entry for the operator, those in a row one."""
        if offset < end:
            words = f"{end - offset} message(s) from here on damaged or missing: see `roquette store fsck`"
            place = (names.SCHEDULE_TOPIC, queue_id, offset, -1)
            self._writer.aside.put_place(TASK, *place, words, now_ms)

    def _due_ms(self, record: StoredRecord, level: int, steady_ms: int) -> int:
        """The delivery time: its level's delay after it was stored, whatever was done to the clock since."""
        stored_ms, place = record.store_timestamp_ms, record.physical_offset
        return self._times.moment(stored_ms, place, steady_ms) + self._level_ms[level - 1]

    def _advance(self, level: int, offset: int, now_ms: int) -> None:
        self._offsets[level] = offset
        if not self.dirty:
            self.dirty = True
            self.data_version = self.data_version.next(now_ms)

    def _deliver(self, record: StoredRecord, now_ms: int) -> None:
        """Put one message to its real topic (ScheduleMessageService.messageTimeUp)."""
        named = decode_properties(record.properties)
        topic = named.get(properties.REAL_TOPIC)
        queue_id = whole_number(named.get(properties.REAL_QID), 0x7FFFFFFF)
        if (
            topic is None
            or queue_id < 0
            or topic in names.NOT_ALLOWED_SEND
            or topic_error(topic) is not None
        ):
            words = f"its real topic is {topic}/{named.get(properties.REAL_QID, '')[:20]}"
            self._writer.aside.put(TASK, record, words, now_ms)
            return
        for name in (properties.DELAY, properties.TIMER_DELIVER_MS, properties.TIMER_DELAY_SEC):
            named.pop(name, None)
        named[properties.WAIT] = "false"
        done = self._writer.put_copy(topic, queue_id, fitting(named), record, now_ms)
        self._delivered(topic, done.size)
