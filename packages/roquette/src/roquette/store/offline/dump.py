"""Any one file of a store as rows: for people and as JSON lines."""

import os
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from roquette.base.files import ReadAt, ReadFiles, read_all
from roquette.base.generations import BACKUPS, SUMS, chained_entries
from roquette.errors import StoreError
from roquette.message.record_layout import BLANK_MAGIC, RECORD_MAGIC_V1, RECORD_MAGIC_V2
from roquette.store.audit.index_audit import SUMS as INDEX_SUMS
from roquette.store.audit.index_entries import IndexView, find_slots
from roquette.store.format.checkpoint import decode_checkpoint, decode_timer_checkpoint
from roquette.store.format.layout import parse_offset_name
from roquette.store.format.unit import FILLER_FROM, UNIT_SIZE, UnitView
from roquette.store.index.index_file import ENTRY_SIZE, HEADER_SIZE, IndexEntry
from roquette.store.offline.index_check import DEFAULT_SLOTS
from roquette.store.offline.search import record_fields
from roquette.store.offline.small_files import load_json
from roquette.store.offline.store_dir import DamagedStretch, FileEnd, walk_bytes
from roquette.store.offline.timer_check import read_wheel
from roquette.store.timer.timer_log import UNIT_SIZE as TIMER_UNIT_SIZE
from roquette.store.timer.timer_log import unpack_unit

KINDS: Final = (
    "log", "queue", "index", "checkpoint", "timerwheel", "timerlog", "timercheck", "journal", "json", "text",
)  # fmt: skip
_NAMES: Final = {
    "checkpoint": "checkpoint", "timercheck": "timercheck", "timerwheel": "timerwheel", "timermetrics": "json",
    "consumerOffset.journal.0": "journal", "consumerOffset.journal.1": "journal",
    INDEX_SUMS: "text", "abort": "text", "lock": "text", "reserve": "text", "diskProbe": "text",
    "epochFileCheckpoint": "text",
}  # fmt: skip
_ENDS: Final = {".json": "json", SUMS: "text", ".pem": "text", ".key": "text"}
MOST_JOURNAL: Final = 64 << 20  # bytes of a file
_TIMER_LOG_MAGICS: Final = range(1, 16)


def kind_of(files: ReadFiles, path: str) -> str:
    """Tell the kind of a file by its name and its first bytes.

    Raises:
        StoreError: it cannot be told, or there is no such file.
    """
    size = files.file_size(path)
    if size < 0:
        raise StoreError(
            f"{path} is no file: give one file of a store (`roquette store ls` lists them)"
        )
    name = path.rpartition("/")[2]
    plain = name.removesuffix(".tmp")
    plain = next((plain.removesuffix(end) for end in BACKUPS if plain.endswith(end)), plain)
    known = _NAMES.get(plain) or _ENDS.get(os.path.splitext(plain)[1])
    if known is not None:
        return known
    head = read_all(files, path, 64)
    first, second = (int.from_bytes(head[at : at + 4], "big", signed=True) for at in (0, 4))
    if second in (RECORD_MAGIC_V1, RECORD_MAGIC_V2, BLANK_MAGIC):
        return "log"
    if parse_offset_name(name) is not None:
        parts = path.split("/")
        if len(parts) > 3 and parts[-2].isdecimal() and size % UNIT_SIZE == 0:
            return "queue"
        magic = int.from_bytes(head[12:16], "big", signed=True)
        if first == TIMER_UNIT_SIZE and magic in _TIMER_LOG_MAGICS:
            return "timerlog"
        return "timerlog" if "timerlog" in parts else "log"
    if len(name) in (17, 18) and name.isdecimal():
        return "index"
    raise StoreError(f"{path} is of no kind known by its name: say --kind {', '.join(KINDS)}")


def dump_file(
    files: ReadFiles,
    path: str,
    kind: str,
    *,
    start: int = 0,
    base: int | None = None,
    slots: int | None = None,
    body: str = "auto",
) -> Iterator[dict[str, Any]]:
    """The rows of a file, in order; every row says at which `byte` it stands.

    Args:
        start: the byte to begin at; of a log file also within a record.
        base: physical offset of the file's first byte, when its name does not say it.
        slots: hash slots of an index file, when they are not the default.

    Raises:
        StoreError: the file is not what its kind says. OSError: it cannot be read.
    """
    if kind == "log":
        yield from _log(files, path, start, base, body)
    elif kind == "queue":
        yield from _queue(files, path, start)
    elif kind == "index":
        yield from _index(files, path, start, slots)
    elif kind == "timerlog":
        yield from _timer_log(files, path, start)
    elif kind == "journal":
        yield from _journal(files, path, start)
    elif kind == "timerwheel":
        yield from (
            {
                "byte": slot.ordinal * 32,
                "slot": slot.ordinal,
                "time": slot.tick,
                "first": slot.first,
                "last": slot.last,
                "number": slot.number,
            }
            for slot in read_wheel(files, path)
            if slot.ordinal * 32 >= start
        )
    else:
        yield _small(files, path, kind)


