"""Starts of a log's epochs: they tell how far two logs of one group are the same.

A new master marks the end of its log with its epoch, synced, before the first byte of that epoch; slaves take over
the mark before the bytes. Two logs that have an epoch with one start are equal up to where the first of them leaves
it. The file is Apache's (EpochFileCache, CheckpointFile): number of entries, their CRC-32 without its top bit, then
a line `epoch-start` each.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from roquette.base.checksum import crc32
from roquette.base.files import Files
from roquette.errors import StoreError

LIMIT: Final = 4_096  # marks; beyond it empty stretches go, then the oldest
_CRC: Final = 0x7FFF_FFFF
_EPOCH: Final = 1 << 31
_OFFSET: Final = 1 << 63


class EpochMark(NamedTuple):
    """An epoch and the offset of its first byte."""

    epoch: int
    start: int


@dataclass(frozen=True, slots=True)
class EpochMarks:
    """The marks of one log, oldest first: epochs rise, starts do not fall."""

    marks: tuple[EpochMark, ...] = ()

    @property
    def last_epoch(self) -> int:
        """The youngest epoch; 0: there are no marks."""
        return self.marks[-1].epoch if self.marks else 0

    @property
    def first_start(self) -> int:
        """Start of the oldest mark; 0: there are no marks."""
        return self.marks[0].start if self.marks else 0

    def at(self, offset: int) -> EpochMark | None:
        """The mark of the stretch that `offset` lies in; None: it lies before all marks."""
        return next((mark for mark in reversed(self.marks) if mark.start <= offset), None)

    def written(self, end: int) -> int:
        """Epoch of the last byte, which may have expired, of a log that ends at `end`; 0: there was none. With `end` it
        tells which of two logs has more: who was elected, and wrote nothing, has no more than before."""
        return (self.at(end - 1) or self.marks[0]).epoch if self.marks and end else 0

    def common(self, end: int, theirs: "EpochMarks", their_end: int) -> int | None:
        """Up to where this log, which ends at `end`, is the same as theirs; None: no epoch in common.

        The oldest mark of a list may begin later than it did: what lay before it has expired (`seen_from`).
        """
        for i in range(len(self.marks) - 1, -1, -1):
            mine = self.marks[i]
            for j, other in enumerate(theirs.marks):
                if mine.epoch != other.epoch:
                    continue
                expired = (j == 0 and other.start > mine.start) or (
                    i == 0 and mine.start > other.start
                )
                point = min(self._end_of(i, end), theirs._end_of(j, their_end))
                if (mine.start == other.start or expired) and point >= max(mine.start, other.start):
                    return point
        return None

    def _end_of(self, index: int, end: int) -> int:
        return self.marks[index + 1].start if index + 1 < len(self.marks) else end

    def marked(self, epoch: int, start: int) -> "EpochMarks":
        """With one more mark; the same list when it has that epoch: a master whose log begins in it says a later
        start. Raises StoreError when it does not fit."""
        if any(mark.epoch == epoch for mark in self.marks):
            return self
        return EpochMarks.of((*self.marks, EpochMark(epoch, start)))._bounded()

    def won(self, epoch: int, own_begin: int, own_end: int) -> "EpochMarks":
        """With the mark of an own mastership. The first one of a log covers what it has: all of it is ours."""
        return self.marked(epoch, own_end if self.marks else own_begin)

    def _bounded(self) -> "EpochMarks":
        """An empty stretch decides nothing: where it begins the next one does, and the one before ends."""
        if len(self.marks) <= LIMIT:
            return self
        pairs = zip(self.marks[1:-1], self.marks[2:], strict=True)
        kept = [mark for mark, after in pairs if mark.start < after.start]
        return EpochMarks((self.marks[0], *kept, self.marks[-1])[-LIMIT:])

    def cut(self, at: int) -> "EpochMarks":
        """Of a log that is cut at `at` because it is another one from there on."""
        return EpochMarks(tuple(mark for mark in self.marks if mark.start < at))

    def without_beyond(self, end: int) -> "EpochMarks":
        """Of a log that ends at `end`: a mark beyond it has lost its bytes, or never had any."""
        return EpochMarks(tuple(mark for mark in self.marks if mark.start <= end))

    def joined(self, theirs: "EpochMarks", at: int) -> "EpochMarks":
        """Of this log when it is the same as theirs below `at` and is to go on as theirs does."""
        first = theirs.marks[0]
        older = [
            mark for mark in self.marks if mark.epoch <= first.epoch and mark.start <= first.start
        ]
        last = older[-1].epoch if older else -1
        return EpochMarks(
            (*older, *(mark for mark in theirs.marks if mark.epoch > last and mark.start <= at))
        )

    def seen_from(self, begin: int) -> "EpochMarks":
        """As a slave is told by a master whose log begins at `begin`: the first mark says where (as Apache's)."""
        before = [EpochMark(mark.epoch, begin) for mark in self.marks if mark.start < begin]
        return EpochMarks((*before[-1:], *(mark for mark in self.marks if mark.start >= begin)))

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start) each, as the handshake carries them."""
        return [(mark.epoch, mark.start) for mark in self.marks]

    @staticmethod
    def of(entries: Iterable[tuple[int, int]]) -> "EpochMarks":
        """From a peer's or a file's entries; raises StoreError when they are no history."""
        marks = tuple(EpochMark(epoch, start) for epoch, start in entries)
        last = EpochMark(-1, 0)
        for mark in marks:
            if not (last.epoch < mark.epoch < _EPOCH and last.start <= mark.start < _OFFSET):
                raise StoreError(
                    f"epoch {mark.epoch} from offset {mark.start} on cannot come after "
                    f"epoch {last.epoch} from {last.start} on"
                )
            last = mark
        return EpochMarks(marks)

    def encode(self) -> bytes:
        """The content of Apache's epoch file."""
        lines = "".join(f"{mark.epoch}-{mark.start}\n" for mark in self.marks).encode()
        return b"%d\n%d\n%s" % (len(self.marks), crc32(lines) & _CRC, lines)


