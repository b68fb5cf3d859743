"""A log, or the end of one, that others do not have: kept beside the store, then vouched for no more.

What a member of a group of replicas wrote and the group did not take, or what damage has made doubtful, is replaced by
the group's bytes. It goes to `replaced/<first offset>-<end>`, a directory of pieces that are named as files of a log
are; docs/formats/commit_log.md says how, and `roquette store` reads it. An end is copied, a whole log is moved.
Retention deletes it, the oldest files first, when the disk needs the space.
"""

import errno
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from roquette.base.files import Files
from roquette.message.record_layout import BLANK_MARK, BLANK_SIZE
from roquette.store.format.checkpoint import Checkpoint, load_timer_checkpoint, write_checkpoint
from roquette.store.format.layout import StoreLayout, offset_name, parse_offset_name
from roquette.store.format.log_mark import begin_mark
from roquette.store.format.segment import Segment
from roquette.store.log.commit_log import CommitLog
from roquette.store.log.log_files import log_names

_WINDOW: Final = 1 << 20
_NO_PROPERTIES: Final = 2  # zeros that a record may rightly end in: the length of its properties


class KeptFile(NamedTuple):
    """A file of what was set aside. `modified_ms`: when it was last written."""

    modified_ms: int
    path: str
    size: int


def list_kept(files: Files, layout: StoreLayout, known: Iterable[KeptFile] = ()) -> list[KeptFile]:
    """What was set aside, oldest first. `known`: files that were looked at before: they change no more. Raises OSError."""
    before = {one.path: one for one in known}
    places = [os.path.join(layout.replaced, one) for one in files.list_dir(layout.replaced)]
    pieces = [(place, one) for place in places for one in files.list_dir(place)]
    paths = [os.path.join(*one) for one in pieces if parse_offset_name(one[1]) is not None]
    found = [
        before.get(path) or KeptFile(files.modified_ms(path), path, files.file_size(path))
        for path in paths
    ]
    return sorted(found)


