"""Making a sound store of a damaged one: the log patched, queues and index anew from it, the rest copied.

Nothing that is sound is lost, and no queue offset is given twice: where messages are gone, fillers keep their places.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from roquette.base.files import File, Files
from roquette.base.generations import BACKUPS
from roquette.base.read_files import ReadFiles, read_all
from roquette.errors import StoreError
from roquette.message.record import StoredRecord, encode_blank
from roquette.store.checkpoint import Checkpoint, write_checkpoint
from roquette.store.consume_queue import UNIT_SIZE, ConsumeQueue, encode_unit
from roquette.store.consume_queues import ConsumeQueues
from roquette.store.index import Index
from roquette.store.layout import StoreLayout, offset_name
from roquette.store.offline.findings import DAMAGE, Findings
from roquette.store.offline.index_check import find_specs
from roquette.store.offline.mend_log import LogPlan, plan_log
from roquette.store.offline.overview import written_end
from roquette.store.offline.small_files import (
    JSON_LIMIT,
    LogFacts,
    changed_unwritten,
    load_json,
    topics_of,
)
from roquette.store.offline.store_dir import StoreDir, find_store, list_queues
from roquette.store.offline.timer_check import check_timer
from roquette.store.offline.units import QueueUnits
from roquette.store.offline.walk import walk_files
from roquette.store.reput import Reput, parse_delay_levels

_WINDOW: Final = 1 << 20
_DEFAULT_QUEUE_FILE: Final = 6_000_000
_DELAYS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_MADE_ANEW: Final = frozenset(  # or copied by itself; all else in a store is copied as it is
    {
        *("commitlog", "commitlog.ahead", "consumequeue", "index", "index.building", "config"),
        *("checkpoint", "abort", "lock"),
    }
)
_LOST_FILES: Final = 64  # at the end of a log: queues that point farther are not believed
_SETTLE_RECORDS: Final = 200_000  # between syncs of what was rebuilt


@dataclass(slots=True)
class RepairPlan:
    """What a repair will do.

    Attributes:
        topics: those that get queues; None: all the log knows.
        queue_ends: (topic, queue id) -> queue offset below which none may be given again.
        slots, entries: of an index file; 0: no index is made.
        json_from: path of a JSON file -> the file its content comes from.
    """

    log: LogPlan
    topics: frozenset[str] | None
    queue_ends: dict[tuple[str, int], int]
    queue_file_size: int = _DEFAULT_QUEUE_FILE
    slots: int = 0
    entries: int = 0
    json_from: dict[str, str] = field(default_factory=dict)
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
        return found + [f"warning: {words}" for words in self.warnings]


def plan_repair(
    files: ReadFiles,
    store: StoreDir,
    slots: int | None = None,
    entries: int | None = None,
    queue_file_size: int | None = None,
) -> RepairPlan:
    """Look at all of the log and say what a repair will do. Raises OSError.

    Args:
        slots, entries: maxHashSlotNum and maxIndexNum, when no index file shows them.
        queue_file_size: mappedFileSizeConsumeQueue, when no queue shows it.

    Raises:
        StoreError: the store is of a kind that can not be repaired.
    """
    if store.strange:
        raise StoreError(f"this store can not be repaired: {store.strange[0]}")
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
    _plan_index(files, store, plan, slots, entries)
    _plan_json(files, store, plan)
    return plan


def _plausible(units: QueueUnits, store: StoreDir, log_end: int) -> bool:
    """May a queue's last unit be one that a broker wrote? Garbage must not decide where a queue goes on."""
    far = log_end + _LOST_FILES * store.segment_size
    return bool(units.filler or 0 < units.size <= store.segment_size) and 0 <= units.physical <= far


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


def repair(
    reader: ReadFiles,
    files: Files,
    store: StoreDir,
    plan: RepairPlan,
    target: str | None,
    on_step: Callable[[str], None] = lambda words: None,
) -> StoreDir:
    """Do it. Raises OSError.

    Args:
        reader: where the store is read. `files`: where things are written.
        target: directory of the copy, empty or not there; None: in place.

    Returns:
        The mended store, to be checked.

    Raises:
        StoreError: the target is in use.
    """
    if target is not None:
        return _Repair(reader, files, store, plan, target.rstrip("/"), on_step).to_copy()
    return _Repair(reader, files, store, plan, store.root, on_step).in_place()


