"""The only door to the file system: a protocol, and the real thing.

Everything that opens, writes, maps or removes a file goes through `Files`, so that tests can put
`roquette_testing.faulty_files` in its place and cut the power. Who only reads asks for its half, `ReadFiles`
and `ReadAt`: a bucket or an archive can stand in for these. Calls block: what may take long is run by the caller
in the executor.
"""

import contextlib
import errno
import mmap
import os
import shutil
import stat
from collections.abc import Iterator
from typing import Final, Protocol, TextIO

from roquette.base import os_file
from roquette.base.descriptors import Spares, map_limit
from roquette.base.os_file import ZEROS, OsFile, SyncState
from roquette.errors import StoreError


class ReadAt(Protocol):
    """Bytes at positions."""

    @property
    def size(self) -> int:
        """Number of bytes in the file."""
        ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from a position on; fewer at the end only. Raises OSError."""
        ...


class ReadFile(ReadAt, Protocol):
    """An open file."""

    def close(self) -> None:
        """Release it; closing twice is harmless."""
        ...


class ReadFiles(Protocol):
    """A tree of files; paths are joined by `/`."""

    def open_file(self, path: str) -> ReadFile:
        """The file at a path. Raises OSError."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty when there is no such directory."""
        ...

    def is_dir(self, path: str) -> bool:
        """Is there a directory?"""
        ...

    def file_size(self, path: str) -> int:
        """Size of a file in bytes; -1 if it is missing."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return the time of a file's last write, epoch milliseconds. Raises OSError."""
        ...


class File(ReadFile, Protocol):
    """One open file, addressed by position; there is no cursor. Its size may change."""

    @property
    def path(self) -> str:
        """Path at which it was opened (a rename does not change this)."""
        ...

    def pwrite(self, data: bytes, position: int) -> None:
        """Write all of `data`; raises OSError, never a signal."""
        ...

    def map(self, writable: bool) -> mmap.mmap:
        """The whole file as memory. Allocate first: a store into a hole of a full disk kills."""
        ...

    def sync(self) -> None:
        """Return when the data is on the device (fdatasync); mapped writes are included."""
        ...

    @property
    def descriptor(self) -> int | None:
        """The system's number of it, for a sync that the kernel runs; None when only `sync` will do."""
        ...

    def allocate(self, size: int) -> None:
        """Have at least `size` bytes, all with blocks of their own, new ones zeros; raises ENOSPC.

        Holes are filled too. What was grown before the error stays.
        """
        ...

    def truncate(self, size: int) -> None:
        """Set the size; new bytes are zeros without blocks."""
        ...

    def rest(self) -> None:
        """Keep no descriptor from now on: calls open the file by its path. Its maps stay, and keep what was
        deleted readable. Not for a file that is renamed."""
        ...

    def wake(self) -> None:
        """Keep a descriptor again: it is written often. Raises OSError."""
        ...

    def read_ahead(self, on: bool) -> None:
        """Tell the system whether to read more than is asked for, by descriptors and maps, from now on.

        Where the system cannot be told, nothing changes.
        """
        ...


class FileLock(Protocol):
    """A lock that ends with the process at the latest."""

    def release(self) -> None:
        """Let the next one in."""
        ...


