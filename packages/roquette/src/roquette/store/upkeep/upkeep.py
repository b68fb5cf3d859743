"""The store's slow work: syncs, checkpoint, files made ahead, files deleted.

Plans leave here for the executor and come back; state changes on the loop thread only.
"""

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from roquette.base.descriptors import SHORTAGE, shortage_words
from roquette.base.files import File, Files, zero_fill
from roquette.store.audit.index_audit import write_sums
from roquette.store.format.checkpoint import Checkpoint, load_checkpoint, write_checkpoint
from roquette.store.format.config import StoreConfig
from roquette.store.format.layout import StoreLayout, offset_name
from roquette.store.format.log_mark import LogMark
from roquette.store.format.segment import Segment
from roquette.store.format.unit import UNIT_SIZE
from roquette.store.index.index import Index
from roquette.store.log.commit_log import CommitLog, store_time_at
from roquette.store.log.log_files import KeptFile
from roquette.store.queues.consume_queues import ConsumeQueues
from roquette.store.upkeep.retention import (
    HOUR_MS,
    DiskState,
    LogState,
    SteadyTime,
    Urgency,
    count_expired,
    count_oversize,
    proven_ends,
    urgency,
)

# Blocking work the store hands to its driver: values go out, `run` blocks, values come back.
# A plan touches no state of the store. Its `run` is called in the executor; the store learns of the result when the driver hands the plan back on the loop.


class SyncPlan:
    """Sync the commit log up to `end_offset`."""

    __slots__ = (
        "_directory",
        "_files",
        "_mark",
        "_touched",
        "end_offset",
        "error",
        "physical_ms",
        "short",
    )

    def __init__(
        self,
        files: Files,
        touched: list[File],
        directory: str | None,
        end_offset: int,
        physical_ms: int,
        mark: LogMark | None = None,
    ) -> None:
        """`mark`: is synced too when there is a directory to sync: a log with a file is known to have one."""
        self._files = files
        self._mark = mark
        self._touched = touched
        self._directory = directory
        self.end_offset = end_offset
        self.physical_ms = physical_ms
        self.error: OSError | None = None
        self.short: OSError | None = None  # something could not be opened: run it again later

    @property
    def descriptor(self) -> int | None:
        """The file, when its sync is all there is to do; None when `run` must do more."""
        if self._directory is not None or len(self._touched) != 1:
            return None
        return self._touched[0].descriptor

    def run(self) -> None:
        """Block until the data is on the disk. An error is kept, not raised, and never retried:
        after a failed sync the system may have dropped the pages."""
        self.short = None
        try:
            for file in self._touched:
                file.sync()
            if self._directory is not None:
                self._files.sync_dir(self._directory)
                if self._mark is not None:
                    self._mark.note_synced(self.end_offset)
                    self._mark.sync()
        except OSError as error:
            if _is_shortage(error, self._files):
                self.short = error
            else:
                self.error = error


def _is_shortage(error: OSError, files: Files) -> bool:
    """Was a file not even opened for its sync? That is no failed sync: nothing was dropped."""
    return error.errno in SHORTAGE and files.sync_error is None


class QueueFlushPlan:
    """Sync consume queues and index, then move the checkpoint.

    When thorough, all records before `log_offset` have their queue units on the disk after it.
    """

    __slots__ = (
        "_checkpoint",
        "_checkpoint_path",
        "_directories",
        "_files",
        "_then",
        "_touched",
        "again",
        "error",
        "log_offset",
        "short",
        "thorough",
    )

    def __init__(
        self,
        files: Files,
        touched: list[File],
        directories: list[str],
        checkpoint_path: str,
        checkpoint: bytes | None,
        log_offset: int,
        then: Callable[[], None] | None = None,
    ) -> None:
        """`checkpoint`: what its file shall hold; None: it stays. `then`: called when all is on the disk."""
        self._files = files
        self._then = then
        self._touched = touched
        self._directories = directories
        self._checkpoint_path = checkpoint_path
        self._checkpoint = checkpoint
        self.log_offset = log_offset
        self.thorough = checkpoint is not None
        self.error: OSError | None = None
        self.short: OSError | None = None  # something could not be opened: run it again later
        self.again = False  # it was put off

    def run(self) -> None:
        """Block until all is on the disk. A topic deleted meanwhile is no error."""
        self.short = None
        try:
            for file in self._touched:
                file.sync()
            for directory in self._directories:
                if self._files.exists(directory):
                    self._files.sync_dir(directory)
            if self._checkpoint is not None:
                write_checkpoint(self._files, self._checkpoint_path, self._checkpoint)
            if self._then is not None:
                self._then()
        except OSError as error:
            if _is_shortage(error, self._files):
                self.short = error
            else:
                self.error = error


