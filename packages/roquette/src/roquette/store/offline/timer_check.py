"""The timer's files: wheel, log and checkpoint agree with each other and with the commit log."""

from collections.abc import Iterator
from typing import Final

from roquette.base.files import ReadFile, ReadFiles, read_all
from roquette.message.names import TIMER_TOPIC
from roquette.store.audit.findings import DAMAGE, NOTE, Findings, finding
from roquette.store.audit.timer_audit import TimerAudit
from roquette.store.format.timer_checkpoint import TimerCheckpoint, decode_timer_checkpoint
from roquette.store.offline.small_files import LogFacts
from roquette.store.offline.store_dir import LogFile, StoreDir, list_numbered, load_queue
from roquette.store.offline.units import QueueUnits
from roquette.store.timer.timer_log import BLANK, BLANK_MAGIC, UNIT_SIZE, TimerUnit, unpack_unit
from roquette.store.timer.timer_wheel import SLOT_SIZE, WheelSlot, slots_in

_WINDOW: Final = UNIT_SIZE * 16_384
_PAGE: Final = 1 << 20
_PRECISIONS: Final = (1000, 500, 200, 100)


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
    log = list_numbered(files, f"{store.root}/timerlog")
    check = _TimerCheck(files, store, facts, found)
    for file in log:
        check.log_file(file)
    wheel = f"{store.root}/timerwheel"
    severity = NOTE if crashed else DAMAGE
    if files.file_size(wheel) > 0:
        check.wheel(wheel, log, severity)
    check.checkpoint(f"{store.config}/timercheck", log, severity)


