"""What a repair will do: looked up before anything is written, and shown."""

from dataclasses import dataclass, field
from typing import Final

from roquette.base.files import ReadFiles
from roquette.base.generations import BACKUPS
from roquette.errors import StoreError
from roquette.message.names import SCHEDULE_TOPIC
from roquette.store.audit.findings import Findings
from roquette.store.format.config import StoreConfig
from roquette.store.format.layout import offset_name
from roquette.store.format.unit import UNIT_SIZE
from roquette.store.offline.index_check import find_specs
from roquette.store.offline.mend_log import LogPlan, plan_log
from roquette.store.offline.overview import written_end
from roquette.store.offline.small_files import changed_unwritten, load_json, topics_of
from roquette.store.offline.store_dir import QueueDir, StoreDir, list_queues
from roquette.store.offline.units import QueueUnits
from roquette.store.offline.walk import read_record
from roquette.store.reput import parse_delay_levels

_DEFAULT_QUEUE_FILE: Final = 6_000_000
_LOST_FILES: Final = 64  # at the end of a log: queues that point farther are not believed
_DELAY_SAMPLES: Final = 16  # units of a delay level, from its end


@dataclass(slots=True)
class RepairPlan:
    """What a repair will do.

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
