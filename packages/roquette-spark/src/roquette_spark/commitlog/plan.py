"""Segments to splits: which files a query needs, and where each task begins and ends."""

import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from roquette.base.files import ReadFiles, read_all
from roquette.errors import CorruptRecord
from roquette.message import record_view
from roquette.message.record_layout import BLANK_MAGIC, HEAD_SIZE, RECORD_MAGIC_V1, RECORD_MAGIC_V2
from roquette.message.record_view import FAULT_WORDS, SOUND, RecordView
from roquette.store.format.log_reader import LogReader
from roquette.store.offline.store_dir import LogFile
from roquette_spark.commitlog.files import CommitLogOptions, open_log
from roquette_spark.source.columns import leading_records
from roquette_spark.source.decode import RecordColumns

# Read a split of a segment: its valid records and the gaps between them. Pure but for the given `read`.
# A split is the bytes `start` to `end` of a segment. A record belongs to the split in which it begins. The first one at or after `start` is recognised by magic code, size, CRC of the body, and its own physical offset, which must equal its position. The last makes it safe: a copy of a record inside a body names another position.
# A gap is reported by exactly one split: the one whose walk meets it, or for the bytes before a segment's first record the one that begins there.


BLANK, EMPTY, TORN, DAMAGED, MISSING = "blank", "empty", "torn", "damaged", "missing"
_MAGICS = (RECORD_MAGIC_V1, RECORD_MAGIC_V2)
_PEEK = 64 << 10
_read_start = struct.Struct(">ii").unpack_from

Read = Callable[[int, int], bytes]  # (position, size) of the split's file


class Gap(NamedTuple):
    """Bytes without a record: a blank at a file's end, an unused rest, a torn tail, damage, a missing file."""

    kind: str
    path: str
    physical_offset: int
    size: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The work of one task."""

    path: str
    base: int  # physical offset of the file's first byte
    size: int  # of the file
    start: int
    end: int
    last: bool = False  # of the log's last segment: there the log may just end
    root: int = 0  # number of the path that the user gave
    missing: int = 0  # bytes between `path` and the segment before it: reported as a gap


class _File:
    """A split's file for the log reader."""

    def __init__(self, size: int, read: Read) -> None:
        self.size = size
        self._read = read

    def pread(self, size: int, position: int) -> bytes:
        return self._read(position, size)


class Walk:
    """Iterate over a split: `RecordColumns` of at most `rows` records, and `Gap`s, in the log's order.

    Args:
        read: bytes of the file by position and size.
        read_bytes: how much to read at once; a larger record is read whole.
        check_crc: a body that does not match its CRC makes its record damaged.
    """

    def __init__(
        self, split: Split, read: Read, *, read_bytes: int, rows: int, check_crc: bool
    ) -> None:
        self._split = split
        self._read = read
        self._read_bytes = max(read_bytes, HEAD_SIZE)
        self._rows = rows
        self._check_crc = check_crc
        self._reader = LogReader(_File(split.size, read), split.base, check_crc)
        self._reader.window = min(self._read_bytes, _PEEK)

    def __iter__(self) -> Iterator[RecordColumns | Gap]:
        split = self._split
        position = 0 if split.start == 0 else self._find(split.start, split.end)
        if position is None:
            return
        while position < split.end:
            data = self._load(position, self._read_bytes)
            reached = position
            for records, end in self._runs(data, position):
                reached = position + end
                yield records
            if reached == position:
                after = yield from self._skip_gap(position)
                if after is None:
                    return
                reached = after
            position = reached
        if position < split.size and self._fault_at(position) != SOUND:
            yield from self._skip_gap(position)

    def _runs(self, data: bytes, position: int) -> Iterator[tuple[RecordColumns, int]]:
        """The sound records at the begin of `data`, and where in it each group ends."""
        starts, end = leading_records(data, self._split.end - position)
        base = self._split.base + position
        for first in range(0, len(starts), self._rows):
            part = starts[first : first + self._rows]
            after = int(starts[first + self._rows]) if first + self._rows < len(starts) else end
            try:
                records = RecordColumns(data, positions=part)
                records.check(base, crc=self._check_crc)
            except CorruptRecord:
                count = self._sound_count(data, part, base)
                if count:
                    yield RecordColumns(data, positions=part[:count]), int(part[count])
                return
            yield records, after

    def _sound_count(self, data: bytes, starts: np.ndarray, base: int) -> int:
        """Count the sound records before the first one that is not."""
        view = RecordView()
        for index, start in enumerate(starts.tolist()):
            if view.examine(data, start, base + start, self._check_crc) != SOUND:
                return index
        raise AssertionError("the two ways to read a record disagree")

    def _load(self, position: int, size: int) -> bytes:
        """`size` bytes from a position on, or more when a record that begins there has more."""
        rest = self._split.size - position
        data = self._read(position, min(size, rest))
        if len(data) >= 8:
            wanted, magic = _read_start(data)
            if len(data) < wanted <= rest and magic in _MAGICS:
                data = self._read(position, wanted)
        return data

    def _fault_at(self, position: int) -> int:
        """Return the fault of what stands there."""
        self._reader.following = position
        return self._reader.look()

    def _find(self, start: int, stop: int) -> int | None:
        """Find the start of the first sound record in `start` to `stop`."""
        reader = self._reader
        at = reader.find_sound(start, self._check_crc, stop)
        while at >= 0 and reader.magic == BLANK_MAGIC:
            at = reader.find_sound(at + 1, self._check_crc, stop)
        return at if at >= 0 else None

    def _skip_gap(self, position: int) -> Generator[Gap, None, int | None]:
        """Yield the gap at `position`; returns where the next record begins, None at the end."""
        split = self._split
        rest = split.size - position
        fault = self._fault_at(position)
        if fault in (record_view.BLANK, record_view.BAD_BLANK):
            yield self._gap(BLANK, position, split.size, "")
            return None
        if split.last and self._reader.is_zeros(position, split.size):
            yield self._gap(EMPTY, position, split.size, "")
            return None
        reason = FAULT_WORDS[fault]
        after = self._find(position + 1, split.size)
        if after is not None:
            yield self._gap(DAMAGED, position, after, reason)
            return after
        if split.last:
            yield self._gap(TORN, position, split.size, reason)
        elif rest:
            yield self._gap(DAMAGED, position, split.size, reason)
        return None

    def _gap(self, kind: str, start: int, end: int, reason: str) -> Gap:
        return Gap(kind, self._split.path, self._split.base + start, end - start, reason)


