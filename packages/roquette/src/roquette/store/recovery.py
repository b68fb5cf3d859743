"""Recovery, when a store is opened: find the end of the log, mend what is derived, wipe the torn rest.

Normal (no abort file): the end of the queues says where the log ends. Abnormal: walk the log from
the last file that the checkpoint vouches for, check every record, dispatch it again (Apache:
CommitLog.recoverNormally, recoverAbnormally, ConsumeQueueStore.recover). Damage in what is known to have been there
is filled, and what is sound behind it kept: see `log_holes`. Runs before anything is served; everything it changes is
synced before new bytes are written.
"""

import logging
import os
from dataclasses import dataclass, field

from roquette.base.files import Files
from roquette.store.audit.index_audit import SUMS, IndexAudit
from roquette.store.format.checkpoint import Checkpoint
from roquette.store.format.config import StoreConfig
from roquette.store.format.layout import StoreLayout, offset_name
from roquette.store.format.log_mark import Vouched, load_vouched
from roquette.store.format.patch import Patch
from roquette.store.index.index import Index
from roquette.store.log.commit_log import CommitLog, store_time_at
from roquette.store.log.log_files import (
    Beyond,
    drop_timer,
    fill_holes,
    keep_replaced,
    load_segments,
    refuse_lost_files,
    remove_behind,
    vouch_until,
    wipe,
)
from roquette.store.log_walk import Dispatched, LogWalk
from roquette.store.queues.consume_queue import ConsumeQueue
from roquette.store.queues.consume_queues import ConsumeQueues
from roquette.store.reput import Reput, parse_delay_levels

log = logging.getLogger("roquette.store")

_LOST_UNITS = 1000  # looked at behind one that points behind the log's end
_NEVER = 1 << 62  # a physical offset behind every log


@dataclass(slots=True)
class RecoveryReport:
    """Report of what recovery found and did."""

    abnormal: bool = False
    min_physical_offset: int = 0
    max_physical_offset: int = 0
    walked_from: int = 0
    walked_records: int = 0
    dispatched: int = 0
    rebuilt_queues: int = 0
    rebuilt_index: bool = False
    dropped_bytes: int = 0
    damaged_bytes: int = 0  # filled: no sound record stood there
    lost_messages: int = 0  # of these, as far as queues know of them
    replaced: str = ""  # damage was not filled: where what it and all behind it held is kept
    last_store_ms: int = 0
    last_record_offset: int = -1  # where the log's last record begins
    warnings: list[str] = field(default_factory=list)


