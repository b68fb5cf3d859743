"""Plan of a repair: looked up before anything is written, and shown."""

from dataclasses import dataclass, field, replace
from typing import Final

from roquette.base.files import ReadAt, ReadFiles
from roquette.base.generations import BACKUPS
from roquette.errors import StoreError
from roquette.message.names import SCHEDULE_TOPIC
from roquette.message.record_layout import BLANK_SIZE, MAX_PROPERTIES, WHOLE_CRC, WHOLE_CRC_SIZE
from roquette.message.record_view import FAULT_NAMES
from roquette.store.audit.findings import Findings
from roquette.store.format.config import StoreConfig
from roquette.store.format.layout import offset_name
from roquette.store.format.log_reader import END, FILLED, RECORD, LogReader
from roquette.store.format.patch import MIN_FILLER, Patch
from roquette.store.format.unit import UNIT_SIZE
from roquette.store.offline.index_check import find_specs
from roquette.store.offline.overview import written_end
from roquette.store.offline.small_files import changed_unwritten, load_json, topics_of
from roquette.store.offline.store_dir import QueueDir, StoreDir, list_queues, read_record
from roquette.store.offline.unit_check import QueueUnits
from roquette.store.reput import parse_delay_levels

# Patches that make a damaged commit log one again: which bytes to put where.
# A damaged stretch becomes records of a rolled back transaction, which queues and index pass over, or the blank that ends its file; what stands behind the log's end becomes zeros. Sound records are neither moved nor changed, but for one case: a stretch too small for a record is taken in by the record before it, whose text of properties grows by empty properties, which every reader passes over. At a file's start the record behind takes it in, and so begins earlier.


_MAX_MISSING: Final = 64  # files in a row


@dataclass(slots=True)
class LogPlan:
    """Plan by which the log is mended.

    Attributes:
        bases: of all files the mended log has, in order. `missing`: those that are made as blanks.
        end: physical offset behind the last sound record. `last_ms`: its store time.
    """

    bases: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    records: int = 0
    end: int = 0
    last_ms: int = 0


def plan_log(files: ReadFiles, store: StoreDir) -> LogPlan:
    """Walk the whole log, CRCs included, and say what it needs. Raises OSError.

    Raises:
        StoreError: the files overlap or lie too far apart, or a stretch cannot be filled.
    """
    plan = LogPlan(end=store.min_offset)
    size = store.segment_size
    walked: list[_Walk] = []
    for file in store.log:
        if file.size > size:
            raise StoreError(
                f"{file.path} has {file.size} bytes, files of this log have {size}: move it away, or cut it"
            )
        if walked and file.base < walked[-1].base + size:
            raise StoreError(f"{file.path} overlaps the file before it: move the wrong one away")
        if walked and file.base > walked[-1].base + (_MAX_MISSING + 1) * size:
            raise StoreError(
                f"more than {_MAX_MISSING} files are missing before {file.path}: restore them, or move it away"
            )
        source = files.open_file(file.path)
        try:
            walk = _Walk(source, file.base, size, plan)
            walk.run()
            walked.append(walk)
        finally:
            source.close()
    last = max((place for place, one in enumerate(walked) if one.end > 0), default=-1)
    for place, walk in enumerate(walked[: last + 1]):
        if plan.bases:
            plan.missing += range(plan.bases[-1] + size, walk.base, size)
            plan.bases += range(plan.bases[-1] + size, walk.base, size)
        plan.bases.append(walk.base)
        plan.patches += walk.patches
        if walk.end < size:
            how = "zeros" if place == last else "blank"
            plan.patches.append(Patch(walk.base, walk.end, size, how, "tail", plan.last_ms))
    plan.patches = [patch for patch in plan.patches if _needed(files, store, patch)]
    return plan


@dataclass(slots=True)
class _Place:
    """Place of a sound record in its file."""

    position: int
    end: int
    properties_size: int
    grown: bool = False  # it has taken a stretch in


