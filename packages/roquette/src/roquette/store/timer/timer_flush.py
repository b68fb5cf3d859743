"""How the timer's files come to the disk, in an order that a crash at any moment leaves sound."""

from dataclasses import dataclass

from roquette.base.files import File, Files
from roquette.store.format.checkpoint import write_checkpoint
from roquette.store.format.layout import StoreLayout
from roquette.store.format.timer_checkpoint import TimerCheckpoint


@dataclass(eq=False)
class TimerFlushPlan:
    """Brings timer log, wheel and checkpoint to the disk, in this order. The commit log is there before.

    Attributes:
        touched: files of the timer log. `directories`: to be synced behind them.
        pieces: positions and bytes of the wheel, which has `wheel_size` bytes.
        commit_end: the commit log must be synced up to here before `run`.
    """

    files: Files
    layout: StoreLayout
    touched: list[File]
    directories: list[str]
    wheel_size: int
    pieces: list[tuple[int, bytes]]
    checkpoint: TimerCheckpoint
    commit_end: int
    error: OSError | None = None

    def run(self) -> None:
        """Block until all is on the disk; an error is kept for `TimerStore.flushed`."""
        try:
            for file in self.touched:
                file.sync()
            for directory in self.directories:
                self.files.sync_dir(directory)
            if self.pieces:
                write_wheel(self.files, self.layout.timer_wheel, self.wheel_size, self.pieces)
            path = self.layout.timer_checkpoint
            self.files.make_dirs(path.rpartition("/")[0])
            data = self.checkpoint.encode()
            write_checkpoint(self.files, path, data, len(data))
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