class AllocationPlan:
    """Make the next commit log file ahead: blocks reserved, zeros written."""

    __slots__ = ("_directory", "_files", "_size", "error", "file", "offset", "path")

    def __init__(self, files: Files, directory: str, path: str, offset: int, size: int) -> None:
        self._files = files
        self._directory = directory
        self._size = size
        self.path = path
        self.offset = offset
        self.file: File | None = None
        self.error: OSError | None = None

    def run(self) -> None:
        """Block until the file is there. A full disk is no error yet: the roll will meet it."""
        try:
            self._files.make_dirs(self._directory)
            file = self._files.open_file(self.path, self._size, create=True)
            zero_fill(file, self._size)
            self.file = file
        except OSError as error:
            self.error = error
            self._files.remove(self.path)


class DeletionPlan:
    """Remove files that the store has already forgotten."""

    __slots__ = ("_files", "_mark", "done", "empties", "paths", "reason")

    def __init__(
        self, files: Files, paths: list[str], reason: str, mark: LogMark | None = None
    ) -> None:
        """`mark`: says where the log begins now, and is synced first: what is gone later is known to be missing."""
        self._files = files
        self.empties = False  # a directory goes with its last file
        self._mark = mark
        self.paths = paths
        self.reason = reason
        self.done = False

    def run(self) -> None:
        """Block until the files are removed. An OSError leaves the rest to the next plan.

        Durably and in order, or a power cut could leave an old file before a hole: the log would
        seem to end there.
        """
        if self._mark is not None:
            self._mark.sync()
        for path in self.paths:
            self._files.remove(path)
            directory = path.rpartition("/")[0]
            if self._files.exists(directory):
                self._files.sync_dir(directory)
                if self.empties and not self._files.list_dir(directory):
                    self._files.remove_tree(directory)
        self.done = True


log = logging.getLogger("roquette.store")

_PAGE = 4096
FOR_EVER_MS: Final = 1 << 62
_ENDS_PER_PASS: Final = 32  # each may have to come from the disk
_CHECKPOINT_BYTES = 256 << 20  # of log, after which the checkpoint moves before its time
_LONG_AGO: Final = -(1 << 62)


