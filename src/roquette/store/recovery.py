"""What opening a store does: find the end of the log, mend what is derived, wipe the torn rest.

Normal (no abort file): the end of the queues says where the log ends. Abnormal: walk the log from
the last file that the checkpoint vouches for, check every record, dispatch it again (Apache:
CommitLog.recoverNormally, recoverAbnormally, ConsumeQueueStore.recover). Runs before anything is
served; everything it changes is synced before new bytes are written.
"""

import enum
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from roquette.base.files import Files
from roquette.errors import CorruptRecord, MessageIllegal, StoreError
from roquette.message.record import BLANK_MAGIC, StoredRecord, decode_record, peek_size_magic
from roquette.store.checkpoint import Checkpoint
from roquette.store.commit_log import CommitLog
from roquette.store.config import StoreConfig
from roquette.store.consume_queue import ConsumeQueue
from roquette.store.consume_queues import ConsumeQueues
from roquette.store.index import Index
from roquette.store.layout import StoreLayout, offset_name, parse_offset_name
from roquette.store.limits import check_topic
from roquette.store.log_scan import Scanned, scan_dispatched, scan_sound
from roquette.store.reading import first_store_time, store_time_at
from roquette.store.reput import Reput, parse_delay_levels
from roquette.store.segment import Segment

log = logging.getLogger("roquette.store")

_WINDOW = 1 << 20
_SECTOR = 512
_PROGRESS = 256 << 20  # bytes of log between two lines that tell of a long walk
_ZEROS = bytes(_WINDOW)
_NEVER = 1 << 62  # a physical offset behind every log

Passing = Callable[[bytes, int, int], int]


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found and did."""

    abnormal: bool = False
    min_physical_offset: int = 0
    max_physical_offset: int = 0
    walked_from: int = 0
    walked_records: int = 0
    dispatched: int = 0
    rebuilt_queues: int = 0
    rebuilt_index: bool = False
    dropped_bytes: int = 0
    last_store_ms: int = 0
    last_record_offset: int = -1  # where the log's last record begins
    warnings: list[str] = field(default_factory=list)


def load_segments(files: Files, layout: StoreLayout, segment_size: int) -> list[Segment]:
    """Open the files of the log, oldest first, as if they were full.

    A file of 0 bytes and a missing one are what a crash left of a creation that was never synced:
    the log ends there. Changes nothing.

    Raises:
        StoreError: a file has another size than configured.
    """
    segments: list[Segment] = []
    for name in _log_names(files, layout):
        base = int(name)
        path = os.path.join(layout.commit_log, name)
        if segments and base != segments[-1].base_offset + segment_size:
            break
        file = files.open_file(path)
        size = file.size
        if size == 0:
            file.close()
            break
        if size != segment_size or base % segment_size:
            raise StoreError(
                f"{path} has {size} bytes, mappedFileSizeCommitLog is {segment_size}: "
                "set it back to the value this store was made with"
            )
        segments.append(Segment(file, base, segment_size, segment_size))
    return segments


def _log_names(files: Files, layout: StoreLayout) -> list[str]:
    return [n for n in files.list_dir(layout.commit_log) if parse_offset_name(n) is not None]


def remove_behind(files: Files, layout: StoreLayout, count: int) -> None:
    """Remove the files of the log behind the first `count`, and what was made ahead."""
    for name in files.list_dir(layout.ahead):
        files.remove(os.path.join(layout.ahead, name))
    names = _log_names(files, layout)[count:]
    for name in names:
        path = os.path.join(layout.commit_log, name)
        log.warning("recovery: removing %s, the log ends before it", path)
        file = files.open_file(path)
        file.truncate(0)  # should the name come back after another crash, then empty
        file.sync()
        file.close()
        files.remove(path)
    if names:
        files.sync_dir(layout.commit_log)


def walk(
    log_: CommitLog,
    start: int,
    check_crc: bool,
    on_record: Callable[[StoredRecord], None],
    synced: int = 0,
    passing: Passing | None = None,
) -> int:
    """Give every sound record from `start` on to `on_record`; returns where the log ends.

    Args:
        synced: what lies before was on the disk, so no crash has torn it.
        passing: goes past records that need no attention: see `log_scan`.
    """
    reader = _Reader(log_, check_crc)
    offset = shown = start
    while True:
        if passing is not None:
            offset = reader.skip(offset, passing)
        if offset - shown >= _PROGRESS:
            shown = offset
            log.info(
                "recovery: read the log from %d to %d, it ends before %d",
                start,
                offset,
                log_.end_offset,
            )
        if reader.blank_at(offset):
            offset += log_.segment_size - offset % log_.segment_size
            continue
        record = reader.record_at(offset)
        if record is None:
            return offset
        following = offset + record.size
        torn = _torn(record) if offset >= synced else None
        if torn is Torn.SURELY or (torn is Torn.PERHAPS and not reader.sound_at(following)):
            return offset
        on_record(record)
        offset = following


class _Reader:
    """Decodes records in order out of a window that moves along the log."""

    def __init__(self, log_: CommitLog, check_crc: bool) -> None:
        self._log = log_
        self._check_crc = check_crc
        self._start = 0
        self._window = b""
        self._topic = ""  # the last one that was seen

    def _reach(self, offset: int, size: int) -> int:
        """Have `size` bytes from an offset on in the window; returns their position, -1: can not."""
        position = offset - self._start
        if position < 0 or position + size > len(self._window):
            left = self._log.segment_size - offset % self._log.segment_size
            self._start = offset
            self._window = self._log.read(offset, offset + min(max(size, _WINDOW), left))
            position = 0
        return position if position + size <= len(self._window) else -1

    def skip(self, offset: int, passing: Passing) -> int:
        """Let `passing` go on from an offset as far as it can; returns how far."""
        position = self._reach(offset, 8)
        if position < 0:
            return offset
        return self._start + passing(self._window, position, self._start)

    def blank_at(self, offset: int) -> bool:
        """Does the blank that fills a file begin here?"""
        position = self._reach(offset, 8)
        if position < 0:
            return False
        size, magic = peek_size_magic(self._window, position)
        left = self._log.segment_size - offset % self._log.segment_size
        return magic == BLANK_MAGIC and size == left

    def sound_at(self, offset: int) -> bool:
        """Is there a record or a blank?"""
        return self.blank_at(offset) or self.record_at(offset) is not None

    def record_at(self, offset: int) -> StoredRecord | None:
        """The sound record that begins here."""
        position = self._reach(offset, 8)
        if position < 0:
            return None
        size, _ = peek_size_magic(self._window, position)
        left = self._log.segment_size - offset % self._log.segment_size
        if size <= 0 or size > left:
            return None
        position = self._reach(offset, size)
        if position < 0:
            return None
        try:
            record = decode_record(self._window, position, self._check_crc)
        except CorruptRecord:
            return None
        if record.physical_offset != offset or not self._names_topic(record.topic):
            return None
        return record

    def _names_topic(self, topic: str) -> bool:
        """May the record's topic be one? Zeros are what a torn record has there."""
        if topic != self._topic:
            try:
                check_topic(topic)
            except MessageIllegal:
                return False
            self._topic = topic
        return True


