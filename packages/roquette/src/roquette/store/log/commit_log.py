"""The commit log: segments of equal size, appended to at the end, found by division. HOT.

A record never crosses files. When fewer than its size plus 8 bytes remain, a blank record (its
size, then the blank magic) fills the file and the next one begins (Apache: CommitLog.doAppend).
"""

import os
from collections import deque
from typing import Final, Generic, TypeVar

from mypy_extensions import i32, i64

from roquette.base.files import File, Files
from roquette.message.record import encode_blank, peek_size_magic, write_record
from roquette.message.record_layout import (
    BLANK_MAGIC,
    BLANK_SIZE,
    HEAD_SIZE,
    SMALLEST_RECORD,
    Draft,
    Place,
)
from roquette.message.record_view import SOUND, RecordView
from roquette.store.format.layout import offset_name
from roquette.store.format.log_mark import LogMark
from roquette.store.format.segment import Segment

PENDING_LIMIT: Final = 1 << 20
NO_LIMIT: Final = 1 << 62  # behind every log


class CommitLog:
    """The segments in order. One writer; the caller decides when to write and to sync."""

    __slots__ = (
        "_ahead_directory",
        "_files",
        "_first_index",
        "active",
        "broken",
        "confirmed",
        "directory",
        "directory_dirty",
        "mark",
        "pending_bytes",
        "read_ahead",
        "segment_size",
        "segments",
        "spare",
        "spare_offset",
        "synced",
    )

    def __init__(
        self, files: Files, directory: str, ahead_directory: str, segment_size: i64
    ) -> None:
        self._files: Files = files
        self.directory: str = directory
        self._ahead_directory: str = ahead_directory
        self.segment_size: i64 = segment_size
        self.segments: list[Segment] = []
        self.active: Segment | None = None
        self.synced: i64 = 0
        self.directory_dirty: bool = False
        self.spare: File | None = None
        self.spare_offset: i64 = -1
        self._first_index: i64 = 0
        self.pending_bytes: i64 = 0
        self.read_ahead: bool = True  # see `set_read_ahead`
        self.mark: LogMark | None = None  # of an open store
        self.broken: bool = False  # a file could not be written to its end
        self.confirmed: i64 = NO_LIMIT  # readers see nothing that ends behind it

    @property
    def min_offset(self) -> i64:
        """The first byte the log still has."""
        return self._first_index * self.segment_size

    @property
    def end_offset(self) -> i64:
        """The byte after the last one appended."""
        active = self.active
        return self.min_offset if active is None else active.base_offset + active.appended

    def visible_end(self, synced_only: bool) -> i64:
        """Records that end behind it are not there yet for readers."""
        end: i64 = self.synced if synced_only else self.end_offset
        return end if end <= self.confirmed else self.confirmed

    @property
    def wrote_offset(self) -> i64:
        """The byte after the last one handed to the system."""
        active = self.active
        return self.min_offset if active is None else active.base_offset + active.wrote

    def install(self, segments: list[Segment]) -> None:
        """Take the segments that recovery has found sound; they follow each other."""
        self.segments = segments
        self.active = segments[-1] if segments else None
        if self.active is not None:
            self.active.file.wake()
        self._first_index = segments[0].base_offset // self.segment_size if segments else 0
        self.synced = self.end_offset
        if not self.read_ahead:
            self.set_read_ahead(False)

    def set_read_ahead(self, on: bool) -> None:
        """Have the system read the log ahead, or not: of the files there are, and of those to come."""
        self.read_ahead = on
        for segment in self.segments:
            segment.file.read_ahead(on)

    def begin(self, base: i64) -> None:
        """Let a log without files begin with the one at `base`. Raises OSError."""
        assert not self.segments
        self._first_index = base // self.segment_size
        if (
            self.mark is not None
        ):  # first: a log that begins later must not look as if files were gone
            self.mark.note_begin(base)
            self.mark.sync()
        self.roll()

    def place(self, size: i64) -> i64:
        """The physical offset at which a record of `size` bytes will stand; rolls when needed.

        Raises:
            OSError: no room for another segment; nothing has changed then.
        """
        active = self.active
        if active is None or active.appended + size + BLANK_SIZE > active.size:
            active = self.roll()
        return active.base_offset + active.appended

    def next_place(self, physical: i64, size: i64) -> i64:
        """Return where `place` would put a record of `size` bytes if the log ended at `physical`."""
        left: i64 = self.segment_size - physical % self.segment_size
        return physical + left if size + BLANK_SIZE > left else physical

    def append(self, record: bytes) -> None:
        """Append one record, or several that follow each other, where `place` said; the caller writes before `pending_bytes` grows too big."""
        active = self.active
        assert active is not None
        active.append(record)
        self.pending_bytes += len(record)

    def append_draft(self, draft: Draft, place: Place, size: i64) -> None:
        """Append the record of a draft, `size` bytes, as `append` does. Where it cannot be written, nothing is appended."""
        active = self.active
        assert active is not None
        tail = active.tail
        begin: i64 = len(tail)
        whole = False
        try:
            write_record(tail, draft, place)
            assert len(tail) - begin == size
            whole = True
        finally:
            if not whole:
                tail.truncate(begin)
        active.note_tail(size)
        self.pending_bytes += size

    def write_pending(self) -> None:
        """Hand everything appended to the system. Raises OSError."""
        active = self.active
        if active is not None and self.pending_bytes:
            active.write_pending()
            self.pending_bytes = 0
            if self.mark is not None:
                self.mark.note_wrote(active.base_offset + active.wrote)

    def roll(self) -> Segment:
        """Go on in the next file; a blank fills the one before. Raises OSError."""
        last = self.active
        base: i64 = self.min_offset
        if last is not None:
            base = last.base_offset + last.size
        file = self._next_file(base)
        if not self.read_ahead:
            file.read_ahead(False)
        segment = Segment(file, base, self.segment_size, 0)
        self.directory_dirty = True
        if last is not None:
            remaining: int = last.size - last.appended
            if (
                remaining > 0
            ):  # 0: of a replica; and when recovery found a full file and no next one
                assert remaining >= BLANK_SIZE
                last.append(encode_blank(i32(remaining)))
            self.broken = True  # unless this succeeds: nothing may follow the blank in this file
            last.fill()
            self.broken = False
            last.file.rest()
            self.pending_bytes = 0
            if self.mark is not None:  # a replica may have nothing yet to append behind
                self.mark.note_wrote(base)
        else:
            self._first_index = base // self.segment_size
        self.segments.append(segment)
        self.active = segment
        return segment

    def _next_file(self, base: i64) -> File:
        path = os.path.join(self.directory, offset_name(base))
        spare = self.spare
        if spare is not None:
            self.spare = None
            spare.close()
            if self.spare_offset != base or not self._move(spare.path, path):
                self._files.remove(spare.path)
        try:
            return self._files.open_file(path, self.segment_size, True)
        except OSError:
            self._files.remove(path)
            raise

    def _move(self, source: str, target: str) -> bool:
        try:
            self._files.rename(source, target)
        except OSError:  # another file system: it is of no use
            return False
        return True

    def drop_spare(self) -> None:
        """Remove the file made ahead: another broker that opens this store would not recognise it."""
        spare = self.spare
        if spare is not None:
            self.spare = None
            spare.close()
            self._files.remove(spare.path)

    def ahead_path(self) -> str | None:
        """Return where the next segment should be made ahead; None when that is not yet worth it."""
        active = self.active
        if active is None or self.spare is not None or active.appended * 2 < active.size:
            return None
        name = offset_name(active.base_offset + active.size)
        return os.path.join(self._ahead_directory, name)

    def find_segment(self, offset: i64) -> Segment | None:
        """The segment that holds a physical offset."""
        index: i64 = offset // self.segment_size - self._first_index
        if index < 0 or index >= len(self.segments):
            return None
        return self.segments[index]

    def read(self, start: i64, end: i64) -> bytes:
        """The bytes of a range; shorter (or empty) where the log has no more of it."""
        segment = self.find_segment(start)
        if segment is None:
            return b""
        position: i64 = start - segment.base_offset
        size: i64 = end - start
        if position + size > segment.appended:
            size = segment.appended - position
            if size <= 0:
                return b""
        if position + size > segment.wrote:  # the mark says so before anybody speaks of it
            self.write_pending()
        return segment.pread(size, position)

    def record_size(self, offset: i64) -> i64:
        """The size of the record that begins at an offset; 0 when none can begin there."""
        head = self.read(offset, offset + 8)
        if len(head) < 8:
            return 0
        size, magic = peek_size_magic(head, 0)
        if magic == BLANK_MAGIC or size <= 0:
            return 0
        return size

    def detach_head(self, count: int) -> list[Segment]:
        """Forget the oldest `count` segments, for deletion; the newest always stays."""
        assert 0 <= count < len(self.segments)
        gone = self.segments[:count]
        self.segments = self.segments[count:]
        self._first_index += count
        return gone