class _Walk:
    """One file of the log.

    Attributes:
        end: the byte behind the last sound record, or behind the blank that fills the file.
        patches: for the damaged stretches before it.
    """

    def __init__(self, source: ReadAt, base: int, size: int, plan: LogPlan) -> None:
        self._source = source
        self._size = size
        self._plan = plan
        self.base = base
        self.end = 0
        self.patches: list[Patch] = []

    def run(self) -> None:
        """Look at all of it."""
        reader = LogReader(self._source, self.base, True, nominal=self._size)
        plan = self._plan
        hole: Patch | None = None  # damage that begins where the last sound record ends
        before: _Place | None = None
        while (found := reader.advance()) != END:
            position, end = int(reader.position), int(reader.following)
            if found != RECORD:
                why = FAULT_NAMES[reader.fault] if hole is None else hole.why
                start = position if hole is None else hole.position
                hole = Patch(self.base, start, end, "filler", why, plan.last_ms)
                continue
            here = _Place(position, end, int(reader.properties_size))
            if hole is not None:
                self.patches.append(self._filled(hole, before, here))
                hole = None
            before = here
            self.end = end
            plan.records += 1
            plan.end = self.base + end
            plan.last_ms = int(reader.store_ms)
        if reader.ending == FILLED and reader.blank_at >= 0:
            if hole is not None:  # what stands between the last record and the blank
                small = hole.end - hole.position < MIN_FILLER
                self.patches.append(replace(hole, end=self._size, how="blank") if small else hole)
            self.end = self._size
        elif before is not None and self._size - BLANK_SIZE < self.end < self._size:
            rest = Patch(self.base, self.end, self._size, "filler", "tail", plan.last_ms)
            self.patches.append(self._filled(rest, before, None))  # no blank fits there
            self.end = self._size

    def _filled(self, hole: Patch, before: _Place | None, behind: _Place | None) -> Patch:
        """The hole as a filler, or a neighbour that takes in what is too small for one."""
        if hole.end - hole.position >= MIN_FILLER:
            return hole
        for place in (before, behind):
            if place is None or place.grown:
                continue
            record = self._grown(place, hole.end - hole.position, place is behind)
            if record:
                place.grown = True
                start, end = min(place.position, hole.position), max(place.end, hole.end)
                return replace(hole, position=start, end=end, how="record", record=record)
        raise StoreError(
            f"{offset_name(self.base)} byte {hole.position}: {hole.end - hole.position} bytes of damage are too few "
            "for a record, and no neighbour can take them in: restore the file from a backup or a replica"
        )

    def _grown(self, place: _Place, more: int, earlier: bool) -> bytes:
        """A record with `more` bytes of empty properties, at home where it begins then; empty: there is no room."""
        data = self._source.pread(place.end - place.position, place.position)
        at = len(data) - place.properties_size
        text = data[at:]
        if text[-WHOLE_CRC_SIZE:].startswith(WHOLE_CRC):  # it would not hold any more
            text = text[:-WHOLE_CRC_SIZE]
        size = len(data) + more
        text = text.ljust(size - at, b"\2")
        if len(text) > MAX_PROPERTIES:
            return b""
        start = self.base + place.position - (more if earlier else 0)
        head = size.to_bytes(4, "big") + data[4:28] + start.to_bytes(8, "big") + data[36 : at - 2]
        return head + len(text).to_bytes(2, "big") + text


def _needed(files: ReadFiles, store: StoreDir, patch: Patch) -> bool:
    """Zeros where zeros are need no patch."""
    if patch.how != "zeros":
        return True
    file = store.file_of(patch.base)
    if file is None:
        return True
    source = files.open_file(file.path)
    try:
        at = patch.position
        while at < min(patch.end, file.size):
            piece = source.pread(1 << 20, at)
            if piece != bytes(len(piece)):
                return True
            at += len(piece)
        return file.size < patch.end
    finally:
        source.close()


