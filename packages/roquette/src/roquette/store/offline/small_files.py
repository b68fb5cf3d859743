"""The store's small files: JSON, checkpoint, delay offsets, abort."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from roquette.base.files import ReadFiles, read_all
from roquette.base.generations import SUMS, parse_marks
from roquette.errors import RemoteProtocolError, StoreError
from roquette.message.fastjson import NotJson, read_json
from roquette.message.names import SCHEDULE_TOPIC
from roquette.store.audit.findings import NOTE, Findings, finding
from roquette.store.format.checkpoint import Checkpoint, decode_checkpoint
from roquette.store.offline.store_dir import StoreDir

JSON_LIMIT: Final = 256 << 20
_LATER_MS: Final = 1 << 42  # the year 2109: no store time is behind it


def load_json(files: ReadFiles, path: str) -> dict[str, Any] | None:
    """The object in a JSON file; None when the file is missing.

    Raises:
        StoreError: it is no JSON object: says at which byte.
    """
    if files.file_size(path) < 0:
        return None
    data = read_all(files, path, JSON_LIMIT)
    try:
        found = read_json(data)
    except NotJson as error:
        raise StoreError(f"{path} byte {error.position}: {error.reason}") from None
    except RemoteProtocolError as error:
        raise StoreError(f"{path} byte 0: {error}") from None
    if not isinstance(found, dict):
        raise StoreError(f"{path} byte 0: not a JSON object")
    return found


def topics_of(files: ReadFiles, store: StoreDir) -> dict[str, Any] | None:
    """The topics of config/topics.json; None when it cannot be read."""
    try:
        found = load_json(files, f"{store.config}/topics.json")
    except StoreError:
        return None
    table = (found or {}).get("topicConfigTable")
    return table if isinstance(table, dict) else None


def _table_of(value: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, inner in (value if isinstance(value, dict) else {}).items():
        if isinstance(inner, dict):
            found[name] = {
                queue: offset for queue, offset in inner.items() if isinstance(offset, int)
            }
    return found


def read_checkpoint(files: ReadFiles, store: StoreDir) -> Checkpoint | None:
    """The checkpoint; None when there is none."""
    if files.file_size(store.checkpoint) < 0:
        return None
    return decode_checkpoint(read_all(files, store.checkpoint, 4096))


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts of the log, for those that speak of it.

    Attributes:
        end: physical offset behind the last record. `max_ms`: the newest store time, 0: no records.
        queue_ends: (topic, queue id) -> the queue offset the next message gets.
        sure: the whole log was looked at.
    """

    end: int
    max_ms: int
    queue_ends: Mapping[tuple[str, int], int]
    sure: bool


def check_small_files(files: ReadFiles, store: StoreDir, facts: LogFacts, found: Findings) -> None:
    """Compare what the small files say with the log and the queues."""
    if files.file_size(store.abort) >= 0:
        words = "the broker was not stopped cleanly, or it is running"
        found.add(finding("abort", store.abort, -1, words, NOTE))
    _check_checkpoint(files, store, facts, found)
    tables: dict[str, dict[str, Any] | None] = {}
    for name in files.list_dir(store.config):
        if not name.endswith(".json") and name != "timermetrics":
            continue
        path = f"{store.config}/{name}"
        try:
            tables[name] = load_json(files, path)
            if changed_unwritten(files, path):
                words = "its bytes have changed since they were written (checksum)"
                found.add(finding("json", path, -1, words))
        except StoreError as error:
            where = re.search(r" byte (\d+): (.*)", str(error))
            position, words = (int(where[1]), where[2]) if where else (0, str(error))
            spare = f"; {name}.bak is there" if files.file_size(path + ".bak") >= 0 else ""
            found.add(finding("json", path, position, f"not readable: {words}{spare}"))
    _check_offsets(store, tables.get("consumerOffset.json"), facts, found)
    _check_delays(store, tables.get("delayOffset.json"), facts, found)


def changed_unwritten(files: ReadFiles, path: str) -> bool:
    """Is this a file of ours whose bytes are not those we wrote, though nobody wrote since? (base.generations)"""
    if files.file_size(path + SUMS) < 0:
        return False
    marks = parse_marks(read_all(files, path + SUMS, JSON_LIMIT).decode("ascii", "replace"))
    data = read_all(files, path, JSON_LIMIT)
    if any(mark.matches(data) for mark in marks):
        return False
    written_ms = files.modified_ms(path)
    return any(0 < mark.modified_ms == written_ms for mark in marks)


def _check_checkpoint(files: ReadFiles, store: StoreDir, facts: LogFacts, found: Findings) -> None:
    size = files.file_size(store.checkpoint)
    if size < 0:
        if facts.max_ms and not store.dledger:
            words = "there is no checkpoint: the broker looks at the whole log at its next start"
            found.add(finding("checkpoint", store.checkpoint, -1, words, NOTE))
        return
    if size < 48:
        words = f"a checkpoint of {size} bytes"
        found.add(finding("checkpoint", store.checkpoint, 0, words))
        return
    checkpoint = decode_checkpoint(read_all(files, store.checkpoint, 4096))
    raw = read_all(files, store.checkpoint, 48)
    for at, name, value in (
        (0, "the log", checkpoint.physical_ms),
        (8, "the queues", checkpoint.logical_ms),
        (16, "the index", checkpoint.index_ms),
    ):
        if raw[at] & 0x80:
            found.add(finding("checkpoint", store.checkpoint, at, f"{name}'s time is below 0"))
        elif value > _LATER_MS:
            words = f"{name}'s time {value} is no time of this century"
            found.add(finding("checkpoint", store.checkpoint, at, words))
        elif value > facts.max_ms and facts.sure and store.log:
            words = f"{name} was synced up to {value}, the log's newest record is of {facts.max_ms}: its end is lost"
            found.add(finding("checkpoint", store.checkpoint, at, words))
    if checkpoint.logical_offset > facts.end and facts.sure and store.log:
        words = f"queues were synced up to offset {checkpoint.logical_offset}, the log ends at {facts.end}"
        found.add(finding("checkpoint", store.checkpoint, 40, words))


def _check_offsets(
    store: StoreDir, table: dict[str, Any] | None, facts: LogFacts, found: Findings
) -> None:
    path = f"{store.config}/consumerOffset.json"
    for name, queues in _table_of((table or {}).get("offsetTable")).items():
        topic, _, group = name.partition("@")
        for queue, offset in queues.items():
            end = facts.queue_ends.get((topic, int(queue))) if queue.isdecimal() else None
            if end is not None and offset > end:
                words = f"group {group} has consumed {topic}/{queue} up to {offset}, the queue ends at {end}"
                found.add(finding("offset_beyond", path, -1, words))
            elif offset < -1:
                words = f"group {group} has offset {offset} in {topic}/{queue}"
                found.add(finding("offset_beyond", path, -1, words))


def _check_delays(
    store: StoreDir, table: dict[str, Any] | None, facts: LogFacts, found: Findings
) -> None:
    path = f"{store.config}/delayOffset.json"
    offsets = (table or {}).get("offsetTable")
    for level, offset in (offsets if isinstance(offsets, dict) else {}).items():
        if not level.isdecimal() or not isinstance(offset, int):
            continue
        end = facts.queue_ends.get((SCHEDULE_TOPIC, int(level) - 1))
        if end is not None and offset > end:
            words = f"delay level {level} was delivered up to {offset}, its queue ends at {end}"
            found.add(finding("offset_beyond", path, -1, words))