# Waiters for the disk: tickets released in order when the log is durable far enough. Pure.


T = TypeVar("T")

NEVER = 1 << 62


class DurabilityGate(Generic[T]):
    """Tokens (replies, usually) behind log offsets. The driver syncs and tells how far.

    Appends are in log order, so waiting is a queue; a late comer is put in its place.
    """

    def __init__(self, durable_offset: int = 0) -> None:
        self._waiting: deque[tuple[int, int, T]] = deque()
        self.durable_offset = durable_offset

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, end_offset: int, token: T, deadline_ms: int = NEVER) -> bool:
        """Keep a token until the log is durable up to `end_offset`; False when it already is."""
        if end_offset <= self.durable_offset:
            return False
        entry = (end_offset, deadline_ms, token)
        if not self._waiting or self._waiting[-1][0] <= end_offset:
            self._waiting.append(entry)
        else:
            place = sum(1 for other in self._waiting if other[0] <= end_offset)
            self._waiting.insert(place, entry)
        return True

    def flushed(self, end_offset: int) -> list[T]:
        """The log is durable up to `end_offset`: the tokens to release, in log order."""
        self.durable_offset = max(self.durable_offset, end_offset)
        ready: list[T] = []
        while self._waiting and self._waiting[0][0] <= self.durable_offset:
            ready.append(self._waiting.popleft()[2])
        return ready

    def expire(self, now_ms: int) -> list[T]:
        """Tokens whose deadline has passed, in log order: their senders get FLUSH_DISK_TIMEOUT."""
        if not any(entry[1] <= now_ms for entry in self._waiting):
            return []
        expired = [entry[2] for entry in self._waiting if entry[1] <= now_ms]
        self._waiting = deque(entry for entry in self._waiting if entry[1] > now_ms)
        return expired

    def abandon(self) -> list[T]:
        """All tokens, because no sync will ever come (a failed disk)."""
        left = [entry[2] for entry in self._waiting]
        self._waiting.clear()
        return left


# Reading the log: its bytes as one read sees them, records, store times. HOT.


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
