"""Messages with an arbitrary time of delivery: the timer, what recalls them, and what replicas ask of it."""

from roquette.base.executor import run_blocking
from roquette.base.exposition import MetricTable
from roquette.base.lifecycle import Tasks
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane
from roquette.broker.timers.delay_levels import DelayLevels
from roquette.broker.timers.delivered_copies import note_delivered
from roquette.broker.timers.delivery import Timers
from roquette.broker.timers.recall import RecallProcessor
from roquette.broker.timers.timer_loop import TimerLoop
from roquette.remoting.promises import Promise
from roquette.remoting.request import Row, row
from roquette.wire.codes import RequestCode
from roquette.wire.headers import RecallMessageRequestHeader

NO_TIMER = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}


class TimerFeature(Feature):
    """Drives the timer, if the broker has one.

    Args:
        delays: the delay levels, whose delivered copies are found in the same walk through the log.

    Attributes:
        timer: None: timerWheelEnable=false.
    """

    def __init__(self, core: BrokerCore, delays: DelayLevels) -> None:
        self._core = core
        self._delays = delays
        self.timer: TimerLoop | None = None
        if core.timer_store is not None:
            now_ms = core.clock.now_ms()
            timers = Timers(core.store, core.timer_store, core.writer, now_ms, core.delivered)
            self.timer = TimerLoop(core, timers)
        self._recall = RecallProcessor(core, self.timer)

    def rows(self) -> list[Row]:
        """What it serves."""
        recall, lane, nothing = self._recall, Lane.ADMIN, Promise.NOTHING
        return [
            row(
                RequestCode.RECALL_MESSAGE,
                recall.recall,
                RecallMessageRequestHeader,
                Lane.SEND,
                Promise.LOG,
            ),
            row(RequestCode.GET_TIMER_CHECK_POINT, recall.timer_checkpoint, None, lane, nothing),
            row(RequestCode.GET_TIMER_METRICS, recall.timer_metrics, None, lane, nothing),
        ]

    async def prepare(self) -> None:
        """Read the timer's files, and find out what was delivered after they were written."""
        await run_blocking(note_delivered, self._core.store, self._delays, self.timer)

    async def start(self, tasks: Tasks) -> None:
        """Begin to deliver."""
        if self.timer is not None:
            self.timer.start(tasks)

    def forget_topic(self, topic: str) -> None:
        """Its messages are not counted any more."""
        if self.timer is not None:
            self.timer.metrics.forget(topic)

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """How far the timer is behind, and its rates."""
        return NO_TIMER if self.timer is None else self.timer.runtime_info(now_ms)

    def measures(self, now_ms: int) -> list[MetricTable]:
        """What waits, and how late it is."""
        return [] if self.timer is None else self.timer.measures(now_ms)

    async def stop(self) -> None:
        """Wait for a write that is under way."""
        if self.timer is not None:
            await self.timer.finish()

    def save_now(self) -> None:
        """The last flush."""
        if self.timer is not None:
            self.timer.save_now(self._core.clock.now_ms())
