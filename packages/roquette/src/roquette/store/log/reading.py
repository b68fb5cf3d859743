"""Reading the log: its bytes as one read sees them, records, store times. HOT."""

from typing import Final

from mypy_extensions import i64

from roquette.base.files import File
from roquette.message.record_layout import HEAD_SIZE, SMALLEST_RECORD
from roquette.message.record_view import SOUND, RecordView
from roquette.store.log.commit_log import CommitLog

_WHOLE: Final = 1024  # a record up to this size is taken in one piece


class LogSource:
    """The log as one read sees it: how far it reaches, and its bytes by the map."""

    __slots__ = ("_log", "end", "min_physical", "segment_size", "visible_end")

    def __init__(self, commit_log: CommitLog, visible_end: i64) -> None:
        """`visible_end`: records that end behind it are not there yet for readers."""
        self._log: CommitLog = commit_log
        self.segment_size: i64 = commit_log.segment_size
        self.min_physical: i64 = commit_log.min_offset
        self.end: i64 = commit_log.end_offset
        self.visible_end: i64 = visible_end

    def read(self, start: i64, end: i64) -> bytes:
        """Bytes of one segment; fewer where the log has no more."""
        return self._log.read(start, end)

    def properties(self, view: RecordView, offset: i64, size: i64) -> bytes:
        """Property bytes of the record at a physical offset, without its body when that is long."""
        if size <= _WHOLE:
            if view.find(self.read(offset, offset + size), 0) != SOUND:
                return b""
        elif view.find_head(self.read(offset, offset + HEAD_SIZE), 0) != SOUND or (
            view.find_tail(self.read(offset + view.body_at + view.body_size, offset + size))
            != SOUND
        ):
            return b""
        return view.properties()


class FileSource(LogSource):
    """The same by pread, for the executor: a page fault on the loop would stop the whole process."""

    __slots__ = ("_files",)

    def __init__(self, commit_log: CommitLog, visible_end: i64) -> None:
        super().__init__(commit_log, visible_end)
        # Kept here, deleted files stay readable.
        self._files: list[File] = [segment.file for segment in commit_log.segments]

    def read(self, start: i64, end: i64) -> bytes:
        """Blocks."""
        base: i64 = self.min_physical
        index: i64 = (start - base) // self.segment_size
        if start < base or index >= len(self._files) or end <= start:
            return b""
        return self._files[index].pread(end - start, (start - base) % self.segment_size)


class SpansRead:
    """Reads spans of the log in the executor; those the log has lost are left out."""

    __slots__ = ("_source", "_spans")

    def __init__(self, source: FileSource, spans: list[tuple[i64, i64]]) -> None:
        self._source: FileSource = source
        self._spans: list[tuple[i64, i64]] = spans

    def run(self) -> list[bytes]:
        """Block until the bytes are here."""
        found: list[bytes] = []
        for start, end in self._spans:
            data = self._source.read(start, end)
            if data:
                found.append(data)
        return found


class RawRead:
    """Reads a stretch of one file of the log in the executor."""

    __slots__ = ("_end", "_source", "_start")

    def __init__(self, source: FileSource, start: i64, end: i64) -> None:
        self._source: FileSource = source
        self._start: i64 = start
        self._end: i64 = end

    def run(self) -> bytes:
        """Block until the bytes are here; empty when the log has lost them."""
        return self._source.read(self._start, self._end)


def record_at(commit_log: CommitLog, offset: int, size: int | None) -> bytes | None:
    """The record that begins at a physical offset; None when none does."""
    if offset < 0:
        return None
    if size is None:
        size = commit_log.record_size(offset)
    if size < SMALLEST_RECORD:
        return None
    data = commit_log.read(offset, offset + size)
    view = RecordView()
    fault = view.find(data, 0)
    if fault != SOUND or view.size != size or view.check_place(offset) != SOUND:
        return None
    return data


def store_time_at(commit_log: CommitLog, offset: int) -> int:
    """The store time (epoch ms) of the record at a physical offset; -1 when there is none."""
    if offset < 0:
        return -1
    view = RecordView()
    fault = view.find_head(commit_log.read(offset, offset + HEAD_SIZE), 0)
    if fault != SOUND or view.check_place(offset) != SOUND:
        return -1
    return view.store_ms


def store_time_from(commit_log: CommitLog, offset: int) -> int:
    """The same; where the record is lost, the store time of the next log file that has any."""
    stored = store_time_at(commit_log, offset)
    while stored < 0:
        segment = commit_log.find_segment(offset)
        if segment is None:
            break
        offset = segment.base_offset + segment.size
        stored = store_time_at(commit_log, offset)
    return stored
