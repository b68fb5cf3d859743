"""Overview of a store, without reading all of it: for `roquette store info` and `ls`."""

from itertools import pairwise
from typing import Any

import msgspec

from roquette.base.files import ReadFiles, read_all
from roquette.errors import StoreError
from roquette.store.format.checkpoint import decode_timer_checkpoint
from roquette.store.format.log_reader import END, RECORD, LogReader
from roquette.store.index.index_file import HEADER_SIZE
from roquette.store.offline.small_files import load_json, read_checkpoint
from roquette.store.offline.store_dir import (
    StoreDir,
    first_record,
    list_index,
    list_numbered,
    list_queues,
)
from roquette.store.offline.unit_check import QueueUnits


class FileRow(msgspec.Struct, frozen=True, kw_only=True):
    """One file. Offsets are physical ones for the log and the index, queue offsets for queues."""

    file: str
    kind: str
    size: int
    first: int | None = None
    end: int | None = None
    first_ms: int = 0
    last_ms: int = 0


class StoredQueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: messages are those from `min_offset` to before `max_offset`."""

    topic: str
    queue: int
    min_offset: int
    max_offset: int
    messages: int


class Overview(msgspec.Struct, kw_only=True):
    """A store at a glance. Times are epoch ms, 0 for never."""

    store: str
    kind: str
    written_by: str
    log_files: int = 0
    log_bytes: int = 0
    segment_size: int = 0
    min_offset: int = 0
    max_offset: int = 0
    first_ms: int = 0
    last_ms: int = 0
    topics: int = 0
    queues: list[StoredQueueRow] = []
    messages: int = 0
    index_files: int = 0
    index_entries: int = 0
    timer: bool = False
    checkpoint: dict[str, int] = {}
    closed: bool = True
    not_read: list[str] = []
    warnings: list[str] = []


def log_ends(files: ReadFiles, store: StoreDir) -> tuple[int, int]:
    """Physical offset behind the newest record, and its store time; the newest file is walked for it."""
    for file in reversed(store.log):
        source = files.open_file(file.path)
        try:
            if not source.pread(8, 0).strip(b"\0"):
                continue
            reader = LogReader(source, file.base, False, nominal=store.segment_size)
            end, last_ms = file.base, 0
            while (found := reader.advance()) != END:
                if found == RECORD:
                    end, last_ms = file.base + reader.following, reader.store_ms
            return end, last_ms
        finally:
            source.close()
    return store.min_offset, 0


def first_unit(units: QueueUnits, min_physical: int) -> int:
    """The first queue offset whose record the log still has."""
    low, high = int(units.first), written_end(units)
    while low < high:
        middle = (low + high) // 2
        if units.load(middle) and (units.filler or units.physical < min_physical):
            low = middle + 1
        else:
            high = middle
    return low


def written_end(units: QueueUnits) -> int:
    """The queue offset behind the last unit that was written; units, then zeros."""
    low, high = int(units.first), int(units.limit)
    while low < high:
        middle = (low + high) // 2
        if units.load(middle) and not units.empty:
            low = middle + 1
        else:
            high = middle
    return low


def queue_rows(files: ReadFiles, store: StoreDir) -> list[StoredQueueRow]:
    """Every queue with its ends."""
    rows: list[StoredQueueRow] = []
    for queue in list_queues(files, store):
        if not queue.files:
            continue
        units = QueueUnits(files, queue, store.segment_size)
        low, high = first_unit(units, store.min_offset), written_end(units)
        rows.append(
            StoredQueueRow(
                topic=queue.topic,
                queue=queue.queue_id,
                min_offset=low,
                max_offset=high,
                messages=high - low,
            )
        )
    return rows


def overview(files: ReadFiles, store: StoreDir) -> Overview:
    """Tell what the store is and holds. Raises OSError."""
    found = Overview(store=store.root, kind=_kind(store), written_by=_written_by(files, store))
    found.log_files, found.log_bytes = len(store.log), store.log_bytes
    found.segment_size, found.min_offset = store.segment_size, store.min_offset
    found.max_offset, found.last_ms = log_ends(files, store)
    if store.log:
        first = store.log[0]
        record = first_record(files, first.path, first.base, store.segment_size)
        found.first_ms = record.store_timestamp_ms if record is not None else 0
    found.queues = queue_rows(files, store)
    found.topics = len({row.topic for row in found.queues})
    found.messages = sum(row.messages for row in found.queues)
    for file in list_index(files, store):
        found.index_files += 1
        head = read_all(files, file.path, HEADER_SIZE)
        found.index_entries += max(0, int.from_bytes(head[36:40], "big", signed=True) - 1)
    found.timer = files.file_size(f"{store.root}/timerwheel") >= 0
    checkpoint = read_checkpoint(files, store)
    if checkpoint is not None:
        found.checkpoint = {
            "physical_ms": checkpoint.physical_ms,
            "logical_ms": checkpoint.logical_ms,
            "index_ms": checkpoint.index_ms,
            "master_flushed_offset": checkpoint.master_flushed_offset,
            "confirmed_offset": checkpoint.confirmed_offset,
            "logical_offset": checkpoint.logical_offset,
        }
    found.closed = files.file_size(store.abort) < 0
    found.not_read = store.others
    found.warnings = _warnings(files, store, found)
    return found


def _kind(store: StoreDir) -> str:
    if store.dledger:
        return "DLedger store"
    if not store.whole:
        return "commit log files alone"
    if store.rocksdb_queues:
        return "store with queues in RocksDB"
    return "store with configuration in RocksDB" if store.rocksdb_config else "store of plain files"


def _written_by(files: ReadFiles, store: StoreDir) -> str:
    """Tell who opened it last, as far as that shows."""
    path = f"{store.config}/timercheck"
    if files.file_size(path) > 0 and decode_timer_checkpoint(read_all(files, path, 4096)).ours:
        return "Roquette"
    try:
        table = (load_json(files, f"{store.config}/topics.json") or {}).get("topicConfigTable")
    except StoreError:
        return "not known"
    if not isinstance(table, dict) or not table:
        return "not known"
    if files.is_dir(f"{store.commit_log}.ahead"):
        return "Roquette"
    topics = [topic for topic in table.values() if isinstance(topic, dict)]
    return "5.x" if any("attributes" in topic for topic in topics) else "Apache 4.x"


def _warnings(files: ReadFiles, store: StoreDir, found: Overview) -> list[str]:
    words = list(store.strange)
    if not found.closed:
        words.append(
            f"{store.abort} is there: the broker was not stopped cleanly, or it is running"
        )
    odd = [file for file in store.log if file.size != store.segment_size]
    words += [f"{file.path} has {file.size} bytes, not {store.segment_size}" for file in odd]
    words += [f"{path} is not named by an offset" for path in store.strays]
    for before, after in pairwise(store.log):
        if after.base != before.base + store.segment_size:
            words.append(f"the log is not whole between {before.path} and {after.path}")
    if (
        store.whole
        and store.log
        and not found.queues
        and not store.rocksdb_queues
        and found.last_ms
    ):
        words.append("there are no consume queues: `roquette store repair` makes them from the log")
    return words


def file_rows(files: ReadFiles, store: StoreDir) -> list[FileRow]:
    """Every file of the store with what it covers. Raises OSError."""
    rows = _log_rows(files, store)
    for queue in list_queues(files, store):
        units = QueueUnits(files, queue, store.segment_size)
        end = written_end(units)
        for file in queue.files:
            first = file.base // 20
            last = min(end, (file.base + file.size) // 20)
            rows.append(
                FileRow(
                    file=file.path, kind="queue", size=file.size, first=first, end=max(first, last)
                )
            )
    for file in list_index(files, store):
        head = read_all(files, file.path, HEADER_SIZE).ljust(HEADER_SIZE, b"\0")
        numbers = [int.from_bytes(head[at : at + 8], "big", signed=True) for at in (0, 8, 16, 24)]
        rows.append(
            FileRow(
                file=file.path,
                kind="index",
                size=file.size,
                first=numbers[2],
                end=numbers[3],
                first_ms=numbers[0],
                last_ms=numbers[1],
            )
        )
    for file in list_numbered(files, f"{store.root}/timerlog"):
        rows.append(FileRow(file=file.path, kind="timer log", size=file.size, first=file.base))
    rows += _small_rows(files, store)
    return rows


def _log_rows(files: ReadFiles, store: StoreDir) -> list[FileRow]:
    end, last_ms = log_ends(files, store)
    firsts: list[int] = []
    for file in store.log:
        record = None
        if file.base < end:
            record = first_record(files, file.path, file.base, store.segment_size)
        firsts.append(record.store_timestamp_ms if record is not None else 0)
    rows: list[FileRow] = []
    for place, file in enumerate(store.log):
        newest = file.base <= end <= file.base + file.size
        following = firsts[place + 1] if place + 1 < len(firsts) else 0
        rows.append(
            FileRow(
                file=file.path,
                kind="log" if file.base < end else "log, empty",
                size=file.size,
                first=file.base,
                end=max(file.base, min(end, file.base + file.size)),
                first_ms=firsts[place],
                last_ms=last_ms if newest or not following else following,
            )
        )
    return rows


def _small_rows(files: ReadFiles, store: StoreDir) -> list[FileRow]:
    kinds: dict[str, Any] = {
        store.checkpoint: "checkpoint",
        store.abort: "abort",
        store.lock: "lock",
        f"{store.root}/timerwheel": "timer wheel",
    }
    for name in files.list_dir(store.config):
        kind = "json" if name.endswith(".json") else "config"
        kinds[f"{store.config}/{name}"] = "timer checkpoint" if name == "timercheck" else kind
    return [
        FileRow(file=path, kind=kind, size=size)
        for path, kind in kinds.items()
        if (size := files.file_size(path)) >= 0 and store.whole
    ]
