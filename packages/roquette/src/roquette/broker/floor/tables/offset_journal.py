"""Changes of the consumer offsets since consumerOffset.json was written, so that a killed process forgets none.

Two files beside it, `consumerOffset.journal.0` and `.1`, one write a turn: the system keeps what was handed to it when the
process dies. Under SYNC_FLUSH they are synced. Each picture of the table that goes to consumerOffset.json is named in the
journal by its checksum; at start the changes behind the name of the content that was found are made again, and none when it is
not named: Apache's broker, an editor or a backup has written the file. A loss of power may leave any part of a journal, and
less of the log: sums are chained, so that what is read is a beginning, and a change that speaks of more log than there is ends
it. Byte by byte: docs/formats/offset_journal.md.
"""

import errno
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from roquette.base.checksum import crc32
from roquette.base.descriptors import NO_SPACE
from roquette.base.files import File, Files
from roquette.base.generations import chained, chained_entries

log = logging.getLogger("roquette.broker")

NAMES: Final = ("consumerOffset.journal.0", "consumerOffset.journal.1")
FULL: Final = (
    4 << 20
)  # bytes of one file: then consumerOffset.json is to be written before its beat
MOST: Final = 64 << 20  # it cannot be written: no commit is taken any more
_BASE, _CHANGE = 66, 67  # B, C
_encode: Final = msgspec.msgpack.Encoder().encode


class Base(msgspec.Struct, array_like=True, frozen=True):
    """Names a content of consumerOffset.json: what follows has changed since. The first entry of each file is one.

    Attributes:
        generation: one more than that of the other file, whose last sum is `previous`.
        crc, size: of the content; both 0 when there is no file yet.
    """

    generation: int
    previous: int
    crc: int
    size: int


Queues = dict[str, dict[int, int]]


class Change(msgspec.Struct, array_like=True, frozen=True):
    """Changes of one turn, in this order.

    Attributes:
        log_end: physical end of the log that it speaks of.
        dropped: `topic@group` whose offsets and resets are gone.
        offsets: `topic@group` -> queue id -> offset.
        resets: the same for pending resets; -1: over.
    """

    log_end: int
    dropped: list[str]
    offsets: Queues
    resets: Queues


def merged(changes: list[Change]) -> Change:
    """One change that does what several do, in their order."""
    dropped: dict[str, None] = {}
    offsets: Queues = {}
    resets: Queues = {}
    for change in changes:
        for key in change.dropped:
            dropped[key] = None
            offsets.pop(key, None)
            resets.pop(key, None)
        for table, more in ((offsets, change.offsets), (resets, change.resets)):
            for key, queues in more.items():
                table[key] = {**table.get(key, {}), **queues}
    return Change(changes[-1].log_end, list(dropped), offsets, resets)


class _Found:
    """The sound beginning of one file."""

    def __init__(self, data: bytes) -> None:
        self.entries: list[tuple[Base | Change, int, int]] = []  # with its end, and its sum
        position, chain = 0, 0
        for found in chained_entries(data):
            entry: Base | Change
            try:
                if found.kind == _BASE:
                    entry = msgspec.msgpack.decode(found.content, type=Base)
                else:
                    entry = msgspec.msgpack.decode(found.content, type=Change)
            except msgspec.MsgspecError:
                break
            if position == 0 and not isinstance(entry, Base):
                break
            position, chain = found.end, found.crc
            self.entries.append((entry, position, chain))
        self.end, self.chain = position, chain
        self.more = any(data[position:])

    @property
    def first(self) -> Base | None:
        """Its name, if there is one."""
        entry = self.entries[0][0] if self.entries else None
        return entry if isinstance(entry, Base) else None