def store_time(head: bytes) -> int | None:
    """The store time (ms) of the record whose first bytes these are, None if they begin no record."""
    view = RecordView()
    return view.store_ms if view.find_head(head, 0) == SOUND else None


def rows_wanted(
    records: RecordColumns,
    *,
    topic_wanted: Callable[[str], bool],
    starting_ms: int | None,
    ending_ms: int | None,
    with_unfinished: bool,
) -> np.ndarray | None:
    """Return which records a query wants; None: all. Unfinished are prepared and rolled back ones, in no queue."""
    wanted: np.ndarray | None = None
    codes, topics = records.topics()
    if not all(keep := [topic_wanted(topic) for topic in topics]):
        wanted = np.array(keep, dtype=bool)[codes]
    if starting_ms is not None:
        wanted = _and(wanted, records.store_ms >= starting_ms)
    if ending_ms is not None:
        wanted = _and(wanted, records.store_ms < ending_ms)
    if not with_unfinished and (unfinished := records.unfinished()).any():
        wanted = _and(wanted, ~unfinished)
    return None if wanted is None or wanted.all() else wanted


def _and(wanted: np.ndarray | None, more: np.ndarray) -> np.ndarray:
    return more if wanted is None else wanted & more


CLOCK_SLACK_MS = 60_000  # a broker's clock that was set back by less prunes nothing wanted


def plan(options: CommitLogOptions) -> list[Split]:
    """The splits of all paths.

    Raises:
        ConfigError: a path has no segments.
    """
    splits: list[Split] = []
    for root, path in enumerate(options.paths):
        files, segments = open_log(path, options.storage_options)
        splits += plan_log(files, segments, options, root)
    return splits


def describe_store(path: str) -> str:
    """Describe how much a store has, for people. Raises ConfigError when it has no segments."""
    segments = open_log(path, "{}")[1]
    size = sum(segment.size for segment in segments)
    return f"store {path}: {len(segments)} segments, {size / (1 << 20):,.0f} MiB"


def plan_log(
    files: ReadFiles, segments: Sequence[LogFile], options: CommitLogOptions, root: int
) -> list[Split]:
    """The splits of one log.

    Files of nothing but zeros at the end are made ahead by the broker: they are not read.
    """

    def head(segment: LogFile) -> bytes:
        return read_all(files, segment.path, HEAD_SIZE)

    used = list(segments)
    while len(used) > 1 and not any(head(used[-1])):
        used.pop()
    wanted = prune(used, lambda segment: store_time(head(segment)), options)
    splits: list[Split] = []
    for index, segment in enumerate(used):
        before = used[index - 1] if index else None
        if before is not None and before.base + before.size < segment.base and segment in wanted:
            gap = segment.base - before.base - before.size
            of_file = partial(Split, path=segment.path, base=segment.base, root=root)
            splits.append(of_file(size=0, start=0, end=0, missing=gap))
        if segment in wanted:
            splits += cut(segment, options.split_bytes, last=index == len(used) - 1, root=root)
    return splits


def prune(
    segments: list[LogFile],
    first_time: Callable[[LogFile], int | None],
    options: CommitLogOptions,
) -> set[LogFile]:
    """Segments that may hold records of the wanted time: store times grow along a log.

    A segment ends in time where the next one begins. One that does not begin with a record is kept.
    """
    if options.starting_ms is None and options.ending_ms is None:
        return set(segments)
    times = [first_time(segment) for segment in segments]
    wanted = set()
    for segment, first, following in zip(segments, times, [*times[1:], None], strict=True):
        too_late = (
            options.ending_ms is not None
            and first is not None
            and first - CLOCK_SLACK_MS >= options.ending_ms
        )
        too_early = (
            options.starting_ms is not None
            and following is not None
            and following + CLOCK_SLACK_MS < options.starting_ms
        )
        if not too_late and not too_early:
            wanted.add(segment)
    return wanted


def cut(segment: LogFile, split_bytes: int, *, last: bool, root: int) -> list[Split]:
    """Pieces of about `split_bytes`; 0: one piece."""
    step, size = split_bytes or segment.size, segment.size
    of_file = partial(Split, path=segment.path, base=segment.base, root=root, last=last)
    return [
        of_file(size=size, start=start, end=min(start + step, size))
        for start in range(0, segment.size, step or 1)
    ]
