"""The commit log's files at start: opened, refused when some are gone, removed behind its end."""

import logging
import os
from typing import Final

from roquette.base.files import Files
from roquette.errors import StoreError
from roquette.store.format.checkpoint import Checkpoint
from roquette.store.format.layout import StoreLayout, offset_name, parse_offset_name
from roquette.store.format.log_mark import Vouched
from roquette.store.format.segment import Segment
from roquette.store.log.commit_log import CommitLog
from roquette.store.log.log_holes import REMEDY, holds_record

log = logging.getLogger("roquette.store")

_WINDOW: Final = 1 << 20
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
