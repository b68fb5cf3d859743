"""What a table is made of, whatever its log: files, commits, versions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from roquette.errors import RoquetteError

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
LONGEST_FOLDER = 200  # bytes of a partition's folder's name; file systems take 255


class TableCorrupt(RoquetteError):
    """The log of a table is not what it should be: which file, what."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table. `path` is relative to the table; partition values are texts or None.

    `stats` is JSON of Delta's: numRecords, minValues, maxValues, nullCount; "" when nothing but the rows is known.
    """

    path: str
    size: int
    rows: int
    modified_ms: int
    partition: tuple[tuple[str, str | None], ...] = ()
    stats: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the log, all or nothing.

    Attributes:
        batch: (stream, batch number) that this commit makes done; a stream's numbers only grow.
        info: words for people who look at the table's history.
    """

    adds: Sequence[DataFile] = ()
    removes: Sequence[DataFile] = ()
    batch: tuple[str, int] | None = None
    data_change: bool = True
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
        """Of all files."""
        return sum(file.rows for file in self.files.values())

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())


@dataclass(frozen=True, slots=True)
class Compaction:
    """What one compaction did."""

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
    """Whether a value cannot be in the name of a partition's folder."""
    return len(_folder(name, value).encode()) > LONGEST_FOLDER


def _folder(name: str, value: str | None) -> str:
    """Only ASCII is escaped."""
    if value is None:
        return f"{name}={HIVE_NULL}"
    found = re.sub(r"[^\w.~-]", lambda each: _escaped(each[0]), value)
    return f"{name}={_escaped(found[0]) + found[1:] if found == HIVE_NULL else found}"


def _escaped(letter: str) -> str:
    return f"%{ord(letter):02X}" if letter.isascii() else letter


def partition_of(path: str) -> tuple[tuple[str, str | None], ...]:
    """The values in the folders of a path such as "day=2013-01-01/x.parquet"."""
    found: list[tuple[str, str | None]] = []
    for folder in path.split("/")[:-1]:
        name, equals, value = folder.partition("=")
        if equals:
            found.append((name, None if value == HIVE_NULL else unquote(value)))
    return tuple(sorted(found))