class Torn(enum.Enum):
    """Is a sector of a record missing?"""

    SURELY = "a whole sector of the properties is zeros"
    PERHAPS = "the properties' end in the last sector is zeros"


def _torn(record: StoredRecord) -> Torn | None:
    """Did a sector of the properties never reach the disk?

    The CRC covers the body only: such a record passes it, with zeros for properties. Where a sector holds other
    parts of the record, too, these would not fit. Nobody sends a sector full of zeros as properties; zeros at the
    end may be meant, and count only when nothing sound follows (`MessageStore` lets no properties end so).
    """
    text = record.properties
    if "\0" not in text:
        return None
    data = text.encode(errors="surrogatepass")
    end = record.physical_offset + record.size
    first = start = end - len(data)
    while start < end:
        stop = min(end, start - start % _SECTOR + _SECTOR)
        # One byte in: of the length before it, the half in this sector may rightly be 0.
        begins = start % _SECTOR == 0 or (start == first and start % _SECTOR == 1)
        if begins and not any(data[start - first : stop - first]):
            return Torn.SURELY if stop % _SECTOR == 0 else Torn.PERHAPS
        start = stop
    return None


def refuse_lost_files(
    files: Files, layout: StoreLayout, log_: CommitLog, checkpoint: Checkpoint, *, clean: bool
) -> None:
    """Raise StoreError when files of the log are gone that were on the disk: never start empty, never cut them off.

    `clean`: the store was closed, so that nothing can be missing for want of a sync.
    """
    end = log_.end_offset
    behind = [int(name) for name in _log_names(files, layout) if int(name) >= end]
    if checkpoint.log_synced:
        lost = end < checkpoint.log_synced
    elif behind:
        lost = any(0 <= _first_ms(files, layout, one) <= checkpoint.physical_ms for one in behind)
    elif not log_.segments:
        lost = checkpoint.physical_ms > 0 or (clean and _has_units(files, layout))
    else:
        return
    if lost:
        path = os.path.join(layout.commit_log, offset_name(end))
        raise StoreError(
            f"{path} is missing or empty, but the store had messages there. Nothing was changed. Put the commit "
            f"log's files back (storePathCommitLog names their directory); to begin anew, empty {layout.root}"
        )


