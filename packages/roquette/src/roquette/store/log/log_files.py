"""The commit log's files at start: opened, refused when some are gone, removed behind its end."""

import errno
import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from roquette.base.files import File, Files
from roquette.errors import StoreError
from roquette.message.record_layout import BLANK_MARK, BLANK_SIZE
from roquette.store.format.checkpoint import Checkpoint, load_timer_checkpoint, write_checkpoint
from roquette.store.format.layout import StoreLayout, offset_name, parse_offset_name
from roquette.store.format.log_mark import Vouched, begin_mark
from roquette.store.format.log_reader import FAULT, FILLED, RECORD, LogReader
from roquette.store.format.patch import MIN_FILLER, Patch
from roquette.store.format.segment import Segment
from roquette.store.log.commit_log import CommitLog

# Damaged stretches of the log: found by recovery, which looks beyond them, and filled as `roquette store repair` does.
# What lies before `Vouched.end` was there, so an unsound place in it is damage and not what a crash has torn: sound records behind it are kept, and those in front as well (docs/decisions/0015).


_WINDOW: Final = 1 << 20
REMEDY: Final = "`roquette store repair` makes a store of all that is sound"


def holds_record(file: File, base: int, nominal: int) -> bool:
    """Does any sound record stand in a file?"""
    reader = LogReader(file, base, True, nominal=nominal)
    while (found := reader.advance()) == FAULT:
        pass
    return found == RECORD


class Beyond:
    """Looks for what is sound behind a bad place, and remembers the holes.

    Args:
        vouched: what was there for sure.
        lenient: the log's end is known, and the walk is for what is derived: nothing is refused.
        fills: holes are to be filled; else the log ends at the first one.
    """

    def __init__(
        self, log_: CommitLog, vouched: Vouched, *, lenient: bool = False, fills: bool = True
    ) -> None:
        self._log = log_
        self._vouched = vouched
        self._lenient = lenient
        self._fills = fills
        self.holes: list[Patch] = []

    def past(self, offset: int, store_ms: int) -> int:
        """Return where the log goes on behind a bad place; the place itself: it ends there, a crash has torn it.

        Without a mark nobody knows what was on the disk: then a record behind counts when it is not older than the
        one before (`store_ms`). Apache's broker leaves such older ones behind the log's end (its issue 10666).

        Raises:
            StoreError: nothing is left of a file, or the hole is too small to be filled.
        """
        end = self._vouched.end
        if offset >= end and (self._vouched.known or self._lenient):
            return offset
        following = self._next_sound(offset, -1 if offset < end else store_ms)
        if following < 0 and offset >= end:
            return offset
        stop = end if following < 0 else following
        size = self._log.segment_size
        if not self._fills:
            self.holes.append(
                Patch(
                    offset - offset % size, offset % size, offset % size, "cut", "damaged", store_ms
                )
            )
            return offset
        while offset < stop:
            base = offset - offset % size
            until = min(stop, base + size)
            self._note(base, offset - base, until - base, store_ms, sound=until == following)
            offset = until
        return stop

    def _next_sound(self, offset: int, store_ms: int) -> int:
        start = offset + 1
        while (segment := self._log.find_segment(start)) is not None:
            position = start - segment.base_offset
            inside = position % segment.size > 0
            reader = LogReader(segment, segment.base_offset, True, position)
            if inside:
                reader.synchronize()
            while (found := reader.advance()) == FAULT:
                pass
            if found == RECORD:
                place = segment.base_offset + reader.position
                return int(place) if reader.store_ms >= store_ms else -1
            if reader.ending == FILLED and reader.blank_at >= 0:
                return int(segment.base_offset + reader.blank_at)
            start = segment.base_offset + segment.size
        return -1

    def _note(self, base: int, position: int, stop: int, store_ms: int, *, sound: bool) -> None:
        """Remember a hole of one file. `sound`: something sound follows in the file, or begins the next."""
        ends = stop == self._log.segment_size
        last = self.holes[-1] if self.holes else None
        if last is not None and (last.base, last.end) == (base, position):
            self.holes.pop()  # what followed the first part was unsound as well
            position = last.position
        if not self._lenient:
            path = os.path.join(self._log.directory, offset_name(base))
            if position == 0 and (ends or not sound):
                raise StoreError(
                    f"{path} holds no sound record, but the store had messages there. Nothing was changed. Put a "
                    f"good copy there; without one {REMEDY}"
                )
            if stop - position < (BLANK_SIZE if ends else MIN_FILLER):
                raise StoreError(
                    f"{path} is damaged at byte {position}, in a stretch too small to be filled. Nothing was "
                    f"changed. Put a good copy there; without one {REMEDY}"
                )
        how = "blank" if ends else "filler"
        self.holes.append(Patch(base, position, stop, how, "damaged", store_ms))


