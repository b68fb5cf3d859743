"""What opening a store does: find the end of the log, mend what is derived, wipe the torn rest.

Normal (no abort file): the end of the queues says where the log ends. Abnormal: walk the log from
the last file that the checkpoint vouches for, check every record, dispatch it again (Apache:
CommitLog.recoverNormally, recoverAbnormally, ConsumeQueueStore.recover). Runs before anything is
served; everything it changes is synced before new bytes are written.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from roquette.base.files import Files
from roquette.errors import CorruptRecord, StoreError
from roquette.message.record import BLANK_MAGIC, StoredRecord, decode_record, peek_size_magic
from roquette.store.commit_log import CommitLog
from roquette.store.config import StoreConfig
from roquette.store.consume_queues import ConsumeQueues
from roquette.store.index import Index
from roquette.store.layout import StoreLayout, parse_offset_name
from roquette.store.reading import store_time_at
from roquette.store.reput import Reput, parse_delay_levels
from roquette.store.segment import Segment

log = logging.getLogger("roquette.store")

_WINDOW = 1 << 20


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
    dropped_bytes: int = 0
    last_store_ms: int = 0
    warnings: list[str] = field(default_factory=list)


def load_segments(files: Files, layout: StoreLayout, segment_size: int) -> list[Segment]:
    """Open the files of the log, oldest first; a last file cut short by a crash is made whole.

    Raises:
        StoreError: a file has another size than configured.
    """
    files.make_dirs(layout.commit_log)
    for name in files.list_dir(layout.ahead):
        files.remove(os.path.join(layout.ahead, name))
    names = [n for n in files.list_dir(layout.commit_log) if parse_offset_name(n) is not None]
    segments: list[Segment] = []
    for name in names:
        base = int(name)
        path = os.path.join(layout.commit_log, name)
        file = files.open_file(path)
        if file.size != segment_size:
            if name != names[-1] or file.size > segment_size:
                raise StoreError(
                    f"{path} has {file.size} bytes, mappedFileSizeCommitLog is {segment_size}: "
                    "set it back to the value this store was made with"
                )
            file.allocate(segment_size)
        if base % segment_size:
            raise StoreError(
                f"{path} does not start at a multiple of mappedFileSizeCommitLog {segment_size}"
            )
        if segments and base != segments[-1].base_offset + segment_size:
            log.warning("commit log has a hole before path=%s, dropped from there", path)
            file.close()
            break
        segments.append(Segment(file, base, segment_size, segment_size))
    return segments


def walk(
    log_: CommitLog, start: int, check_crc: bool, on_record: Callable[[StoredRecord], None]
) -> int:
    """Give every sound record from `start` on to `on_record`; returns where the log ends."""
    offset = start
    window = b""
    window_start = start
    while True:
        segment = log_.find_segment(offset)
        if segment is None:
            return offset
        left = segment.base_offset + segment.size - offset
        if left < 8:
            return offset
        if offset + 8 > window_start + len(window) or offset < window_start:
            window_start, window = offset, log_.read(offset, offset + min(_WINDOW, left))
            if len(window) < 8:
                return offset
        size, magic = peek_size_magic(window, offset - window_start)
        if magic == BLANK_MAGIC and size == left:
            offset += left
            continue
        if size <= 0 or size > left:
            return offset
        if offset + size > window_start + len(window):
            reach = min(max(_WINDOW, size), left)
            window_start, window = offset, log_.read(offset, offset + reach)
        try:
            record = decode_record(window, offset - window_start, check_crc)
        except CorruptRecord:
            return offset
        if record.physical_offset != offset:
            return offset
        on_record(record)
        offset += size


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
    ) -> None:
        self._files = files
        self._layout = layout
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._reput = Reput(queues, index, parse_delay_levels(config.delay_levels))
        self.report = RecoveryReport()

    def run(self, trusted_ms: int) -> RecoveryReport:
        """Load and recover everything. Blocks.

        Args:
            trusted_ms: the checkpoint's word: what was stored before is on the disk.
        """
        report = self.report
        abnormal = report.abnormal = self._files.exists(self._layout.abort)
        self._log.install(load_segments(self._files, self._layout, self._config.segment_size))
        self._queues.load(thorough=abnormal)
        if self._index is not None:
            self._index.load()
        start = self._trusted_start(trusted_ms) if abnormal else self._last_dispatched()
        end = self._walk(start, self._note)
        if end == start and not abnormal:  # nothing where the queues say the last record is
            start = self._trusted_start(trusted_ms)
            end = self._walk(start, self._note)
        self._truncate_log(end)
        report.walked_from = self._redo_from(start, end, abnormal, trusted_ms)
        self._walk(report.walked_from, self._reput.dispatch)
        self._truncate_queues(end)
        self._rebuild_gaps()
        report.dispatched = self._reput.dispatched
        report.min_physical_offset = self._log.min_offset
        report.max_physical_offset = end
        for warning in report.warnings:
            log.warning("recovery: %s", warning)
        return report

    def _note(self, record: StoredRecord) -> None:
        self.report.walked_records += 1
        self.report.last_store_ms = record.store_timestamp_ms

    def _walk(self, start: int, on_record: Callable[[StoredRecord], None]) -> int:
        return walk(self._log, start, self._config.check_crc_on_recover, on_record)

    def _trusted_start(self, trusted_ms: int) -> int:
        """The newest file whose first record the checkpoint vouches for, or the oldest file."""
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

    def _truncate_log(self, end: int) -> None:
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
        for segment in keep[-2:]:
            segment.file.sync()  # what a killed process left in the page cache
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

    def _redo_from(self, start: int, end: int, abnormal: bool, trusted_ms: int) -> int:
        if self._index is None:
            return start
        if not abnormal:
            self._reput.index_from = self._index.end_physical + 1 if self._index.file_count else 0
            return start
        redo = self._index.recover(trusted_ms, end, lambda offset: store_time_at(self._log, offset))
        if redo is None:
            return start
        self._reput.index_from = redo
        return self._boundary(max(redo, self._log.min_offset), start)

    def _boundary(self, offset: int, start: int) -> int:
        """A record boundary at or before `offset`: its file's start, when the walk began later."""
        if offset >= start:
            return start
        return offset - offset % self._log.segment_size

    def _truncate_queues(self, end: int) -> None:
        """Drop units that point behind the end of the log."""
        for queue in self._queues.all():
            low, high = queue.first_base, queue.next_offset
            while low < high:  # ends only grow: find the first one beyond the log
                middle = (low + high) // 2
                if queue.end_physical_at(middle) > end:
                    high = middle
                else:
                    low = middle + 1
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


def _wipe(segment: Segment, position: int) -> int:
    """Zeros from a position on, where there are none yet; returns the bytes overwritten. Synced."""
    wiped = 0
    while position < segment.size:
        size = min(_WINDOW, segment.size - position)
        data = segment.file.pread(size, position)
        sound = data.rstrip(b"\0")
        if sound:
            segment.file.pwrite(bytes(len(sound)), position)
            wiped += len(sound)
        position += size
    if wiped:
        segment.file.sync()
    return wiped
