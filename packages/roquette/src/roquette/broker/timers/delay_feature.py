"""Delay levels: their progress in delayOffset.json, and the task that delivers."""

import asyncio

from roquette.base.lifecycle import Health, Tasks
from roquette.broker.floor.config_files import DELAYS, DelayProgress, Saver, SaveSteps
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, Start
from roquette.broker.floor.steps import run_steps
from roquette.broker.timers.delay_levels import DelayLevels
from roquette.remoting.outcomes import Reply
from roquette.remoting.promises import Promise
from roquette.remoting.request import RequestContext, Row, row
from roquette.wire.codes import RequestCode
from roquette.wire.json_body import encode_body

FIRST_S = 1.0


class DelayFeature(Feature):
    """Delivers what waits in the delay levels.

    Attributes:
        levels: the levels and how far each is.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self.levels = DelayLevels(
            core.store,
            core.writer,
            core.writer.delay_ms,
            core.clock.times,
            core.clock.now_ms(),
            core.delivered,
        )
        steps = SaveSteps(ready=core.log_sync.all_on_disk)  # progress speaks of copies in the log
        self._file = Saver(core.files, DELAYS, self.levels.to_wrapper, steps=steps)

    def rows(self) -> list[Row]:
        """What it serves."""
        return [
            row(
                RequestCode.GET_ALL_DELAY_OFFSET,
                self.all_delay_offsets,
                None,
                Lane.ADMIN,
                Promise.NOTHING,
            )
        ]

    def all_delay_offsets(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_ALL_DELAY_OFFSET: delayOffset.json of now, for a replica."""
        picture = self.levels.picture(self._core.store.max_physical_offset)
        return Reply(b"", encode_body(picture, java_keys=True))

    def beats(self) -> list[Beat]:
        """The file."""
        live = self._core.live
        return [
            Beat(
                "delay-offsets",
                lambda: live.current.flush_delay_offset_interval / 1000,
                self._save,
            )
        ]

    def load(self, start: Start) -> None:
        """Read the file."""
        progress = self._core.files.load(DELAYS, DelayProgress)
        if progress is None:
            self.levels.load_nothing()
        else:
            self.levels.load(progress.offset_table, progress.data_version, progress.log_offset)

    async def start(self, tasks: Tasks) -> None:
        """Deliver."""
        tasks.keep("delay-levels", self._deliver)

    async def _deliver(self, health: Health) -> None:
        await asyncio.sleep(FIRST_S)
        core = self._core
        await run_steps(
            self.levels.step, core.clock, core.shell.end_turn, "delayed messages wait", health
        )

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """Delivered offset and end of each level's queue."""
        return {
            f"scheduleMessageOffset_{level}": f"{delivered},{end}"
            for level, (delivered, end) in sorted(self.levels.progress().items())
        }

    async def _save(self) -> None:
        if self.levels.dirty:
            self.levels.capture(self._core.store.max_physical_offset)
            self._file.mark()
        await self._file.try_save()

    def save_now(self) -> None:
        """Write the file."""
        self.levels.capture(self._core.store.max_physical_offset)
        self._file.mark()
        self._file.try_save_now()
