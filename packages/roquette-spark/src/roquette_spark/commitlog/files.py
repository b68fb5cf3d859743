"""Files of segments: a local or mounted directory, or an object store through fsspec. Read only.

Local files are read by position and not mapped: a file that shrinks under a map kills the process.
"""

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from roquette.base.files import OsReadFiles, ReadFile, ReadFiles
from roquette.base.options import SIZE, OptionKind, option
from roquette.errors import ConfigError
from roquette.store.format.layout import parse_offset_name
from roquette.store.offline.store_dir import LogFile, list_numbered
from roquette_spark.values.options import JSON_OBJECT, NAMES, PATTERN, checked_options

# The options of `format("rocketmq_commitlog")`, read and checked once.


SOURCE = "rocketmq_commitlog"


def _paths(text: str) -> tuple[str, ...]:
    listed = json.loads(text) if text else []
    if not isinstance(listed, list):
        raise ValueError
    return tuple(str(path) for path in listed)


def _tags(text: str) -> tuple[str, ...]:
    return () if text == "*" else tuple(tag.strip() for tag in text.split("||") if tag.strip())


_LIST: Final = OptionKind(wanted="a JSON list", parse=_paths)
_TAGS: Final = OptionKind(wanted="tags such as A || B", parse=_tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLogOptions:
    """The options of one offline read. Times are milliseconds; an ending time is exclusive."""

    path: tuple[str, ...] = option((), "stores, with commas; what `load(...)` is given")
    listed: tuple[str, ...] = option((), "what `load([...])` is given", name="paths", kind=_LIST)
    topics: tuple[str, ...] = option(
        (),
        "topics. A system's topic, such as `SCHEDULE_TOPIC_XXXX`, must be named",
        name="subscribe",
        also=["topic"],
        kind=NAMES,
        unset="all but the system's",
    )
    topic_pattern: str = option(
        "", "a regular expression for whole topic names", name="subscribePattern", kind=PATTERN
    )
    include_system_topics: bool = option(
        False, "all topics, and prepared and rolled back records, which are in no queue"
    )
    tags: tuple[str, ...] = option((), "`A || B`, compared as text", kind=_TAGS, unset="`*`")
    starting_ms: int | None = option(
        None,
        "milliseconds, by store time. Segments outside are not opened, a minute of a clock set back allowed",
        name="startingTimestamp",
    )
    ending_ms: int | None = option(
        None, "the same for the end, which is exclusive", name="endingTimestamp"
    )
    broker_names: tuple[str, ...] = option(
        (), "one name, or one for each path", name="brokerName", unset="null"
    )
    split_bytes: int = option("128m", "bytes of one task; `0`: a segment is one task", kind=SIZE)
    check_crc: bool = option(True, "a body that does not match its CRC makes its record damaged")
    fail_on_corrupt_record: bool = option(
        True,
        "damage and missing segments are an error that names file and place; `false` reads what there is and warns in "
        "the worker's log",
    )
    rows: str = option(
        "messages",
        "`stretches`: what is not a record, as rows",
        choices=("messages", "stretches"),
    )
    columns: tuple[str, ...] = option((), "as above", unset="all")
    include_properties: bool = option(True, "as above")
    include_system_properties: bool = option(False, "as above")
    batch_rows: int = option(8_000, "as above", least=1)
    read_bytes: int = option(  # Arrow counts the bytes of a column in 31 bits
        0, "bytes of one read", kind=SIZE, most=1 << 30, unset="`4m`, remote `16m`"
    )
    storage_options: str = option(
        "{}", 'JSON for fsspec, such as `{"anon":true}`', kind=JSON_OBJECT, secret=True
    )

    @property
    def paths(self) -> tuple[str, ...]:
        return self.listed or self.path

    @property
    def stretches(self) -> bool:
        """True if rows are what is not a record, instead of messages."""
        return self.rows == "stretches"

    def broker_name(self, index: int) -> str | None:
        """Return the column broker_name's value for path number `index`; a store itself does not tell."""
        if not self.broker_names:
            return None
        return self.broker_names[index if len(self.broker_names) > 1 else 0]


def commitlog_options(options: Mapping[str, str]) -> CommitLogOptions:
    """Check the options Spark hands over.

    Raises:
        ConfigError: an option is unknown, missing or malformed; the text names it and what to do.
    """
    found = checked_options(CommitLogOptions, SOURCE, options)
    count = len(found.broker_names)
    if not found.paths:
        raise ConfigError(
            f"{SOURCE}: a path is required: a store's directory, its commitlog directory or one segment"
        )
    if count > 1 and count != len(found.paths):
        raise ConfigError(
            f"{SOURCE}: option brokerName has {count} names for {len(found.paths)} paths: "
            "give one for all, or one for each"
        )
    if found.topics and found.topic_pattern:
        raise ConfigError(f"{SOURCE}: give subscribe or subscribePattern, not both")
    start, end = found.starting_ms, found.ending_ms
    if start is not None and end is not None and end < start:
        raise ConfigError(f"{SOURCE}: endingTimestamp {end} is before startingTimestamp {start}")
    return found


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
