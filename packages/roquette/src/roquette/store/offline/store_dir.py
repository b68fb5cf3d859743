"""Finding out what lies in a directory: which kind of store, which files, whose.

Recognised are stores of ours and of Apache's 4.9 and 5.x with plain files, and a directory of commit log files alone.
Kinds that cannot be read (queues or configuration in RocksDB, DLedger) are named.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from roquette.base.files import ReadAt, ReadFiles
from roquette.errors import StoreError
from roquette.message.record_layout import StoredRecord
from roquette.message.record_view import FAULT_NAMES, FAULT_WORDS, SOUND
from roquette.store.audit.findings import Findings
from roquette.store.format.layout import ForeignKind, find_foreign_parts, parse_offset_name
from roquette.store.format.log_reader import END, FILLED, RECORD, STOPPED, LogReader
from roquette.store.format.unit import UNIT_SIZE

_INDEX_NAME: Final = re.compile(r"\d{17,18}")
_DEFAULT_SEGMENT: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file that is named by an offset: of the commit log, the timer log or a queue."""

    path: str
    base: int
    size: int


@dataclass(frozen=True, slots=True)
class QueueDir:
    """One consume queue's files. `base` and `size` of the files count bytes, 20 to a unit."""

    topic: str
    queue_id: int
    path: str
    files: list[LogFile]

    @property
    def first(self) -> int:
        """Queue offset of the first unit there is a place for."""
        return self.files[0].base // UNIT_SIZE if self.files else 0

    @property
    def limit(self) -> int:
        """Queue offset behind the last place."""
        return (self.files[-1].base + self.files[-1].size) // UNIT_SIZE if self.files else 0


@dataclass(slots=True)
class StoreDir:
    """Parts of a store that were found. Paths of what is missing are there all the same.

    Attributes:
        root: the store's directory; of a bare commit log that one itself.
        whole: a store, not a commit log alone.
        log: commit log files in order of their offsets. `segment_size`: bytes of a whole one.
        strange: parts of a kind that cannot be read, a line each.
        others: databases of Apache's that hold neither queues nor configuration.
        strays: files in the commit log's directory whose names are no offsets.
    """

    root: str
    whole: bool
    commit_log: str
    log: list[LogFile]
    segment_size: int
    strange: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    dledger: bool = False
    rocksdb_queues: bool = False
    rocksdb_config: bool = False

    @property
    def consume_queues(self) -> str:
        """Directory of the queues."""
        return f"{self.root}/consumequeue"

    @property
    def index(self) -> str:
        """Directory of the index files."""
        return f"{self.root}/index"

    @property
    def checkpoint(self) -> str:
        """The checkpoint file."""
        return f"{self.root}/checkpoint"

    @property
    def abort(self) -> str:
        """The file that stands while a broker runs."""
        return f"{self.root}/abort"

    @property
    def lock(self) -> str:
        """The file that a broker locks."""
        return f"{self.root}/lock"

    @property
    def config(self) -> str:
        """Directory of the JSON files."""
        return f"{self.root}/config"

    @property
    def min_offset(self) -> int:
        """The first byte the log still has."""
        return self.log[0].base if self.log else 0

    @property
    def log_bytes(self) -> int:
        """Bytes of the log's files."""
        return sum(file.size for file in self.log)

    def file_of(self, offset: int) -> LogFile | None:
        """The file that holds a physical offset."""
        for file in self.log:
            if file.base <= offset < file.base + file.size:
                return file
        return None

    def place(self, offset: int) -> str:
        """A physical offset as `file byte n`, for people."""
        file = self.file_of(offset)
        return f"{file.path} byte {offset - file.base}" if file else f"offset {offset}"


def find_store(files: ReadFiles, path: str, commit_log: str | None = None) -> StoreDir:
    """Find what lies at a path: a store, the directory above its parts, or a commit log alone.

    Args:
        commit_log: where the log is, when storePathCommitLog puts it outside.

    Raises:
        StoreError: nothing that looks like a store is there.
    """
    root = path.rstrip("/") or "/"
    if not files.is_dir(root):
        what = (
            "is a file: give the store's directory"
            if files.file_size(root) >= 0
            else "is not there"
        )
        raise StoreError(f"{path} {what}")
    names = files.list_dir(root)
    dledger = sorted(name for name in names if name.startswith("dledger-"))
    found = StoreDir(root, True, commit_log or f"{root}/commitlog", [], _DEFAULT_SEGMENT)
    known = {"commitlog", "consumequeue", "index", "checkpoint", "config"}
    if not known & set(names) and not dledger and commit_log is None:
        if not any(parse_offset_name(name) is not None for name in names):
            raise StoreError(
                f"{path} is no store: it has neither commitlog, consumequeue, index nor config, and no file named "
                "like a commit log's (20 digits). Give storePathRootDir, or the directory of the log's files"
            )
        found.whole = False
        found.commit_log = root
    if found.whole:
        _find_strange(files, found)
    _load_log(files, found)
    return found


