"""Files of segments: a local or mounted directory, or an object store through fsspec. Read only.

Local files are read by position and not mapped: a file that shrinks under a map kills the process.
"""

import errno
import json
import os
from typing import Any

from roquette.base.files import OsReadFiles, ReadFile, ReadFiles
from roquette.errors import ConfigError
from roquette.store.format.layout import parse_offset_name
from roquette.store.offline.store_dir import LogFile, list_numbered
from roquette_spark.commitlog.options import SOURCE

LOCAL_READ = 4 << 20
REMOTE_READ = 16 << 20


def open_files(path: str, storage_options: str) -> tuple[ReadFiles, str]:
    """The storage a path is on, and the path there: a scheme such as `s3://` wants fsspec, all else is a local path."""
    if "://" in path:
        files = RemoteFiles(path.partition("://")[0], storage_options)
        return files, files.plain(path)
    return OsReadFiles(), os.path.expanduser(path)


def read_size(path: str, read_bytes: int) -> int:
    """How much one read should ask for; `read_bytes`: what the user says, 0: nothing."""
    return read_bytes or (REMOTE_READ if "://" in path else LOCAL_READ)


def open_log(path: str, storage_options: str) -> tuple[ReadFiles, list[LogFile]]:
    """The storage of a log and its segments, by base. The path: a store, its directory `commitlog`, or one segment.

    Raises:
        ConfigError: there are none.
    """
    files, plain = open_files(path, storage_options)
    directory = f"{plain.rstrip('/')}/commitlog"
    directory = directory if files.is_dir(directory) else plain
    base = parse_offset_name(os.path.basename(plain))
    try:
        size = files.file_size(plain)
        found = [file for file in list_numbered(files, directory) if file.size >= 0]
        if size >= 0 and base is not None:
            found = [LogFile(plain, base, size)]
        elif size < 0 and not files.is_dir(directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    except OSError as error:
        raise ConfigError(f"{SOURCE}: {path}: {error.strerror or error}") from None
    if not found:
        raise ConfigError(
            f"{SOURCE}: {path} has no segments: a commit log's files are named by 20 digits, "
            "and lie in the directory commitlog of a store"
        )
    return files, found


class RemoteFiles:
    """`ReadFiles` of whatever fsspec reaches."""

    def __init__(self, scheme: str, storage_options: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise ConfigError(
                f"{SOURCE}: a path with {scheme}:// needs fsspec: pip install fsspec, "
                "and its package for that storage, such as s3fs"
            ) from None
        try:
            self._fs: Any = fsspec.filesystem(scheme, **json.loads(storage_options))
        except (ImportError, ValueError) as error:
            raise ConfigError(f"{SOURCE}: no storage for {scheme}://: {error}") from None
        self._sizes: dict[
            str, int
        ] = {}  # of what was listed: a request for a directory, not for each file

    def plain(self, path: str) -> str:
        """A path without its scheme."""
        return str(self._fs._strip_protocol(path))

    def open_file(self, path: str) -> ReadFile:
        return _RemoteFile(self, path)

    def read(self, path: str, start: int, end: int) -> bytes:
        """Bytes of a file, as far as it has them."""
        return bytes(self._fs.cat_file(path, start=start, end=end))

    def list_dir(self, path: str) -> list[str]:
        try:
            found = self._fs.ls(path, detail=True)
        except FileNotFoundError:
            return []
        self._sizes |= {str(f["name"]): int(f["size"]) for f in found if f["type"] == "file"}
        return sorted(os.path.basename(str(f["name"]).rstrip("/")) for f in found)

    def is_dir(self, path: str) -> bool:
        return bool(self._fs.isdir(path))

    def file_size(self, path: str) -> int:
        if path not in self._sizes and self._fs.isfile(path):
            self._sizes[path] = int(self._fs.size(path))
        return self._sizes.get(path, -1)

    def modified_ms(self, path: str) -> int:
        return int(self._fs.modified(path).timestamp() * 1000)


class _RemoteFile:
    """One file of an object store. Each read is one range request, and opening it none."""

    def __init__(self, files: RemoteFiles, path: str) -> None:
        self._files = files
        self._path = path

    @property
    def size(self) -> int:
        return self._files.file_size(self._path)

    def pread(self, size: int, position: int) -> bytes:
        return self._files.read(self._path, position, position + size)

    def close(self) -> None:
        """Nothing is open."""