_DEFAULT_QUEUE_FILE: Final = 6_000_000
_LOST_FILES: Final = 64  # at the end of a log: queues that point farther are not believed
_DELAY_SAMPLES: Final = 16  # units of a delay level, from its end


@dataclass(slots=True)
class RepairPlan:
    """Plan of a repair.

    Attributes:
        topics: those that get queues; None: all the log knows.
        queue_ends: (topic, queue id) -> queue offset below which none may be given again.
        slots, entries: of an index file; 0: no index is made.
        delay_ms: how long each delay level waits. `delays_known`: the levels of which that is sure.
        json_from: path of a JSON file -> the file its content comes from.
    """

    log: LogPlan
    topics: frozenset[str] | None
    queue_ends: dict[tuple[str, int], int]
    delay_ms: list[int] = field(default_factory=list)
    delays_known: set[int] = field(default_factory=set)
    queue_file_size: int = _DEFAULT_QUEUE_FILE
    slots: int = 0
    entries: int = 0
    json_from: dict[str, str] = field(default_factory=dict)
    delays_told: str = ""
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The plan for people."""
        log = self.log
        found = [f"the log keeps {log.records} records up to offset {log.end}"]
        for patch in log.patches:
            size = patch.end - patch.position
            what = {
                "filler": "becomes records nobody reads",
                "blank": "becomes the blank that ends the file",
                "zeros": "is cut off",
                "record": "a sound record, which takes in the damage beside it as empty properties",
            }[patch.how]
            found.append(
                f"{offset_name(patch.base)} byte {patch.position}: {size} bytes ({patch.why}): {what}"
            )
        found += [f"{offset_name(base)} is missing: becomes one blank" for base in log.missing]
        queues = "all queues" if self.topics is None else f"the queues of {len(self.topics)} topics"
        found.append(f"{queues} are made anew from the log")
        index = f"the index is made anew, {self.slots} slots" if self.slots else "no index is made"
        found.append(index)
        found += [f"{path} is taken from {source}" for path, source in self.json_from.items()]
        if self.delays_told:
            found.append(self.delays_told)
        return found + [f"warning: {words}" for words in self.warnings]


def plan_repair(
    files: ReadFiles,
    store: StoreDir,
    slots: int | None = None,
    entries: int | None = None,
    queue_file_size: int | None = None,
    delay_levels: str | None = None,
) -> RepairPlan:
    """Look at all of the log and say what a repair will do. Raises OSError.

    Args:
        slots, entries: maxHashSlotNum and maxIndexNum, when no index file shows them.
        queue_file_size: mappedFileSizeConsumeQueue, when no queue shows it.
        delay_levels: messageDelayLevel of the broker; None: as the queues of delayed messages show it.

    Raises:
        StoreError: the store is of a kind that cannot be repaired. ConfigError: no delay levels.
    """
    if store.strange:
        raise StoreError(f"this store cannot be repaired: {store.strange[0]}")
    if not store.log:
        raise StoreError(
            f"{store.commit_log} has no commit log: there is nothing to make a store of"
        )
    plan = RepairPlan(plan_log(files, store), None, {})
    queues = list_queues(files, store)
    known = topics_of(files, store)
    if known is not None:
        plan.topics = frozenset(known) | {queue.topic for queue in queues}
    sizes = [file.size for queue in queues for file in queue.files if file.size % UNIT_SIZE == 0]
    sizes = [size for size in sizes if size]
    if queue_file_size:
        plan.queue_file_size = -(-queue_file_size // UNIT_SIZE) * UNIT_SIZE
    elif sizes:
        plan.queue_file_size = max(set(sizes), key=sizes.count)
    for queue in queues:
        if queue.topic.startswith("%LMQ%"):
            plan.warnings.append(f"light queue {queue.topic} is not made anew")
        if queue.files:
            units = QueueUnits(files, queue, store.segment_size)
            end = written_end(units)
            if end > units.first and units.load(end - 1) and _plausible(units, store, plan.log.end):
                plan.queue_ends[queue.topic, queue.queue_id] = end
    _plan_delays(files, store, plan, queues, delay_levels)
    _plan_index(files, store, plan, slots, entries)
    _plan_json(files, store, plan)
    return plan


def _plausible(units: QueueUnits, store: StoreDir, log_end: int) -> bool:
    """May a queue's last unit be one that a broker wrote? Garbage must not decide where a queue goes on."""
    far = log_end + _LOST_FILES * store.segment_size
    return bool(units.filler or 0 < units.size <= store.segment_size) and 0 <= units.physical <= far