def _find_strange(files: ReadFiles, found: StoreDir) -> None:
    """Note what of other kinds is there; batch, extended and compaction queues are met where queues are read."""
    for strange in find_foreign_parts(files, found.root, found.config):
        path = strange.path
        match strange.kind:
            case ForeignKind.DLEDGER:
                found.dledger = True
                words = "a DLedger log; its messages are not in commitlog and cannot be read here"
            case ForeignKind.ROCKSDB_QUEUES:
                found.rocksdb_queues = True
                words = (
                    "consume queues in RocksDB (storeType defaultRocksDB), which is not read here"
                )
            case ForeignKind.ROCKSDB_CONFIG:
                found.rocksdb_config = True
                words = "configuration in RocksDB, which is not read here"
            case ForeignKind.ROCKSDB:
                found.others.append(path)
                continue
            case _:
                continue
        found.strange.append(f"{path}: {words}")


def _load_log(files: ReadFiles, found: StoreDir) -> None:
    for name in files.list_dir(found.commit_log):
        path = f"{found.commit_log}/{name}"
        base = parse_offset_name(name)
        size = files.file_size(path)
        if base is None or size < 0:
            found.strays.append(path)
            continue
        found.log.append(LogFile(path, base, size))
    found.log.sort(key=lambda file: file.base)
    found.segment_size = _segment_size(found.log)


def _segment_size(log: list[LogFile]) -> int:
    """Bytes of a whole file: the largest size, if names are multiples of it, since files may be missing between;
    else, of files that were cut, most often the distance of neighbours."""
    largest = max((file.size for file in log), default=0)
    alike = sum(file.size == largest for file in log) > 1
    if largest and alike and all(file.base % largest == 0 for file in log):
        return largest
    distances: dict[int, int] = {}
    for before, after in pairwise(log):
        distance = after.base - before.base
        distances[distance] = distances.get(distance, 0) + 1
    if distances:
        usual = max(distances, key=lambda size: (distances[size], -size))
        return usual if usual >= largest else largest
    if not log:
        return _DEFAULT_SEGMENT
    size, base = log[0].size, log[0].base
    if base and base % max(size, 1):  # a cut-off copy: its name is a multiple of the whole size
        return _DEFAULT_SEGMENT if base % _DEFAULT_SEGMENT == 0 else base
    return size


def list_queues(files: ReadFiles, store: StoreDir) -> list[QueueDir]:
    """Every consume queue that has a directory, by topic and queue id."""
    found: list[QueueDir] = []
    if store.rocksdb_queues:
        return found
    for topic in files.list_dir(store.consume_queues):
        above = f"{store.consume_queues}/{topic}"
        numbers = sorted(int(name) for name in files.list_dir(above) if name.isdecimal())
        for queue_id in numbers:
            found.append(load_queue(files, store.consume_queues, topic, queue_id))
    return found


def load_queue(files: ReadFiles, above: str, topic: str, queue_id: int) -> QueueDir:
    """The files of one queue; none when there is no such directory."""
    path = f"{above}/{topic}/{queue_id}"
    return QueueDir(topic, queue_id, path, list_numbered(files, path))


def list_numbered(files: ReadFiles, directory: str) -> list[LogFile]:
    """The files of a directory that are named by offsets, in order."""
    found: list[LogFile] = []
    for name in files.list_dir(directory):
        base = parse_offset_name(name)
        if base is not None:
            found.append(
                LogFile(f"{directory}/{name}", base, files.file_size(f"{directory}/{name}"))
            )
    return sorted(found, key=lambda file: file.base)


def list_index(files: ReadFiles, store: StoreDir) -> list[LogFile]:
    """The index files, oldest first; `base` is the number their name is."""
    found: list[LogFile] = []
    for name in files.list_dir(store.index):
        if _INDEX_NAME.fullmatch(name):
            path = f"{store.index}/{name}"
            found.append(LogFile(path, int(name), files.file_size(path)))
    return sorted(found, key=lambda file: file.base)


# Results of the check of one log file: values, which go from process to process.