class _TimerCheck:
    def __init__(self, files: ReadFiles, store: StoreDir, facts: LogFacts, found: Findings) -> None:
        self._files = files
        self._store = store
        self._facts = facts
        self._found = found
        self._end = 0  # of the timer log
        self._source: ReadFile | None = None
        self._open: LogFile | None = None

    def log_file(self, file: LogFile) -> None:
        """Units one after another, then a blank or zeros."""
        source = self._files.open_file(file.path)
        try:
            at = 0
            while at + UNIT_SIZE <= file.size:
                data = source.pread(min(_WINDOW, file.size - at), at)
                step, more = self._units(file, data, at)
                at += step
                self._end = file.base + at
                if not more:
                    break
        finally:
            source.close()
            self._close()

    def _units(self, file: LogFile, data: bytes, start: int) -> tuple[int, bool]:
        """How many bytes of units there are, and whether more may follow."""
        for at in range(0, len(data) - UNIT_SIZE + 1, UNIT_SIZE):
            position = file.base + start + at
            unit = unpack_unit(data, at, position)
            if unit is None:
                self._end_of_units(file, data, at, start)
                return at, False
            words = self._wrong(unit)
            if words:
                self._found.add_run("timer", file.path, start + at, words, position // UNIT_SIZE)
        whole = len(data) - len(data) % UNIT_SIZE
        return whole, whole == _WINDOW

    def _end_of_units(self, file: LogFile, data: bytes, at: int, start: int) -> None:
        left, _, magic = BLANK.unpack_from(data, at)
        if magic == BLANK_MAGIC and left == file.size - start - at:
            return
        if data[at : at + UNIT_SIZE] == bytes(UNIT_SIZE):
            return
        self._found.add(
            finding("timer", file.path, start + at, "neither a unit of the timer log nor its end")
        )

    def _wrong(self, unit: TimerUnit) -> str:
        if unit.prev >= unit.position or (unit.prev < -1):
            return f"the unit names {unit.prev} as the one before it"
        if unit.offset < self._store.min_offset:
            return ""  # its message is gone from the log, as is right after a while
        if not self._facts.sure:
            return ""
        if unit.offset >= self._facts.end or not self._is_record(unit.offset, unit.size):
            return f"the unit points at offset {unit.offset}, size {unit.size}, where no such record is"
        return ""

    def _is_record(self, offset: int, size: int) -> bool:
        if self._open is None or not self._open.base <= offset < self._open.base + self._open.size:
            self._close()
            self._open = self._store.file_of(offset)
            if self._open is None:
                return False
            self._source = self._files.open_file(self._open.path)
        assert self._source is not None
        head = self._source.pread(36, offset - self._open.base)
        return head[:4] == size.to_bytes(4, "big", signed=True) and head[28:] == offset.to_bytes(
            8, "big"
        )

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source = None
        self._open = None

    def wheel(self, path: str, log: list[LogFile], severity: str) -> None:
        """Every slot stands at its place and knows its newest unit."""
        size = self._files.file_size(path)
        if size % (2 * SLOT_SIZE):
            self._found.add(finding("timer", path, -1, f"a wheel of {size} bytes"))
            return
        slots = size // SLOT_SIZE
        for slot in read_wheel(self._files, path):
            at = slot.ordinal * SLOT_SIZE
            if slot.tick < 0 or slot.tick % slots != slot.ordinal:
                self._found.add(
                    finding("timer", path, at, f"slot {slot.ordinal} has the time of another one")
                )
                continue
            if not log or slot.last < log[0].base or slot.number == 0:
                continue
            words = self._wrong_slot(slot, log)
            if words:
                self._found.add(finding("timer", path, at + 16, words, severity))

    def _wrong_slot(self, slot: WheelSlot, log: list[LogFile]) -> str:
        for file in log:
            if file.base <= slot.last < file.base + file.size:
                if slot.last >= self._end:
                    break
                source = self._files.open_file(file.path)
                try:
                    data = source.pread(UNIT_SIZE, slot.last - file.base)
                finally:
                    source.close()
                unit = unpack_unit(data, 0, slot.last) if len(data) == UNIT_SIZE else None
                if unit is None or (slot.last - file.base) % UNIT_SIZE:
                    return (
                        f"its newest unit should be at {slot.last} of the timer log, where none is"
                    )
                if not any(unit.slot_ms // width == slot.tick for width in _PRECISIONS):
                    return f"its newest unit at {slot.last} of the timer log is of another time"
                return ""
        return f"its newest unit should be at {slot.last}, the timer log ends at {self._end}"

    def checkpoint(self, path: str, log: list[LogFile], severity: str) -> None:
        """It speaks of no more than there is."""
        if self._files.file_size(path) < 0:
            return
        known = decode_timer_checkpoint(read_all(self._files, path, 4096))
        if known.damaged:
            words = "its bytes are not those that were written (checksum)"
            self._found.add(finding("timer", path, -1, words))
        elif known.ours and self._facts.sure:
            self._audit(known, log, severity)
        if known.log_position > self._end:
            words = f"the timer log was synced up to {known.log_position}, it ends at {self._end}"
            self._found.add(finding("timer", path, 8, words, severity))
        end = self._facts.queue_ends.get((TIMER_TOPIC, 0), 0)
        if known.queue_offset > end and self._facts.sure:
            words = f"messages up to {known.queue_offset} were taken from {TIMER_TOPIC}, it ends at {end}"
            self._found.add(finding("timer", path, 16, words, severity))

    def _audit(self, known: TimerCheckpoint, log: list[LogFile], severity: str) -> None:
        """What a start looks at: units, slots and the timer queue say the same."""
        wheel = f"{self._store.root}/timerwheel"
        queue = load_queue(self._files, self._store.consume_queues, TIMER_TOPIC, 0)
        units = _queued(QueueUnits(self._files, queue, self._store.segment_size))
        low, end = log[0].base if log else 0, known.log_position
        precision = known.precision_ms
        audit = TimerAudit(units, precision, known.read_ms, low, self._store.min_offset)
        slots = read_wheel(self._files, wheel) if self._files.file_size(wheel) > 0 else []
        times = [(slot.tick * precision, slot.first, slot.last, slot.number) for slot in slots]
        for at, place, words in audit.faults(self._windows(log, end), times, end):
            path, byte = wheel, slots[place].ordinal * SLOT_SIZE if place >= 0 else -1
            for file in log:
                if file.base <= at < file.base + file.size:
                    path, byte = file.path, at - file.base
            self._found.add(finding("timer", path, byte, words, severity))

    def _windows(self, log: list[LogFile], end: int) -> Iterator[tuple[int, bytes]]:
        for file in log:
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
