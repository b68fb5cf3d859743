"""What a start finds of the timer: wheel and log, cut back to what the checkpoint vouches for, or rebuilt.

Apache: TimerMessageStore.load, recover.
"""

import logging
from collections.abc import Iterator
from typing import Protocol

from librt.strings import read_i64_be

from roquette.base.files import Files
from roquette.message.names import TIMER_TOPIC
from roquette.store.audit.timer_audit import AUDIT_UNITS, TimerAudit
from roquette.store.format.layout import StoreLayout
from roquette.store.format.timer_checkpoint import TimerCheckpoint, load_timer_checkpoint
from roquette.store.timer.timer_flush import write_wheel
from roquette.store.timer.timer_log import MAGIC_DELETE, UNIT_SIZE, TimerLog
from roquette.store.timer.timer_wheel import BLANK_SLOTS, TimerWheel

log = logging.getLogger("roquette.store.timer")


class TimedLog(Protocol):
    """What the timer asks of the message store."""

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
        """What of the timer's files was damaged, or torn when the power went in the midst of a flush; else empty."""
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
