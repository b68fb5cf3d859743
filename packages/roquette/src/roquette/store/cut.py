"""Taking away the end of a closed store's log, or all of it: what a replica does before it follows another master.

The order of writes: what goes is kept beside the store, synced; the next open becomes one after a crash, and nothing
vouches for what goes; only then the log is cut. A crash between any two leaves the old log, or the new one, and
cutting again finishes. What is derived from the log is made to fit by the ordinary recovery of the next open.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass

from roquette.base.files import Files
from roquette.errors import CorruptRecord, OffsetOutOfRange
from roquette.message.names import TIMER_TOPIC
from roquette.message.record import decode_record
from roquette.message.record_layout import BLANK_MARK, BLANK_SIZE
from roquette.message.record_view import RecordView
from roquette.store.audit.index_audit import SUMS
from roquette.store.format.checkpoint import Checkpoint, load_checkpoint, write_checkpoint
from roquette.store.format.config import StoreConfig
from roquette.store.format.layout import StoreLayout
from roquette.store.format.log_mark import begin_mark, load_vouched
from roquette.store.format.log_reader import END, RECORD
from roquette.store.log.commit_log import CommitLog
from roquette.store.log.log_files import (
    drop_timer,
    drop_timer_checkpoint,
    keep_replaced,
    list_kept,
    load_segments,
    remove_behind,
    set_aside,
    vouch_until,
    wipe,
)
from roquette.store.message_store import MessageStore

log = logging.getLogger("roquette.store")


@dataclass(frozen=True, slots=True)
class CutReport:
    """Result of `cut_log` or `drop_log`.

    Attributes:
        offset: where the log ends now. `end`: where it ended.
        kept: the directory with the bytes that went; empty when nothing went.
        timer_dropped: the timer's files spoke of what went, and are made again from the log.
    """

    offset: int
    end: int
    kept: str = ""
    timer_dropped: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """Recovery's view of a store before it is cut. `units`, `timers`: queue ends of what stays, in all and of the timer queue."""

    begin: int
    end: int
    boundary: bool
    units: int
    timers: int


def cut_log(files: Files, config: StoreConfig, offset: int) -> CutReport:
    """Let the log of a closed store end at a record boundary. Blocks.

    Raises:
        OffsetOutOfRange: the log does not have that boundary. StoreError: a process has the store, or it cannot be
        opened.
        OSError: no space to keep what goes, or a failed call: call again.
    """
    found = _look(files, config, offset)
    if offset >= found.end:
        return CutReport(found.end, found.end)
    if offset < found.begin or not found.boundary:
        raise OffsetOutOfRange(
            f"the commit log from {found.begin} to {found.end} has no record that begins at {offset}: not cut"
        )
    layout = StoreLayout(config.root_dir, config.commit_log_dir)
    lock = files.lock_file(layout.lock)
    try:
        segments = load_segments(files, layout, config.segment_size)
        commit_log = CommitLog(files, layout.commit_log, layout.ahead, config.segment_size)
        commit_log.install(segments)
        kept = keep_replaced(files, layout, commit_log, offset, found.end)
        timer = drop_timer(files, layout, offset, found.timers)
        checkpoint = load_checkpoint(files, layout.checkpoint)
        vouch_until(files, layout, checkpoint, found.begin, offset, found.units)
        # At least one file stays: without any, the next open would take the log for lost.
        stay = [one for one in segments if one.base_offset < offset] or segments[:1]
        wipe(stay[-1], offset - stay[-1].base_offset)
        for segment in segments:
            segment.file.close()
        remove_behind(files, layout, len(stay))
    finally:
        lock.release()
    log.warning(
        "commit log cut from=%d to=%d kept=%s timer_dropped=%s", found.end, offset, kept, timer
    )
    return CutReport(offset, found.end, kept, timer)


def _look(files: Files, config: StoreConfig, offset: int) -> _Found:
    """Recover the store and close it again."""
    store = MessageStore(config, files, b"")
    # Damage is not filled: filled, it would differ from the other replicas' bytes.
    report = store.open(0, fill_damage=False)
    try:
        begin, end = report.min_physical_offset, report.max_physical_offset
        boundary = store.record_at(offset) is not None
        if not boundary:
            # The log may end in front of a blank as well: the master's next record is in the next file then.
            room = config.segment_size - offset % config.segment_size
            blank = room.to_bytes(4, "big") + BLANK_MARK
            boundary = store.read_log(offset, offset + BLANK_SIZE) == blank
        units, timers = store.units_until(offset), store.units_until(offset, TIMER_TOPIC)
    finally:
        store.close(0)
    return _Found(begin, end, boundary, units, timers)


