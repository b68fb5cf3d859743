"""A file system in memory that writes down every change it is asked for, in order, with the promises made between.

Writes through maps are found by comparison whenever a call or a mark comes, sector by sector. `crash_states` makes
of such a journal all that a power cut may leave behind.
"""

from dataclasses import dataclass
from typing import Any, Final

from roquette_testing.faulty_files import SECTOR, FaultyFiles, Node

_STEP: Final = 8 * SECTOR


@dataclass(frozen=True, slots=True)
class RecordedWrite:
    """Bytes were written."""

    node: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """A file has another size; fresh bytes are zeros, and so are bytes it loses and gets again."""

    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Everything written to a file is on the device."""

    node: int


@dataclass(frozen=True, slots=True)
class Link:
    """A name was given to a file; `source` is the name in the same directory that it lost in the same moment."""

    path: str
    node: int
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Unlink:
    """A name was taken away."""

    path: str


@dataclass(frozen=True, slots=True)
class MakeDir:
    """A directory was made."""

    path: str


@dataclass(frozen=True, slots=True)
class RemoveDir:
    """A directory was removed."""

    path: str


@dataclass(frozen=True, slots=True)
class SyncDir:
    """The names in a directory are on the device."""

    path: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Mark of what the program under test has promised at this moment: its own business."""

    value: Any


Entry = RecordedWrite | Resize | Sync | Link | Unlink | MakeDir | RemoveDir | SyncDir | Mark


class _RecordedNode(Node):
    """A file whose changes are written down."""

    def __init__(self, number: int, journal: list[Entry], image: bytes = b"") -> None:
        super().__init__(image)
        self.number = number
        self._journal = journal
        self._known: bytes | None = None  # content at the last look, of a mapped file

    def resize(self, size: int) -> None:
        self.look()
        if size != self.size:
            self._journal.append(Resize(self.number, size))
        super().resize(size)
        if self._known is not None:
            self._known = self.content()

    def write(self, data: bytes, position: int) -> None:
        if position + len(data) > self.size:
            self.resize(position + len(data))
        self.look()
        super().write(data, position)
        self._journal.append(RecordedWrite(self.number, position, data))
        if self._known is not None:
            self._known = self.content()

    def sync(self) -> None:
        self.look()
        self._journal.append(Sync(self.number))
        self.dirty.clear()

    def look(self) -> None:
        """Find what was written through a map."""
        known = self._known
        if known is None:
            return
        seen = self.content()
        if known == seen:
            return
        self._known = seen
        for start in range(0, len(seen), _STEP):
            if known[start : start + _STEP] != seen[start : start + _STEP]:
                self._record_changes(known, seen, start, min(len(seen), start + _STEP))

    def _record_changes(self, known: bytes, seen: bytes, start: int, end: int) -> None:
        for at in range(start, end, SECTOR):
            piece = seen[at : at + SECTOR]
            if piece != known[at : at + SECTOR]:
                self._journal.append(RecordedWrite(self.number, at, piece))

    def watch(self) -> None:
        """It is mapped from now on."""
        if self._known is None:
            self._known = self.content()


class RecordedFiles(FaultyFiles):
    """The file system. Begins with the files and directories of `images`, all of them on the device.

    Attributes:
        journal: what happened, in order.
        images: what there was before.
    """

    def __init__(
        self,
        images: dict[str, bytes] | None = None,
        directories: list[str] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        self.write_back_share = 0.0
        self.journal: list[Entry] = []
        self.images = dict(images or {})
        self.directories = list(directories or [])
        self.numbers: dict[str, int] = {}  # of the files there were before
        self._count = 0
        self._mapped: dict[int, _RecordedNode] = {}
        for path in self.directories:
            super().make_dirs(path)
        for path, image in self.images.items():
            node = self._seen[path] = self._recorded(image)
            self.numbers[path] = node.number

    def _recorded(self, image: bytes = b"") -> _RecordedNode:
        self._count += 1
        return _RecordedNode(self._count, self.journal, image)

    def mark(self, value: Any) -> None:
        """Write a promise down; changes made through maps before it come before it."""
        self.look()
        self.journal.append(Mark(value))

    def look(self) -> None:
        """Find what was written through maps."""
        for node in self._mapped.values():
            node.look()

    def snapshot(self) -> tuple[dict[str, bytes], list[str]]:
        """The files and directories as programs see them."""
        files = {path: node.content() for path, node in self._seen.items()}
        return files, [path for path in self._directories if path not in ("", "/", ".")]

    def count(self, call: str) -> None:
        if self._mapped and call != "pread":
            self.look()
        super().count(call)

    def note_map(self, node: Node) -> None:
        assert isinstance(node, _RecordedNode)
        node.watch()
        self._mapped[node.number] = node

    def _new_node(self, path: str) -> Node:
        node = self._recorded()
        self.journal.append(Link(path, node.number))
        return node

    def make_dirs(self, path: str) -> None:
        missing: list[str] = []
        parent = path
        while parent and parent not in self._directories:
            missing.append(parent)
            parent = parent.rpartition("/")[0]
        super().make_dirs(path)
        self.journal.extend(MakeDir(one) for one in reversed(missing))

    def remove(self, path: str) -> None:
        known = path in self._seen
        super().remove(path)
        if known:
            self.journal.append(Unlink(path))
            self._forget_maps()

    def remove_tree(self, path: str) -> None:
        self.look()
        prefix = path.rstrip("/") + "/"
        files = [one for one in self._seen if one.startswith(prefix)]
        directories = [one for one in self._directories if (one + "/").startswith(prefix)]
        super().remove_tree(path)
        self.journal.extend(Unlink(one) for one in files)
        self.journal.extend(RemoveDir(one) for one in reversed(directories))
        self._forget_maps()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        node = self._seen[target]
        assert isinstance(node, _RecordedNode)
        if source.rpartition("/")[0] == target.rpartition("/")[0]:
            self.journal.append(Link(target, node.number, source))
        else:
            self.journal.append(Link(target, node.number))
            self.journal.append(Unlink(source))

    def sync_dir(self, path: str) -> None:
        self.count("open_to_sync")
        self.note_sync("sync_dir", path)
        self.journal.append(SyncDir(path))

    def _forget_maps(self) -> None:
        named = {id(node) for node in self._seen.values()}
        for number in [n for n, node in self._mapped.items() if id(node) not in named]:
            del self._mapped[number]
