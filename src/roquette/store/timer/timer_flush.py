"""How the timer's files come to the disk, in an order that a crash at any moment leaves sound."""

from roquette.base.files import File, Files
from roquette.store.checkpoint import write_checkpoint
from roquette.store.timer.timer_checkpoint import TimerCheckpoint


class TimerFlushPlan:
    """Brings timer log, wheel and checkpoint to the disk, in this order. The commit log is there before."""

    def __init__(
        self,
        files: Files,
        touched: list[File],
        directories: list[str],
        wheel: tuple[str, int],
        pieces: list[tuple[int, bytes]],
        checkpoint_path: str,
        checkpoint: TimerCheckpoint,
        commit_end: int,
    ) -> None:
        self._files = files
        self._touched = touched
        self._directories = directories
        self._wheel_path, self._wheel_size = wheel
        self.pieces = pieces
        self._checkpoint_path = checkpoint_path
        self.checkpoint = checkpoint
        self.commit_end = commit_end  # the commit log must be synced up to here before `run`
        self.error: OSError | None = None

    def run(self) -> None:
        """Block until all is on the disk; an error is kept for `TimerStore.flushed`."""
        try:
            for file in self._touched:
                file.sync()
            for directory in self._directories:
                self._files.sync_dir(directory)
            if self.pieces:
                write_wheel(self._files, self._wheel_path, self._wheel_size, self.pieces)
            self._files.make_dirs(self._checkpoint_path.rpartition("/")[0])
            data = self.checkpoint.encode()
            write_checkpoint(self._files, self._checkpoint_path, data, len(data))
        except OSError as error:
            self.error = error


def write_wheel(files: Files, path: str, size: int, pieces: list[tuple[int, bytes]]) -> None:
    """Bring changed pages to the wheel's file, and sync it. Blocks."""
    known = files.exists(path)
    file = files.open_file(path, create=True)
    try:
        if file.size != size:
            file.truncate(size)  # without blocks, as Apache makes it
        for position, data in pieces:
            file.pwrite(data, position)
        file.sync()
    finally:
        file.close()
    if not known:
        files.sync_dir(path.rpartition("/")[0] or ".")
