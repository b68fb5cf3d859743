"""Every state in which a power cut may leave a file system, made out of a journal of `recorded_files`.

The device holds what was synced. Of what was not, it may hold anything: of each block, of 512 bytes or of a page
of 4 KiB, any of the contents it has had since the last sync of its file, each block for itself; of the sizes of a
file any; of the names made, moved and removed in a directory since its last sync any subset. A name moved within
one directory is moved at once, between two directories in two halves.
"""

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from roquette_testing.faulty_files import SECTOR
from roquette_testing.recorded_files import (
    Entry,
    Link,
    MakeDir,
    Mark,
    RecordedFiles,
    RecordedWrite,
    RemoveDir,
    Resize,
    Sync,
    SyncDir,
    Unlink,
)

PAGE: Final = 4096
_ALL: Final = 1 << 62

NameChange = Link | Unlink | MakeDir | RemoveDir


class Choice(enum.Enum):
    """How a state is chosen."""

    NOTHING = "nothing of what was not synced"
    ALL = "all of it, as after a kill"
    NAMES = "names, but no data"
    DATA = "data, but no names"
    UNTIL = "all up to a moment"
    SINCE = "all from a moment on, and nothing before it"
    FILES = "of each file all or nothing, of names any"
    SECTORS = "any sectors, any names"
    PAGES = "any pages, any names"
    TORN = "all, but of the last write only some sectors"


@dataclass(slots=True)
class DiskState:
    """What is found after the power came back."""

    files: dict[str, bytes]
    directories: list[str]
    choice: Choice

    def fingerprint(self) -> int:
        """Equal states have equal ones."""
        return hash((frozenset(self.files.items()), frozenset(self.directories)))


