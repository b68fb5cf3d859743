"""Taking what only a replica has into its master's store, while both brokers stand.

Outside of a group a master may lose what was not synced when the power went, though replicas have it: the same bytes at
the same offsets, so they are appended as they are. Queues and index get them at the next start, which is one after a
crash. A crash in between leaves a log that ends earlier; taking again finishes.
"""

from contextlib import closing
from typing import Final

from roquette.base import generations
from roquette.base.files import Files, ReadFiles
from roquette.errors import StoreError
from roquette.store.format.layout import REPLICAS_AHEAD, StoreLayout, offset_name
from roquette.store.format.log_reader import END, FILLED, RECORD, LogReader
from roquette.store.format.segment import Segment
from roquette.store.log.log_files import wipe
from roquette.store.offline.store_dir import LogFile, StoreDir

_WINDOW: Final = 1 << 20


def take_tail(
    reader: ReadFiles, files: Files, store: StoreDir, source: StoreDir
) -> tuple[int, int, int]:
    """Append what the log of `source` has behind the end of that of `store`: from where to where, and how many records.

    Raises:
        StoreError: they are not a master's and its replica's log, or there is nothing to take. OSError: call again.
    """
    for one in (store, source):
        if reader.file_size(f"{one.root}/roquetteMember.json") >= 0:
            raise StoreError(
                f"{one.root} is a group's, which compares logs itself: start its brokers"
            )
    begin, end = _end_of(reader, store), _end_of(reader, source)
    if not _same(reader, store, source, min(begin, end)):
        raise StoreError(
            f"the logs of {store.root} and {source.root} differ before offset {min(begin, end)}: one was not copied from the "
            "other, or the master has taken other messages since, and one log cannot hold both. Look at what the replica "
            f"has (roquette store export {source.root}), send again what is missed, and only then empty its store"
        )
    if end <= begin:
        raise StoreError(f"nothing to take: {source.root} ends at {end}, {store.root} at {begin}")
    tail = [one for one in source.log if begin < one.base + one.size and one.base < end]
    parts = [(one, *_walk(reader, source, one, max(begin - one.base, 0))) for one in tail]
    layout = StoreLayout(store.root, store.commit_log)
    files.open_file(layout.abort, create=True).close()
    files.sync_dir(layout.root)
    if files.exists(known := f"{layout.config}/{REPLICAS_AHEAD}"):
        generations.save(files, known, b"{}")  # who is ahead after this is found anew
    for file, high, _ in parts:
        _append(reader, files, layout, file, low=max(begin - file.base, 0), high=high)
    return begin, end, sum(count for *_, count in parts)


def _end_of(reader: ReadFiles, store: StoreDir) -> int:
    for file in reversed(store.log):
        end, _ = _walk(reader, store, file, 0)
        if end:
            return file.base + end
    return store.min_offset


def _walk(reader: ReadFiles, store: StoreDir, file: LogFile, start: int) -> tuple[int, int]:
    """Return where the records of a file end, and how many there are from a position on; each body by its CRC."""
    with closing(reader.open_file(file.path)) as source:
        walk = LogReader(source, file.base, True, start, nominal=store.segment_size)
        end, count, damaged = start, 0, -1
        while (found := walk.advance()) != END:
            if found != RECORD:
                damaged = walk.position
            elif damaged < 0:
                end, count = walk.following, count + 1
            else:
                raise StoreError(
                    f"{file.path} is damaged at byte {damaged}: roquette store fsck {store.root} says what to do"
                )
        return file.size if walk.ending == FILLED and damaged < 0 else end, count


def _same(reader: ReadFiles, store: StoreDir, source: StoreDir, end: int) -> bool:
    """Return True when both have the same bytes in the file of the log that has its end at `end`."""
    ours, theirs = store.file_of(end - 1), source.file_of(end - 1)
    if ours is None or theirs is None or (ours.base, ours.size) != (theirs.base, theirs.size):
        return False
    high = end - ours.base
    windows = ((min(_WINDOW, high - at), at) for at in range(0, high, _WINDOW))
    with (
        closing(reader.open_file(ours.path)) as one,
        closing(reader.open_file(theirs.path)) as other,
    ):
        return all(one.pread(*window) == other.pread(*window) for window in windows)


def _append(
    reader: ReadFiles, files: Files, layout: StoreLayout, part: LogFile, *, low: int, high: int
) -> None:
    """Bring the bytes of a file from `low` to `high` to the same place of the log, synced; behind them are zeros."""
    path = f"{layout.commit_log}/{offset_name(part.base)}"
    with (
        closing(reader.open_file(part.path)) as source,
        closing(files.open_file(path, part.size, create=True)) as target,
    ):
        for at in range(low, high, _WINDOW):
            target.pwrite(source.pread(min(_WINDOW, high - at), at), at)
        target.sync()
        wipe(Segment(target, part.base, part.size, part.size), high)
    files.sync_dir(layout.commit_log)