def drop_log(files: Files, config: StoreConfig) -> CutReport:
    """Take away the whole log of a closed store and what is derived from it. What has messages is set aside. Blocks.

    For a replica whose log ends before its master's begins: it begins anew. Calling again after a crash finishes.

    Raises:
        StoreError: a process has the store. OSError: a failed call: call again.
    """
    layout = StoreLayout(config.root_dir, config.commit_log_dir)
    files.make_dirs(layout.root)
    lock = files.lock_file(layout.lock)
    try:
        files.make_dirs(layout.commit_log)
        end = load_vouched(files, layout, load_checkpoint(files, layout.checkpoint)).end
        files.make_dirs(layout.config)
        drop_timer_checkpoint(files, layout)
        # The next open is one after a crash: queues of the old log may still be there, and do not say where the log ends.
        files.open_file(layout.abort, create=True).close()
        begin_mark(files, layout, 0, 0)  # first: from now on no file is missed
        write_checkpoint(files, layout.checkpoint, Checkpoint().encode())
        files.sync_dir(layout.root)
        kept = set_aside(files, layout, end)
        size = sum(one.size for one in list_kept(files, layout) if one.path.startswith(f"{kept}/"))
        log.warning(
            "commit log set aside root=%s to=%s bytes=%d, queues, index and timer files removed: it begins anew from "
            "its master's",
            *(layout.root, kept or "nowhere, it was empty", size if kept else 0),
        )
        remove_behind(files, layout, 0)
        files.remove(layout.timer_wheel)
        files.remove(os.path.join(layout.root, SUMS))
        files.remove(layout.index_building)
        for tree in (layout.consume_queues, layout.index, layout.timer_log):
            if files.exists(tree):
                files.remove_tree(tree)
        files.sync_dir(layout.root)
    finally:
        lock.release()
    return CutReport(0, end, kept)


# Messages the broker has put again on its own account, found in the log after a crash.
# A delayed message is delivered as a copy. The copy's prepared offset, which only transactions use otherwise, says where its original stands: -1 less the original's physical offset, a number no transaction has. So the log itself knows what was delivered: progress files may lag behind it, and yet nothing is delivered twice.


def copy_mark(physical_offset: int) -> int:
    """The prepared offset of a copy of the record at a physical offset."""
    return -1 - physical_offset


@dataclass(slots=True, frozen=True)
class Copy:
    """One copy: which message of which queue it delivers, and when it was stored."""

    topic: str
    queue_id: int
    queue_offset: int
    store_ms: int


def scan_delivery_marks(store: MessageStore, start: int) -> Iterator[Copy]:
    """Every copy whose original the log still has, from a record boundary on. Blocks."""
    for reader in store.log_readers(start):
        while (found := reader.advance()) != END:
            if found == RECORD and (copy := _copy_of(store, reader)) is not None:
                yield copy


def _copy_of(store: MessageStore, view: RecordView) -> Copy | None:
    prepared = view.prepared_offset()
    if prepared >= 0:
        return None
    data = store.record_at(-1 - prepared)
    if data is None:
        return None
    try:
        original = decode_record(data, 0, False)
    except CorruptRecord:
        return None
    return Copy(original.topic, original.queue_id, original.queue_offset, view.store_ms)


class DeliveredBitmap:
    """Set of the messages of one queue that are delivered: a bit each."""

    __slots__ = ("_base", "_bits", "count", "last_ms")

    def __init__(self, first: int, end: int) -> None:
        """For queue offsets from `first` to before `end`."""
        self._base = first
        self._bits = bytearray((max(0, end - first) + 7) // 8)
        self.count = 0
        self.last_ms = 0  # store time of the latest copy

    def add(self, queue_offset: int, store_ms: int) -> None:
        """One is. Offsets outside the range are of no interest."""
        place = queue_offset - self._base
        if 0 <= place < 8 * len(self._bits):
            self._bits[place >> 3] |= 1 << (place & 7)
            self.count += 1
            self.last_ms = max(self.last_ms, store_ms)

    def __contains__(self, queue_offset: int) -> bool:
        place = queue_offset - self._base
        return 0 <= place < 8 * len(self._bits) and bool(self._bits[place >> 3] >> (place & 7) & 1)
