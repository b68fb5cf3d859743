"""A file system in memory that forgets what was not synced, as a power cut does.

Every file has two contents: what programs see, and what the device holds. A sync copies the one to
the other. `crash` gives the file system as it would be found after the power came back: of each
sector of 512 bytes written since its last sync either the old or the new content is there, names
made or removed without a directory sync may or may not be. Maps are anonymous memory of the exact
type that real files give. Calls can be made to fail: the Nth write, sync, allocation.
"""

import errno
import gc
import itertools
import mmap
import os
import random
from typing import Final

from roquette.base.descriptors import NO_SPACE
from roquette.base.entropy import Entropy
from roquette.base.files import File, FileLock, replace_file
from roquette.errors import StoreError

SECTOR: Final = 512
_BOOTS: Final = itertools.count(1)


class Node:
    """One file: `seen` by programs, `held` by the device."""

    def __init__(self, image: bytes = b"") -> None:
        """`image`: what programs see and the device holds; its memory is made when somebody asks."""
        self._image: bytes = image
        self._seen: mmap.mmap | None = None
        self._held: mmap.mmap | None = None
        self.size = len(image)
        self.held_size = len(image)
        self.dirty: dict[int, None] = {}  # sectors written by call since the last sync
        self.mapped = False  # written through memory too: compare everything
        self.modified_ms = 0

    @property
    def seen(self) -> mmap.mmap:
        """Memory that programs see; at least `size` bytes."""
        if self._seen is None:
            self._seen = _memory_of(self._image)
        return self._seen

    @seen.setter
    def seen(self, memory: mmap.mmap) -> None:
        self._seen = memory

    @property
    def held(self) -> mmap.mmap:
        """Memory that the device holds."""
        if self._held is None:
            self._held = _memory_of(self._image)
        return self._held

    @held.setter
    def held(self, memory: mmap.mmap) -> None:
        self._held = memory

    def content(self) -> bytes:
        """Return what programs read."""
        return self._image if self._seen is None else self._seen[: self.size]

    def resize(self, size: int) -> None:
        """Set the size; fresh bytes are zeros."""
        if size > len(self.seen):
            assert not self.mapped, "a mapped file cannot grow"
            self.seen = _grown(self.seen, size)
        if size < self.size:
            self.seen[size : self.size] = bytes(self.size - size)
            self._touch(size, self.size)
        self.size = size

    def write(self, data: bytes, position: int) -> None:
        """Put bytes where programs see them."""
        end = position + len(data)
        if end > self.size:
            self.resize(end)
        self.seen[position:end] = data
        self._touch(position, end)

    def _touch(self, start: int, end: int) -> None:
        for sector in range(start // SECTOR, -(-end // SECTOR)):
            self.dirty[sector] = None

    def dirty_sectors(self) -> list[int]:
        """Sectors whose two contents differ, in order."""
        if not self.mapped:
            return sorted(self.dirty)
        found: list[int] = []
        step = 64 * SECTOR
        held_size = len(self.held)
        for start in range(0, self.size, step):
            end = min(self.size, start + step)
            held = self.held[start:end] if start < held_size else b""
            seen = self.seen[start:end]
            if seen == held.ljust(len(seen), b"\0"):
                continue
            found.extend(
                (start + at) // SECTOR
                for at in range(0, len(seen), SECTOR)
                if seen[at : at + SECTOR] != held[at : at + SECTOR].ljust(SECTOR, b"\0")
            )
        return found

    def hold(self, sectors: list[int]) -> None:
        """Let the device take some sectors."""
        top = max(sectors, default=-1) + 1
        if top * SECTOR > len(self.held):
            self.held = _grown(self.held, max(self.size, top * SECTOR))
        for sector in sectors:
            start = sector * SECTOR
            piece = self.seen[start : start + SECTOR]
            self.held[start : start + len(piece)] = piece
            self.dirty.pop(sector, None)

    def sync(self) -> None:
        """Make both contents equal."""
        self.hold(self.dirty_sectors())
        self.held_size = self.size

    def after_crash(self, rng: random.Random, share: float) -> "Node":
        """The file that the device has: some unsynced sectors made it, some did not."""
        self.hold([sector for sector in self.dirty_sectors() if rng.random() < share])
        found = Node()
        size = self.size if rng.random() < share else self.held_size
        size = max(size, self.held_size if self.size >= self.held_size else self.size)
        found.resize(size)
        keep = min(size, len(self.held))
        found.seen[:keep] = self.held[:keep]
        found.dirty = {}
        found.held = _grown(found.seen, size)
        found.held_size = size
        found.modified_ms = self.modified_ms
        return found


class _Made:
    """Memory since garbage was collected: programs that have ended keep their files in cycles, which Python counts as few."""

    size = 0
    most: Final = 1 << 30


def _memory(size: int) -> mmap.mmap:
    _Made.size += size
    if _Made.size > _Made.most:
        _Made.size = 0
        gc.collect()
    return mmap.mmap(-1, size)


def _memory_of(image: bytes) -> mmap.mmap:
    memory = _memory(len(image) or mmap.PAGESIZE)
    memory[: len(image)] = image
    return memory


def _grown(memory: mmap.mmap, size: int) -> mmap.mmap:
    pages = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    bigger = _memory(max(pages, len(memory)))
    bigger[: len(memory)] = memory[:]
    return bigger


class FaultyFile:
    """An open file of `FaultyFiles`."""

    def __init__(self, files: "FaultyFiles", path: str, node: Node) -> None:
        self._files = files
        self._path = path
        self._node = node

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._node.size

    def pwrite(self, data: bytes, position: int) -> None:
        try:
            self._files.count("pwrite")
        except OSError:
            self._node.write(data[: self._files.torn_size(position, len(data))], position)
            raise
        self._files.charge(position + len(data) - self._node.size)
        self._node.write(data, position)
        self._node.modified_ms = self._files.now_ms
        self._files.write_back(self._node)

    def pread(self, size: int, position: int) -> bytes:
        self._files.count("pread")
        return self._node.seen[position : min(position + size, self._node.size)]

    def map(self, writable: bool) -> mmap.mmap:
        self._files.count("map")
        assert self._node.size > 0, "an empty file cannot be mapped"
        if writable:
            self._node.mapped = True
        memory = self._node.seen
        if len(memory) != self._node.size:
            exact = _memory(self._node.size)  # programs see the file's size in len(map)
            exact[:] = memory[: self._node.size]
            self._node.seen = memory = exact
        if writable:
            self._files.note_map(self._node)
        return memory

    def sync(self) -> None:
        self._files.count("open_to_sync")
        self._files.note_sync("sync", self._path)
        if self._files.forgets:
            self._node.sync()

    @property
    def descriptor(self) -> int | None:
        return None

    def allocate(self, size: int) -> None:
        if size > self._node.size:
            self._files.count("allocate")
            self._files.charge(size - self._node.size)
            self._node.resize(size)

    def truncate(self, size: int) -> None:
        self._files.count("truncate")
        self._node.resize(size)

    def rest(self) -> None:
        """The node needs no descriptor."""

    def wake(self) -> None:
        """See `rest`."""

    def read_ahead(self, on: bool) -> None:
        kind = self.path.rsplit("/", 2)[-2]
        self._files.count(f"read_ahead {on} {kind}".lower())

    def close(self) -> None:
        """Nothing to release: the node lives as long as a name or a map."""


class FaultyLock:
    """The lock of a path; a crash forgets it."""

    def __init__(self, locked: dict[str, None], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.pop(self._path, None)


class FaultyFiles:
    """The file system. Deterministic for one seed.

    Args:
        capacity: bytes of the disk; more gives ENOSPC.
        memory: what `memory_size` answers.
    """

    def __init__(self, seed: int = 0, capacity: int = 1 << 40, memory: int = 1 << 30) -> None:
        self._random = Entropy(seed).random
        self._capacity = capacity
        self._memory = memory
        self._seen: dict[str, Node] = {}
        self._held: dict[str, Node] = {}
        self._directories: dict[str, None] = {"": None, "/": None, ".": None}
        self._locked: dict[str, None] = {}
        self._boot_id = next(_BOOTS).to_bytes(16, "big")  # a power cut makes another one
        self._faults: dict[str, list[tuple[int, int]]] = {}
        self._sync_error: str | None = None
        self._children: dict[str, list[str]] | None = None  # names by directory, made when asked
        self.forgets = True  # a power cut may come: remember what the device holds
        self.calls: dict[str, int] = {}
        self.now_ms = 0
        self.maps = 1 << 20
        self.write_back_share = 0.02  # the system writes pages back whenever it likes
        self.tear_writes = False  # a failing pwrite has written a part: it was killed in it

    # Faults

    def fail(self, call: str, nth: int = 1, error: int = errno.EIO) -> None:
        """Let the Nth next call fail: pwrite, sync, allocate, open, map, open_to_sync (of a file or directory), read,
        list, rename, remove, sync_dir."""
        self._faults.setdefault(call, []).append((self.calls.get(call, 0) + nth, error))

    def work_again(self) -> None:
        """Forget the failures that were chosen."""
        self._faults.clear()
        self.tear_writes = False

    def count(self, call: str) -> None:
        """Count a call; raises when it was chosen to fail."""
        number = self.calls[call] = self.calls.get(call, 0) + 1
        for fault in self._faults.get(call, ()):
            if fault[0] == number:
                raise OSError(fault[1], os.strerror(fault[1]))

    def torn_size(self, position: int, size: int) -> int:
        """Return the size of a failing write's written part: whole sectors."""
        if not self.tear_writes:
            return 0
        end = position + self._random.randrange(size + 1)
        return max(end - end % SECTOR - position, 0)

    def charge(self, growth: int) -> None:
        """Raise ENOSPC when the disk cannot take so many bytes more."""
        if growth > 0 and self.used + growth > self._capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def set_capacity(self, capacity: int) -> None:
        """Change the size of the disk."""
        self._capacity = capacity

    @property
    def used(self) -> int:
        """Bytes all files take."""
        return sum(node.size for node in self._seen.values())

    def write_back(self, node: Node) -> None:
        """Now and then the device takes some of what was written, unasked."""
        if self._random.random() < self.write_back_share:
            sectors = node.dirty_sectors()
            node.hold([sector for sector in sectors if self._random.random() < 0.5])

    def crash(self, rng: random.Random | None = None, share: float = -1) -> "FaultyFiles":
        """The file system after a power cut. How much of the unsynced made it differs by seed; `share` 1: all, a copy."""
        rng = rng or self._random
        share = share if share >= 0 else rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        found = FaultyFiles(rng.randrange(1 << 30), self._capacity, self._memory)
        found._directories = dict(self._directories)
        found.now_ms = self.now_ms
        after: dict[int, Node] = {}
        for path in sorted(set(self._seen) | set(self._held)):
            seen, held = self._seen.get(path), self._held.get(path)
            node = seen if seen is held or rng.random() < share else held
            if node is not None:
                if id(node) not in after:
                    after[id(node)] = node.after_crash(rng, share)
                found._seen[path] = after[id(node)]
        found._held = dict(found._seen)
        return found

    def kill(self) -> None:
        """The processes died, the system did not: everything written is there, locks are free."""
        self._locked.clear()
        self._sync_error = None

    def restart(self) -> None:
        """The system went down in order, with the processes killed: everything written is there."""
        self.kill()
        self._boot_id = next(_BOOTS).to_bytes(16, "big")

    # Files

    @property
    def sync_error(self) -> str | None:
        return self._sync_error

    def note_sync(self, call: str, path: str) -> None:
        """Count a sync; after one that failed none is tried again."""
        if self._sync_error is not None:
            raise OSError(errno.EIO, f"not synced after an earlier failure: {self._sync_error}")
        try:
            self.count(call)
        except OSError as error:
            if error.errno not in NO_SPACE:
                self._sync_error = f"{path}: {error.strerror}"
            raise

    def note_map(self, node: Node) -> None:
        """A file was mapped for writing."""

    def _new_node(self, path: str) -> Node:
        return Node()

    def snapshot(self) -> tuple[dict[str, bytes], list[str]]:
        """All files as programs see them, and the directories: for `holding`."""
        return {path: node.content() for path, node in self._seen.items()}, list(self._directories)

    @classmethod
    def holding(cls, images: dict[str, bytes], directories: list[str]) -> "FaultyFiles":
        """A file system with these files and directories, which loses no power any more: `crash` must not come."""
        found = cls()
        found.write_back_share = 0.0
        found.forgets = False
        found._directories.update(dict.fromkeys(directories))
        found._seen.update({path: Node(image) for path, image in images.items()})
        found._held = dict(found._seen)
        return found

    def open_file(
        self, path: str, size: int | None = None, create: bool = False, private: bool = False
    ) -> File:
        self.count("open")
        node = self._seen.get(path)
        if node is None:
            if not create or os.path.dirname(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._children = None
            node = self._seen[path] = self._new_node(path)
            node.modified_ms = self.now_ms
        file = FaultyFile(self, path, node)
        if size is not None:
            try:
                file.allocate(size)
            except OSError:
                if node.size == 0:
                    del self._seen[path]
                raise
        return file

    def read_bytes(self, path: str) -> bytes:
        self.count("read")
        node = self._seen.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node.content()

    def write_atomic(self, path: str, data: bytes, keep_backup: bool = True) -> None:
        replace_file(self, path, data, keep_backup)

    def exists(self, path: str) -> bool:
        return path in self._seen or path in self._directories

    def list_dir(self, path: str) -> list[str]:
        self.count("list")
        if self._children is None:
            children: dict[str, dict[str, None]] = {}
            for known in (*self._seen, *self._directories):
                while known and known not in ("/", "."):
                    parent, _, name = known.rpartition("/")
                    names = children.setdefault(parent, {})
                    if name in names:
                        break
                    names[name] = None
                    known = parent
            self._children = {parent: sorted(names) for parent, names in children.items()}
        return list(self._children.get(path.rstrip("/"), ()))

    def is_dir(self, path: str) -> bool:
        return path.rstrip("/") in self._directories or bool(self.list_dir(path))

    def file_size(self, path: str) -> int:
        return self._seen[path].size if path in self._seen else -1

    def make_dirs(self, path: str) -> None:
        self._children = None
        while path and path not in self._directories:
            self._directories[path] = None
            path = os.path.dirname(path)

    def remove(self, path: str) -> None:
        self.count("remove")
        self._children = None
        self._seen.pop(path, None)

    def remove_tree(self, path: str) -> None:
        self._children = None
        prefix = path.rstrip("/") + "/"
        for known in [p for p in self._seen if p.startswith(prefix)]:
            del self._seen[known]
        for known in [p for p in self._directories if (p + "/").startswith(prefix)]:
            del self._directories[known]

    def rename(self, source: str, target: str) -> None:
        self.count("rename")
        self._children = None
        if source not in self._seen:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self._seen[target] = self._seen.pop(source)

    def sync_dir(self, path: str) -> None:
        self.count("open_to_sync")
        self.note_sync("sync_dir", path)
        if not self.forgets:
            return
        prefix = path.rstrip("/") + "/"

        def inside(name: str) -> bool:
            return name.startswith(prefix) and "/" not in name[len(prefix) :]

        for name in [n for n in self._held if inside(n) and n not in self._seen]:
            del self._held[name]
        self._held.update({name: node for name, node in self._seen.items() if inside(name)})

    def modified_ms(self, path: str) -> int:
        return self._seen[path].modified_ms

    def disk_usage(self, path: str) -> tuple[int, int]:
        return self._capacity, max(0, self._capacity - self.used)

    def memory_size(self) -> int:
        return self._memory

    @property
    def map_limit(self) -> int:
        return self.maps

    @property
    def boot_id(self) -> bytes:
        return self._boot_id

    def folder_id(self, path: str) -> int:
        return 1

    def lock_file(self, path: str) -> FileLock:
        if path in self._locked:
            raise StoreError(f"{path} is locked: another process uses this store")
        self._locked[path] = None
        return FaultyLock(self._locked, path)