class OffsetJournal:
    """The journal of one broker. Everything runs on the loop; `load` and `close` may block.

    Args:
        make_room: asked when the disk is full; True when the write may be tried again.

    Attributes:
        failure: why the last write failed; None when it did not.
    """

    def __init__(self, files: Files, directory: str, make_room: Callable[[], bool]) -> None:
        self._files = files
        self._paths = [f"{directory}/{name}" for name in NAMES]
        self._directory = directory
        self._make_room = make_room
        self._open: list[File | None] = [None, None]
        self._made = False  # files that their directory does not have on the disk
        self._active = 0
        self._generation = 0
        self._position = 0
        self._chain = 0
        self._named = (
            False  # the active file names the content that is on the disk: the other is free
        )
        self._owed: list[tuple[int, int]] = []  # pictures that could not be named yet, two at most
        self.failure: str | None = None
        self._since: list[Change] | None = None  # changes after a picture that has no name yet

    def load(self, crc: int, size: int, log_end: int) -> list[Change]:
        """The changes since a content of consumerOffset.json, in order; goes on behind them.

        Args:
            log_end: where the log ends.
        """
        found = [_Found(self._read(path)) for path in self._paths]
        order = sorted((0, 1), key=lambda n: first.generation if (first := found[n].first) else -1)
        older, newer = found[order[0]], found[order[1]]
        first = newer.first
        if first is None:
            order = []
        elif older.first is None or (older.first.generation + 1, older.chain) != (
            first.generation,
            first.previous,
        ):
            order = order[1:]
        changes = self._follow(found, order, crc, size, log_end)
        self._generation = 0 if first is None else first.generation
        if changes is None:
            self._named = False
            if first is not None:
                log.info("journal of offsets not used: consumerOffset.json was written by others")
            self._cut(0, 0, found[0])
            self._cut(1, 0, found[1])
            self._active, self._position, self._chain = 0, 0, 0
            self._name(crc, size)
            self._named = not self._owed
            return []
        begun = found[self._active].first
        assert begun is not None
        self._generation = begun.generation
        for number in (0, 1):
            if number not in order[: order.index(self._active) + 1]:
                self._cut(number, 0, found[number])
        self._cut(self._active, self._position, found[self._active])
        return changes

    def _follow(
        self, found: list[_Found], order: list[int], crc: int, size: int, log_end: int
    ) -> list[Change] | None:
        """The changes behind the last name of a content, and the place behind them; None: it is not named."""
        changes: list[Change] | None = None
        for number in order:
            self._named = False
            for entry, end, chain in found[number].entries:
                if isinstance(entry, Base):
                    if (entry.crc, entry.size) == (crc, size):
                        changes, self._named = [], True
                elif entry.log_end > log_end:
                    return changes
                elif changes is not None:
                    changes.append(entry)
                self._active, self._position, self._chain = number, end, chain
        return changes

    def _read(self, path: str) -> bytes:
        return self._files.read_bytes(path) if self._files.exists(path) else b""

    def _cut(self, number: int, position: int, found: _Found) -> None:
        """Bytes behind a position must never be read again."""
        if found.more or found.end > position:
            file = self._file(number)
            file.truncate(position)
            file.sync()

    def _file(self, number: int) -> File:
        file = self._open[number]
        if file is None:
            self._files.make_dirs(self._directory)
            self._made = True
            file = self._open[number] = self._files.open_file(self._paths[number], create=True)
        return file

    # While the broker runs.

    @property
    def full(self) -> bool:
        """True when consumerOffset.json should be written soon."""
        return self._position >= FULL

    def append(self, change: Change) -> bool:
        """Hand one turn's changes to the system; False when it does not take them, see `failure`."""
        if self._names_all() and self._write(_CHANGE, change):
            self.failure = None
            if self._since is not None:
                self._since.append(change)
            return True
        return False

    def picture(self) -> None:
        """A picture of the table is taken now; `pictured` gives it its name when it is encoded."""
        self._since = []

    def pictured(self, data: bytes) -> bool:
        """The picture is encoded: name it, and write again behind the name, as one change, what has changed since.

        Returns:
            False when that cannot be written: then the picture must not become consumerOffset.json.
        """
        since, self._since = self._since, None
        self._name(crc32(data), len(data))
        return not since or (self._names_all() and self._write(_CHANGE, merged(since)))

    def saved(self) -> None:
        """The last picture is on the disk as consumerOffset.json: what came before its name is not needed."""
        self._named = True
        self._names_all()

    def _name(self, crc: int, size: int) -> None:
        self._owed = [*self._owed[-1:], (crc, size)]
        self._names_all()

    def _names_all(self) -> bool:
        """Name what is owed; False when that cannot be written now."""
        while self._owed:
            if not self._begin(*self._owed[0]):
                return False
            del self._owed[0]
        return True

    def _begin(self, crc: int, size: int) -> bool:
        """Name a content: at the start of the other file when that is free, else where we are."""
        if self._position and not self._named:
            return self._write(_BASE, Base(self._generation, 0, crc, size))
        before = (self._active, self._position, self._chain)
        base = Base(self._generation + 1, self._chain, crc, size)
        if self._position:
            self._active, self._position, self._chain = 1 - self._active, 0, 0
        if not self._write(_BASE, base):
            self._active, self._position, self._chain = before
            return False
        self._generation += 1
        self._named = False
        return True

    def _write(self, kind: int, entry: Base | Change) -> bool:
        data, crc = chained(kind, _encode(entry), self._chain)
        try:
            if self._position + len(data) > MOST:
                raise OSError(errno.EFBIG, "it is full, for consumerOffset.json cannot be written")
            self._put(data)
        except OSError as error:
            if self.failure is None:
                log.error("journal of offsets not written path=%s error=%s", self._paths[0], error)
            self.failure = str(error)
            return False
        self._position += len(data)
        self._chain = crc
        return True

    def _put(self, data: bytes) -> None:
        try:
            self._file(self._active).pwrite(data, self._position)
        except OSError as error:
            if error.errno not in NO_SPACE or not self._make_room():
                raise
            self._file(self._active).pwrite(data, self._position)

    def sync(self) -> None:
        """Bring what was written to the disk. Blocks, in a worker thread: meanwhile the loop writes on. Raises OSError."""
        made, self._made = self._made, False
        try:
            for file in list(self._open):
                if file is not None:
                    file.sync()
            if made:
                self._files.sync_dir(self._directory)
        except OSError:
            self._made |= made
            raise

    def close(self, *, remove: bool) -> None:
        """The broker ends; `remove`: consumerOffset.json holds everything."""
        for number, path in enumerate(self._paths):
            file, self._open[number] = self._open[number], None
            if file is not None:
                file.close()
            if remove:
                self._files.remove(path)
