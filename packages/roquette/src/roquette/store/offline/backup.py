"""A copy of a store while its broker runs, such that a broker that opens the copy finds what a crash would have left.

Files that are written no more are linked, which takes no time and no room; those that grow are copied. The order makes
one cut of it: first what says how far others have come (checkpoint, offsets, the timer's place), then what is derived
from the log (timer, index, queues), then the log, and last what names topics and groups. So no offset, unit or entry
points behind the log that was copied, and no message has a topic that is not known. The copy has the file `abort`: the
broker that opens it checks the log's end and dispatches what the queues lack, as after a crash.

Of a store in use the order alone does not do it. A broker puts a unit into its queue's file as soon as the record has
its place, and the record into the log's file when the turn ends; and who reads while the system writes may see half a
record. So how far the log is written is asked before queues, index and log are copied, and all three end there.
"""

import os
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from roquette.base.files import (
    File,
    Files,
    ReadFiles,
    StoreGuard,
    copy_bytes,
    file_stamp,
    link_or_copy,
)
from roquette.errors import StoreError
from roquette.store.audit.index_audit import SUMS
from roquette.store.format.layout import StoreLayout, pending_words
from roquette.store.format.log_mark import follow_begin, written_until
from roquette.store.format.unit import UNIT_SIZE, UnitView
from roquette.store.index.index_file import ENTRY_SIZE, IndexEntry
from roquette.store.offline.store_dir import StoreDir, list_index, list_numbered

# The ends of files that grow, for a backup: what of them is of records that the log has.


def _stays(unit: bytes, written: int) -> bool:
    """Is it whole, and of a record that ends at `written` or before? One that stands for no record stays, too."""
    view = UnitView()
    view.look_at(unit, 0)
    return view.size > 0 and view.end <= written


def last_unit_stays(reader: ReadFiles, path: str, written: int) -> bool:
    """Does the last place of a queue file hold a unit that a backup keeps? True also when the file is gone."""
    unit = _last_bytes(reader, path, UNIT_SIZE)
    return not unit or _stays(unit, written)


def last_entry(reader: ReadFiles, path: str) -> int | None:
    """The physical offset in the last place of an index file; None when no entry stands there: it is not full."""
    entry = _last_bytes(reader, path, ENTRY_SIZE)
    if not entry.strip(b"\0"):
        return None
    view = IndexEntry()
    view.look_at(entry, 0)
    return view.physical


def _last_bytes(reader: ReadFiles, path: str, size: int) -> bytes:
    """The end of a file; nothing when the file is gone, or smaller."""
    try:
        source = reader.open_file(path)
    except FileNotFoundError:
        return b""
    try:
        return source.pread(size, source.size - size) if source.size >= size else b""
    finally:
        source.close()