def _plan_delays(
    files: ReadFiles,
    store: StoreDir,
    plan: RepairPlan,
    queues: list[QueueDir],
    delay_levels: str | None,
) -> None:
    """Units of delayed messages carry the time they are due, which tells how long their level waits."""
    plan.delay_ms = parse_delay_levels(delay_levels or StoreConfig().delay_levels)
    if delay_levels:
        plan.delays_known = set(range(1, len(plan.delay_ms) + 1))
        return
    told: list[str] = []
    for queue in queues:
        if queue.topic != SCHEDULE_TOPIC:
            continue
        level = queue.queue_id + 1
        waits = _delay_of(files, store, queue)
        if waits < 0 or level > 1000:
            continue
        plan.delay_ms += plan.delay_ms[-1:] * (level - len(plan.delay_ms))
        if plan.delay_ms[level - 1] != waits:
            told.append(f"level {level} waits {waits / 1000:g} s")
        plan.delay_ms[level - 1] = waits
        plan.delays_known.add(level)
    if told:
        plan.delays_told = "delay levels are as their queues show them: " + ", ".join(told)


def _delay_of(files: ReadFiles, store: StoreDir, queue: QueueDir) -> int:
    """Milliseconds that most of the newest messages of a delay level wait; -1: no unit shows it."""
    units = QueueUnits(files, queue, store.segment_size)
    end = written_end(units)
    found: dict[int, int] = {}
    for offset in range(max(units.first, end - _DELAY_SAMPLES), end):
        if not units.load(offset) or units.filler:
            continue
        due_ms = int(units.code)
        record = read_record(files, store.log, int(units.physical))
        if record is None or (record.topic, record.queue_id) != (SCHEDULE_TOPIC, queue.queue_id):
            continue
        waits = due_ms - record.store_timestamp_ms
        if waits > 0:
            found[waits] = found.get(waits, 0) + 1
    return max(found, key=lambda waits: found[waits]) if found else -1


def _plan_index(
    files: ReadFiles, store: StoreDir, plan: RepairPlan, slots: int | None, entries: int | None
) -> None:
    specs = find_specs(files, store, slots, False, Findings())
    if slots and entries:
        plan.slots, plan.entries = slots, entries
    elif specs:
        plan.slots = specs[-1].slots
        plan.entries = (specs[-1].file.size - 40 - 4 * plan.slots) // 20
    else:
        plan.warnings.append(
            "there is no index file to take the settings from: our broker makes an index at its start, Apache's "
            "does not; --hash-slots with --index-entries makes one now"
        )


def _plan_json(files: ReadFiles, store: StoreDir, plan: RepairPlan) -> None:
    for name in files.list_dir(store.config):
        path = f"{store.config}/{name}"
        if not name.endswith(".json"):
            continue
        if not _broken(files, path) and not changed_unwritten(files, path):
            continue
        backups = [path + suffix for suffix in BACKUPS]
        sound = [one for one in backups if files.file_size(one) > 0 and not _broken(files, one)]
        if sound:
            plan.json_from[path] = sound[0]
        else:
            plan.warnings.append(
                f"{path} is damaged and there is no sound {name}.bak: it stays as it is"
            )


def _broken(files: ReadFiles, path: str) -> bool:
    try:
        load_json(files, path)
    except StoreError:
        return True
    return False
