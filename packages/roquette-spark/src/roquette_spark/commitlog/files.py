"""Where segments lie: a local or mounted directory, or an object store through fsspec. Read only.

Local files are read by position and not mapped: a file that shrinks under a map kills the process.
"""

import errno
import json
import os
from typing import Any, NamedTuple, Protocol

from roquette.base.files import OsReadFiles, ReadFile
from roquette.errors import ConfigError
from roquette.store.format.layout import parse_offset_name
from roquette_spark.commitlog.options import SOURCE

LOCAL_READ = 4 << 20
REMOTE_READ = 16 << 20


class SegmentFile(NamedTuple):
    """One file of a commit log."""

    path: str
    base: int  # physical offset of its first byte
    size: int


class LogFiles(Protocol):
    """A storage of segments."""

    read_bytes: int  # how much one read should ask for

    def segments(self, path: str) -> list[SegmentFile]:
        """The segments below a path, by base. Raises ConfigError when there are none."""
        ...

    def read(self, path: str, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...


def open_files(path: str, storage_options: str, read_bytes: int = 0) -> LogFiles:
    """The storage a path is on: a scheme such as `s3://` wants fsspec, all else is a local path."""
    if "://" in path:
        return RemoteFiles(path, storage_options, read_bytes or REMOTE_READ)
    return LocalFiles(read_bytes or LOCAL_READ)


class LocalFiles:
    """Files of this machine, or mounted on it."""

    def __init__(self, read_bytes: int = LOCAL_READ) -> None:
        self.read_bytes = read_bytes
        self._path = ""
        self._file: ReadFile | None = None

    def segments(self, path: str) -> list[SegmentFile]:
        path = os.path.expanduser(path)
        if os.path.isfile(path):
            listed = [(path, os.path.getsize(path))]
        else:
            directory = os.path.join(path, "commitlog")
            directory = directory if os.path.isdir(directory) else path
            try:
                names = os.listdir(directory)
            except OSError as error:
                raise ConfigError(f"{SOURCE}: {path}: {error.strerror}") from None
            full = [os.path.join(directory, name) for name in names]
            listed = [(each, os.path.getsize(each)) for each in full if os.path.isfile(each)]
        return _segments(path, listed)

    def read(self, path: str, position: int, size: int) -> bytes:
        if self._file is None or path != self._path:
            self.close()
            self._file, self._path = OsReadFiles().open_file(path), path
        return self._file.pread(size, position)

    def close(self) -> None:
        """Close the file that was read last."""
        if self._file is not None:
            self._file.close()
            self._file = None


class RemoteFiles:
    """Whatever fsspec reaches. Each read is one range request."""

    def __init__(self, path: str, storage_options: str, read_bytes: int) -> None:
        self.read_bytes = read_bytes
        self._scheme = path.partition("://")[0]
        try:
            import fsspec
        except ImportError:
            raise ConfigError(
                f"{SOURCE}: a path with {self._scheme}:// needs fsspec: pip install fsspec, "
                "and its package for that storage, such as s3fs"
            ) from None
        try:
            self._fs: Any = fsspec.filesystem(self._scheme, **json.loads(storage_options))
        except (ImportError, ValueError) as error:
            raise ConfigError(f"{SOURCE}: no storage for {self._scheme}://: {error}") from None

    def segments(self, path: str) -> list[SegmentFile]:
        plain = self._fs._strip_protocol(path)
        if self._fs.isfile(plain):
            listed = [(plain, int(self._fs.size(plain)))]
        else:
            directory = f"{plain.rstrip('/')}/commitlog"
            directory = directory if self._fs.isdir(directory) else plain
            try:
                found = self._fs.ls(directory, detail=True)
            except FileNotFoundError:
                raise ConfigError(f"{SOURCE}: {path}: {os.strerror(errno.ENOENT)}") from None
            listed = [(str(f["name"]), int(f["size"])) for f in found if f["type"] == "file"]
        return _segments(path, listed)

    def read(self, path: str, position: int, size: int) -> bytes:
        data: bytes = self._fs.cat_file(path, start=position, end=position + size)
        return data


def _segments(path: str, listed: list[tuple[str, int]]) -> list[SegmentFile]:
    """Files that are named by an offset, as segments are; other files do not belong to the log."""
    found = []
    for name, size in listed:
        base = parse_offset_name(os.path.basename(name))
        if base is not None:
            found.append(SegmentFile(name, base, size))
    if not found:
        raise ConfigError(
            f"{SOURCE}: {path} has no segments: a commit log's files are named by 20 digits, "
            "and lie in the directory commitlog of a store"
        )
    return sorted(found, key=lambda segment: segment.base)
