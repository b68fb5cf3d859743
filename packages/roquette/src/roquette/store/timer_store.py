"""The timer's storage: wheel, log and checkpoint together, how they are recovered and how they reach the disk.

All of it is derived from the commit log. A flush brings, in this order, the commit log, the timer log, the
wheel and the checkpoint to the disk; so whatever a crash leaves behind, the checkpoint never speaks of what
the other files lack. What happened after it is found in the commit log: messages to put into the wheel in the
timer queue, deliveries by the copies they left (`copies`). Apache: TimerMessageStore.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from librt.strings import read_i64_be

from roquette.base.files import Files
from roquette.message.names import TIMER_TOPIC
from roquette.store.audit.timer_audit import AUDIT_UNITS, TimerAudit
from roquette.store.cut import Copy, DeliveredBitmap
from roquette.store.format.checkpoint import TimerCheckpoint, load_timer_checkpoint
from roquette.store.format.config import StoreConfig
from roquette.store.format.layout import StoreLayout
from roquette.store.timer.timer_log import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    UNIT_SIZE,
    CurrentSlot,
    DueSlot,
    TimerLog,
    TimerUnit,
)
from roquette.store.timer.timer_wheel import (
    BLANK_SLOTS,
    SLOTS_TOTAL,
    TimerFlushPlan,
    TimerWheel,
    write_wheel,
)

# Start of the timer: wheel and log, cut back to what the checkpoint vouches for, or rebuilt.
# Apache: TimerMessageStore.load, recover.


log = logging.getLogger("roquette.store.timer")


class TimedLog(Protocol):
    """Part of the message store that the timer asks."""

    layout: StoreLayout

    @property
    def min_physical_offset(self) -> int: ...

    @property
    def max_physical_offset(self) -> int: ...

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int: ...

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None: ...

    def queue_units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]] | None: ...


def _queued(store: TimedLog) -> Iterator[list[tuple[int, int]]]:
    """The messages of the timer queue, for the audit."""
    offset = store.min_offset(TIMER_TOPIC, 0)
    while units := store.queue_units(TIMER_TOPIC, 0, offset, AUDIT_UNITS):
        offset += len(units)
        yield [(physical, size) for physical, size, _ in units]


class TimerRecovery:
    """One recovery; `run` leaves in its attributes what `TimerStore` goes on with, and the timer log cut.

    Args:
        timer_log: not loaded yet.
        wanted_ms: the precision of the settings.
    """

    def __init__(
        self,
        files: Files,
        store: TimedLog,
        timer_log: TimerLog,
        wanted_ms: int,
        slots_total: int,
    ) -> None:
        self._files = files
        self._store: TimedLog = store
        self._layout = store.layout
        self._log = timer_log
        self._wanted_ms = wanted_ms
        self._slots_total = slots_total
        self.wheel = TimerWheel(wanted_ms, slots_total)
        self.read_ms = 0
        self.queue_offset = 0
        self.commit_from = 0
        self.saved = TimerCheckpoint()
        self.passed_ms = 0  # messages before `passed_offset` that were due before are delivered
        self.passed_offset = 0

    def run(self, now_ms: int, first: int, end: int) -> None:
        """Recover. Blocks. `first`, `end`: offsets of the timer queue."""
        checkpoint = load_timer_checkpoint(self._files, self._layout.timer_checkpoint)
        self.commit_from = self._store.max_physical_offset
        self.read_ms = self.wheel.floor(now_ms)
        sound = False
        if checkpoint is not None:
            self.saved = checkpoint
            if checkpoint.ours:
                sound = self._recover_ours(checkpoint, end)
            else:
                sound = self._recover_foreign(checkpoint)
        if not sound:
            self._start_over(now_ms, first, end)
        self.queue_offset = min(max(self.queue_offset, first), end)

    def _recover_ours(self, checkpoint: TimerCheckpoint, queue_end: int) -> bool:
        if (
            checkpoint.queue_offset > queue_end
            or checkpoint.commit_offset > self._store.max_physical_offset
        ):
            log.warning("timer checkpoint points behind the commit log's end: starting over")
            return False
        precision_ms = checkpoint.precision_ms
        if precision_ms != self.wheel.precision_ms:
            self.wheel = TimerWheel(precision_ms, self._slots_total)
        position = checkpoint.log_position
        self._log.load()
        if not (self._load_wheel() or position == 0) or self._log.end < position:
            log.warning("wheel or log of the timer are not what the checkpoint says: starting over")
            return False
        self.read_ms = self.wheel.floor(checkpoint.read_ms)
        self.queue_offset = checkpoint.queue_offset
        self.commit_from = checkpoint.commit_offset
        if not self._cut_slots(position):
            log.warning("the timer log lacks what the wheel knows of: starting over")
            return False
        fault = self._audit(position)
        if fault:
            log.error("wheel and log of the timer disagree, starting over: %s", fault)
            return False
        # The file first: units written behind the new end must not be taken for those its slots mean.
        pieces = self.wheel.take_dirty()
        if pieces:
            write_wheel(self._files, self._layout.timer_wheel, self.wheel.size, pieces)
        self._log.truncate(position)
        if self.wheel.precision_ms != self._wanted_ms and self.queue_offset == queue_end:
            if not self.wheel.slots():
                self._forget_files()  # nothing waits: the new precision can begin
                self.commit_from = self._store.max_physical_offset
            else:
                log.warning(
                    "timerPrecisionMs stays %d while messages wait", self.wheel.precision_ms
                )
        return True

    def _load_wheel(self) -> bool:
        path = self._layout.timer_wheel
        if not self._files.exists(path):
            return False
        file = self._files.open_file(path)
        try:
            if file.size != self.wheel.size:
                log.warning("%s has %d bytes, not %d", path, file.size, self.wheel.size)
                return False
            self.wheel.load(file)
        finally:
            file.close()
        return True

    def _cut_slots(self, log_end: int) -> bool:
        """Take back what slots know of units behind the log's end: those come again from the queue.

        The wheel on the disk may be newer than the checkpoint, but not than the timer log: chains can be
        followed through units that are about to be cut off.
        """
        for time_ms, first, last, number in self.wheel.slots():
            if time_ms < self.read_ms:
                self.wheel.clear(time_ms)
                continue
            if first < self._log.min_position:
                return False
            if last < log_end:
                continue
            position, left = last, number
            while position >= log_end:
                unit = self._log.read(position)
                if unit is None or unit.prev >= position:
                    return False
                left -= -1 if unit.magic & MAGIC_DELETE else 1
                position = unit.prev
            self.wheel.clear(time_ms)
            if position >= 0 and first <= position:
                self.wheel.put(time_ms, first, position, left)
        return True

    def _audit(self, log_end: int) -> str:
        """Tell what of the timer's files was damaged, or torn when the power went in the midst of a flush; else empty."""
        low, queue = self._log.min_position, _queued(self._store)
        audit = TimerAudit(
            queue, self.wheel.precision_ms, self.read_ms, low, self._store.min_physical_offset
        )
        windows = self._log.windows(log_end, AUDIT_UNITS)
        at, _, words = next(audit.faults(windows, self.wheel.slots(), log_end), (-1, -1, ""))
        return f"position {at} of the timer log: {words}" if at >= 0 else words

    def _recover_foreign(self, checkpoint: TimerCheckpoint) -> bool:
        """Files that Apache's broker wrote: its timer log is ahead of its checkpoint, its wheel behind.

        Apache: recoverAndRevise, reviseQueueOffset.
        """
        self._log.load()
        end = self._log.find_end()
        self._log.truncate(end)
        self._files.remove(self._layout.timer_wheel)  # rebuilt from the log
        self.read_ms = self.wheel.floor(checkpoint.read_ms)
        self.queue_offset = checkpoint.queue_offset
        if not self._log.segments:  # a replica's: what waits is in the timer queue alone
            self.passed_ms, self.passed_offset = self.read_ms, self.queue_offset
            self.queue_offset = 0
            return True
        position, last = self._log.min_position, None
        while position < end:
            unit = self._log.read(position)
            if unit is None:  # the blank at a file's end
                position = self._log.next_file(position)
                continue
            last = unit
            slot_ms = self.wheel.floor(unit.slot_ms)
            if slot_ms >= self.read_ms:
                if not self.wheel.free(slot_ms):
                    return False
                found = self.wheel.find(slot_ms)
                first, number = (unit.position, 0) if found is None else (found[0], found[2])
                number += -1 if unit.magic & MAGIC_DELETE else 1
                self.wheel.put(slot_ms, first, unit.position, number)
            position += UNIT_SIZE
        if last is not None:
            data = self._store.record_at(last.offset, last.size)
            if data is not None:
                self.queue_offset = read_i64_be(data, 20) + 1
        return True

    def _start_over(self, now_ms: int, first: int, end: int) -> None:
        """Forget wheel and log: everything comes again from the timer queue, as far as it is not delivered."""
        self._forget_files()
        self.queue_offset = first
        if first < end:
            back = (self._slots_total - BLANK_SLOTS) * self.wheel.precision_ms
            # Not now: recalls of overdue messages find these still.
            self.read_ms = self.wheel.floor(now_ms) - back
            self.commit_from = self._store.min_physical_offset

    def _forget_files(self) -> None:
        """Remove all three. The checkpoint goes first, for good: it must never vouch for later files."""
        self._files.remove(self._layout.timer_checkpoint)
        self._files.make_dirs(self._layout.config)
        self._files.sync_dir(self._layout.config)
        self.saved = TimerCheckpoint()
        self._files.remove(self._layout.timer_wheel)
        self._log.drop()
        self.wheel = TimerWheel(self._wanted_ms, self._slots_total)


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
        if current is None:
            if found is None or found[2] > _CURRENT_UNITS or len(self._current) >= _CURRENT_SLOTS:
                return False
            if self.queue_offset < self._store.max_offset(TIMER_TOPIC, 0):
                return False  # a recall may be among what is not in the wheel yet
            start = self._store.max_physical_offset
            end_ms = self.read_ms + self.precision_ms
            current = CurrentSlot(self.log, self.read_ms, end_ms, found[0], start)
            self._current[self.read_ms] = current
        if found is not None and not current.walk(found[1], _WALK_UNITS):
            return True
        return bool(current.recalls) or 0 < current.next_ms <= now_ms

    def next_ms(self) -> int:
        """Return when the next message known to be due comes; 0: not known."""
        current = self.current
        return current.next_ms if current is not None else 0

    def take(self, now_ms: int, limit: int) -> list[TimerUnit]:
        """Units of the current slot that are due; `settle` must follow. Ends the slot when it is over."""
        current = self.current
        assert current is not None
        found = self.wheel.find(current.slot_ms)
        if found is not None and not current.walk(found[1], _WALK_UNITS):
            return []
        units = current.take(now_ms, limit)
        if not units and current.empty and self.floor(now_ms) >= current.end_ms:
            del self._current[current.slot_ms]
            self.wheel.clear(current.slot_ms)
            self.read_ms = current.end_ms
        return units

    def settle(self, count: int) -> None:
        """So many of the units that `take` gave are dealt with; the others come again."""
        current = self.current
        assert current is not None
        current.settle(count)
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
