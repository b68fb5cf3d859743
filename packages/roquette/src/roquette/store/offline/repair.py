"""Making a sound store of a damaged one: the log patched, queues and index rebuilt from it, the rest copied.

Nothing that is sound is lost, and no queue offset is given twice: where messages are gone, fillers keep their places.
In place, all is made beside the old files first and then swapped in (`swap`): whatever fails before leaves the store as
it was.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec

from roquette.base.files import File, Files, ReadFiles, read_all
from roquette.errors import StoreError
from roquette.message.names import SCHEDULE_TOPIC
from roquette.message.record import encode_blank
from roquette.message.record_layout import StoredRecord
from roquette.store.audit.findings import DAMAGE, Findings
from roquette.store.audit.index_audit import SUMS
from roquette.store.format.checkpoint import Checkpoint, write_checkpoint
from roquette.store.format.layout import StoreLayout, offset_name, pending_words
from roquette.store.format.unit import UNIT_SIZE, encode_unit
from roquette.store.index.index import Index
from roquette.store.offline.overview import written_end
from roquette.store.offline.repair_plan import RepairPlan
from roquette.store.offline.small_files import JSON_LIMIT, LogFacts
from roquette.store.offline.store_dir import LogFile, StoreDir, find_store, list_queues, walk_files
from roquette.store.offline.timer_check import check_timer
from roquette.store.offline.unit_check import QueueUnits
from roquette.store.queues.consume_queue import ConsumeQueue
from roquette.store.queues.consume_queues import ConsumeQueues
from roquette.store.reput import Reput

# Putting what was made beside a store in the place of its files, all or nothing.
# Everything new is made and synced in `repair.new` first, files of the log in a directory of that name beside theirs, so that a rename does. Then the file `repair.swap` names the steps: before it is there the store is as it was; once it is there the steps are taken, again after a crash, until it is gone. Our broker does not open a store that has it. Apache's does not look at it; it finds the file `abort` and no checkpoint, and so reads the log that is there at that moment.


NEW: Final = "repair.new"


class Swap:
    """The steps of one swap, in order."""

    def __init__(self, files: Files, root: str, commit_log: str) -> None:
        self._files = files
        self._root = root
        self._commit_log = commit_log
        self._pending = StoreLayout(root).repair_pending
        self._steps: list[tuple[str, str]] = []  # source, "" for none, and target

    def put(self, source: str, target: str) -> None:
        """Let a file or directory take the place of another."""
        self._steps.append((source, target))

    def drop(self, target: str) -> None:
        """Let a file or directory go."""
        self._steps.append(("", target))

    def log_directory(self) -> str:
        """Return the directory in which new files of the log are made: on the same disk as the log."""
        directory = f"{self._commit_log}/{NEW}"
        self._files.make_dirs(directory)
        return directory

    def clean(self) -> None:
        """Remove what an earlier attempt has left."""
        self._files.remove_tree(f"{self._root}/{NEW}")
        self._files.remove_tree(f"{self._commit_log}/{NEW}")
        self._files.remove(f"{self._pending}.tmp")

    def refuse_pending(self) -> None:
        """Raises StoreError when a swap was begun and not ended."""
        if self._files.exists(self._pending):
            raise StoreError(pending_words(self._root))

    def commit(self) -> None:
        """From here on the store is the new one, once the steps are taken. Raises OSError."""
        files = self._files
        made = [os.path.dirname(source) for source, _ in self._steps if source]
        for path in dict.fromkeys(made + [os.path.dirname(directory) for directory in made]):
            files.sync_dir(path)
        plan = {"commitLog": self._commit_log, "steps": self._steps}
        files.write_atomic(self._pending, msgspec.json.encode(plan), keep_backup=False)

    def finish(self) -> None:
        """Take the steps; those that were taken are passed over. Raises OSError: try again."""
        files, root = self._files, self._root
        left = [step for step in self._steps if not step[0] or files.exists(step[0])]
        touched = {root: None} | {os.path.dirname(target): None for _, target in self._steps}
        if any(source for source, _ in left):  # the new checkpoint comes last
            files.open_file(f"{root}/abort", create=True).close()
            files.remove(f"{root}/checkpoint")
            files.sync_dir(root)
        for source, target in left:
            if not source or files.is_dir(source):
                self._remove(target)
            if source:
                files.rename(source, target)
        for path in touched:
            files.sync_dir(path)
        files.remove(f"{root}/abort")
        files.sync_dir(root)
        files.remove(self._pending)
        files.sync_dir(root)
        self.clean()

    def _remove(self, path: str) -> None:
        if self._files.file_size(path) >= 0:
            self._files.remove(path)
        else:
            self._files.remove_tree(path)


def finish_pending(files: Files, root: str) -> bool:
    """End a swap that was interrupted; False when there is none. Raises OSError, and StoreError when it is unreadable."""
    path = StoreLayout(root).repair_pending
    if not files.exists(path):
        return False
    try:
        plan = msgspec.json.decode(files.read_bytes(path), type=_Plan)
    except msgspec.DecodeError as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    swap = Swap(files, root, plan.commitLog)
    for source, target in plan.steps:
        swap.put(source, target)
    swap.finish()
    return True


class _Plan(msgspec.Struct):
    commitLog: str
    steps: list[tuple[str, str]]


_WINDOW: Final = 1 << 20
_MADE_ANEW: Final = frozenset(  # or copied by itself; all else in a store is copied as it is
    {
        *("commitlog", "commitlog.ahead", "consumequeue", "index", "index.building", "config"),
        *("checkpoint", "abort", "lock", SUMS),
    }
)
_SETTLE_RECORDS: Final = 200_000  # between syncs of what was rebuilt


def repair(
    reader: ReadFiles,
    files: Files,
    store: StoreDir,
    plan: RepairPlan,
    target: str | None,
    on_step: Callable[[str], None] = lambda words: None,
) -> StoreDir:
    """Write the repaired files and swap them in. Raises OSError: the store is as it was, or `swap.pending` says that the swap is to be ended.

    Args:
        reader: where the store is read. `files`: where things are written.
        target: directory of the copy, empty or not there; None: in place.

    Returns:
        The mended store, to be checked.

    Raises:
        StoreError: the target is in use, or lies in the store.
    """
    if target is not None:
        return _Repair(reader, files, store, plan, target.rstrip("/") or "/", on_step).to_copy()
    return _Repair(reader, files, store, plan, store.root, on_step).in_place()


def _refuse_target(files: Files, store: StoreDir, target: str) -> None:
    """A copy within what is copied would never end, and one of its directories is read as the store's own."""
    there = os.path.realpath(target)
    for source in (store.root, store.commit_log):
        inside = os.path.realpath(source)
        if there == inside or there.startswith(inside + "/"):
            raise StoreError(f"{target} lies in {source}, which is to be copied: give another --to")
    if files.exists(target) and files.list_dir(target):
        raise StoreError(f"{target} is not empty: give a directory that is, or is not there yet")


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
        _refuse_target(files, self._store, target)
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
        if not self._timers_agree(mended, mended):
            for path in (layout.timer_wheel, layout.timer_checkpoint):
                files.remove(path)
            files.remove_tree(layout.timer_log)
        files.remove(layout.checkpoint)
        self._write_checkpoint(layout.checkpoint)
        files.remove(layout.abort)
        files.sync_dir(target)
        return mended

    def in_place(self) -> StoreDir:
        files, store, plan = self._files, self._store, self._plan
        if not store.whole:
            raise StoreError(
                f"{store.root} is a commit log alone: repair it into a store of its own, with --to"
            )
        swap = Swap(files, store.root, store.commit_log)
        swap.refuse_pending()
        swap.clean()
        fresh = StoreLayout(f"{store.root}/{NEW}", store.commit_log)
        files.make_dirs(fresh.root)
        log = self._stage_log(swap)
        mended = replace(store, root=fresh.root, log=log)
        self._derive(mended, fresh)
        for made, place in (
            (fresh.consume_queues, store.consume_queues),
            (fresh.index, store.index),
        ):
            if files.exists(made):
                swap.put(made, place)
        for number, (path, source) in enumerate(plan.json_from.items()):
            staged = f"{fresh.root}/json.{number}"
            data = read_all(self._reader, source, JSON_LIMIT)
            files.write_atomic(staged, data, keep_backup=False)
            swap.put(staged, path)
        swap.drop(f"{store.root}/{SUMS}")  # of the index before
        layout = StoreLayout(store.root, store.commit_log)
        if not self._timers_agree(store, mended):
            swap.drop(layout.timer_wheel)
            swap.drop(layout.timer_checkpoint)
            swap.drop(layout.timer_log)
        self._write_checkpoint(fresh.checkpoint)
        swap.put(fresh.checkpoint, store.checkpoint)
        swap.commit()
        swap.finish()
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
                source = self._reader.open_file(file.path)
                try:
                    at = 0
                    while at < file.size:
                        data = source.pread(_WINDOW, at)
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

    def _stage_log(self, swap: Swap) -> list[LogFile]:
        """Copies of the files that need a patch, beside them; returns all files of the mended log.

        What is overwritten, and files that the mended log does not have, go to `repair.lost`.
        """
        plan, files, store = self._plan.log, self._files, self._store
        patched = {patch.base for patch in plan.patches}
        lost = f"{store.root}/repair.lost"
        for patch in plan.patches:
            file = store.file_of(patch.base)
            if file is not None:
                files.make_dirs(lost)
                self._keep(file.path, patch, f"{lost}/{offset_name(patch.base + patch.position)}")
        found: list[LogFile] = []
        known = {file.base: file for file in store.log}
        for base in plan.bases:
            path = f"{store.commit_log}/{offset_name(base)}"
            file = known.get(base)
            if file is not None and file.size == store.segment_size and base not in patched:
                found.append(file)
                continue
            self._on_step(f"copying and patching {path}")
            staged = f"{swap.log_directory()}/{offset_name(base)}"
            self._copy_log(base, staged)
            swap.put(staged, path)
            found.append(LogFile(staged, base, store.segment_size))
        for base, file in known.items():
            if base in plan.bases:
                continue
            if _empty(self._reader, file.path):
                swap.drop(file.path)  # made ahead, or what a crash left of it
            else:
                files.make_dirs(lost)
                swap.put(file.path, f"{lost}/{offset_name(base)}")
        return found

    def _keep(self, path: str, patch: Any, target: str) -> None:
        source = self._reader.open_file(path)
        try:
            data = source.pread(min(patch.end, source.size) - patch.position, patch.position)
        finally:
            source.close()
        data = data.rstrip(b"\0") if patch.how in ("blank", "zeros") else data
        if data and not self._files.exists(target):
            self._files.write_atomic(target, data, keep_backup=False)

    # What is derived

    def _derive(self, mended: StoreDir, layout: StoreLayout) -> None:
        plan, files = self._plan, self._files
        queues = ConsumeQueues(files, layout, plan.queue_file_size // UNIT_SIZE)
        index = Index(files, layout.index, plan.slots, plan.entries) if plan.slots else None
        segment_size = self._store.segment_size
        reput = Reput(queues, index, plan.delay_ms, segment_size)
        guessed: set[int] = set()
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
            if record.topic == SCHEDULE_TOPIC and record.queue_id + 1 not in plan.delays_known:
                guessed.add(record.queue_id + 1)
            if plan.topics is None or record.topic in plan.topics:
                known[record.topic, record.queue_id] = None
                reput.rebuild(record, known)
            if index is not None:
                reput.rebuild_keys(record)
            count += 1
            if count % _SETTLE_RECORDS == 0:
                self._sync(queues, index)
        reput.end_rebuild()
        if guessed:
            plan.warnings.append(
                f"no queue shows how long delay levels {', '.join(map(str, sorted(guessed)))} wait: Apache's defaults "
                "are taken; give --delay-levels if the broker's messageDelayLevel was another"
            )
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
        source = self._reader.open_file(path)
        written = self._files.open_file(target, create=True)
        try:
            written.truncate(source.size)
            for at in range(0, source.size, _WINDOW):
                data = source.pread(_WINDOW, at)
                if data != bytes(len(data)):
                    written.pwrite(data, at)
            written.sync()
        finally:
            written.close()
            source.close()

    def _timers_agree(self, store: StoreDir, mended: StoreDir) -> bool:
        """Do the timer's files fit the mended log and queues? Else they are left out.

        Args:
            store: where the timer's files are. `mended`: where the new queues are.
        """
        plan = self._plan
        found = Findings()
        ends = dict(plan.queue_ends)
        for queue in list_queues(self._reader, mended):
            units = QueueUnits(self._reader, queue, mended.segment_size)
            ends[queue.topic, queue.queue_id] = written_end(units)
        facts = LogFacts(plan.log.end, self._last_ms, ends, sure=True)
        check_timer(self._reader, store, facts, False, found)
        agree = all(item.severity != DAMAGE for item in found.items)
        if not agree:
            self._on_step(
                "leaving out the timer's files: our broker makes them anew from the timer's topic"
            )
        return agree

    def _write_checkpoint(self, path: str) -> None:
        checkpoint = Checkpoint(
            physical_ms=self._last_ms,
            logical_ms=self._last_ms,
            index_ms=self._last_ms if self._plan.slots else 0,
            logical_offset=self._plan.log.end,
        )
        write_checkpoint(self._files, path, checkpoint.encode())


def _sync_queue(queue: ConsumeQueue) -> None:
    for file in queue.unflushed_files():
        file.sync()
    queue.flushed_offset = queue.next_offset
    queue.dirty = False


def _empty(files: ReadFiles, path: str) -> bool:
    source = files.open_file(path)
    try:
        at = 0
        while at < source.size:
            data = source.pread(_WINDOW, at)
            if data != bytes(len(data)):
                return False
            at += len(data)
        return True
    finally:
        source.close()