def _small(files: ReadFiles, path: str, kind: str) -> dict[str, Any]:
    if kind == "json":
        return load_json(files, path) or {}
    data = read_all(files, path, 4096)
    if kind == "checkpoint":
        known = decode_checkpoint(data)
        return {
            "physical_ms": known.physical_ms,
            "logical_ms": known.logical_ms,
            "index_ms": known.index_ms,
            "master_flushed_offset": known.master_flushed_offset,
            "confirmed_offset": known.confirmed_offset,
            "logical_offset": known.logical_offset,
        }
    if kind == "timercheck":
        timer = decode_timer_checkpoint(data)
        return {
            "read_ms": timer.read_ms,
            "log_position": timer.log_position,
            "queue_offset": timer.queue_offset,
            "commit_offset": timer.commit_offset,
            "precision_ms": timer.precision_ms,
            "written_by": "Roquette" if timer.ours else "Apache",
        }
    return {"text": data.rstrip(b"\0").decode("utf-8", "replace")}


def _journal(files: ReadFiles, path: str, start: int) -> Iterator[dict[str, Any]]:
    """docs/formats/offset_journal.md."""
    names = {
        "B": ("generation", "previous", "crc", "size"),
        "C": ("log_end", "dropped", "offsets", "resets"),
    }
    for entry in chained_entries(read_all(files, path, MOST_JOURNAL)):
        if entry.start >= start:
            fields = dict(zip(names[chr(entry.kind)], msgspec.msgpack.decode(entry.content)))
            yield {"byte": entry.start, "kind": chr(entry.kind), **fields}


def _log(
    files: ReadFiles, path: str, start: int, base: int | None, body: str
) -> Iterator[dict[str, Any]]:
    if base is None:
        named = parse_offset_name(os.path.basename(path))
        base = named if named is not None else -1
    source = files.open_file(path)
    try:
        for found in walk_bytes(source, path, base, start=start, sync=start > 0):
            if isinstance(found, DamagedStretch):
                size = found.end - found.position
                yield {
                    "byte": found.position,
                    "fault": found.kind,
                    "size": size,
                    "words": found.words,
                }
            elif isinstance(found, FileEnd):
                ending = "filled" if found.filled else "open"
                yield {"byte": found.position, "end": ending}
            else:
                at = found.physical_offset - base if base >= 0 else found.physical_offset
                yield {"byte": at, **record_fields(found, body)}
    finally:
        source.close()


def _queue(files: ReadFiles, path: str, start: int) -> Iterator[dict[str, Any]]:
    base = parse_offset_name(os.path.basename(path)) or 0
    unit = UnitView()
    source = files.open_file(path)
    try:
        for position in range(start - start % UNIT_SIZE, source.size, UNIT_SIZE * 4096):
            data = source.pread(UNIT_SIZE * 4096, position)
            if data == bytes(len(data)):
                continue
            for at in range(0, len(data) - len(data) % UNIT_SIZE, UNIT_SIZE):
                unit.look_at(data, at)
                if unit.empty:
                    continue
                row = {"byte": position + at, "offset": (base + position + at) // UNIT_SIZE}
                row |= {
                    "physical_offset": int(unit.physical),
                    "size": int(unit.size),
                    "tags_code": int(unit.code),
                }
                yield row | ({"filler": True} if unit.size >= FILLER_FROM else {})
    finally:
        source.close()


def _index(files: ReadFiles, path: str, start: int, slots: int | None) -> Iterator[dict[str, Any]]:
    source = files.open_file(path)
    try:
        head = source.pread(HEADER_SIZE, 0)
        number = _slots_of(source, head, slots) if len(head) == HEADER_SIZE else 0
        if not number:
            raise StoreError(
                f"{path}: how many hash slots it has does not show; say --hash-slots N"
            )
        view = IndexView(path, source.size, head, number)
        yield {
            "byte": 0,
            "begin_ms": int(view.begin_ms),
            "end_ms": int(view.end_ms),
            "begin_physical": int(view.begin_physical),
            "end_physical": int(view.end_physical),
            "slots": number,
            "slots_used": int(view.slots_used),
            "next_entry": int(view.count),
        }
        first = max(1, (start - int(view.entries_at)) // ENTRY_SIZE)
        entry = IndexEntry()
        for number in range(first, int(view.end)):
            at = int(view.entry_at(number))
            entry.look_at(source.pread(ENTRY_SIZE, at), 0)
            yield {
                "byte": at,
                "entry": number,
                "hash": int(entry.key_hash),
                "physical_offset": int(entry.physical),
                "stored_ms": int(view.begin_ms + entry.seconds * 1000),
                "previous": int(entry.previous),
            }
    finally:
        source.close()


def _slots_of(source: ReadAt, head: bytes, slots: int | None) -> int:
    """Hash slots of an index file: by its first entry, its last one, or as given."""
    begin, end, count = (
        int.from_bytes(head[at:stop], "big", signed=True)
        for at, stop in ((16, 24), (24, 32), (36, 40))
    )
    known = slots or DEFAULT_SLOTS
    found = find_slots(source, 1, begin, -1, known)
    if not found and count > 1:
        found = find_slots(source, count - 1, end, -1, known)
    return found or (slots or 0)


def _timer_log(files: ReadFiles, path: str, start: int) -> Iterator[dict[str, Any]]:
    base = parse_offset_name(os.path.basename(path)) or 0
    source = files.open_file(path)
    try:
        at = start - start % TIMER_UNIT_SIZE
        while at + TIMER_UNIT_SIZE <= source.size:
            unit = unpack_unit(source.pread(TIMER_UNIT_SIZE, at), 0, base + at)
            if unit is None:
                return
            yield {
                "byte": at,
                "position": unit.position,
                "previous": unit.prev,
                "magic": unit.magic,
                "slot_ms": unit.slot_ms,
                "physical_offset": unit.offset,
                "size": unit.size,
                "due_ms": unit.due_ms,
            }
            at += TIMER_UNIT_SIZE
    finally:
        source.close()