class _Inode:
    """A file on the device, and what was written to it since its last sync: sectors with all their contents."""

    __slots__ = ("durable", "sectors", "sizes")

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable
        self.sectors: dict[int, list[tuple[int, bytes]]] = {}
        self.sizes: list[tuple[int, int]] = []

    @property
    def pending(self) -> bool:
        """Is there anything that was not synced?"""
        return bool(self.sectors or self.sizes)

    @property
    def size(self) -> int:
        """As programs see it."""
        return self.sizes[-1][1] if self.sizes else len(self.durable)

    def _sector(self, number: int) -> bytes:
        known = self.sectors.get(number)
        if known is not None:
            return known[-1][1]
        return self.durable[number * SECTOR : (number + 1) * SECTOR].ljust(SECTOR, b"\0")

    def put(self, moment: int, position: int, data: bytes) -> None:
        """Bytes were written."""
        end = position + len(data)
        for number in range(position // SECTOR, -(-end // SECTOR)):
            start = number * SECTOR
            low, high = max(position, start), min(end, start + SECTOR)
            piece = data[low - position : high - position]
            if len(piece) < SECTOR:
                before = self._sector(number)
                piece = before[: low - start] + piece + before[high - start :]
            self.sectors.setdefault(number, []).append((moment, piece))

    def resize(self, moment: int, size: int) -> None:
        """The size changed; what is cut off is zeros when it comes back."""
        if size < self.size:
            self.put(moment, size, bytes(self.size - size))
        self.sizes.append((moment, size))

    def sync(self) -> None:
        """Everything is on the device."""
        if self.pending:
            self.durable = self.image(lambda number: _ALL, _ALL)
            self.sectors = {}
            self.sizes = []

    def image(self, moment_of: Callable[[int], int], size_moment: int) -> bytes:
        """The content when each sector is as at its moment, and so is the size."""
        size = len(self.durable)
        for moment, later in self.sizes:
            if moment > size_moment:
                break
            size = later
        found = bytearray(self.durable[:size].ljust(size, b"\0"))
        for number, versions in self.sectors.items():
            start = number * SECTOR
            if start >= size:
                continue
            until = moment_of(number)
            chosen: bytes | None = None
            for moment, piece in versions:
                if moment > until:
                    break
                chosen = piece
            if chosen is not None:
                end = min(size, start + SECTOR)
                found[start:end] = chosen[: end - start]
        return bytes(found)


class CrashStates:
    """Goes through a journal; at each moment it gives states of the device.

    Args:
        recorded: where the journal comes from.
        root: this directory and those above are taken to be on the device.
    """

    def __init__(self, recorded: RecordedFiles, root: str) -> None:
        self._journal = recorded.journal
        self._root = root
        self._inodes: dict[int, _Inode] = {}
        self._names: dict[str, int] = {}
        self._directories: dict[str, None] = dict.fromkeys(recorded.directories)
        self._changes: list[tuple[int, NameChange]] = []
        self._moment = 0
        self._last_put: RecordedWrite | None = None
        for path, number in recorded.numbers.items():
            self._inodes[number] = _Inode(recorded.images[path])
            self._names[path] = number

    @property
    def moment(self) -> int:
        """How many entries of the journal have happened."""
        return self._moment

    def step(self) -> Entry | None:
        """Let the next entry happen; None at the end of the journal."""
        if self._moment >= len(self._journal):
            return None
        entry = self._journal[self._moment]
        self._moment += 1
        if isinstance(entry, Mark):
            return entry
        if isinstance(entry, RecordedWrite):
            self._inodes.setdefault(entry.node, _Inode()).put(
                self._moment, entry.position, entry.data
            )
            self._last_put = entry
        elif isinstance(entry, Resize):
            self._inodes.setdefault(entry.node, _Inode()).resize(self._moment, entry.size)
        elif isinstance(entry, Sync):
            self._inodes.setdefault(entry.node, _Inode()).sync()
        elif isinstance(entry, SyncDir):
            self._sync_names(entry.path)
        elif isinstance(entry, MakeDir) and self._above_root(entry.path):
            self._directories[entry.path] = None
        else:
            self._changes.append((self._moment, entry))
        return entry

    def _above_root(self, path: str) -> bool:
        return (self._root + "/").startswith(path + "/")

    def _sync_names(self, directory: str) -> None:
        left: list[tuple[int, NameChange]] = []
        for moment, change in self._changes:
            if change.path.rpartition("/")[0] == directory:
                self._apply(change, self._names, self._directories)
            else:
                left.append((moment, change))
        self._changes = left
        linked = {*self._names.values(), *(c.node for _, c in left if isinstance(c, Link))}
        for number in [n for n in self._inodes if n not in linked]:
            del self._inodes[number]

    @staticmethod
    def _apply(change: NameChange, names: dict[str, int], directories: dict[str, None]) -> None:
        if isinstance(change, Link):
            if change.source is not None:
                names.pop(change.source, None)
            names[change.path] = change.node
        elif isinstance(change, Unlink):
            names.pop(change.path, None)
        elif isinstance(change, MakeDir):
            directories[change.path] = None
        else:
            directories.pop(change.path, None)

    def state(self, choice: Choice, rng: random.Random) -> DiskState:
        """One state of the device at this moment."""
        now = self._moment
        cut = rng.randrange(now + 1) if now else 0
        pending = [m for m, _ in self._changes]
        if choice in (Choice.UNTIL, Choice.SINCE):
            pending.extend(
                m for i in self._inodes.values() for v in i.sectors.values() for m, _ in v[-1:]
            )
            cut = rng.choice(pending) - 1 if pending else 0
        names_kept = self._name_rule(choice, rng, cut)
        names, directories = dict(self._names), dict(self._directories)
        for moment, change in self._changes:
            if names_kept(moment):
                self._apply(change, names, directories)
        images: dict[int, bytes] = {}
        found: dict[str, bytes] = {}
        for path, number in names.items():
            if not self._reachable(path, directories):
                continue
            image = images.get(number)
            if image is None:
                image = images[number] = self._image(number, choice, rng, cut)
            found[path] = image
        kept = [one for one in directories if self._reachable(one, directories)]
        return DiskState(found, kept, choice)

    def _reachable(self, path: str, directories: dict[str, None]) -> bool:
        parent = path.rpartition("/")[0]
        while len(parent) > len(self._root):
            if parent not in directories:
                return False
            parent = parent.rpartition("/")[0]
        return True

    def _name_rule(self, choice: Choice, rng: random.Random, cut: int) -> Callable[[int], bool]:
        if choice in (Choice.NOTHING, Choice.DATA):
            return lambda moment: False
        if choice in (Choice.ALL, Choice.NAMES, Choice.TORN):
            return lambda moment: True
        if choice is Choice.UNTIL:
            return lambda moment: moment <= cut
        if choice is Choice.SINCE:
            return lambda moment: moment > cut
        share = rng.choice((0.1, 0.5, 0.9))
        return lambda moment: rng.random() < share

    def _image(self, number: int, choice: Choice, rng: random.Random, cut: int) -> bytes:
        inode = self._inodes.get(number)
        if inode is None:
            return b""
        if not inode.pending or choice in (Choice.NOTHING, Choice.NAMES):
            return inode.durable
        if choice in (Choice.ALL, Choice.DATA):
            return inode.image(lambda sector: _ALL, _ALL)
        if choice is Choice.UNTIL:
            return inode.image(lambda sector: cut, cut)
        if choice is Choice.SINCE:
            late = {s for s, versions in inode.sectors.items() if versions[-1][0] > cut}
            return inode.image(lambda sector: _ALL if sector in late else 0, _ALL)
        if choice is Choice.FILES:
            until = _ALL if rng.random() < 0.5 else 0
            return inode.image(lambda sector: until, until)
        if choice is Choice.TORN:
            return self._torn(inode, number, rng)
        grain = PAGE // SECTOR if choice is Choice.PAGES else 1
        return inode.image(_any_block(inode, rng, grain), self._any_size(inode, rng))

    def _any_size(self, inode: _Inode, rng: random.Random) -> int:
        moments = [0, *(moment for moment, _ in inode.sizes)]
        return _ALL if rng.random() < 0.5 else rng.choice(moments)

    def _torn(self, inode: _Inode, number: int, rng: random.Random) -> bytes:
        last = self._last_put
        if last is None or last.node != number:
            return inode.image(lambda sector: _ALL, _ALL)
        first, end = last.position // SECTOR, -(-(last.position + len(last.data)) // SECTOR)
        keep = rng.choice((0.0, 0.5, 0.9))
        torn = {sector for sector in range(first, end) if rng.random() >= keep}

        def moment_of(sector: int) -> int:
            versions = inode.sectors.get(sector) if sector in torn else None
            return versions[-1][0] - 1 if versions else _ALL

        return inode.image(moment_of, _ALL)


def _any_block(inode: _Inode, rng: random.Random, grain: int) -> Callable[[int], int]:
    """Each block of `grain` sectors at a moment of its own."""
    share = rng.choice((0.1, 0.5, 0.9))
    known: dict[int, int] = {}
    moments = sorted({m for versions in inode.sectors.values() for m, _ in versions})

    def moment_of(sector: int) -> int:
        block = sector // grain
        found = known.get(block)
        if found is None:
            found = _ALL if rng.random() < share else rng.choice((0, rng.choice(moments)))
            known[block] = found
        return found

    return moment_of