class Upkeep:
    """Plans for one store's parts. At most one sync and one allocation are under way."""

    def __init__(
        self,
        files: Files,
        layout: StoreLayout,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: Index | None,
    ) -> None:
        self._files = files
        self._layout = layout
        self.config = config
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._sync_running = False
        self._queue_flush_running = False
        self._allocation_running = False
        self._last_thorough_ms: int | None = (
            None  # steady time; None: it counts from the first plan
        )
        self._queues_synced = 0  # records before this offset have their units on the disk
        self._deletion: DeletionPlan | None = None
        self._time = SteadyTime()
        self._doubted = False
        self._ends: list[
            int
        ] = []  # store times at which the oldest files were full, of each file but the newest
        self._allocation_failed = False
        self._synced_to: list[tuple[Segment, int]] = []
        self._sync_put_off: SyncPlan | None = None
        self._short_told = False
        self._flush_put_off: QueueFlushPlan | None = None
        self.checkpoint = Checkpoint()

    def load_checkpoint(self) -> Checkpoint:
        """Read the checkpoint: what is on the disk."""
        self.checkpoint = load_checkpoint(self._files, self._layout.checkpoint)
        return self.checkpoint

    def started(self, last_store_ms: int) -> None:
        """Recovery is over: what it found is on the disk."""
        if last_store_ms:
            self.checkpoint.physical_ms = last_store_ms

    def all_synced(self) -> None:
        """Everything found at start is on the disk, queues included: expired files may go at once."""
        self._queues_synced = self._log.end_offset

    def plan_sync(self, last_store_ms: int) -> SyncPlan | None:
        """Sync what was written; None when there is nothing, or one is under way."""
        commit_log = self._log
        plan, self._sync_put_off = self._sync_put_off, None
        if plan is not None:
            self._sync_running = True
            return plan
        end = commit_log.wrote_offset
        if self._sync_running or (end <= commit_log.synced and not commit_log.directory_dirty):
            return None
        touched: list[tuple[Segment, int]] = []
        for segment in reversed(commit_log.segments):
            if segment.wrote == 0:
                continue
            # Older files are synced when this one is.
            if segment.synced == segment.wrote:
                break
            touched.append((segment, segment.wrote))
        touched.reverse()
        directory = commit_log.directory if commit_log.directory_dirty else None
        commit_log.directory_dirty = False
        self._sync_running = True
        self._synced_to = touched
        files = [segment.file for segment, _ in touched]
        return SyncPlan(self._files, files, directory, end, last_store_ms, commit_log.mark)

    def sync_later(self, plan: SyncPlan) -> None:
        """A plan could not open what it has to sync: the next plan is this one again."""
        assert plan.short is not None
        self._sync_running = False
        self._sync_put_off = plan
        self._tell_short("the commit log", plan.short)

    def flush_later(self, plan: QueueFlushPlan) -> None:
        """The same of queues, index and checkpoint."""
        assert plan.short is not None
        self._queue_flush_running = False
        self._flush_put_off = plan
        plan.again = True
        self._tell_short("queues and index", plan.short)

    def _tell_short(self, what: str, error: OSError) -> None:
        if not self._short_told:
            self._short_told = True
            log.error("sync of %s put off, it is tried again: %s", what, shortage_words(error))

    def synced(self, plan: SyncPlan) -> None:
        """Take note of a plan that has run without error."""
        self._sync_running = False
        self._short_told = False
        for segment, wrote in self._synced_to:
            segment.synced = wrote
        self._synced_to = []
        self._log.synced = max(self._log.synced, plan.end_offset)
        if self._log.mark is not None:
            self._log.mark.note_synced(self._log.synced)
        self.checkpoint.physical_ms = max(self.checkpoint.physical_ms, plan.physical_ms)

    def plan_queue_flush(self, now_ms: int | None, last_store_ms: int) -> QueueFlushPlan | None:
        """Sync queues with enough unsynced pages; all of them, index and checkpoint when due.

        Apache: FlushConsumeQueueService. `now_ms` is steady time, None means it is due. It is also due when the log has grown
        by so much that recovery would take long.
        """
        if self._queue_flush_running or self._flush_put_off is not None:
            return self._flush_again()
        due = self.config.queue_flush_thorough_interval_ms
        grown = self._log.end_offset - self.checkpoint.logical_offset
        if self._last_thorough_ms is None:
            self._last_thorough_ms = now_ms
        last_ms = self._last_thorough_ms
        thorough = (
            now_ms is None
            or (last_ms is not None and now_ms - last_ms >= due)
            or grown >= _CHECKPOINT_BYTES
        )
        least = 1 if thorough else self._least_units()
        touched: list[File] = []
        directories: dict[str, None] = {}
        rest = []
        for queue in self._queues.dirty:
            if queue.next_offset - queue.flushed_offset < least and not thorough:
                rest.append(queue)
                continue
            touched.extend(queue.unflushed_files())
            # Counted as synced already: an append while the plan runs marks the queue dirty again.
            queue.flushed_offset = queue.next_offset
            queue.dirty = False
            if queue.directory_dirty:
                directories[queue.directory] = None
                queue.directory_dirty = False
        self._queues.dirty = rest
        checkpoint: bytes | None = None
        then: Callable[[], None] | None = None
        if thorough:
            directories.update(self._queues.new_directories)
            self._queues.new_directories = {}
            if self._index is not None:
                touched.extend(dirty.file for dirty in self._index.take_dirty())
                sealed = self._index.take_sealed()
                if sealed:
                    then = partial(write_sums, self._files, self._layout, sealed)
                if self._index.directory_dirty:
                    directories[self._index.directory] = None
                    directories[self._layout.root] = None
                    self._index.directory_dirty = False
            self._last_thorough_ms = last_ms if now_ms is None else now_ms
            self.checkpoint.logical_ms = last_store_ms
            self.checkpoint.logical_offset = self._log.end_offset
            self.checkpoint.queues_synced = self._log.end_offset
            self.checkpoint.queue_ends = self._queues.count_units()
            self.checkpoint.log_synced = self._log.synced
            if self._index is not None:
                self.checkpoint.index_ms = self._index.end_timestamp_ms
            # Encoded here: the log goes on while the plan runs, and the checkpoint may vouch for no more than the plan syncs.
            checkpoint = self.checkpoint.encode()
        elif not touched:
            return None
        self._queue_flush_running = True
        return QueueFlushPlan(
            self._files,
            touched,
            list(directories),
            self._layout.checkpoint,
            checkpoint,
            self._log.end_offset,
            then,
        )

    def _flush_again(self) -> QueueFlushPlan | None:
        plan = None if self._queue_flush_running else self._flush_put_off
        if plan is not None:
            self._flush_put_off = None
            self._queue_flush_running = True
        return plan

    def _least_units(self) -> int:
        """Return the number of units a queue must have unsynced, for a sync between the thorough ones."""
        if self._queues.open_files.take_crowded():
            return 1
        return self.config.queue_flush_least_pages * _PAGE // UNIT_SIZE

    def queues_dropped(self) -> None:
        """A topic is deleted: the checkpoint must not count its queues for long, or recovery would look for them."""
        self._last_thorough_ms = _LONG_AGO

    def queues_flushed(self, plan: QueueFlushPlan) -> None:
        """A queue flush has come back without error."""
        self._queue_flush_running = False
        if plan.thorough:
            self._queues_synced = plan.log_offset

    def plan_allocation(self) -> AllocationPlan | None:
        """Make the next commit log file ahead, once the newest is half full."""
        path = self._log.ahead_path()
        if path is None or self._allocation_running or self._allocation_failed:
            return None
        self._allocation_running = True
        directory, name = os.path.split(path)
        return AllocationPlan(self._files, directory, path, int(name), self._log.segment_size)

    def allocated(self, plan: AllocationPlan) -> None:
        """Take the file a plan has made, unless the log has overtaken it."""
        self._allocation_running = False
        if plan.file is None:
            self._allocation_failed = True  # until the disk is looked at again
            log.warning("no commit log file made ahead path=%s error=%s", plan.path, plan.error)
            return
        active = self._log.active
        if active is not None and active.base_offset + active.size == plan.offset:
            self._log.spare = plan.file
            self._log.spare_offset = plan.offset
        else:
            plan.file.close()
            self._files.remove(plan.path)

    def disk_checked(self, full: bool) -> None:
        """The disk was looked at; on a full one no file is made ahead."""
        self._allocation_failed = full

    def plan_retention(
        self,
        now_ms: int,
        disks: Sequence[DiskState],
        last_store_ms: int,
        manual: bool = False,
        elapsed_ms: int | None = None,
        kept: Sequence[KeptFile] = (),
    ) -> DeletionPlan | None:
        """Forget what has expired; the plan deletes the files. None when nothing has.

        Only what is synced goes, queue units included: otherwise a power cut after the deletion
        could take back queue offsets whose records are no longer there to restore them. Files
        that the plan before this one failed to delete come again. `manual`: at any hour, and
        whatever the clock has done. `elapsed_ms`: see `SteadyTime`; None believes the clock. `kept`: files that
        were set aside, oldest first. For want of space they go by the rules of the log's files, and before those.
        """
        aged = urgency(self.config, now_ms, disks)
        if aged is None and manual:
            aged = Urgency.MANUAL
        kept_ms = self.config.file_reserved_hours * HOUR_MS
        steady_ms = now_ms
        if elapsed_ms is not None:
            steady_ms = self._steady_time(now_ms, elapsed_ms, last_store_ms, kept_ms)
        if aged in (Urgency.SPACE, Urgency.FORCED):
            aside = count_expired(self.config, steady_ms, aged, [one.modified_ms for one in kept])
            old = [one.path for one in kept[:aside]]
            if old:
                log.warning("deleting what was set aside reason=%s files=%s", aged.value, old)
                plan = DeletionPlan(self._files, old, aged.value)
                plan.empties = True
                return plan
        deletable = self._count_deletable()
        count = 0
        if manual:
            ended = proven_ends(self._ended(deletable, last_store_ms), last_store_ms, FOR_EVER_MS)
            count = count_expired(self.config, now_ms, aged, ended)
        elif aged is Urgency.FORCED:
            # No age counts now, so none is read from the disk.
            count = min(deletable, self.config.delete_batch)
        elif aged is not None and self._learn_ends(last_store_ms):
            ended = proven_ends(self._ends, last_store_ms, kept_ms)[:deletable]
            count = count_expired(self.config, steady_ms, aged, ended)
        why = aged if count else Urgency.SIZE
        files, size = len(self._log.segments), self._log.segment_size
        count = max(count, count_oversize(self.config, files, size, deletable))
        last = self._deletion
        # The store has forgotten these files: nothing else would remove what the last plan could not.
        paths = list(last.paths) if last is not None and not last.done else []
        if count == 0 and not paths:
            return None
        gone = self._log.detach_head(count)
        del self._ends[:count]
        paths.extend(
            os.path.join(self._log.directory, offset_name(segment.base_offset)) for segment in gone
        )
        min_physical = self._log.min_offset
        mark = self._log.mark
        if mark is not None:
            mark.note_begin(min_physical)
        for queue in self._queues.all():
            paths.extend(queue.drop_files_before(min_physical))
        if self._index is not None:
            paths.extend(self._index.drop_files_before(min_physical))
        reason = why.value if why is not None and count else "left over"
        log.info("deleting %d files of the store reason=%s", len(paths), reason)
        self._deletion = DeletionPlan(self._files, paths, reason, mark)
        return self._deletion

    def _steady_time(self, now_ms: int, elapsed_ms: int, newest_ms: int, kept_ms: int) -> int:
        steady_ms = self._time.at(now_ms, elapsed_ms, newest_ms, kept_ms)
        if self._time.doubts != self._doubted:
            self._doubted = self._time.doubts
            if self._doubted:
                log.warning(
                    "the clock is %d hours ahead of what the log and this process prove: files expire by the "
                    "older time until it has stood for fileReservedTime",
                    (now_ms - steady_ms) // HOUR_MS,
                )
            else:
                log.warning("the clock is believed again: files expire by it")
        return steady_ms

    def plan_queue_cleaning(self) -> DeletionPlan | None:
        """Forget the queue and index files whose records are gone from the log; None when there are none.

        A queue keeps its last file, so that its offsets go on (Apache's cleanExpired destroys it).
        """
        min_physical = self._log.min_offset
        paths: list[str] = []
        for queue in self._queues.all():
            paths.extend(queue.drop_files_before(min_physical))
        if self._index is not None:
            paths.extend(self._index.drop_files_before(min_physical))
        return DeletionPlan(self._files, paths, Urgency.MANUAL.value) if paths else None

    def log_state(self) -> LogState:
        """Return what the log could give up, for the words of a full disk."""
        segments = self._log.segments
        if len(segments) < 2:
            return LogState(len(segments))
        ended = store_time_at(self._log, segments[1].base_offset)
        kept_ms = self.config.file_reserved_hours * HOUR_MS
        return LogState(len(segments), ended + kept_ms if ended >= 0 else 0)

    def _count_deletable(self) -> int:
        """Files that may go if anything does: never the newest, nor what is not synced."""
        durable = min(self._log.synced, self._queues_synced)
        size = self._log.segment_size
        segments = self._log.segments
        count = 0
        while count < len(segments) - 1:
            if segments[count].base_offset + size >= durable:  # the log must not end in nothing
                break
            count += 1
        return count

    def _ended(self, count: int, last_store_ms: int) -> list[int]:
        """Return when the first `count` files were full, as far as a batch needs it."""
        following = self._log.segments[1 : min(count, self.config.delete_batch) + 1]
        return [self._first_ms(segment, last_store_ms) for segment in following]

    def _first_ms(self, segment: Segment, last_store_ms: int) -> int:
        first_ms = store_time_at(self._log, segment.base_offset)
        return first_ms if first_ms >= 0 else last_store_ms

    def _learn_ends(self, last_store_ms: int) -> bool:
        """Read when the files ended that are not known yet, a few at a time; True when all are known."""
        known = len(self._ends)
        for segment in self._log.segments[known + 1 : known + 1 + _ENDS_PER_PASS]:
            self._ends.append(self._first_ms(segment, last_store_ms))
        return len(self._ends) + 1 >= len(self._log.segments)