def fill_holes(files: Files, layout: StoreLayout, log_: CommitLog, holes: list[Patch]) -> None:
    """Keep what stands in the holes beside the store, then fill them. Raises OSError."""
    for hole in holes:
        segment = log_.find_segment(hole.base)
        assert segment is not None
        _keep(files, layout, segment, hole)
        for at in range(hole.position, hole.end, _WINDOW):
            segment.file.pwrite(bytes(min(_WINDOW, hole.end - at)), at)
        for at, data in hole.pieces():
            segment.file.pwrite(data, at)
        segment.file.sync()


def _keep(files: Files, layout: StoreLayout, segment: Segment, hole: Patch) -> None:
    target = os.path.join(layout.lost, offset_name(hole.base + hole.position))
    if files.exists(target) or is_zeros(segment, hole.position, hole.end):
        return
    files.make_dirs(layout.lost)
    files.sync_dir(layout.root)
    kept = files.open_file(target + ".tmp", create=True)
    try:
        for at in range(hole.position, hole.end, _WINDOW):
            data = segment.pread(min(_WINDOW, hole.end - at), at)
            kept.pwrite(data, at - hole.position)
        kept.sync()
    finally:
        kept.close()
    files.rename(target + ".tmp", target)
    files.sync_dir(layout.lost)


def is_zeros(segment: Segment, position: int, end: int) -> bool:
    """Is there nothing but zeros in a range of a file?"""
    for at in range(position, end, _WINDOW):
        data = segment.pread(min(_WINDOW, end - at), at)
        if data != bytes(len(data)):
            return False
    return True


log = logging.getLogger("roquette.store")

_ZEROS: Final = bytes(_WINDOW)


def load_segments(files: Files, layout: StoreLayout, segment_size: int) -> list[Segment]:
    """Open the files of the log, oldest first, as if they were full.

    A file of 0 bytes and a missing one are what a crash left of a creation that was never synced:
    the log ends there. Changes nothing.

    Raises:
        StoreError: a file has another size than configured.
    """
    segments: list[Segment] = []
    for name in log_names(files, layout):
        base = int(name)
        path = os.path.join(layout.commit_log, name)
        if segments and base != segments[-1].base_offset + segment_size:
            break
        file = files.open_file(path)
        size = file.size
        if size == 0:
            file.close()
            break
        if size != segment_size or base % segment_size:
            raise StoreError(
                f"{path} has {size} bytes, mappedFileSizeCommitLog is {segment_size}: set it back to the value this "
                f"store was made with, or put a good copy there, should it have been cut; without one {REMEDY}"
            )
        segments.append(Segment(file, base, segment_size, segment_size))
        file.rest()
    return segments


def log_names(files: Files, layout: StoreLayout) -> list[str]:
    """Names of the log's files, in order."""
    return [n for n in files.list_dir(layout.commit_log) if parse_offset_name(n) is not None]


