"""The timer's files in a store without a broker: both halves of their audit, and their checkpoint."""

from collections.abc import Iterator
from typing import Final

from roquette.base.files import ReadFiles, read_all
from roquette.message.names import TIMER_TOPIC
from roquette.store.audit.findings import DAMAGE, NOTE, Findings, finding
from roquette.store.audit.timer_audit import TimerAudit, slot_fault, unit_faults
from roquette.store.format.checkpoint import TimerCheckpoint, decode_timer_checkpoint
from roquette.store.offline.small_files import LogFacts
from roquette.store.offline.store_dir import LogFile, StoreDir, list_numbered, load_queue
from roquette.store.offline.unit_check import LogLookup, QueueUnits
from roquette.store.timer.timer_log import UNIT_SIZE, TimerUnit, unpack_unit
from roquette.store.timer.timer_wheel import SLOT_SIZE, WheelSlot, slots_in

_WINDOW: Final = UNIT_SIZE * 16_384
_PAGE: Final = 1 << 20
_NO_LOG: Final = (1 << 63) - 1


def read_wheel(files: ReadFiles, path: str) -> list[WheelSlot]:
    """The slots in use; Apache leaves delivered ones as they are. Raises OSError."""
    found: list[WheelSlot] = []
    source = files.open_file(path)
    try:
        for start in range(0, source.size, _PAGE):
            found += slots_in(source.pread(_PAGE, start), start // SLOT_SIZE)
    finally:
        source.close()
    return found


def check_timer(
    files: ReadFiles, store: StoreDir, facts: LogFacts, crashed: bool, found: Findings
) -> None:
    """All of it, as far as the files are there. Raises OSError."""
    check = _TimerCheck(files, store, facts, NOTE if crashed else DAMAGE, found)
    check.units()
    check.wheel()
    check.checkpoint()


class _TimerCheck:
    """`severity`: of what a crash may have left so."""

    def __init__(
        self, files: ReadFiles, store: StoreDir, facts: LogFacts, severity: str, found: Findings
    ) -> None:
        self._files = files
        self._store = store
        self._facts = facts
        self._severity = severity
        self._found = found
        self._log = list_numbered(files, f"{store.root}/timerlog")
        self._low = self._log[0].base if self._log else _NO_LOG
        self._end = 0  # of the timer log
        self._wheel = f"{store.root}/timerwheel"
        self._slots: list[WheelSlot] = []
        self._lookup = LogLookup(files, store)

    def units(self) -> None:
        """Every unit, and where they end."""
        for file in self._log:
            end = file.base + file.size
            for at, words, ends in unit_faults(self._windows(file, end), end, self._stands):
                self._end = at if ends else self._end
                if words:
                    place = -1 if ends else at // UNIT_SIZE
                    self._found.add_run("timer", file.path, at - file.base, words, place)
        self._lookup.close()

    def _stands(self, offset: int, size: int) -> bool:
        if offset < self._store.min_offset or not self._facts.sure:
            return True  # its message is gone from the log, as is right after a while
        place = self._lookup.place_of
        return offset < self._facts.end and place(TIMER_TOPIC, 0, 0, offset, size) >= 0

    def wheel(self) -> None:
        """Every slot; those whose newest unit is gone from the log, as is right after a while, only for their time."""
        size = self._files.file_size(self._wheel)
        if size <= 0:
            return
        self._slots = read_wheel(self._files, self._wheel)
        if size % (2 * SLOT_SIZE):
            self._found.add(finding("timer", self._wheel, -1, f"a wheel of {size} bytes"))
            return
        for slot in self._slots:
            at = slot.ordinal * SLOT_SIZE
            words, whole = slot_fault(slot, size // SLOT_SIZE, self._end, self._unit_at)
            if words and whole:
                self._found.add(finding("timer", self._wheel, at, words))
            elif words and slot.last >= self._low and slot.number:
                self._found.add(finding("timer", self._wheel, at + 16, words, self._severity))

    def _unit_at(self, position: int) -> TimerUnit | None:
        file = self._file_of(position)
        if file is None or (position - file.base) % UNIT_SIZE:
            return None
        source = self._files.open_file(file.path)
        try:
            return unpack_unit(source.pread(UNIT_SIZE, position - file.base), 0, position)
        finally:
            source.close()

    def _file_of(self, position: int) -> LogFile | None:
        return next((f for f in self._log if f.base <= position < f.base + f.size), None)

    def checkpoint(self) -> None:
        """It speaks of no more than there is, and what it vouches for is sound."""
        path = f"{self._store.config}/timercheck"
        if self._files.file_size(path) < 0:
            return
        known = decode_timer_checkpoint(read_all(self._files, path, 4096))
        if known.damaged:
            words = "its bytes are not those that were written (checksum)"
            self._found.add(finding("timer", path, -1, words))
        elif known.ours and self._facts.sure:
            self._vouched_for(known)
        if known.log_position > self._end:
            words = f"the timer log was synced up to {known.log_position}, it ends at {self._end}"
            self._found.add(finding("timer", path, 8, words, self._severity))
        end = self._facts.queue_ends.get((TIMER_TOPIC, 0), 0)
        if known.queue_offset > end and self._facts.sure:
            words = f"messages up to {known.queue_offset} were taken from {TIMER_TOPIC}, it ends at {end}"
            self._found.add(finding("timer", path, 16, words, self._severity))

    def _vouched_for(self, known: TimerCheckpoint) -> None:
        """The half that a start looks at, too."""
        queue = load_queue(self._files, self._store.consume_queues, TIMER_TOPIC, 0)
        units = _queued(QueueUnits(self._files, queue, self._store.segment_size))
        precision, end = known.precision_ms, known.log_position
        audit = TimerAudit(units, precision, known.read_ms, self._low, self._store.min_offset)
        windows = (one for file in self._log for one in self._windows(file, end))
        slots = [(one.tick * precision, one.first, one.last, one.number) for one in self._slots]
        for at, place, words in audit.faults(windows, slots, end):
            file = self._file_of(at)
            path, byte = (self._wheel, -1) if file is None else (file.path, at - file.base)
            byte = self._slots[place].ordinal * SLOT_SIZE if place >= 0 else byte
            self._found.add(finding("timer", path, byte, words, self._severity))

    def _windows(self, file: LogFile, end: int) -> Iterator[tuple[int, bytes]]:
        """Position and bytes of one file before a position of the timer log."""
        source = self._files.open_file(file.path)
        try:
            limit = min(file.size, end - file.base)
            for at in range(0, limit, _WINDOW):
                yield file.base + at, source.pread(min(_WINDOW, limit - at), at)
        finally:
            source.close()


def _queued(units: QueueUnits) -> Iterator[list[tuple[int, int]]]:
    """The messages of the timer queue, for the audit."""
    offset = units.first
    while units.exists and units.load(offset) and not units.empty:
        yield [(units.physical, units.size)]
        offset += 1
