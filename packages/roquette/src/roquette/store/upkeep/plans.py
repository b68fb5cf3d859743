"""Blocking work the store hands to its driver: values go out, `run` blocks, values come back.

A plan touches no state of the store. Its `run` is called in the executor; the store learns of the
result when the driver hands the plan back on the loop.
"""

from collections.abc import Callable

from roquette.base.descriptors import SHORTAGE
from roquette.base.files import File, Files, zero_fill
from roquette.store.format.checkpoint import write_checkpoint
from roquette.store.format.log_mark import LogMark


class SyncPlan:
    """Sync the commit log up to `end_offset`."""

    __slots__ = (
        "_directory",
        "_files",
        "_mark",
        "_touched",
        "end_offset",
        "error",
        "physical_ms",
        "short",
    )

    def __init__(
        self,
        files: Files,
        touched: list[File],
        directory: str | None,
        end_offset: int,
        physical_ms: int,
        mark: LogMark | None = None,
    ) -> None:
        """`mark`: is synced too when there is a directory to sync: a log with a file is known to have one."""
        self._files = files
        self._mark = mark
        self._touched = touched
        self._directory = directory
        self.end_offset = end_offset
        self.physical_ms = physical_ms
        self.error: OSError | None = None
        self.short: OSError | None = None  # something could not be opened: run it again later

    @property
    def descriptor(self) -> int | None:
        """The file, when its sync is all there is to do; None when `run` must do more."""
        if self._directory is not None or len(self._touched) != 1:
            return None
        return self._touched[0].descriptor

    def run(self) -> None:
        """Block until the data is on the disk. An error is kept, not raised, and never retried:
        after a failed sync the system may have dropped the pages."""
        self.short = None
        try:
            for file in self._touched:
                file.sync()
            if self._directory is not None:
                self._files.sync_dir(self._directory)
                if self._mark is not None:
                    self._mark.note_synced(self.end_offset)
                    self._mark.sync()
        except OSError as error:
            if _is_shortage(error, self._files):
                self.short = error
            else:
                self.error = error


def _is_shortage(error: OSError, files: Files) -> bool:
    """Was a file not even opened for its sync? That is no failed sync: nothing was dropped."""
    return error.errno in SHORTAGE and files.sync_error is None


class QueueFlushPlan:
    """Sync consume queues and index, then move the checkpoint.

    When thorough, all records before `log_offset` have their queue units on the disk after it.
    """

    __slots__ = (
        "_checkpoint",
        "_directories",
        "_files",
        "_then",
        "_touched",
        "again",
        "error",
        "log_offset",
        "short",
        "thorough",
    )

    def __init__(
        self,
        files: Files,
        touched: list[File],
        directories: list[str],
        checkpoint: tuple[str, bytes] | None,
        log_offset: int,
        then: Callable[[], None] | None = None,
    ) -> None:
        """`checkpoint`: the file and its bytes. `then`: called when all is on the disk."""
        self._files = files
        self._then = then
        self._touched = touched
        self._directories = directories
        self._checkpoint = checkpoint
        self.log_offset = log_offset
        self.thorough = checkpoint is not None
        self.error: OSError | None = None
        self.short: OSError | None = None  # something could not be opened: run it again later
        self.again = False  # it was put off

    def run(self) -> None:
        """Block until all is on the disk. A topic deleted meanwhile is no error."""
        self.short = None
        try:
            for file in self._touched:
                file.sync()
            for directory in self._directories:
                if self._files.exists(directory):
                    self._files.sync_dir(directory)
            if self._checkpoint is not None:
                write_checkpoint(self._files, *self._checkpoint)
            if self._then is not None:
                self._then()
        except OSError as error:
            if _is_shortage(error, self._files):
                self.short = error
            else:
                self.error = error


class AllocationPlan:
    """Make the next commit log file ahead: blocks reserved, zeros written."""

    __slots__ = ("_directory", "_files", "_size", "error", "file", "offset", "path")

    def __init__(self, files: Files, directory: str, path: str, offset: int, size: int) -> None:
        self._files = files
        self._directory = directory
        self._size = size
        self.path = path
        self.offset = offset
        self.file: File | None = None
        self.error: OSError | None = None

    def run(self) -> None:
        """Block until the file is there. A full disk is no error yet: the roll will meet it."""
        try:
            self._files.make_dirs(self._directory)
            file = self._files.open_file(self.path, self._size, create=True)
            zero_fill(file, self._size)
            self.file = file
        except OSError as error:
            self.error = error
            self._files.remove(self.path)


class DeletionPlan:
    """Remove files that the store has already forgotten."""

    __slots__ = ("_files", "_mark", "done", "empties", "paths", "reason")

    def __init__(
        self, files: Files, paths: list[str], reason: str, mark: LogMark | None = None
    ) -> None:
        """`mark`: says where the log begins now, and is synced first: what is gone later is known to be missing."""
        self._files = files
        self.empties = False  # a directory goes with its last file
        self._mark = mark
        self.paths = paths
        self.reason = reason
        self.done = False

    def run(self) -> None:
        """Block until the files are removed. An OSError leaves the rest to the next plan.

        Durably and in order, or a power cut could leave an old file before a hole: the log would
        seem to end there.
        """
        if self._mark is not None:
            self._mark.sync()
        for path in self.paths:
            self._files.remove(path)
            directory = path.rpartition("/")[0]
            if self._files.exists(directory):
                self._files.sync_dir(directory)
                if self.empties and not self._files.list_dir(directory):
                    self._files.remove_tree(directory)
        self.done = True