class _Repair:
    def __init__(
        self,
        reader: ReadFiles,
        files: Files,
        store: StoreDir,
        plan: RepairPlan,
        target: str,
        on_step: Callable[[str], None],
    ) -> None:
        self._reader = reader
        self._files = files
        self._store = store
        self._plan = plan
        self._target = target
        self._on_step = on_step
        self._last_ms = plan.log.last_ms

    def to_copy(self) -> StoreDir:
        files, target = self._files, self._target
        if files.exists(target) and files.list_dir(target):
            raise StoreError(
                f"{target} is not empty: give a directory that is, or is not there yet"
            )
        layout = StoreLayout(target)
        files.make_dirs(layout.commit_log)
        files.open_file(layout.abort, create=True).close()  # stands until all is done
        for base in self._plan.log.bases:
            self._on_step(f"copying {offset_name(base)}")
            self._copy_log(base, f"{layout.commit_log}/{offset_name(base)}")
        files.sync_dir(layout.commit_log)
        if self._store.whole:
            self._copy_config()
        mended = find_store(self._reader, target)
        self._derive(mended, layout)
        self._finish(layout, mended)
        return mended

    def in_place(self) -> StoreDir:
        files, store = self._files, self._store
        if not store.whole:
            raise StoreError(
                f"{store.root} is a commit log alone: repair it into a store of its own, with --to"
            )
        files.open_file(store.abort, create=True).close()
        files.sync_dir(store.root)
        self._patch_log()
        for path, source in self._plan.json_from.items():
            files.write_atomic(path, read_all(self._reader, source, JSON_LIMIT), keep_backup=False)
        fresh = StoreLayout(f"{store.root}/repair.new", store.commit_log)
        files.remove_tree(fresh.root)
        mended = find_store(self._reader, store.root, store.commit_log)
        self._derive(mended, fresh)
        for made, place in (
            (fresh.consume_queues, store.consume_queues),
            (fresh.index, store.index),
        ):
            if files.exists(made):
                files.remove_tree(place)
                files.rename(made, place)
        files.sync_dir(store.root)
        files.remove_tree(fresh.root)
        self._finish(StoreLayout(store.root, store.commit_log), mended)
        return find_store(self._reader, store.root, store.commit_log)

    # The log

    def _copy_log(self, base: int, path: str) -> None:
        size = self._store.segment_size
        patches = [patch for patch in self._plan.log.patches if patch.base == base]
        target = self._files.open_file(path, create=True)
        try:
            target.truncate(size)
            file = self._store.file_of(base)
            if file is not None and base not in self._plan.log.missing:
                source = self._reader.open(file.path)
                try:
                    at = 0
                    while at < file.size:
                        data = source.read(at, _WINDOW)
                        if data != bytes(len(data)):
                            target.pwrite(data, at)
                        at += len(data)
                finally:
                    source.close()
            self._write_patches(target, base, patches)
            target.sync()
        finally:
            target.close()

    def _write_patches(self, target: File, base: int, patches: list[Any]) -> None:
        if base in self._plan.log.missing:
            target.pwrite(encode_blank(self._store.segment_size), 0)
        for patch in patches:
            for at in range(patch.position, patch.end, _WINDOW):
                target.pwrite(bytes(min(_WINDOW, patch.end - at)), at)
            for at, data in patch.pieces():
                target.pwrite(data, at)

    def _patch_log(self) -> None:
        """Keep what is overwritten beside the store, then overwrite it."""
        log, files, store = self._plan.log, self._files, self._store
        lost = f"{store.root}/repair.lost"
        for patch in log.patches:
            file = store.file_of(patch.base)
            if file is not None:
                files.make_dirs(lost)
                self._keep(file.path, patch, f"{lost}/{offset_name(patch.base + patch.position)}")
        for file in store.log:
            if file.base in log.bases:
                opened = files.open_file(file.path)
                try:
                    if file.size < store.segment_size:
                        opened.truncate(store.segment_size)
                    patches = [patch for patch in log.patches if patch.base == file.base]
                    if patches:
                        self._on_step(f"patching {file.path}")
                        self._write_patches(opened, file.base, patches)
                    opened.sync()
                finally:
                    opened.close()
            elif _empty(self._reader, file.path):
                files.remove(file.path)  # made ahead, or what a crash left of it
            else:
                files.make_dirs(lost)
                files.rename(file.path, f"{lost}/{offset_name(file.base)}")
        for base in log.missing:
            self._copy_log(base, f"{store.commit_log}/{offset_name(base)}")
        files.sync_dir(store.commit_log)

    def _keep(self, path: str, patch: Any, target: str) -> None:
        source = self._reader.open(path)
        try:
            data = source.read(patch.position, min(patch.end, source.size) - patch.position)
        finally:
            source.close()
        data = data.rstrip(b"\0") if patch.how != "filler" else data
        if data and not self._files.exists(target):
            self._files.write_atomic(target, data, keep_backup=False)

    # What is derived

    def _derive(self, mended: StoreDir, layout: StoreLayout) -> None:
        plan, files = self._plan, self._files
        queues = ConsumeQueues(files, layout, plan.queue_file_size // UNIT_SIZE)
        index = Index(files, layout.index, plan.slots, plan.entries) if plan.slots else None
        segment_size = self._store.segment_size
        reput = Reput(queues, index, parse_delay_levels(_DELAYS), segment_size)
        known: dict[tuple[str, int], None] = {}
        count = 0
        for record in walk_files(
            self._reader,
            mended.log,
            mended.segment_size,
            check_crc=False,
            on_file=lambda file: self._on_step(f"queues and index from {file.path}"),
        ):
            if not isinstance(record, StoredRecord):
                continue
            if plan.topics is None or record.topic in plan.topics:
                known[record.topic, record.queue_id] = None
                reput.rebuild(record, known)
            if index is not None:
                reput.rebuild_keys(record)
            count += 1
            if count % _SETTLE_RECORDS == 0:
                self._sync(queues, index)
        self._keep_ends(queues)
        self._sync(queues, index)
        directories = {layout.consume_queues: None} if queues.topics else {}
        for opened in queues.all():
            directories[os.path.dirname(opened.directory)] = None
            directories[opened.directory] = None
        for directory in directories:
            files.sync_dir(directory)
        queues.close()
        if index is not None:
            index.close()

    def _keep_ends(self, queues: ConsumeQueues) -> None:
        """Let queues go on behind all that they ever had."""
        plan = self._plan
        for (topic, queue_id), end in plan.queue_ends.items():
            queue = queues.find(topic, queue_id)
            if queue is not None and queue.file_count:
                if queue.next_offset < end:
                    queue.skip_to(end, -1, self._store.segment_size)
            elif self._store.min_offset:
                # The log has lost its first bytes, so nobody reads what points there.
                queue = queue or queues.create(topic, queue_id)
                queue.start_at(end, encode_unit(0, 1, 0))
            else:
                # Apache's broker would serve whatever units stand here, or keep new messages out.
                plan.warnings.append(
                    f"all messages of {topic}/{queue_id} are lost: its offsets begin at 0 again, they ended at {end}"
                )
                continue
            queues.mark_dirty(queue)

    def _sync(self, queues: ConsumeQueues, index: Index | None) -> None:
        for queue in queues.dirty:
            _sync_queue(queue)
        queues.dirty = []
        if index is not None:
            for index_file in index.take_dirty():
                index_file.file.sync()

    # The rest

    def _copy_config(self) -> None:
        store, files = self._store, self._files
        for name in self._reader.list_dir(store.config):
            path = f"{store.config}/{name}"
            if self._reader.file_size(path) < 0:
                continue
            source = self._plan.json_from.get(path, path)
            data = read_all(self._reader, source, JSON_LIMIT)
            files.write_atomic(f"{self._target}/config/{name}", data, keep_backup=False)
        for name in self._reader.list_dir(store.root):
            if name not in _MADE_ANEW and not name.startswith("repair."):
                self._on_step(f"copying {name}")
                self._copy_tree(f"{store.root}/{name}", f"{self._target}/{name}")

    def _copy_tree(self, path: str, target: str) -> None:
        if self._reader.is_dir(path):
            self._files.make_dirs(target)
            for name in self._reader.list_dir(path):
                self._copy_tree(f"{path}/{name}", f"{target}/{name}")
        elif self._reader.file_size(path) >= 0:
            self._copy_sparse(path, target)

    def _copy_sparse(self, path: str, target: str) -> None:
        source = self._reader.open(path)
        written = self._files.open_file(target, create=True)
        try:
            written.truncate(source.size)
            for at in range(0, source.size, _WINDOW):
                data = source.read(at, _WINDOW)
                if data != bytes(len(data)):
                    written.pwrite(data, at)
            written.sync()
        finally:
            written.close()
            source.close()

    def _finish(self, layout: StoreLayout, mended: StoreDir) -> None:
        """Timer files only when they agree, the checkpoint, and last of all the abort file goes."""
        files, plan = self._files, self._plan
        found = Findings()
        ends = dict(plan.queue_ends)
        for queue in list_queues(self._reader, mended):
            units = QueueUnits(self._reader, queue, mended.segment_size)
            ends[queue.topic, queue.queue_id] = written_end(units)
        facts = LogFacts(plan.log.end, self._last_ms, ends, sure=True)
        check_timer(self._reader, mended, facts, False, found)
        if any(item.severity == DAMAGE for item in found.items):
            self._on_step(
                "leaving out the timer's files: our broker makes them anew from the timer's topic"
            )
            files.remove(layout.timer_wheel)
            files.remove(layout.timer_checkpoint)
            files.remove_tree(layout.timer_log)
        checkpoint = Checkpoint(
            physical_ms=self._last_ms,
            logical_ms=self._last_ms,
            index_ms=self._last_ms if plan.slots else 0,
            logical_offset=plan.log.end,
        )
        files.remove(layout.checkpoint)
        write_checkpoint(files, layout.checkpoint, checkpoint.encode())
        files.remove(layout.abort)
        files.sync_dir(layout.root)


def _sync_queue(queue: ConsumeQueue) -> None:
    for file in queue.unflushed_files():
        file.sync()
    queue.flushed_offset = queue.next_offset
    queue.dirty = False


def _empty(files: ReadFiles, path: str) -> bool:
    source = files.open(path)
    try:
        at = 0
        while at < source.size:
            data = source.read(at, _WINDOW)
            if data != bytes(len(data)):
                return False
            at += len(data)
        return True
    finally:
        source.close()
