"""The commit log's files at start: opened, refused when some are gone, removed behind its end."""

import logging
import os
from typing import Final

from roquette.base.files import File, Files
from roquette.errors import StoreError
from roquette.message.record_layout import BLANK_SIZE
from roquette.store.format.checkpoint import Checkpoint
from roquette.store.format.layout import StoreLayout, offset_name, parse_offset_name
from roquette.store.format.log_mark import Vouched
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
        """Where the log goes on behind a bad place; the place itself: it ends there, a crash has torn it.

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
