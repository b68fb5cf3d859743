"""A replica's timer: it keeps neither wheel nor timer log, only the place from which its next start takes messages again."""

from roquette.base.files import Files
from roquette.store.format.checkpoint import CHECKPOINT_SIZE, write_checkpoint
from roquette.store.format.layout import StoreLayout
from roquette.store.timer.timer_log import TimerLog


def begin_at(files: Files, layout: StoreLayout, timer_log: TimerLog, checkpoint: bytes) -> None:
    """The next start begins at a checkpoint, ours without a position in the timer log or Apache's 56 bytes. Blocks."""
    timer_log.load()
    if files.exists(layout.timer_wheel) or timer_log.segments:  # of a time as master
        files.remove(layout.timer_checkpoint)  # it vouches for them
        files.sync_dir(layout.config)
        files.remove(layout.timer_wheel)
    timer_log.drop()
    files.make_dirs(layout.config)
    data = checkpoint.ljust(CHECKPOINT_SIZE, b"\0")
    write_checkpoint(files, layout.timer_checkpoint, data, len(data))