def set_aside(files: Files, layout: StoreLayout, vouched: int) -> str:
    """Move the whole log of a closed store to `replaced`; where it is, "" when none of its files has a message.

    `vouched`: where it ends, as its mark says, which a name then says, too.

    The newest file goes first, and each is on the disk before the next: a crash leaves a log that begins where it did
    and ends earlier, and calling again moves the rest to the same directory. Raises OSError.
    """
    names, end = log_names(files, layout), 0
    while names and not (end := _end_of(files, layout, names[-1])):
        names.pop()
    if not names:
        return ""
    end = vouched if 0 <= end - vouched <= _NO_PROPERTIES else end
    directory = _directory_for(files, layout, names, end)
    files.make_dirs(directory)
    files.sync_dir(os.path.dirname(layout.replaced))
    files.sync_dir(layout.replaced)
    for name in reversed(names):
        source, target = os.path.join(layout.commit_log, name), os.path.join(directory, name)
        try:
            files.rename(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:  # the log's directory is a mount
                raise
            file = files.open_file(source)
            _copy(files, target, Segment(file, 0, file.size, file.size), 0, file.size)
            file.close()
            files.sync_dir(directory)
            files.remove(source)
        files.sync_dir(directory)
        files.sync_dir(layout.commit_log)
    return directory


def _end_of(files: Files, layout: StoreLayout, name: str) -> int:
    """Where what was written to a file of the log ends; 0: nothing was."""
    file = files.open_file(os.path.join(layout.commit_log, name))
    try:
        size = file.size
        written = _written(Segment(file, int(name), size, size), 0, size) if size else 0
        return int(name) + written if written else 0
    finally:
        file.close()


def _directory_for(files: Files, layout: StoreLayout, names: list[str], end: int) -> str:
    """The one that a crash has left half filled: of the same begin, and with none of these files; else a new one."""
    known = [one for one in files.list_dir(layout.replaced) if one.startswith(f"{names[0]}-")]
    for one in known:
        if not set(names) & set(files.list_dir(os.path.join(layout.replaced, one))):
            return os.path.join(layout.replaced, one)
    name, number = f"{names[0]}-{offset_name(end)}", 1
    while name in known:
        number += 1
        name = f"{names[0]}-{offset_name(end)}.{number}"
    return os.path.join(layout.replaced, name)


def keep_replaced(files: Files, layout: StoreLayout, log: CommitLog, start: int, end: int) -> str:
    """Copy the log's bytes of a range, on the disk when this returns; the directory, empty when there are none.

    With an `end` at the end of a file, all of it is kept that is not zeros. Raises OSError.
    """
    pieces: list[tuple[Segment, int, int]] = []
    for segment in log.segments:
        low = max(start - segment.base_offset, 0)
        high = _written(segment, low, min(end - segment.base_offset, segment.size))
        if low < high:
            pieces.append((segment, low, high))
    if not pieces:
        return ""
    last, _, high = pieces[-1]
    name = f"{offset_name(start)}-{offset_name(last.base_offset + high)}"
    directory, number = os.path.join(layout.replaced, name), 1
    while files.exists(directory):
        if _holds(files, directory, pieces):  # a crash came between this and the cut
            return directory
        number += 1
        directory = os.path.join(layout.replaced, f"{name}.{number}")
    files.make_dirs(directory)
    try:
        for segment, low, high in pieces:
            _copy(files, _path(directory, segment, low), segment, low, high)
    except OSError:
        files.remove_tree(directory)
        raise
    for one in (directory, layout.replaced, layout.root):
        files.sync_dir(one)
    return directory


def _copy(files: Files, path: str, segment: Segment, low: int, high: int) -> None:
    kept = files.open_file(path, create=True)
    try:
        for at in range(low, high, _WINDOW):
            kept.pwrite(segment.file.pread(min(_WINDOW, high - at), at), at - low)
        kept.sync()
    finally:
        kept.close()


def _path(directory: str, segment: Segment, low: int) -> str:
    return os.path.join(directory, offset_name(segment.base_offset + low))


def _written(segment: Segment, low: int, high: int) -> int:
    """Where the records of a range end: before the blank that fills the file, or the zeros that nobody wrote."""
    if high < segment.size:
        return high
    end = high
    while end > low:
        begin = max(low, end - _WINDOW)
        sound = segment.file.pread(end - begin, begin).rstrip(b"\0")
        if sound:
            end = begin + len(sound)
            break
        end = begin
    blank = segment.file.pread(BLANK_SIZE, end - BLANK_SIZE) if end - BLANK_SIZE >= low else b""
    rest: int = segment.size - end + BLANK_SIZE
    if blank == rest.to_bytes(4, "big") + BLANK_MARK:
        return end - BLANK_SIZE
    return min(end + _NO_PROPERTIES, high) if end > low else low


def _holds(files: Files, directory: str, pieces: list[tuple[Segment, int, int]]) -> bool:
    """Does a directory hold exactly these pieces?"""
    for segment, low, high in pieces:
        path = _path(directory, segment, low)
        if not files.exists(path):
            return False
        file = files.open_file(path)
        try:
            if file.size != high - low:
                return False
            for at in range(low, high, _WINDOW):
                size = min(_WINDOW, high - at)
                if file.pread(size, at - low) != segment.file.pread(size, at):
                    return False
        finally:
            file.close()
    return True


def vouch_until(
    files: Files, layout: StoreLayout, checkpoint: Checkpoint, begin: int, end: int, units: int
) -> None:
    """Let the next open be one after a crash that trusts nothing from `end` on, and misses nothing there.

    `begin`: where the log begins. `units`: the queues' ends together, of records before `end`; -1: not known.
    Raises OSError.
    """
    files.open_file(layout.abort, create=True).close()
    files.sync_dir(layout.root)
    lower = replace(
        checkpoint,
        physical_ms=0,  # of records that go
        logical_ms=0,
        index_ms=0,
        log_synced=min(checkpoint.log_synced, end),
        queues_synced=min(checkpoint.queues_synced, end),
        logical_offset=min(checkpoint.logical_offset, end),
        queue_ends=units,
    )
    write_checkpoint(files, layout.checkpoint, lower.encode())
    begin_mark(files, layout, begin, end)


def drop_timer(files: Files, layout: StoreLayout, offset: int, timers: int = -1) -> bool:
    """Remove the timer's checkpoint if its files may speak of what goes: the timer is made again from the log then.

    `timers`: messages of the timer queue before `offset`; -1: not known. Raises OSError.
    """
    known = load_timer_checkpoint(files, layout.timer_checkpoint)
    if known is None or (known.commit_offset <= offset and known.queue_offset <= timers):
        return False
    drop_timer_checkpoint(files, layout)
    return True


def drop_timer_checkpoint(files: Files, layout: StoreLayout) -> None:
    """Remove it, for good. Raises OSError."""
    files.remove(layout.timer_checkpoint)
    files.sync_dir(layout.config)