class Recovery:
    """One opening of one store."""

    def __init__(
        self,
        files: Files,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: Index | None,
        checkpoint: Checkpoint,
    ) -> None:
        self._files = files
        self._checkpoint = checkpoint
        self._layout = StoreLayout(config.root_dir, config.commit_log_dir)
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._index = index
        delays = parse_delay_levels(config.delay_levels)
        self._reput = Reput(queues, index, delays, config.segment_size)
        self.report = RecoveryReport()
        self._vouched = Vouched()
        self._beyond = Beyond(commit_log, self._vouched)
        self.fill_damage = True  # False: the log ends where damage begins

    def run(self) -> RecoveryReport:
        """Load and recover everything. Blocks.

        Raises:
            StoreError: something is missing or damaged that was on the disk. Nothing was changed.
        """
        report, files, layout = self.report, self._files, self._layout
        abnormal = report.abnormal = files.exists(layout.abort)
        for directory in (layout.commit_log, layout.consume_queues, layout.config):
            files.make_dirs(directory)
        segments = load_segments(files, layout, self._config.segment_size)
        self._log.install(segments)
        self._vouched = load_vouched(files, layout, self._checkpoint)
        # Before anything is changed: recovery would take the first missing file for the log's end, and cut there.
        refuse_lost_files(files, layout, self._log, self._checkpoint, self._vouched)
        trusted = self._trusted_start() if abnormal else None
        start, end = trusted or 0, 0
        if trusted is not None:
            end = self._find_end(trusted)
        remove_behind(files, layout, len(segments))
        self._queues.load(trusted)
        if self._index is not None:
            if files.exists(layout.index_building):  # killed while it was rebuilt
                files.remove_tree(layout.index)
                report.rebuilt_index = True
            self._index.load()
        if trusted is None:
            start = self._last_dispatched()
            end = self._find_end(start)
            if end == start or self._beyond.holes:  # no record where the queues say the last one is
                start = self._trusted_start()
                end = self._find_end(start)
        clean = not abnormal
        if self._beyond.holes and not self.fill_damage:
            end = self._cut_at_hole(self._beyond.holes[0])
            abnormal = report.abnormal = True
        else:
            self._fill_holes()
        lost = self._lost_units(clean=clean)
        self._truncate_log(start, end)
        # The end is settled now. The walks that follow are for what is derived, and refuse nothing.
        self._beyond = Beyond(self._log, Vouched(True, end), lenient=True)
        report.walked_from = self._redo_from(start, end, abnormal)
        if lost:
            report.warnings.append(
                f"queue files are gone, cut or damaged, {abs(lost)} messages: all of the log is read for them"
            )
            report.walked_from = self._log.min_offset
            self._reput.mends = True
        self._rebuild_index(report.walked_from)
        self._dispatch(report.walked_from)
        self._truncate_queues(end)
        self._rebuild_gaps()
        self._tell_passed()
        report.dispatched = self._reput.dispatched
        for (topic, queue_id), count in self._reput.shifted.items():
            report.warnings.append(
                f"{count} records of queue {topic}/{queue_id} have offsets that were given before: they stand "
                "behind those, as Apache's broker put them"
            )
        for offset in self._reput.misplaced:
            report.warnings.append(
                f"the record at offset {offset} of the commit log says another queue or queue offset than the queues "
                "do: it is damaged, and not served"
            )
        report.min_physical_offset = self._log.min_offset
        report.max_physical_offset = end
        for warning in report.warnings:
            log.warning("recovery: %s", warning)
        return report

    def _fill_holes(self) -> None:
        """Overwrite damage with records that no queue has, and let the queues go on behind the messages lost there."""
        holes, report = self._beyond.holes, self.report
        if not holes:
            return
        fill_holes(self._files, self._layout, self._log, holes)
        report.lost_messages = self._queues.pass_over(holes, self._log.segment_size)
        if self._index is not None:  # it knows of what is lost
            self._index_is_building()
            self._index.drop_from(0)
        for hole in holes:
            report.damaged_bytes += hole.end - hole.position
            path = os.path.join(self._log.directory, offset_name(hole.base))
            report.warnings.append(
                f"{path} is damaged: no sound record in bytes {hole.position} to {hole.end}. They are filled, and what "
                f"is sound behind them is kept; what stood there is in {self._layout.lost}"
            )
        report.warnings.append(
            f"{report.lost_messages} messages, or more, are lost to damage of the log: their queue offsets are not "
            "given again"
        )

    def _cut_at_hole(self, hole: Patch) -> int:
        """End the log where damage begins: who follows a master gets the rest from there. Returns that offset.

        Filled, its bytes would differ from the other replicas'.
        """
        report, end = self.report, hole.base + hole.position
        report.replaced = keep_replaced(
            self._files, self._layout, self._log, end, self._log.end_offset
        )
        drop_timer(self._files, self._layout, end)
        begin = self._log.min_offset
        vouch_until(self._files, self._layout, self._checkpoint, begin, end, -1)
        path = os.path.join(self._log.directory, offset_name(hole.base))
        report.warnings.append(
            f"{path} is damaged from byte {hole.position} on: the log is cut there, and its master has the rest. What "
            f"stood there and behind it is in {report.replaced}"
        )
        return end

    def _tell_passed(self) -> None:
        """Report damage in older files, met while queues or index were rebuilt."""
        for hole in dict.fromkeys(self._beyond.holes):
            path = os.path.join(self._log.directory, offset_name(hole.base))
            self.report.warnings.append(
                f"{path} is damaged: no sound record in bytes {hole.position} to {hole.end}, which are passed over. "
                "`roquette store repair` fills them"
            )

    def _walk(self, start: int, dispatched: Dispatched | None = None) -> LogWalk:
        """Over the log from an offset on, by now known to be sound or passed over up to its end."""
        check_crc = self._config.check_crc_on_recover
        return LogWalk(self._log, start, check_crc, self._vouched.end, self._beyond, dispatched)

    def _find_end(self, start: int) -> int:
        """Return the end of the log's sound part; what is in it goes to the report."""
        self._beyond = Beyond(self._log, self._vouched, fills=self.fill_damage)
        walk, report = self._walk(start), self.report
        end = walk.to_end()
        report.walked_records += walk.records
        if walk.last_offset > report.last_record_offset:
            report.last_record_offset = walk.last_offset
            report.last_store_ms = walk.last_ms
        return end

    def _dispatch(self, start: int) -> None:
        """Give queues and index what they do not have yet."""
        index_from = self._reput.index_from if self._index is not None else _NEVER
        known = None if self._reput.mends else Dispatched(self._queues, index_from)
        for record in self._walk(start, known).collect():
            self._reput.dispatch(record)

    def _trusted_start(self) -> int:
        """The start of the newest file that the checkpoint vouches for, or of the oldest file."""
        offset = self._checkpoint.trusted_offset
        if offset:
            return max(offset - offset % self._log.segment_size, self._log.min_offset)
        trusted_ms = self._checkpoint.trusted_ms
        for segment in reversed(self._log.segments):
            first_ms = store_time_at(self._log, segment.base_offset)
            if 0 <= first_ms <= trusted_ms:
                return segment.base_offset
        return self._log.min_offset

    def _last_dispatched(self) -> int:
        """Return where the newest record that any queue knows of begins."""
        last = -1
        for queue in self._queues.all():
            last = max(last, queue.physical_at(queue.next_offset - 1))
        if last < self._log.min_offset:
            return self._log.min_offset
        return last

    def _lost_units(self, *, clean: bool) -> int:
        """Count the units the queues lack that were on the disk; 0 as well when that is not known."""
        checkpoint = self._checkpoint
        if not checkpoint.log_synced or checkpoint.queue_ends < 0:
            return 0
        if clean:
            return checkpoint.queue_ends - self._queues.count_units()
        synced = checkpoint.queues_synced
        return checkpoint.queue_ends - sum(
            queue.first_behind(synced) for queue in self._queues.all()
        )

    def _truncate_log(self, start: int, end: int) -> None:
        """Drop all after `end`: later files removed, zeros over the rest of its file, synced.

        Zeros over everything, not one terminator: a stale record behind new ones would be taken
        for sound by the next recovery (Apache's issue 10666).
        """
        segments = self._log.segments
        # At least one: whatever the checkpoint will say of the log, there is a file to prove it.
        keep = [s for s in segments if s.base_offset < end] or segments[:1]
        gone = segments[len(keep) :]
        for segment in gone:
            self.report.dropped_bytes += wipe(segment, 0)
            segment.file.close()
            self._files.remove(os.path.join(self._log.directory, f"{segment.base_offset:020d}"))
        if keep:
            used = end - keep[-1].base_offset
            self.report.dropped_bytes += wipe(keep[-1], used)
            keep[-1].reset(used)
        for segment in keep:
            # What a killed process left in the page cache; also before `start`, which is found by store times
            # and comes too late when the clock went back.
            if self.report.abnormal or segment.base_offset + segment.size > start:
                segment.file.sync()
        if keep:
            self._files.sync_dir(self._log.directory)
        self._log.install(keep)
        if self.report.dropped_bytes:
            self.report.warnings.append(
                f"{self.report.dropped_bytes} bytes after the last sound record at {end} "
                "were unsynced or damaged and are dropped"
            )

    def _redo_from(self, start: int, end: int, abnormal: bool) -> int:
        if self._index is None:
            return start
        damaged = self._drop_damaged_index(clean=not abnormal)
        if not abnormal and not damaged:
            self._reput.index_from = self._index.end_physical + 1 if self._index.file_count else 0
            return start
        redo = self._index.recover(
            self._checkpoint.trusted_ms,
            self._checkpoint.trusted_offset,
            end,
            lambda offset: store_time_at(self._log, offset),
        )
        if redo is None:
            return start
        self._reput.index_from = redo
        return self._boundary(max(redo, self._log.min_offset), start)

    def _drop_damaged_index(self, *, clean: bool) -> bool:
        """Remove the index from the first file on that is damaged or follows on a missing one; True when there is."""
        assert self._index is not None
        audit = IndexAudit(self._files, self._layout, self._log, clean=clean)
        place, words = audit.first_bad(self._index.index_files)
        if place < 0:
            return False
        self.report.warnings.append(
            f"the index is made again from its file {place + 1} on: {words}"
        )
        self._index_is_building()
        self._index.drop_from(place)
        return True

    def _index_is_building(self) -> None:
        self._files.open_file(self._layout.index_building, create=True).close()
        self._files.remove(os.path.join(self._layout.root, SUMS))
        self._files.sync_dir(self._layout.root)
        self.report.rebuilt_index = True

    def _rebuild_index(self, before: int) -> None:
        """If there is no index at all, rebuild it from what the log holds `before` the walk that follows.

        Apache goes on without (and deletes what it finds damaged, its issue 8007): old messages are then
        found by no key. Queues are left alone: a topic that was deleted must not come back.
        """
        index, low = self._index, self._log.min_offset
        if index is None or before <= low:
            return
        if index.file_count:  # its newest file may be gone
            low = index.end_physical
            audit = IndexAudit(self._files, self._layout, self._log, clean=True)
            if not audit.gap(low, before, skip=True):
                return
        self.report.warnings.append(
            f"there is no index of {before - low} bytes of log: it is made anew from them"
        )
        self._index_is_building()
        for record in self._walk(low).collect():
            if record.physical_offset < before:
                self._reput.rebuild_keys(record)

    def _boundary(self, offset: int, start: int) -> int:
        """A record boundary at or before `offset`: its file's start, when the walk began later."""
        if offset >= start:
            return start
        return offset - offset % self._log.segment_size

    def _truncate_queues(self, end: int) -> None:
        """Drop units that point behind the end of the log."""
        for queue in self._queues.all():
            low = queue.first_behind(end)
            if low < queue.next_offset and self._is_damaged(queue, low, end):
                self.report.warnings.append(
                    f"a unit of queue {queue.topic}/{queue.queue_id} points behind the log's end: it is damaged"
                )
                self._reput.gaps[(queue.topic, queue.queue_id)] = None
            elif low < queue.next_offset:
                self.report.warnings.append(
                    f"queue {queue.topic}/{queue.queue_id} knew {queue.next_offset - low} "
                    "messages that the log has lost"
                )
                queue.truncate(low)

    def _is_damaged(self, queue: ConsumeQueue, low: int, end: int) -> bool:
        """Is the unit that points behind the log's end damaged, rather than of a message that the log has lost?

        A clean stop loses none; and what was lost is all that was last.
        """
        if not self.report.abnormal and end >= self._vouched.end:
            return True
        units = range(low, min(queue.next_offset, low + _LOST_UNITS))
        return any(0 < queue.end_physical_at(offset) <= end for offset in units)

    def _rebuild_gaps(self) -> None:
        """Rebuild the queues that have lost units in the middle, from the log's start."""
        gaps = self._reput.gaps
        if not gaps:
            return
        ends: dict[tuple[str, int], int] = {}
        for topic, queue_id in gaps:
            queue = self._queues.find(topic, queue_id)
            if queue is not None:
                ends[(topic, queue_id)] = queue.next_offset
                self._queues.reset(queue)
        self.report.rebuilt_queues = len(gaps)
        for record in self._walk(self._log.min_offset).collect():
            self._reput.rebuild(record, gaps)
        self._reput.end_rebuild()
        if self.report.damaged_bytes or self._beyond.holes:
            for (topic, queue_id), end in ends.items():
                self._queues.go_on_from(topic, queue_id, end, _NEVER, self._log.segment_size)
