"""The records of commit log files as values, one after another: what dumps, searches and readers build on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from roquette.base.files import ReadAt, ReadFiles
from roquette.message.record_layout import StoredRecord
from roquette.message.record_view import FAULT_NAMES, FAULT_WORDS, SOUND
from roquette.store.format.log_reader import END, FILLED, RECORD, STOPPED, LogReader
from roquette.store.offline.store_dir import LogFile


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
    """Where the records of a file end. `filled`: the log goes on in the next file; else it ends here."""

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
