"""What a damaged commit log needs to be one again: which bytes to put where.

Records are neither moved nor changed. A damaged stretch becomes records of a rolled back transaction, which queues
and index pass over, or the blank that ends its file; what stands behind the log's end becomes zeros.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from roquette.base.read_files import ReadFiles
from roquette.errors import StoreError
from roquette.message.record import encode_blank, encode_record, record_size
from roquette.message.sysflag import TRANSACTION_ROLLBACK
from roquette.store.offline.scan import END, FAULT_NAMES, FILLED, RECORD, Scanner
from roquette.store.offline.store_dir import StoreDir

LOST_TOPIC: Final = b"LOST_TO_DAMAGE"
_NO_HOST: Final = bytes(8)
_MAX_FILLER: Final = 1 << 20
_MIN_RECORD: Final = record_size(0, 1, 0, 8, 8)


@dataclass(frozen=True, slots=True)
class Patch:
    """A stretch of the log that gets other bytes.

    Attributes:
        base: of the file. `position`, `end`: within it.
        how: `filler`, `blank` or `zeros`. `why`: the fault there.
        store_ms: of the record before.
    """

    base: int
    position: int
    end: int
    how: str
    why: str
    store_ms: int

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """What is to be written: positions in the file and bytes; zeros elsewhere."""
        if self.how == "blank":
            yield self.position, encode_blank(self.end - self.position)
        elif self.how == "filler":
            at = self.position
            while at < self.end:
                size = min(self.end - at, _MAX_FILLER)
                if 0 < self.end - at - size < _MIN_RECORD:
                    size -= _MIN_RECORD
                yield at, _filler(size, self.base + at, self.store_ms)
                at += size


def _filler(size: int, physical: int, store_ms: int) -> bytes:
    spare = size - record_size(0, 0, 0, 8, 8)
    topic = LOST_TOPIC[: max(1, min(len(LOST_TOPIC), spare))]
    body = bytes(spare - len(topic))
    return encode_record(
        topic, 0, 0, 0, physical, TRANSACTION_ROLLBACK, store_ms, _NO_HOST, store_ms, _NO_HOST, 0, 0, body, b""
    )  # fmt: skip


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

    @property
    def lost_bytes(self) -> int:
        """Bytes that hold no sound record and are overwritten."""
        return sum(patch.end - patch.position for patch in self.patches)


def plan_log(files: ReadFiles, store: StoreDir) -> LogPlan:
    """Walk the whole log, CRCs included, and say what it needs. Raises OSError.

    Raises:
        StoreError: the files overlap, or a stretch is too small to be filled.
    """
    plan = LogPlan(end=store.min_offset)
    size = store.segment_size
    walked: list[tuple[int, int, list[Patch], bool]] = []
    for file in store.log:
        if file.size > size:
            raise StoreError(
                f"{file.path} has {file.size} bytes, files of this log have {size}: move it away, or cut it"
            )
        if walked and file.base < walked[-1][0] + size:
            raise StoreError(f"{file.path} overlaps the file before it: move the wrong one away")
        source = files.open(file.path)
        try:
            scanner = Scanner(source, file.base, True, nominal=size)
            walked.append(_walk(scanner, plan))
        finally:
            source.close()
    last = max((place for place, one in enumerate(walked) if one[1] > 0), default=-1)
    for place, (base, end, patches, filled) in enumerate(walked):
        if place > last:
            break
        if plan.bases:
            plan.missing += range(plan.bases[-1] + size, base, size)
            plan.bases += range(plan.bases[-1] + size, base, size)
        plan.bases.append(base)
        plan.patches += patches
        if filled and end >= size:
            continue
        how = "zeros" if place == last else "blank"
        if end < size and not filled:
            plan.patches.append(Patch(base, end, size, how, "tail", plan.last_ms))
    plan.patches = [patch for patch in plan.patches if _needed(files, store, patch)]
    return plan


def _walk(scanner: Scanner, plan: LogPlan) -> tuple[int, int, list[Patch], bool]:
    """(base, byte behind the last sound record, damaged stretches before it, filled) of one file."""
    patches: list[Patch] = []
    end, store_ms = 0, plan.last_ms
    waiting: list[Patch] = []
    while (found := scanner.advance()) != END:
        if found == RECORD:
            patches += waiting
            waiting = []
            end, store_ms = int(scanner.following), int(scanner.store_ms)
            plan.records += 1
            plan.end = int(scanner.base) + end
            plan.last_ms = store_ms
            continue
        why = FAULT_NAMES[scanner.fault]
        waiting.append(
            Patch(
                int(scanner.base),
                int(scanner.position),
                int(scanner.following),
                "filler",
                why,
                store_ms,
            )
        )
    filled = scanner.ending == FILLED and scanner.blank_at >= 0
    if filled:  # what stands between the last record and the blank is filled
        patches += waiting
        end = int(scanner.nominal)
    elif not waiting and scanner.ending == FILLED:
        filled, end = True, int(scanner.limit)
    return int(scanner.base), end, patches, filled


def _needed(files: ReadFiles, store: StoreDir, patch: Patch) -> bool:
    """Zeros where zeros are need no patch."""
    if patch.how != "zeros":
        return True
    file = store.file_of(patch.base)
    if file is None:
        return True
    source = files.open(file.path)
    try:
        at = patch.position
        while at < min(patch.end, file.size):
            piece = source.read(at, 1 << 20)
            if piece != bytes(len(piece)):
                return True
            at += len(piece)
        return file.size < patch.end
    finally:
        source.close()