@dataclass(slots=True)
class Pending:
    """Records in a row whose queue has no unit for them, or another one's."""

    first_offset: int
    next_offset: int
    first_physical: int
    last_physical: int
    reason: str  # unit_missing, unit_wrong or queue_missing
    file: str
    position: int
    message: str


@dataclass(slots=True)
class QueueSpan:
    """Span of one queue, as one log file says.

    Attributes:
        first_offset: of the first record. `next_offset`: behind the last one.
        life_offset, life_physical: the first record that its unit agrees with; -1: none.
    """

    topic: str
    queue_id: int
    first_offset: int
    next_offset: int
    life_offset: int
    life_physical: int
    records: int
    pending: list[Pending]


@dataclass(slots=True)
class LogPart:
    """Result of the check of one log file."""

    base: int
    path: str
    findings: Findings = field(default_factory=Findings)
    spans: list[QueueSpan] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    end: int = 0  # physical offset behind the last record or blank
    filled: bool = False  # the log goes on in the next file
    first_ms: int = 0
    last_ms: int = 0
    max_ms: int = 0
    damaged: int = 0  # bytes


# The records of commit log files as values, one after another: what dumps, searches and readers build on.


@dataclass(frozen=True, slots=True)
class DamagedStretch:
    """A damaged stretch of a file.

    Attributes:
        path: of the file. `position`, `end`: first byte of the stretch, and the byte after it.
        kind: `magic`, `size`, `structure`, `offset`, `crc`, `hole`, `tail`, `cut` or `blank`.
        words: the same for people.
    """

    path: str
    position: int
    end: int
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class FileEnd:
    """End of a file's records. `filled`: the log goes on in the next file; else it ends here."""

    path: str
    position: int
    filled: bool


def walk_bytes(
    source: ReadAt,
    path: str,
    base: int,
    *,
    check_crc: bool = True,
    start: int = 0,
    stop: int = -1,
    sync: bool = False,
    nominal: int = 0,
    wanted: Callable[[LogReader], bool] | None = None,
) -> Iterator[StoredRecord | DamagedStretch | FileEnd]:
    """The records and faults of one file in order, then its `FileEnd`. Raises OSError.

    Args:
        path: what faults are named with.
        base: the physical offset of the file's first byte; -1: its first sound record says it.
        start, stop: records that begin at `start <= position < stop`; -1: no stop.
        sync: `start` may lie within a record; begin with the first sound one at or behind it.
        nominal: the size of a whole file, when this one may be cut off.
        wanted: asked about every sound record before it is decoded; others are passed over.
    """
    reader = LogReader(source, base, check_crc, start, stop, nominal)
    if sync:
        reader.synchronize()
    while (found := reader.advance()) != END:
        if found == RECORD:
            if wanted is None or wanted(reader):
                yield reader.record()
            continue
        kind, words = FAULT_NAMES[reader.fault], FAULT_WORDS[reader.fault]
        yield DamagedStretch(path, reader.position, reader.following, kind, words)
    if reader.ending != STOPPED:
        yield FileEnd(path, reader.position, reader.ending == FILLED)


def walk_files(
    files: ReadFiles,
    log: list[LogFile],
    nominal: int,
    *,
    check_crc: bool = True,
    wanted: Callable[[LogReader], bool] | None = None,
    on_file: Callable[[LogFile], None] | None = None,
) -> Iterator[StoredRecord | DamagedStretch | FileEnd]:
    """The same of files in a row. `on_file` is called before each."""
    for file in log:
        if on_file is not None:
            on_file(file)
        source = files.open_file(file.path)
        try:
            yield from walk_bytes(
                source, file.path, file.base, check_crc=check_crc, nominal=nominal, wanted=wanted
            )
        finally:
            source.close()


def first_record(files: ReadFiles, path: str, base: int, nominal: int) -> StoredRecord | None:
    """The first sound record of a file; None when it has none."""
    source = files.open_file(path)
    try:
        reader = LogReader(source, base, True, nominal=nominal)
        while (found := reader.advance()) != END:
            if found == RECORD:
                return reader.record()
        return None
    finally:
        source.close()


def read_record(
    files: ReadFiles, log: list[LogFile], offset: int, *, check_crc: bool = True
) -> StoredRecord | None:
    """The sound record at a physical offset; None when none begins there."""
    for file in log:
        if file.base <= offset < file.base + file.size:
            source = files.open_file(file.path)
            try:
                reader = LogReader(source, file.base, check_crc, offset - file.base)
                return reader.record() if reader.look() == SOUND else None
            finally:
                source.close()
    return None