def keep_units(files: Files, path: str, written: int) -> int:
    """Wipe the units at the end of a copied queue file whose records end behind `written`; returns how many stay.

    They are the last ones, since a queue's records only follow each other. A unit that was not whole when it was
    copied goes, too: its record was not written then. The broker that opens the backup puts back what has a record.
    """
    file = files.open_file(path)
    try:
        data = file.pread(file.size, 0).rstrip(b"\0")
        end = found = -(-len(data) // UNIT_SIZE)
        data = data.ljust(found * UNIT_SIZE, b"\0")
        while end and not _stays(data[(end - 1) * UNIT_SIZE : end * UNIT_SIZE], written):
            end -= 1
        if end != found:
            _wipe(file, end * UNIT_SIZE)
        return end
    finally:
        file.close()


def keep_bytes(files: Files, path: str, count: int) -> None:
    """Wipe a copied file behind its first bytes; its size stays."""
    file = files.open_file(path)
    try:
        _wipe(file, count)
    finally:
        file.close()


def _wipe(file: File, start: int) -> None:
    size = file.size
    file.truncate(start)
    file.truncate(size)
    file.sync()


MANIFEST: Final = "backup.json"
_VERSION: Final = 1
_TRIES: Final = 20  # of a picture of the offsets and its journal that belong together
_NAMES: Final = ("topics.json", "subscriptionGroup.json")  # written before a message can come
# Files that a broker makes anew, those that only say that one runs, and those that are copied in an order of their own.
_APART: Final = frozenset(
    (
        *("lock", "abort", "reserve", "replaced", "repair.lost", "repair.new", MANIFEST),
        *("checkpoint", "config", "commitlog", "commitlog.ahead", "consumequeue", "index"),
        *("timerwheel", "timerlog"),
    )
)


class BackupFile(msgspec.Struct, frozen=True):
    """One file of a backup.

    Attributes:
        path: below the backup's directory. `size`: bytes.
        linked: it shares its bytes with the store's file.
    """

    path: str
    size: int
    linked: bool


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """Contents of a backup; written last, so a backup without it is not whole.

    Attributes:
        made_ms: when it was begun, epoch milliseconds. `source`: the store's directory.
        log_end: physical offset behind the last file of the log.
    """

    version: int
    made_ms: int
    source: str
    log_end: int
    files: list[BackupFile]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def copied(self) -> int:
        """Bytes that were copied, holes among them."""
        return sum(file.size for file in self.files if not file.linked)


class _Copying:
    """One backup that is being made."""

    def __init__(
        self,
        reader: ReadFiles,
        files: Files,
        store: StoreDir,
        target: str,
        link: bool,
    ) -> None:
        self._reader = reader
        self._files = files
        self._store = store
        self._target = target
        self._link = link
        self._made: dict[str, None] = {}
        self.taken: dict[str, BackupFile] = {}

    def place(self, path: str) -> str:
        """Return where a path below the backup is; its directory is made."""
        found = f"{self._target}/{path}"
        directory = os.path.dirname(found)
        if directory not in self._made:
            self._files.make_dirs(directory)
            self._made[directory] = None
        return found

    def take(self, source: str, path: str, *, final: bool = False) -> bool:
        """Copy a file, or link it when it is final; whether it was there."""
        target = self.place(path)
        try:
            if final and self._link:
                linked = link_or_copy(source, target)
                size = self._reader.file_size(target)
            else:
                linked, size = False, copy_bytes(source, target)
        except FileNotFoundError:
            if self._reader.file_size(source) >= 0:
                raise
            return False  # its time was over
        self.taken[path] = BackupFile(path, size, linked)
        return True

    def drop(self, path: str) -> None:
        """Forget a file, for a newer copy."""
        if self.taken.pop(path, None) is not None:
            self._files.remove(f"{self._target}/{path}")

    def tree(self, source: str, path: str, leave: frozenset[str] = frozenset()) -> None:
        """Copy everything below a directory but temporary files."""
        for name in self._reader.list_dir(source):
            if name in leave or name.endswith(".tmp"):
                continue
            if self._reader.is_dir(f"{source}/{name}"):
                self.tree(f"{source}/{name}", f"{path}{name}/")
            elif self._reader.file_size(f"{source}/{name}") >= 0:
                self.take(f"{source}/{name}", path + name)

    def numbered(self, source: str, path: str) -> int:
        """Files named by offsets: all but the newest are final. Returns the end of the newest."""
        listed = list_numbered(self._reader, source)
        end = 0
        for file in listed:
            name = os.path.basename(file.path)
            if self.take(file.path, f"{path}/{name}", final=file is not listed[-1]):
                end = file.base + file.size
        return end

    def config(self) -> None:
        """The JSON files, the picture of the offsets together with the journal that goes on from it."""
        source = self._store.config
        offsets = f"{source}/consumerOffset.json"
        for _ in range(_TRIES):
            before = file_stamp(offsets)
            for path in [each for each in self.taken if each.startswith("config/")]:
                self.drop(path)
            self.tree(source, "config/")
            if file_stamp(offsets) == before:
                return
        raise StoreError(
            f"{offsets} was written anew {_TRIES} times while it was copied; try again"
        )

    def names_again(self) -> None:
        """Topics and groups as they are once the log was copied."""
        for name in _NAMES:
            source = f"{self._store.config}/{name}"
            if self._reader.file_size(source) >= 0:
                self.drop(f"config/{name}")
                self.take(source, f"config/{name}")

    def index(self, written: int) -> None:
        """The index files that are full, of records in the log up to `written`; a broker makes the others anew.

        What is not full changes all over while it grows: a copy would be of no one moment. Of a store that was stopped
        it is copied. Linked, it would grow with the store once that is opened again.
        """
        for file in list_index(self._reader, self._store):
            name = f"index/{os.path.basename(file.path)}"
            last = last_entry(self._reader, file.path)
            if last is None and not self._is_open():
                self.take(file.path, name)
                if self._is_open():  # since then
                    self.drop(name)
            elif last is not None and (written < 0 or last < written):
                self.take(file.path, name, final=True)
        self._keep_sums()

    def _keep_sums(self) -> None:
        """Of the index files that are there: what has a checksum and is missing is damage."""
        if SUMS in self.taken:
            path = self.place(SUMS)
            lines = self._files.read_bytes(path).splitlines(keepends=True)
            kept = [one for one in lines if f"index/{one.split(b' ')[0].decode()}" in self.taken]
            self._files.write_atomic(path, b"".join(kept), keep_backup=False)
            self.taken[SUMS] = BackupFile(SUMS, sum(map(len, kept)), False)

    def _is_open(self) -> bool:
        """Does a broker write the store, or did one end without a stop?"""
        return self._reader.file_size(self._store.abort) >= 0

    def queues(self, written: int) -> None:
        """The consume queues, up to the units of records that end at `written`."""
        root = self._store.consume_queues
        for topic in self._reader.list_dir(root):
            for queue in self._reader.list_dir(f"{root}/{topic}"):
                source, path = f"{root}/{topic}/{queue}", f"consumequeue/{topic}/{queue}"
                if written < 0:
                    self.numbered(source, path)
                else:
                    self._queue(source, path, written)

    def _queue(self, source: str, path: str, written: int) -> None:
        """One queue: its last unit that stays may stand in a file before the newest."""
        listed = list_numbered(self._reader, source)[::-1]
        kept = False  # units that stay stand in a younger file
        for file in listed:
            name = f"{path}/{os.path.basename(file.path)}"
            final = file is not listed[0] and (
                kept or last_unit_stays(self._reader, file.path, written)
            )
            if self.take(file.path, name, final=final) and not final:
                kept = keep_units(self._files, self.place(name), written) > 0
                if not kept:  # it may have been in the making
                    self.drop(name)
            kept = kept or final

    def log(self, written: int) -> int:
        """The commit log up to `written`. Returns where its last file ends."""
        if written < 0:
            return self.numbered(self._store.commit_log, "commitlog")
        end = 0
        for file in list_numbered(self._reader, self._store.commit_log):
            name = f"commitlog/{os.path.basename(file.path)}"
            final = file.base + file.size <= written
            if (file.base < written or not end) and self.take(file.path, name, final=final):
                end = file.base + file.size
                if not final:
                    keep_bytes(self._files, self.place(name), max(written - file.base, 0))
        return end

    def end(self) -> None:
        """Have the names on the disk."""
        for directory in self._made:
            self._files.sync_dir(directory)


def back_up(
    reader: ReadFiles,
    files: Files,
    store: StoreDir,
    target: str,
    now_ms: int,
    *,
    link: bool = True,
    say: Callable[[str], object] = lambda part: None,
) -> Manifest:
    """Make a backup of a store, running or not, in a directory that is empty or not there yet.

    Args:
        link: False copies also what is written no more: then nothing that happens to the store's files reaches it.
        say: told of each part before it is copied.

    Raises:
        StoreError: the store cannot be backed up so, or the directory is not empty.
        OSError: of the disk; what was copied so far has no manifest and may be deleted.
    """
    if not store.whole:
        raise StoreError(f"{store.root} is a commit log alone: give the store's directory")
    if store.strange:
        raise StoreError(f"this store cannot be backed up file by file: {store.strange[0]}")
    if reader.file_size(StoreLayout(store.root).repair_pending) >= 0:
        raise StoreError(pending_words(store.root))
    target = target.rstrip("/") or "/"
    _require_apart(target, [store.root, store.commit_log])
    _require_empty(reader, target)
    files.make_dirs(target)
    work = _Copying(reader, files, store, target, link)
    say("settings and offsets")
    work.take(store.checkpoint, "checkpoint")
    work.config()
    work.tree(store.root, "", _APART)
    say("timer, index and queues")
    work.take(f"{store.root}/timerwheel", "timerwheel")
    work.numbered(f"{store.root}/timerlog", "timerlog")
    written = written_until(files, StoreLayout(store.root)) if _is_used(store.lock) else -1
    work.index(written)
    work.queues(written)
    say("the log")
    log_end = work.log(written)
    if written >= 0:  # whose first files may have gone meanwhile
        follow_begin(files, StoreLayout(store.root), StoreLayout(target))
    work.names_again()
    files.open_file(work.place("abort"), create=True).close()
    work.taken["abort"] = BackupFile("abort", 0, False)
    work.end()
    made = Manifest(_VERSION, now_ms, store.root, log_end, list(work.taken.values()))
    data = msgspec.json.format(msgspec.json.encode(made), indent=1)
    files.write_atomic(f"{target}/{MANIFEST}", data, keep_backup=False)
    files.sync_dir(target)
    return made


def load_manifest(files: Files, backup: str) -> Manifest:
    """Read what a backup says it holds.

    Raises:
        StoreError: there is no manifest, or one that cannot be read: this is no backup, or not a whole one.
    """
    path = f"{backup}/{MANIFEST}"
    try:
        found = msgspec.json.decode(files.read_bytes(path), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(
            f"{backup} has no {MANIFEST}: it is no backup, or one that was not ended"
        ) from None
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    if found.version != _VERSION:
        raise StoreError(f"{path} has version {found.version}; known is {_VERSION}")
    for file in found.files:
        if file.path.startswith("/") or ".." in file.path.split("/"):
            raise StoreError(f"{path} names {file.path}, which is not below the backup")
    return found


def restore(
    reader: ReadFiles,
    files: Files,
    backup: str,
    target: str,
    say: Callable[[str], object] = lambda part: None,
) -> Manifest:
    """Copy a backup to where a broker will open it; the backup stays as it is. Blocks.

    Raises:
        StoreError: it is no whole backup, a file has another size than it had, or the directory is not empty.
        OSError: of the disk.
    """
    backup, target = backup.rstrip("/") or "/", target.rstrip("/") or "/"
    found = load_manifest(files, backup)
    _require_apart(target, [backup])
    _require_empty(reader, target)
    wrong = [f for f in found.files if reader.file_size(f"{backup}/{f.path}") != f.size]
    if wrong:
        size = reader.file_size(f"{backup}/{wrong[0].path}")
        now = f"has {size} bytes" if size >= 0 else "is gone"
        raise StoreError(
            f"{backup}/{wrong[0].path} {now} and had {wrong[0].size} when the backup was made; "
            f"{len(wrong)} of {len(found.files)} files are not as they were"
        )
    made: dict[str, None] = {target: None}
    for part, listed in _by_part(found.files):
        say(part)
        for file in listed:
            directory = os.path.dirname(f"{target}/{file.path}")
            files.make_dirs(directory)
            made[directory] = None
            copy_bytes(f"{backup}/{file.path}", f"{target}/{file.path}")
    for directory in made:
        files.sync_dir(directory)
    return found


def _by_part(listed: Iterable[BackupFile]) -> Iterable[tuple[str, list[BackupFile]]]:
    parts: dict[str, list[BackupFile]] = {}
    for file in listed:
        parts.setdefault(file.path.split("/")[0], []).append(file)
    return parts.items()


def _is_used(lock: str) -> bool:
    """Does a process use the store? What nobody writes is copied as it is, whatever a mark of a copied store says."""
    try:
        StoreGuard(lock).release()
    except StoreError:
        return True
    return False


def _require_empty(reader: ReadFiles, target: str) -> None:
    if reader.file_size(target) >= 0:
        raise StoreError(f"{target} is a file: name a directory that is empty or not there yet")
    if reader.list_dir(target):
        raise StoreError(f"{target} is not empty: name a directory that is, or is not there yet")


def _require_apart(target: str, others: list[str]) -> None:
    """A copy inside of what is copied would copy itself."""
    inner = os.path.realpath(target)
    for other in others:
        outer = os.path.realpath(other)
        if inner == outer or inner.startswith(outer + os.sep):
            raise StoreError(f"{target} lies in {other}: name a directory outside of it")
