"""The timer's storage: wheel, log and checkpoint together, how they are recovered and how they reach the disk.

All of it is derived from the commit log. A flush brings, in this order, the commit log, the timer log, the
wheel and the checkpoint to the disk; so whatever a crash leaves behind, the checkpoint never speaks of what
the other files lack. What happened after it is found in the commit log: messages to put into the wheel in the
timer queue, deliveries by the copies they left (`copies`). Apache: TimerMessageStore.
"""

import logging
from collections.abc import Callable
from typing import Final

from roquette.base.files import Files
from roquette.message.names import TIMER_TOPIC
from roquette.store.delivery_marks import Copy, DeliveredBitmap
from roquette.store.format.config import StoreConfig
from roquette.store.format.timer_checkpoint import TimerCheckpoint
from roquette.store.timer.timer_due import CurrentSlot, DueSlot
from roquette.store.timer.timer_flush import TimerFlushPlan
from roquette.store.timer.timer_log import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    UNIT_SIZE,
    TimerLog,
    TimerUnit,
)
from roquette.store.timer.timer_wheel import BLANK_SLOTS, SLOTS_TOTAL, TimerWheel
from roquette.store.timer_recovery import TimedLog, TimerRecovery

log = logging.getLogger("roquette.store.timer")

_PRECISIONS: Final = (1000, 500, 200, 100)
_SKIP_SLOTS: Final = 100_000  # empty slots passed over in one step
_WALK_UNITS: Final = 20_000  # units of a slot's first walk in one step
_CURRENT_UNITS: Final = 100_000  # a slot with more is delivered when it is over, in blocks
_CURRENT_SLOTS: Final = 8  # begun at once: more than one only when the clock goes back
_IDLE_SAVE_MS: Final = 10_000  # a checkpoint is renewed so often when only time has passed


def timer_precision(wanted_ms: int) -> int:
    """The precision that a setting stands for (MessageStoreConfig.setTimerPrecisionMs)."""
    return next((one for one in _PRECISIONS if one <= wanted_ms), _PRECISIONS[-1])