def remove_behind(files: Files, layout: StoreLayout, count: int) -> None:
    """Remove the files of the log behind the first `count`, and what was made ahead."""
    for name in files.list_dir(layout.ahead):
        files.remove(os.path.join(layout.ahead, name))
    names = log_names(files, layout)[count:]
    for name in names:
        path = os.path.join(layout.commit_log, name)
        log.warning("recovery: removing %s, the log ends before it", path)
        file = files.open_file(path)
        file.truncate(0)  # should the name come back after another crash, then empty
        file.sync()
        file.close()
        files.remove(path)
    if names:
        files.sync_dir(layout.commit_log)


def refuse_lost_files(
    files: Files, layout: StoreLayout, log_: CommitLog, checkpoint: Checkpoint, vouched: Vouched
) -> None:
    """Raise StoreError when files of the log are gone that were on the disk: never start empty, never cut them off."""
    end = log_.end_offset
    missing: int | None = None
    headless = not log_.segments or log_.min_offset > vouched.begin
    if vouched.known and headless and vouched.end > vouched.begin:
        missing = vouched.begin
    elif end < vouched.end:
        missing = end
    elif not vouched.known:
        behind = [int(name) for name in log_names(files, layout) if int(name) >= end]
        sound = any(_is_sound(files, layout, one, log_.segment_size) for one in behind)
        empty = not log_.segments and (checkpoint.physical_ms > 0 or _has_units(files, layout))
        missing = end if sound or empty else None
    if missing is None:
        return
    path = os.path.join(layout.commit_log, offset_name(missing))
    raise StoreError(
        f"{path} is missing or empty, but the store had messages there. Nothing was changed. Put the commit "
        f"log's files back (storePathCommitLog names their directory); without them {REMEDY}; to begin anew, "
        f"empty {layout.root}"
    )


def _is_sound(files: Files, layout: StoreLayout, base: int, nominal: int) -> bool:
    file = files.open_file(os.path.join(layout.commit_log, offset_name(base)))
    try:
        return file.size > 0 and holds_record(file, base, nominal)
    finally:
        file.close()


def _has_units(files: Files, layout: StoreLayout) -> bool:
    """Does any consume queue know of a message?"""
    for topic in files.list_dir(layout.consume_queues):
        for queue in files.list_dir(layout.topic(topic)):
            directory = os.path.join(layout.topic(topic), queue)
            for name in files.list_dir(directory)[-1:]:
                if any(files.read_bytes(os.path.join(directory, name))):
                    return True
    return False


def wipe(segment: Segment, position: int) -> int:
    """Zeros from a position on, where there are none yet; returns the bytes overwritten. Synced."""
    wiped = 0
    while position < segment.size:
        size = min(_WINDOW, segment.size - position)
        data = segment.file.pread(size, position)
        if data != _ZEROS[: len(data)]:
            sound = data.rstrip(b"\0")
            segment.file.pwrite(bytes(len(sound)), position)
            wiped += len(sound)
        position += size
    if wiped:
        segment.file.sync()
    return wiped


# A log, or the end of one, that others do not have: kept beside the store, then vouched for no more.
# What a member of a group of replicas wrote and the group did not take, or what damage has made doubtful, is replaced by the group's bytes. It goes to `replaced/<first offset>-<end>`, a directory of pieces that are named as files of a log are; docs/formats/commit_log.md says how, and `roquette store` reads it. An end is copied, a whole log is moved. Retention deletes it, the oldest files first, when the disk needs the space.


_NO_PROPERTIES: Final = 2  # zeros that a record may rightly end in: the length of its properties


class KeptFile(NamedTuple):
    """A file of what was set aside. `modified_ms`: when it was last written."""

    modified_ms: int
    path: str
    size: int


def list_kept(files: Files, layout: StoreLayout, known: Iterable[KeptFile] = ()) -> list[KeptFile]:
    """List what was set aside, oldest first. `known`: files looked at before, which change no more. Raises OSError."""
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
    """Return the end of what was written to a file of the log; 0: nothing was."""
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
    """Return the end of a range's records: before the blank that fills the file, or the zeros that nobody wrote."""
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
