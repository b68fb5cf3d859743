"""The files of a table, on a local disk or wherever pyarrow has a file system: s3, gs, abfs, hdfs."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from roquette.base.files import FileLock, OsFiles
from roquette.errors import ConfigError, RoquetteError, StoreError
from roquette_spark.pipelines.kit.frame import PipelineError

_FOOTERS = 16  # read at the same time
_ATOMIC_PUTS = ("s3", "gcs", "abfs")  # an object appears whole or not at all


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file below a table's root."""

    path: str
    size: int
    modified_ms: int


class TableFiles:
    """Files below one root; paths are relative to it, with slashes.

    Args:
        root: a path, or an address such as s3a://bucket/folder. Spark is given the same text.
    """

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        scheme = root.partition("://")[0] if "://" in root else ""
        self.local = scheme in ("", "file")
        try:
            if self.local:
                self._fs: Any = pafs.LocalFileSystem()
                self._base = os.path.abspath(root.removeprefix("file://"))
                self.root = self._base
            else:
                address = root.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1)
                self._fs, self._base = pafs.FileSystem.from_uri(address)
        except (pa.ArrowInvalid, OSError) as error:
            raise ConfigError(f"{root} cannot be opened: {error}") from None
        self._base = self._base.rstrip("/")

    def address(self, path: str) -> str:
        """Return what Spark calls the file."""
        return f"{self.root}/{path}" if path else self.root

    def list_tree(self, folder: str = "") -> list[FoundFile]:
        """All files below a folder, at any depth; none when it does not exist."""
        selector = pafs.FileSelector(self._path(folder), allow_not_found=True, recursive=True)
        return [
            FoundFile(
                info.path[len(self._base) + 1 :], info.size or 0, (info.mtime_ns or 0) // 1_000_000
            )
            for info in self._fs.get_file_info(selector)
            if info.is_file
        ]

    def list_names(self, folder: str = "") -> list[str]:
        """List what is directly in a folder; nothing when it does not exist."""
        selector = pafs.FileSelector(self._path(folder), allow_not_found=True)
        return [info.base_name for info in self._fs.get_file_info(selector)]

    def inside(self, path: str) -> bool:
        """Return True if no link on the way to a file leads out of the root."""
        if not self.local:
            return True
        root = os.path.realpath(self._base)
        return os.path.realpath(self._path(path)).startswith(root + os.sep)

    def stat(self, path: str) -> FoundFile:
        info = self._fs.get_file_info(self._path(path))
        return FoundFile(path, info.size or 0, (info.mtime_ns or 0) // 1_000_000)

    def exists(self, path: str) -> bool:
        """Return True if there is such a file or folder."""
        return bool(self._fs.get_file_info(self._path(path)).type != pafs.FileType.NotFound)

    def read(self, path: str) -> bytes:
        with self._fs.open_input_stream(self._path(path)) as stream:
            return bytes(stream.read())

    def write(self, path: str, data: bytes) -> None:
        """Put or replace a small file, whole or not at all."""
        if self.local:
            OsFiles().write_atomic(self._path(path), data, keep_backup=False)
            return
        target = self._path(path)
        self.make_folder(path.rpartition("/")[0])
        place = target if self._fs.type_name in _ATOMIC_PUTS else target + ".tmp"
        with self._fs.open_output_stream(place) as stream:
            stream.write(data)
        if place != target:
            self._fs.move(place, target)

    def make_folder(self, folder: str) -> None:
        """Make it where there are folders, unless it is there."""
        if self._fs.type_name not in _ATOMIC_PUTS:
            self._fs.create_dir(self._path(folder), recursive=True)

    def open_file(self, path: str) -> Any:
        """A file (pyarrow's) that can be read at any place."""
        return self._fs.open_input_file(self._path(path))

    def open_new(self, path: str) -> Any:
        """A stream (pyarrow's) into a file; its folders are made."""
        self.make_folder(path.rpartition("/")[0])
        return self._fs.open_output_stream(self._path(path))

    def sync(self, path: str) -> None:
        """On a local disk: a finished file and its name are safe when this returns."""
        if self.local:
            file = OsFiles().open_file(self._path(path))
            file.sync()
            file.close()
            OsFiles().sync_dir(os.path.dirname(self._path(path)))

    def remove(self, path: str) -> None:
        self._fs.delete_file(self._path(path))

    def remove_tree(self, folder: str) -> None:
        """Delete a folder with all it has; nothing when it does not exist."""
        if self.exists(folder):
            self._fs.delete_dir(self._path(folder))

    def footers(self, paths: Sequence[str]) -> list[pq.FileMetaData]:
        """What Parquet files say of themselves: rows, columns, bounds."""

        def read(path: str) -> pq.FileMetaData:
            return pq.read_metadata(self._path(path), filesystem=self._fs)

        if self.local or len(paths) < 2:
            return [read(path) for path in paths]
        with ThreadPoolExecutor(max_workers=_FOOTERS) as pool:
            return list(pool.map(read, paths))

    def column(self, path: str, name: str) -> list[Any]:
        """One column of a Parquet file, as Python's values; empty if it has no such column."""
        file = pq.ParquetFile(self._path(path), filesystem=self._fs)
        if name not in file.schema_arrow.names:
            return []
        found: list[Any] = file.read(columns=[name]).column(name).to_pylist()
        return found

    def open_parquet(self, path: str) -> pq.ParquetFile:
        """A data file, to read it piece by piece. Times that Spark wrote as INT96 are microseconds."""
        return pq.ParquetFile(
            self._path(path), filesystem=self._fs, coerce_int96_timestamp_unit="us"
        )

    def read_columns(self, path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        read = pq.read_table(
            self._path(path), filesystem=self._fs, columns=list(columns), partitioning=None
        )
        found: list[dict[str, Any]] = read.to_pylist(maps_as_pydicts="lossy")
        return found

    def lock(self, path: str) -> FileLock | None:
        """Keep other processes of this machine out until it is released; None where that is not possible.

        Raises:
            PipelineError: another process is at work on this table.
        """
        if not self.local:
            return None
        try:
            return OsFiles().lock_file(self._path(path))
        except StoreError:
            raise PipelineError(
                f"another process is writing to {self.root}: wait for it, or stop it"
            ) from None

    def _path(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base


def discard(files: TableFiles, some: "Iterable[DataFile]") -> None:
    """Delete files that were written for a table and do not count."""
    for file in some:
        if files.exists(file.path):
            files.remove(file.path)


# What a table is made of, whatever its log: files, commits, versions.


HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
LONGEST_FOLDER = 200  # bytes of a partition's folder's name; file systems take 255


class Overtaken(PipelineError):
    """Another program has changed the table, and a commit does not fit any more: none of it counts.

    Attributes:
        keeps_rows: what is there has all rows that were there, so that the same can be done again from it.
    """

    keeps_rows = False


class TableCorrupt(RoquetteError):
    """The log of a table is not what it should be: which file, what."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table. `path` is relative to the table; partition values are texts or None.

    `stats` is JSON of Delta's: numRecords, minValues, maxValues, nullCount; "" when nothing but the rows is known.

    Attributes:
        rows: that are there; those deleted by another engine without rewriting the file do not count.
        live: which of the file's rows those are; None: all.
        footer: of a file that was just written.
    """

    path: str
    size: int
    rows: int
    modified_ms: int
    partition: tuple[tuple[str, str | None], ...] = ()
    stats: str = ""
    live: pa.BooleanArray | None = field(default=None, compare=False)
    footer: pq.FileMetaData | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the log, all or nothing.

    Attributes:
        batch: (stream, batch number) that this commit makes done; a stream's numbers only grow.
        data_change: whether the table has other rows after it; else it has only arranged them.
        blind: it is right whatever other programs have done to the table's rows meanwhile.
        info: words for people who look at the table's history.
    """

    adds: Sequence[DataFile] = ()
    removes: Sequence[DataFile] = ()
    batch: tuple[str, int] | None = None
    data_change: bool = True
    blind: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The table at one version. Version -1: it does not exist yet.

    Attributes:
        files: what the table is, by path.
        removed: files that were replaced, and when (ms): readers of older versions may still need them.
        batches: the newest batch done, by stream.
        schema: Spark's JSON of the schema.
    """

    version: int = -1
    files: Mapping[str, DataFile] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    schema: str = ""
    partitioned_by: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    table_id: str = ""
    created_ms: int = 0

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())


@dataclass(frozen=True, slots=True)
class Compaction:
    """Count of what one compaction did."""

    partitions: int = 0
    files_before: int = 0
    files_after: int = 0
    rows: int = 0

    def __add__(self, more: "Compaction") -> "Compaction":
        return Compaction(*(getattr(self, f) + getattr(more, f) for f in self.__slots__))


def partition_folder(name: str, value: str | None, *, local: bool = True) -> str:
    """The folder of a partition, with a slash at its end.

    Args:
        local: on a disk, where Spark may read plain folders; to it %C3 is the letter of that number. In object stores
            letters beyond ASCII are escaped, too, as delta-rs does: Polars finds no key that has them.
    """
    found = _folder(name, value)
    return f"{found if local else quote(found, safe='%=~')}/"


def partition_text(value: Any) -> str | None:
    """A partition's value as logs and folders have it; an empty text is null."""
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def too_long(name: str, value: str | None) -> bool:
    """Return True if a value cannot be in the name of a partition's folder."""
    return len(_folder(name, value).encode()) > LONGEST_FOLDER


def _folder(name: str, value: str | None) -> str:
    """Only ASCII is escaped."""
    if value is None:
        return f"{name}={HIVE_NULL}"
    found = re.sub(r"[^\w.~-]", lambda each: _escaped(each[0]), value)
    return f"{name}={_escaped(found[0]) + found[1:] if found == HIVE_NULL else found}"


def _escaped(letter: str) -> str:
    return f"%{ord(letter):02X}" if letter.isascii() else letter