class Files(ReadFiles, Protocol):
    """A file system: who only reads it asks for `ReadFiles`."""

    @property
    def sync_error(self) -> str | None:
        """Path of the sync that has failed, if any. The system may have dropped what was to be synced, so nobody can know
        any more what the device holds: the process must end. A sync is never tried again."""
        ...

    def open_file(
        self, path: str, size: int | None = None, create: bool = False, private: bool = False
    ) -> File:
        """Open for reading and writing; with `size`, allocate up to it. Makes no directories.

        A file that is made `private` is its owner's alone (mode 0600).

        A file that had no bytes is gone again when there is no space for it.
        """
        ...

    def read_bytes(self, path: str) -> bytes:
        """All of a (small) file."""
        ...

    def write_atomic(self, path: str, data: bytes, keep_backup: bool = True) -> None:
        """Replace a file: after a power cut there is the old or the new content, never a mix.

        With `keep_backup` the previous content stays beside it as `.bak`, as Apache's
        ConfigManager leaves it. Directories are made as needed.
        """
        ...

    def exists(self, path: str) -> bool:
        """Is there a file or directory?"""
        ...

    def make_dirs(self, path: str) -> None:
        """Make a directory and its parents; present ones are fine."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; an absent one is fine."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; an absent one is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file, replacing the target."""
        ...

    def sync_dir(self, path: str) -> None:
        """Return when creations, renames and removals in a directory are on the device."""
        ...

    def disk_usage(self, path: str) -> tuple[int, int]:
        """(total, free) bytes of the disk that holds `path`; free is what we may still use."""
        ...

    def memory_size(self) -> int:
        """Bytes of physical memory: how much of the log the page cache may hold."""
        ...

    @property
    def map_limit(self) -> int:
        """Number of files that may be mapped at a time."""
        ...

    @property
    def boot_id(self) -> bytes:
        """Mark that tells this run of the operating system from all others: while it is the same, memory that was
        written is not lost. Empty when it is not known."""
        ...

    def folder_id(self, path: str) -> int:
        """A number of a directory that a copy of it does not have. Raises OSError."""
        ...

    def lock_file(self, path: str) -> FileLock:
        """Take the lock of a path; raises StoreError when another process has it."""
        ...


