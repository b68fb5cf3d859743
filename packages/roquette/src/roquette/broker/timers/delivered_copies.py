"""After a start: which delayed messages the log already has a delivered copy of."""

from roquette.broker.timers.delay_levels import DelayLevels
from roquette.broker.timers.timer_loop import TimerLoop
from roquette.store.delivery_marks import scan_delivery_marks
from roquette.store.message_store import MessageStore


def note_delivered(store: MessageStore, delays: DelayLevels, timer: TimerLoop | None) -> None:
    """Timer and delay levels take note of what they delivered after their files were written. Blocks."""
    if timer is not None:
        timer.recover()
    timers = timer.timers.storage if timer is not None else None
    starts = [delays.scan_from] if delays.scan_from >= 0 else []
    if timers is not None:
        starts.append(timers.commit_from)
    for copy in scan_delivery_marks(store, min(starts, default=store.max_physical_offset)):
        delays.note_copy(copy)
        if timers is not None:
            timers.note_copy(copy)