def _first_ms(files: Files, layout: StoreLayout, offset: int) -> int:
    """Store time of the first record of a file; -1 when it has none."""
    file = files.open_file(os.path.join(layout.commit_log, offset_name(offset)))
    try:
        return first_store_time(file.pread(128, 0), offset)
    finally:
        file.close()


def _has_units(files: Files, layout: StoreLayout) -> bool:
    """Does any consume queue know of a message?"""
    for topic in files.list_dir(layout.consume_queues):
        for queue in files.list_dir(layout.topic(topic)):
            directory = os.path.join(layout.topic(topic), queue)
            for name in files.list_dir(directory)[-1:]:
                if any(files.read_bytes(os.path.join(directory, name))):
                    return True
    return False


class Recovery:
    """One opening of one store."""

    def __init__(
        self,
        files: Files,
        layout: StoreLayout,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: Index | None,
        checkpoint: Checkpoint,
    ) -> None:
        self._files = files
        self._checkpoint = checkpoint
        self._layout = layout
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._index = index
        delays = parse_delay_levels(config.delay_levels)
        self._reput = Reput(queues, index, delays, config.segment_size)
        self.report = RecoveryReport()

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
        refuse_lost_files(files, layout, self._log, self._checkpoint, clean=not abnormal)
        trusted = self._trusted_start() if abnormal else None
        start, end = trusted or 0, 0
        if trusted is not None:
            end = self._find_end(trusted)
            self._refuse_damage(end)
        remove_behind(files, layout, len(segments))
        self._queues.load(trusted)
        if self._index is not None:
            if files.exists(layout.index_building):  # killed while it was made anew
                files.remove_tree(layout.index)
                report.rebuilt_index = True
            self._index.load()
        if trusted is None:
            start = self._last_dispatched()
            end = self._find_end(start)
            if end == start:  # nothing where the queues say the last record is
                start = self._trusted_start()
                end = self._find_end(start)
            self._refuse_damage(end)
        lost = self._lost_units(clean=not abnormal)
        self._truncate_log(start, end)
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
        report.dispatched = self._reput.dispatched
        for (topic, queue_id), count in self._reput.shifted.items():
            report.warnings.append(
                f"{count} records of queue {topic}/{queue_id} have offsets that were given before: they stand "
                "behind those, as Apache's broker put them"
            )
        report.min_physical_offset = self._log.min_offset
        report.max_physical_offset = end
        for warning in report.warnings:
            log.warning("recovery: %s", warning)
        return report

    def _refuse_damage(self, end: int) -> None:
        """A crash takes nothing back that was synced: what is unsound before that is damage, and is not cut away."""
        synced = self._checkpoint.log_synced
        if end >= synced:
            return
        size = self._log.segment_size
        path = os.path.join(self._log.directory, offset_name(end - end % size))
        raise StoreError(
            f"{path} is damaged at byte {end % size}: no sound record begins there, but the log was on the disk up "
            f"to offset {synced}. Nothing was changed. Put a good copy there, or see `roquette store fsck` and "
            f"`repair`; without {self._layout.checkpoint} the log is cut off at the damage"
        )

    def _note(self, record: StoredRecord) -> None:
        self.report.walked_records += 1
        self.report.last_store_ms = record.store_timestamp_ms
        self.report.last_record_offset = record.physical_offset

    def _walk(
        self, start: int, on_record: Callable[[StoredRecord], None], passing: Passing | None = None
    ) -> int:
        check_crc = self._config.check_crc_on_recover
        return walk(self._log, start, check_crc, on_record, self._checkpoint.log_synced, passing)

    def _find_end(self, start: int) -> int:
        """Where the sound part of the log ends; what is in it goes to the report."""
        scanned, check_crc = Scanned(), self._config.check_crc_on_recover

        def passing(data: bytes, position: int, base: int) -> int:
            return scan_sound(data, position, base, check_crc, scanned)

        end = self._walk(start, self._note, passing)
        report = self.report
        report.walked_records += scanned.records
        if scanned.last_offset > report.last_record_offset:
            report.last_record_offset = scanned.last_offset
            report.last_store_ms = scanned.last_store_ms
        return end

    def _dispatch(self, start: int) -> None:
        """Give queues and index what they do not have yet."""
        queues = self._queues
        index_from = self._reput.index_from if self._index is not None else _NEVER

        def passing(data: bytes, position: int, base: int) -> int:
            return scan_dispatched(data, position, base, queues, index_from)

        self._walk(start, self._reput.dispatch, None if self._reput.mends else passing)

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
        """Where the newest record that any queue knows of begins."""
        last = -1
        for queue in self._queues.all():
            last = max(last, queue.physical_at(queue.next_offset - 1))
        if last < self._log.min_offset:
            return self._log.min_offset
        return last

    def _lost_units(self, *, clean: bool) -> int:
        """How many units the queues lack that were on the disk; 0 as well when that is not known."""
        checkpoint = self._checkpoint
        if not checkpoint.log_synced:
            return 0
        if clean:
            return checkpoint.queue_ends - sum(queue.next_offset for queue in self._queues.all())
        synced = checkpoint.queues_synced
        return checkpoint.queue_ends - sum(
            _first_behind(queue, synced) for queue in self._queues.all()
        )

    def _truncate_log(self, start: int, end: int) -> None:
        """Drop all after `end`: later files removed, zeros over the rest of its file, synced.

        Zeros over everything, not one terminator: a stale record behind new ones would be taken
        for sound by the next recovery (Apache's issue 10666).
        """
        segments = self._log.segments
        keep = [s for s in segments if s.base_offset < end]
        gone = segments[len(keep) :]
        for segment in gone:
            self.report.dropped_bytes += _wipe(segment, 0)
            segment.file.close()
            self._files.remove(os.path.join(self._log.directory, f"{segment.base_offset:020d}"))
        if keep:
            used = end - keep[-1].base_offset
            self.report.dropped_bytes += _wipe(keep[-1], used)
            keep[-1].reset(used)
        for segment in keep:
            # What a killed process left in the page cache; also before `start`, which is found by store times
            # and comes too late when the clock went back.
            if self.report.abnormal or segment.base_offset + segment.size > start:
                segment.file.sync()
        if gone or keep:
            self._files.sync_dir(self._log.directory)
        if not keep and gone:  # an empty log goes on where it would have gone on
            self._log.install([])
            self._log.start_at(end)
        else:
            self._log.install(keep)
        if self.report.dropped_bytes:
            self.report.warnings.append(
                f"{self.report.dropped_bytes} bytes after the last sound record at {end} "
                "were unsynced or damaged and are dropped"
            )

    def _redo_from(self, start: int, end: int, abnormal: bool) -> int:
        if self._index is None:
            return start
        if not abnormal:
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

    def _rebuild_index(self, before: int) -> None:
        """Where there is no index at all, make it anew of what the log holds `before` the walk that follows.

        Apache goes on without (and deletes what it finds damaged, its issue 8007): old messages are then
        found by no key. Queues are left alone: a topic that was deleted must not come back.
        """
        if self._index is None or self._index.file_count or before <= self._log.min_offset:
            return
        self.report.warnings.append(
            f"there is no index: it is made anew from {before - self._log.min_offset} bytes of log"
        )

        self._files.open_file(self._layout.index_building, create=True).close()
        self._files.sync_dir(self._layout.root)
        self.report.rebuilt_index = True

        def note(record: StoredRecord) -> None:
            if record.physical_offset < before:
                self._reput.rebuild_keys(record)

        self._walk(self._log.min_offset, note)

    def _boundary(self, offset: int, start: int) -> int:
        """A record boundary at or before `offset`: its file's start, when the walk began later."""
        if offset >= start:
            return start
        return offset - offset % self._log.segment_size

    def _truncate_queues(self, end: int) -> None:
        """Drop units that point behind the end of the log."""
        for queue in self._queues.all():
            low = _first_behind(queue, end)
            if low < queue.next_offset:
                self.report.warnings.append(
                    f"queue {queue.topic}/{queue.queue_id} knew {queue.next_offset - low} "
                    "messages that the log has lost"
                )
                queue.truncate(low)

    def _rebuild_gaps(self) -> None:
        """Make queues anew from the log's start whose files have lost units in the middle."""
        gaps = self._reput.gaps
        if not gaps:
            return
        for topic, queue_id in gaps:
            queue = self._queues.find(topic, queue_id)
            if queue is not None:
                self._queues.reset(queue)
        self.report.rebuilt_queues = len(gaps)
        self._walk(self._log.min_offset, lambda record: self._reput.rebuild(record, gaps))


def _first_behind(queue: ConsumeQueue, end: int) -> int:
    """The first unit that points behind an offset of the log. Ends only grow."""
    low, high = queue.first_base, queue.next_offset
    while low < high:
        middle = (low + high) // 2
        if queue.end_physical_at(middle) > end:
            high = middle
        else:
            low = middle + 1
    return low


def _wipe(segment: Segment, position: int) -> int:
    """Zeros from a position on, where there are none yet; returns the bytes overwritten. Synced."""
    wiped = 0
    while position < segment.size:
        size = min(_WINDOW, segment.size - position)
        data = segment.file.pread(size, position)
        if data != _ZEROS[: len(data)]:
            sound = data.rstrip(b"\0")
            segment.file.pwrite(bytes(len(sound)), position)
            wiped += len(sound)
        position += size
    if wiped:
        segment.file.sync()
    return wiped