def decode_epochs(data: bytes) -> EpochMarks:
    """The content of an epoch file; raises StoreError that says what is damaged. A CRC of 0 is not compared."""
    lines = data.replace(b"\r\n", b"\n").split(b"\n")
    if len(lines) < 3 or lines.pop() != b"":
        raise StoreError("the epoch file is cut off")
    try:
        count, wanted = int(lines[0]), int(lines[1])
        pairs = [tuple(map(int, line.split(b"-"))) for line in lines[2:]]
    except ValueError:
        raise StoreError("the epoch file has a line that is no entry") from None
    if any(len(pair) != 2 for pair in pairs):
        raise StoreError("the epoch file has a line that is no entry")
    if len(pairs) != count:
        raise StoreError(f"the epoch file has {len(pairs)} entries where it says {count}")
    crc = crc32(b"".join(line + b"\n" for line in lines[2:])) & _CRC
    if wanted not in (0, crc):
        raise StoreError(f"the epoch file is damaged: its CRC is {crc}, it says {wanted}")
    return EpochMarks.of((pair[0], pair[1]) for pair in pairs)


def load_epochs(files: Files, path: str) -> EpochMarks:
    """The marks on disk; none when there is no file. Raises StoreError when it is damaged. Blocks."""
    if not files.exists(path):
        return EpochMarks()
    try:
        return decode_epochs(files.read_bytes(path))
    except StoreError as error:
        raise StoreError(
            f"{path}: {error}. Without it nobody knows up to where this log is its group's. Put {path}.bak in its "
            "place (then more of the log than needed may be fetched again), or start with an empty store."
        ) from None


def save_epochs(files: Files, path: str, marks: EpochMarks) -> None:
    """Replace the file; on return it is on the disk, and the earlier content beside it as `.bak`. Blocks."""
    files.write_atomic(path, marks.encode())


# Decision of a slave about its log when a master welcomes it: go on, cut, begin anew, or nothing and say why.


@dataclass(frozen=True, slots=True)
class Go:
    """The log is the master's as far as it goes: save the marks, report `at`."""

    at: int
    kept: EpochMarks


@dataclass(frozen=True, slots=True)
class Cut:
    """From `at` on the log is another one: cut it there (what is cut is kept aside), then save the marks."""

    at: int
    kept: EpochMarks


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """The master has nothing any more that follows the log: begin at `at`, its first byte. A log that has messages is
    kept aside: nobody can tell any more whether it was the group's."""

    at: int
    kept: EpochMarks


@dataclass(frozen=True, slots=True)
class Refuse:
    """Touch nothing, close, try again later; the log says why."""

    why: str


Join = Go | Cut | BeginAnew | Refuse

FOREIGN = (
    "the store has messages, and {what}: it is not a copy of this group's log. To have this broker in the group, "
    "move its store away and start it empty; to keep its messages, start it first, alone, in a group of its own name."
)


def join(
    theirs: EpochMarks, their_end: int, mine: EpochMarks, own_end: int, own_begin: int
) -> Join:
    """Compare the logs; the master's list is `seen_from` where its log begins."""
    if not theirs.marks:
        return Refuse("the master has no epochs: it is no member of a group")
    first = theirs.first_start
    if own_end == own_begin and not mine.marks:
        return _begin(theirs, own_end)
    if not mine.marks:
        return Refuse(FOREIGN.format(what="no epochs"))
    at = mine.common(own_end, theirs, their_end)
    if at is None:
        if own_end == own_begin:
            return _begin(theirs, own_end)
        if (
            first > 0 and mine.last_epoch <= theirs.last_epoch
        ):  # what they had in common has expired there
            return BeginAnew(first, theirs.without_beyond(first))
        return Refuse(FOREIGN.format(what="none of its epochs is one of the master's"))
    # The logs part where one of them has expired: nothing is left there to go on from.
    if at < max(first, own_begin):
        return BeginAnew(first, theirs.without_beyond(first))
    kept = mine.joined(theirs, at)
    return Go(at, kept) if at == own_end else Cut(at, kept)


def _begin(theirs: EpochMarks, own_end: int) -> Join:
    first = theirs.first_start
    kept = theirs.without_beyond(first)
    return Go(first, kept) if first == own_end else BeginAnew(first, kept)