class TimerStore:
    """Messages by the slot in which they are due. Synchronous, one writer; time is an argument.

    Attributes:
        read_ms: the next slot to deliver; all before it are empty.
        queue_offset: the next message of the timer queue to put into the wheel.
        commit_from: from here on the commit log may have copies that the files do not know of.
    """

    def __init__(
        self,
        files: Files,
        store: TimedLog,
        config: StoreConfig,
        slots_total: int = SLOTS_TOTAL,
    ) -> None:
        self._files = files
        self._store: TimedLog = store
        self._layout = store.layout
        self._slots_total = slots_total
        self._wanted_ms = timer_precision(config.timer_precision_ms)
        self.wheel = TimerWheel(self._wanted_ms, slots_total)
        self.log = TimerLog(files, self._layout.timer_log, config.timer_log_file_size)
        self._roll_slots = _roll_slots(config, self.wheel.precision_ms, slots_total)
        self.read_ms = 0
        self.queue_offset = 0
        self.commit_from = 0
        self._delivered: DeliveredBitmap | None = None  # while there is something left to recognise
        self._recovered_end = 0  # of the timer queue, at recovery
        self._passed_ms = 0  # see `is_passed`
        self._passed_offset = 0
        self.found_end = 0  # units of the timer log before it were found at start
        self._due: DueSlot | None = None
        self._current: dict[int, CurrentSlot] = {}
        self._block: list[TimerUnit] = []
        self._taken = 0  # units of the block that are dealt with
        self._flush: TimerFlushPlan | None = None  # under way
        self._saved = TimerCheckpoint()

    @property
    def precision_ms(self) -> int:
        """Width of a slot."""
        return self.wheel.precision_ms

    def number(self, time_ms: int) -> int:
        """Messages that wait in a slot."""
        return self.wheel.number(time_ms)

    def floor(self, time_ms: int) -> int:
        """The slot a time falls into."""
        return self.wheel.floor(time_ms)

    # Recovery

    def recover(self, now_ms: int) -> None:
        """Load what the disk has, cut back to what the checkpoint vouches for. Blocks.

        The caller then gives every copy from `commit_from` on to `note_copy`.
        """
        found = TimerRecovery(
            self._files, self._store, self.log, self._wanted_ms, self._slots_total
        )
        first = self._store.min_offset(TIMER_TOPIC, 0)
        end = self._store.max_offset(TIMER_TOPIC, 0)
        found.run(now_ms, first, end)
        self.wheel = found.wheel
        self.read_ms = found.read_ms
        self.queue_offset = found.queue_offset
        self.commit_from = found.commit_from
        self._passed_ms, self._passed_offset = found.passed_ms, found.passed_offset
        self._saved = found.saved
        self._recovered_end = end
        self.found_end = self.log.end
        if self.commit_from < self._store.max_physical_offset:
            self._delivered = DeliveredBitmap(first, end)
        log.info(
            "timer recovered read_ms=%d queue_offset=%d of %d pending=%d copies_from=%d",
            *(self.read_ms, self.queue_offset, end, self.wheel.pending, self.commit_from),
        )

    def note_copy(self, copy: Copy) -> None:
        """The commit log holds a copy: its original is delivered."""
        if self._delivered is not None and copy.topic == TIMER_TOPIC and copy.queue_id == 0:
            self._delivered.add(copy.queue_offset, copy.store_ms)

    def is_delivered(self, queue_offset: int) -> bool:
        """Does the log hold a delivery of this message that the files did not know of?"""
        return self._delivered is not None and queue_offset in self._delivered

    # Into the wheel

    def is_passed(self, queue_offset: int, due_ms: int) -> bool:
        """Has an Apache master delivered this message, whose checkpoint we took over without its wheel?"""
        return queue_offset < self._passed_offset and self.floor(due_ms) < self._passed_ms

    def is_late(self, due_ms: int, now_ms: int) -> bool | None:
        """Has a message's slot been delivered, or is it being delivered?

        None: it has, but by a clock that has gone back since; `turn` must take note first.
        """
        slot_ms = self.floor(due_ms)
        if slot_ms > self.read_ms or (slot_ms == self.read_ms and self._due is None):
            return False  # what comes into the slot of this moment is delivered with it
        return True if slot_ms < self.floor(now_ms) else None

    def add(
        self,
        due_ms: int,
        offset: int,
        size: int,
        topic_hash: int,
        *,
        recall: bool,
        now_ms: int,
        exact_ms: int = 0,
    ) -> bool:
        """Put a message that is not late into the wheel; False when that has to wait for deliveries.

        A message beyond the roll window goes to a slot on the way (TimerMessageStore.doEnqueue).
        `exact_ms`: the time it asked for; 0 delivers it when the slot is over.

        Raises:
            OSError: no room for another file of the timer log; nothing has changed.
        """
        now_slot = self.floor(now_ms)
        slot_ms, magic = self.floor(due_ms), MAGIC_DEFAULT
        window = self._roll_slots * self.precision_ms
        ahead = slot_ms - now_slot
        if ahead >= window:
            magic |= MAGIC_ROLL
            half = self._roll_slots // 2 * self.precision_ms
            slot_ms = now_slot + (half if ahead - window < window // 3 else window)
        if slot_ms >= self.read_ms + self.wheel.span_ms - BLANK_SLOTS * self.precision_ms:
            return False
        while not self.wheel.free(slot_ms):  # a clock that went back has left others there
            slot_ms -= self.precision_ms
            magic |= MAGIC_ROLL
            if slot_ms <= self.read_ms:
                return False
        if recall:
            magic |= MAGIC_DELETE
        found = self.wheel.find(slot_ms)
        prev, number = (-1, 0) if found is None else (found[1], found[2])
        position = self.log.append(
            prev, magic, now_slot, slot_ms, offset, size, topic_hash, exact_ms
        )
        number += -1 if recall else 1
        self.wheel.put(slot_ms, position if found is None else found[0], position, number)
        return True

    # Out of the wheel

    def turn(self, now_ms: int) -> bool:
        """Come to the next slot that is due, in bounded steps; True when `due` has or may soon have units."""
        now_slot = self.floor(now_ms)
        if self._due is not None:
            if self._due.slot_ms < now_slot:
                return True
            self._due = None  # the clock went back: the rest of the slot is due again later
            self._block = []
            self._taken = 0
        if now_slot < self.read_ms:
            self.read_ms = now_slot  # the clock went back; the slots between are empty
            return False
        if now_slot - self.read_ms > self.wheel.span_ms:
            self._sweep(now_slot)
        budget = _SKIP_SLOTS
        while self.read_ms < now_slot and budget > 0:
            if self.current is not None:
                self._walk_current(now_ms)
                return True
            found = self.wheel.find(self.read_ms)
            if found is not None:
                self._due = DueSlot(self.log, self.read_ms, found[0], found[1])
                return True
            self.read_ms += self.precision_ms
            budget -= 1
        return self._walk_current(now_ms) if self.read_ms == now_slot else True

    @property
    def current(self) -> CurrentSlot | None:
        """The slot whose units are given out by the millisecond."""
        return self._current.get(self.read_ms) if self._current else None

    def _walk_current(self, now_ms: int) -> bool:
        """Take in what the slot at `read_ms` holds; True when something of it is due, or may be."""
        found = self.wheel.find(self.read_ms)
        current = self.current
        if found is None:
            return current is not None
        if current is None:
            if found[2] > _CURRENT_UNITS or len(self._current) >= _CURRENT_SLOTS:
                return False
            if self.queue_offset < self._store.max_offset(TIMER_TOPIC, 0):
                return False  # a recall may be among what is not in the wheel yet
            start = self._store.max_physical_offset
            current = CurrentSlot(self.log, self.read_ms, found[0], start)
            self._current[self.read_ms] = current
        if not current.walk(found[1], self.read_ms + self.precision_ms, _WALK_UNITS):
            return True
        return bool(current.recalls) or 0 < current.next_ms <= now_ms

    def next_ms(self) -> int:
        """When the next message known to be due comes; 0: not known."""
        current = self.current
        return current.next_ms if current is not None else 0

    def take(self, now_ms: int, limit: int) -> list[TimerUnit]:
        """Units of the current slot that are due; `settle` must follow. Ends the slot when it is over."""
        current = self.current
        assert current is not None
        end_ms = current.slot_ms + self.precision_ms
        found = self.wheel.find(current.slot_ms)
        if found is not None and not current.walk(found[1], end_ms, _WALK_UNITS):
            return []
        units = current.take(now_ms, limit)
        if not units and current.empty and self.floor(now_ms) >= end_ms:
            del self._current[current.slot_ms]
            self.wheel.clear(current.slot_ms)
            self.read_ms = end_ms
        return units

    def settle(self, count: int, now_ms: int) -> None:
        """So many of the units that `take` gave are dealt with; the others come again."""
        current = self.current
        assert current is not None
        current.settle(count, now_ms)
        found = self.wheel.find(current.slot_ms)
        if found is not None:
            self.wheel.put(current.slot_ms, found[0], found[1], found[2] - count)

    def _sweep(self, now_slot: int) -> None:
        """The clock has leapt by more than the wheel: go to the first slot there is, or to now."""
        times = [time_ms for time_ms, _, _, _ in self.wheel.slots() if time_ms >= self.read_ms]
        self.read_ms = min(min(times, default=now_slot), now_slot)

    @property
    def slot(self) -> DueSlot | None:
        """The slot being delivered."""
        return self._due

    def due(self, limit: int) -> list[TimerUnit] | None:
        """The next units of the slot being delivered, oldest first; None while its walk goes on.

        `advance` must follow. An empty list ends the slot.
        """
        slot = self._due
        assert slot is not None
        if not slot.walk(_WALK_UNITS):
            return None
        if self._taken >= len(self._block):
            self._block = slot.next_block()
            self._taken = 0
        return self._block[self._taken : self._taken + limit]

    def advance(self, count: int) -> None:
        """So many of the units that `due` gave are dealt with; 0 of an empty list ends the slot."""
        slot = self._due
        assert slot is not None
        if self._taken < len(self._block):
            self._taken += count
            found = self.wheel.find(slot.slot_ms)
            if count and found is not None:
                first = self._block[self._taken - 1].position + UNIT_SIZE
                self.wheel.put(slot.slot_ms, first, found[1], found[2] - count)
            return
        self.wheel.clear(slot.slot_ms)
        self.read_ms = slot.slot_ms + self.precision_ms
        self._due = None
        self._block = []
        self._taken = 0

    # To the disk

    @property
    def saved(self) -> TimerCheckpoint:
        """The checkpoint last written."""
        return self._saved

    def _recognised(self) -> bool:
        """Are all messages past whose delivery the log alone knows of?"""
        known = self._delivered
        return known is None or (
            self.queue_offset >= self._recovered_end and self.read_ms > known.last_ms
        )

    def plan_flush(self, now_ms: int, *, final: bool = False) -> TimerFlushPlan | None:
        """Plan to bring everything up to now to the disk; None: nothing changed, or one is under way.

        `final`: the last one of a clean stop, whatever has changed.

        Raises:
            OSError: the timer log cannot be written.
        """
        if self._flush is not None:
            if not final:
                return None
            self.flushed(self._flush, done=False)  # whatever became of it
        if self._delivered is not None and self._recognised():
            self._delivered = None
        commit_end = self._store.max_physical_offset
        if self._delivered is None:
            starts = [current.log_start for current in self._current.values()]
            self.commit_from = min(starts, default=commit_end)
        saved = self._saved
        moved = (self.log.end, self.queue_offset) != (saved.log_position, saved.queue_offset)
        pieces = self.wheel.take_dirty()
        if not pieces and not moved:
            if not self.queue_offset and not saved.ours:
                return None  # never used: no files
            if saved.ours and not final and abs(now_ms - saved.version_timestamp) < _IDLE_SAVE_MS:
                return None
        checkpoint = TimerCheckpoint(
            read_ms=self.read_ms,
            log_position=self.log.end,
            queue_offset=self.queue_offset,
            version_timestamp=now_ms,
            version_counter=saved.version_counter + 1,
            commit_offset=self.commit_from,
            precision_ms=self.precision_ms,
        )
        try:
            touched = self.log.unsynced_files()
        except OSError:
            self.wheel.keep_dirty(pieces)
            raise
        directories: list[str] = []
        if self.log.directory_dirty and self._files.exists(self.log.directory):
            directories = [self.log.directory, self._layout.root]
            self.log.directory_dirty = False
        self._flush = TimerFlushPlan(
            self._files,
            self._layout,
            touched,
            directories,
            self.wheel.size,
            pieces,
            checkpoint,
            commit_end,
        )
        return self._flush

    def flushed(self, plan: TimerFlushPlan, *, done: bool = True) -> None:
        """A flush has come back; with `done` False it did not run, with an error all is due again."""
        self._flush = None
        if done and plan.error is None:
            self._saved = plan.checkpoint
            return
        self.wheel.keep_dirty(plan.pieces)
        self.log.keep_unsynced()
        self.log.directory_dirty = True
        if plan.error is not None:
            log.error("timer files not written error=%s", plan.error)

    def plan_deletion(self) -> Callable[[], None] | None:
        """Forget timer log files whose messages the commit log has lost; the plan deletes them."""
        paths = self.log.detach_before(self._store.min_physical_offset)
        if not paths:
            return None

        def run() -> None:
            for path in paths:
                self._files.remove(path)

        return run

    def close(self) -> None:
        """Release the files."""
        self.log.close()


def _roll_slots(config: StoreConfig, precision_ms: int, slots_total: int) -> int:
    """Slots a message may wait at one place (timerRollWindowSlot).

    Never more than two thirds of fileReservedTime: the message must be put again before the commit log
    loses it. With the default settings that is exactly Apache's window.
    """
    wanted = config.timer_roll_window_slots
    if wanted > slots_total - BLANK_SLOTS or wanted < 2:
        wanted = slots_total - BLANK_SLOTS
    kept = config.file_reserved_hours * 2_400_000 // precision_ms
    return max(2, min(wanted, kept))