class OsReadFiles:
    """The operating system's files, never opened for writing."""

    _spares = Spares(0)

    def open_file(self, path: str) -> ReadFile:
        fd = self._spares.run(os.open, path, os.O_RDONLY | os_file.CLOSE_ON_EXEC)
        return OsFile(path, fd, spares=self._spares)

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(self._spares.run(os.listdir, path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def file_size(self, path: str) -> int:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return -1
        return found.st_size if stat.S_ISREG(found.st_mode) else -1

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000


class OsFileLock:
    """An advisory lock (flock) on an open file."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFiles(OsReadFiles):
    """The operating system's files."""

    def __init__(self) -> None:
        self._syncs = SyncState()
        self._spares = Spares()
        self._map_limit = map_limit()

    @property
    def sync_error(self) -> str | None:
        return self._syncs.error

    def open_file(
        self, path: str, size: int | None = None, create: bool = False, private: bool = False
    ) -> File:
        flags = os.O_RDWR | os_file.CLOSE_ON_EXEC | (os.O_CREAT if create else 0)
        fd = self._spares.run(os.open, path, flags, 0o600 if private else 0o644)
        file = OsFile(path, fd, self._syncs, self._spares)
        if size is not None and (have := file.size) < size:
            try:
                file.allocate(size)
            except OSError:
                file.close()
                if have == 0:
                    self.remove(path)
                raise
        return file

    def read_bytes(self, path: str) -> bytes:
        fd = self._spares.run(os.open, path, os.O_RDONLY | os_file.CLOSE_ON_EXEC)
        with open(fd, "rb") as stream:
            return stream.read()

    def write_atomic(self, path: str, data: bytes, keep_backup: bool = True) -> None:
        replace_file(self, path, data, keep_backup)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._spares.run(shutil.rmtree, path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def sync_dir(self, path: str) -> None:
        fd = self._spares.run(os_file.open_directory, path)
        if fd is None:
            return
        try:
            self._syncs.run(os.fsync, fd, path)
        finally:
            os.close(fd)
            self._spares.refill()

    def disk_usage(self, path: str) -> tuple[int, int]:
        usage = os.statvfs(path)
        # Reserved blocks are neither used by us nor usable: leave them out, as df does.
        used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
        free = usage.f_bavail * usage.f_frsize
        return used + free, free

    def memory_size(self) -> int:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    @property
    def map_limit(self) -> int:
        return self._map_limit

    @property
    def boot_id(self) -> bytes:
        try:
            text = self.read_bytes("/proc/sys/kernel/random/boot_id").decode()
            return bytes.fromhex(text.replace("-", ""))
        except (OSError, ValueError):
            return b""

    def folder_id(self, path: str) -> int:
        return os.stat(path).st_ino

    def lock_file(self, path: str) -> FileLock:
        self.make_dirs(os.path.dirname(path) or ".")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os_file.CLOSE_ON_EXEC, 0o644)
        try:
            os_file.try_lock(fd, exclusive=True, records=False)
        except OSError as error:
            os.close(fd)
            raise StoreError(
                f"{path} is locked: another process uses this store ({error.strerror}). "
                "Stop it, or give this one another storePathRootDir."
            ) from error
        return OsFileLock(fd)


def read_all(files: ReadFiles, path: str, limit: int) -> bytes:
    """A whole (small) file, at most `limit` bytes of it. Raises OSError."""
    source = files.open_file(path)
    try:
        return source.pread(min(source.size, limit), 0)
    finally:
        source.close()


def replace_file(files: Files, path: str, data: bytes, keep_backup: bool) -> None:
    """Replace a file as `Files.write_atomic` does, step by step."""
    directory = make_durable_dir(files, path)
    write_whole(files, path + ".tmp", data, sync=True)
    if keep_backup and files.exists(path):
        # The main file is whole at every moment, so the backup itself needs no sync.
        write_whole(files, path + ".bak.tmp", files.read_bytes(path), sync=False)
        files.rename(path + ".bak.tmp", path + ".bak")
    files.rename(path + ".tmp", path)
    files.sync_dir(directory)


def replace_private(files: Files, path: str, data: bytes) -> None:
    """Replace a file of the system, or make it, so that its owner alone may read it and a power cut leaves the old or the new one."""
    directory = make_durable_dir(files, path)
    write_whole(files, path + ".tmp", data, sync=True, private=True)
    files.rename(path + ".tmp", path)
    files.sync_dir(directory)


def make_durable_dir(files: Files, path: str) -> str:
    """Make the directory of a file, its name synced, unless it is there; returns it."""
    directory = os.path.dirname(path) or "."
    if not files.exists(directory):
        files.make_dirs(directory)
        files.sync_dir(os.path.dirname(directory) or ".")
    return directory


def write_whole(files: Files, path: str, data: bytes, *, sync: bool, private: bool = False) -> None:
    """Write a new file; `sync` has its data, not its name, on the device."""
    files.remove(path)  # what an earlier attempt has left
    more = {"private": True} if private else {}
    file = files.open_file(path, create=True, **more)
    try:
        file.pwrite(data, 0)
        if sync:
            file.sync()
    finally:
        file.close()


def zero_fill(file: File, size: int, sync_every: int = 16 << 20) -> None:
    """Write zeros over a whole new file, so that later writes find its blocks ready.

    Synced piece by piece, or a gigabyte of dirty pages would stall everybody's syncs at the end.
    """
    position = 0
    unsynced = 0
    while position < size:
        piece = ZEROS[: size - position]
        file.pwrite(piece, position)
        position += len(piece)
        unsynced += len(piece)
        if unsynced >= sync_every:
            file.sync()
            unsynced = 0
    file.sync()


def home_directory() -> str:
    """The user's home: below it Apache's clients and brokers keep files by default."""
    return os.path.expanduser("~")


def read_lines(path: str) -> Iterator[bytes]:
    """The lines of a file of any size, without their ends; raises OSError."""
    with open(path, "rb") as file:
        for line in file:
            yield line.rstrip(b"\n")


def write_private(path: str, data: bytes) -> None:
    """Write a new file of the system that its owner alone may read, for keys and secrets.

    Raises:
        FileExistsError: it is there already, and stays as it is. OSError.
    """
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def open_append(path: str) -> TextIO:
    """A file of lines that is appended to, its owner's alone if it is new. Raises OSError."""
    return open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8")


def open_null() -> TextIO:
    """A text stream that takes everything and keeps nothing."""
    return open(os.devnull, "w", encoding="utf-8")


# Copies of files for a backup: a hard link where a file changes no more, else its bytes with their holes.


_CHUNK: Final = 1 << 20
_NO_LINK: Final = frozenset(
    (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSYS)
)
_ZEROS: Final = bytes(_CHUNK)


def link_or_copy(source: str, target: str) -> bool:
    """A second name for a file, or a copy where the file system has none (another disk); whether it was linked.

    Raises:
        OSError: FileNotFoundError among them, when the source is gone.
    """
    try:
        os.link(source, target)
        return True
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
    copy_bytes(source, target)
    return False


def copy_bytes(source: str, target: str) -> int:
    """Copy a file front to back, with its mode, onto the disk; runs of zeros become holes. Returns its size.

    A file that grows at its end meanwhile is copied up to some byte of what was appended. Raises OSError.
    """
    old = os.open(source, os.O_RDONLY | os_file.CLOSE_ON_EXEC)
    try:
        how = os.fstat(old)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os_file.CLOSE_ON_EXEC
        new = os.open(target, flags, stat.S_IMODE(how.st_mode))
        try:
            at = 0
            while at < how.st_size:
                chunk = os_file.pread(old, min(_CHUNK, how.st_size - at), at)
                if not chunk:
                    break  # it was cut meanwhile
                if chunk != _ZEROS[: len(chunk)]:
                    _write(new, chunk, at)
                at += len(chunk)
            # Zeros at the end were not written either.
            os.truncate(new, how.st_size)
            os.fsync(new)
        finally:
            os.close(new)
    finally:
        os.close(old)
    return how.st_size


def _write(descriptor: int, data: bytes, position: int) -> None:
    rest = memoryview(data)
    while rest:
        done = os_file.pwrite(descriptor, bytes(rest), position)
        rest, position = rest[done:], position + done


def file_stamp(path: str) -> tuple[int, int, int]:
    """Return a stamp that changes when a file is written or replaced: time, size and inode; zeros when it is not there."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


# Tools' own work with a store's files: keep brokers away from them, and write down what was found.


_BUFFER: Final = 1 << 20
_BUSY: Final = frozenset((errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK))


class StoreGuard:
    """Keeps brokers away from a directory while a tool looks at it or mends it.

    Our broker locks the file `lock` with flock, Apache's with fcntl (byte 0): one does not see the other's, so
    both are asked for. A reader opens the file for reading only and changes nothing.
    """

    def __init__(self, path: str, exclusive: bool = False) -> None:
        """Raises StoreError when a broker has the store, OSError when the file cannot be opened.

        Args:
            path: of the lock file; without such a file, or with no path at all, a reader has nothing to wait for.
            exclusive: keep other readers away too, and make the file when it is missing.
        """
        self._fd = -1
        how = os.O_RDWR | os.O_CREAT if exclusive else os.O_RDONLY
        try:
            self._fd = os.open(path, how | os_file.CLOSE_ON_EXEC, 0o644)
        except FileNotFoundError:
            if exclusive:
                raise
            return
        try:
            os_file.try_lock(self._fd, exclusive=exclusive, records=True)
        except OSError as error:
            self.release()
            if error.errno not in _BUSY:
                return  # a file system without locks
            raise StoreError(f"{path} is locked: a running process uses this store") from error

    def release(self) -> None:
        """Let others in; releasing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LineFile:
    """A new text file that a tool writes, buffered; not durable before `close`."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os_file.CLOSE_ON_EXEC, 0o644
        )
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, text: str) -> None:
        """Take some text. Raises OSError."""
        data = text.encode("utf-8", "surrogatepass")
        self._parts.append(data)
        self._size += len(data)
        if self._size >= _BUFFER:
            self._write_out()

    def _write_out(self) -> None:
        data = memoryview(b"".join(self._parts))
        self._parts, self._size = [], 0
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Write out and sync. Raises OSError."""
        if self._fd >= 0:
            try:
                self._write_out()
                os.fsync(self._fd)
            finally:
                os.close(self._fd)
                self._fd = -1
