"""What a damaged commit log needs to be one again: which bytes to put where.

A damaged stretch becomes records of a rolled back transaction, which queues and index pass over, or the blank that
ends its file; what stands behind the log's end becomes zeros. Sound records are neither moved nor changed, but for
one case: a stretch too small for a record is taken in by the record before it, whose text of properties grows by empty
properties, which every reader passes over. At a file's start the record behind takes it in, and so begins earlier.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from roquette.base.files import ReadAt, ReadFiles
from roquette.errors import StoreError
from roquette.message.record_layout import BLANK_SIZE, MAX_PROPERTIES, WHOLE_CRC, WHOLE_CRC_SIZE
from roquette.message.record_view import FAULT_NAMES
from roquette.store.format.layout import offset_name
from roquette.store.format.log_reader import END, FILLED, RECORD, LogReader
from roquette.store.format.patch import MIN_FILLER, Patch
from roquette.store.offline.store_dir import StoreDir

_MAX_MISSING: Final = 64  # files in a row


@dataclass(slots=True)
class LogPlan:
    """How the log is mended.

    Attributes:
        bases: of all files the mended log has, in order. `missing`: those that are made as blanks.
        end: physical offset behind the last sound record. `last_ms`: its store time.
    """

    bases: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    records: int = 0
    end: int = 0
    last_ms: int = 0


def plan_log(files: ReadFiles, store: StoreDir) -> LogPlan:
    """Walk the whole log, CRCs included, and say what it needs. Raises OSError.

    Raises:
        StoreError: the files overlap or lie too far apart, or a stretch cannot be filled.
    """
    plan = LogPlan(end=store.min_offset)
    size = store.segment_size
    walked: list[_Walk] = []
    for file in store.log:
        if file.size > size:
            raise StoreError(
                f"{file.path} has {file.size} bytes, files of this log have {size}: move it away, or cut it"
            )
        if walked and file.base < walked[-1].base + size:
            raise StoreError(f"{file.path} overlaps the file before it: move the wrong one away")
        if walked and file.base > walked[-1].base + (_MAX_MISSING + 1) * size:
            raise StoreError(
                f"more than {_MAX_MISSING} files are missing before {file.path}: restore them, or move it away"
            )
        source = files.open_file(file.path)
        try:
            walk = _Walk(source, file.base, size, plan)
            walk.run()
            walked.append(walk)
        finally:
            source.close()
    last = max((place for place, one in enumerate(walked) if one.end > 0), default=-1)
    for place, walk in enumerate(walked[: last + 1]):
        if plan.bases:
            plan.missing += range(plan.bases[-1] + size, walk.base, size)
            plan.bases += range(plan.bases[-1] + size, walk.base, size)
        plan.bases.append(walk.base)
        plan.patches += walk.patches
        if walk.end < size:
            how = "zeros" if place == last else "blank"
            plan.patches.append(Patch(walk.base, walk.end, size, how, "tail", plan.last_ms))
    plan.patches = [patch for patch in plan.patches if _needed(files, store, patch)]
    return plan


@dataclass(slots=True)
class _Place:
    """Where a sound record stands in its file."""

    position: int
    end: int
    properties_size: int
    grown: bool = False  # it has taken a stretch in


class _Walk:
    """One file of the log.

    Attributes:
        end: the byte behind the last sound record, or behind the blank that fills the file.
        patches: for the damaged stretches before it.
    """

    def __init__(self, source: ReadAt, base: int, size: int, plan: LogPlan) -> None:
        self._source = source
        self._size = size
        self._plan = plan
        self.base = base
        self.end = 0
        self.patches: list[Patch] = []

    def run(self) -> None:
        """Look at all of it."""
        reader = LogReader(self._source, self.base, True, nominal=self._size)
        plan = self._plan
        hole: Patch | None = None  # damage that begins where the last sound record ends
        before: _Place | None = None
        while (found := reader.advance()) != END:
            position, end = int(reader.position), int(reader.following)
            if found != RECORD:
                why = FAULT_NAMES[reader.fault] if hole is None else hole.why
                start = position if hole is None else hole.position
                hole = Patch(self.base, start, end, "filler", why, plan.last_ms)
                continue
            here = _Place(position, end, int(reader.properties_size))
            if hole is not None:
                self.patches.append(self._filled(hole, before, here))
                hole = None
            before = here
            self.end = end
            plan.records += 1
            plan.end = self.base + end
            plan.last_ms = int(reader.store_ms)
        if reader.ending == FILLED and reader.blank_at >= 0:
            if hole is not None:  # what stands between the last record and the blank
                small = hole.end - hole.position < MIN_FILLER
                self.patches.append(replace(hole, end=self._size, how="blank") if small else hole)
            self.end = self._size
        elif before is not None and self._size - BLANK_SIZE < self.end < self._size:
            rest = Patch(self.base, self.end, self._size, "filler", "tail", plan.last_ms)
            self.patches.append(self._filled(rest, before, None))  # no blank fits there
            self.end = self._size

    def _filled(self, hole: Patch, before: _Place | None, behind: _Place | None) -> Patch:
        """The hole as a filler, or a neighbour that takes in what is too small for one."""
        if hole.end - hole.position >= MIN_FILLER:
            return hole
        for place in (before, behind):
            if place is None or place.grown:
                continue
            record = self._grown(place, hole.end - hole.position, place is behind)
            if record:
                place.grown = True
                start, end = min(place.position, hole.position), max(place.end, hole.end)
                return replace(hole, position=start, end=end, how="record", record=record)
        raise StoreError(
            f"{offset_name(self.base)} byte {hole.position}: {hole.end - hole.position} bytes of damage are too few "
            "for a record, and no neighbour can take them in: restore the file from a backup or a replica"
        )

    def _grown(self, place: _Place, more: int, earlier: bool) -> bytes:
        """A record with `more` bytes of empty properties, at home where it begins then; empty: there is no room."""
        data = self._source.pread(place.end - place.position, place.position)
        at = len(data) - place.properties_size
        text = data[at:]
        if text[-WHOLE_CRC_SIZE:].startswith(WHOLE_CRC):  # it would not hold any more
            text = text[:-WHOLE_CRC_SIZE]
        size = len(data) + more
        text = text.ljust(size - at, b"\2")
        if len(text) > MAX_PROPERTIES:
            return b""
        start = self.base + place.position - (more if earlier else 0)
        head = size.to_bytes(4, "big") + data[4:28] + start.to_bytes(8, "big") + data[36 : at - 2]
        return head + len(text).to_bytes(2, "big") + text


def _needed(files: ReadFiles, store: StoreDir, patch: Patch) -> bool:
    """Zeros where zeros are need no patch."""
    if patch.how != "zeros":
        return True
    file = store.file_of(patch.base)
    if file is None:
        return True
    source = files.open_file(file.path)
    try:
        at = patch.position
        while at < min(patch.end, file.size):
            piece = source.pread(1 << 20, at)
            if piece != bytes(len(piece)):
                return True
            at += len(piece)
        return file.size < patch.end
    finally:
        source.close()
