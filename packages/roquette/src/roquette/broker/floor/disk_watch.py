"""Measures the disks on a beat, deletes expired files, and gives refusals of a full disk their text.

Apache: DefaultMessageStore.CleanCommitLogService, CleanConsumeQueueService.
"""

import asyncio
from typing import Final

from roquette.base.clock import Clock
from roquette.base.descriptors import NO_SPACE
from roquette.base.executor import run_blocking
from roquette.broker.floor.losses import Losses
from roquette.store.message_store import MessageStore
from roquette.store.upkeep.disk_guard import Usage
from roquette.store.upkeep.plans import DeletionPlan

BEAT_S: Final = 5.0  # messages are taken again so soon after there is space
MANUAL_CLEANINGS: Final = (
    20  # batches of files that one request deletes (MAX_MANUAL_DELETE_FILE_TIMES)
)


class DiskWatch:
    """The driver of one store's disk policy.

    Attributes:
        losses: counts what groups had not read of what is deleted.
    """

    def __init__(self, store: MessageStore, clock: Clock, losses: Losses) -> None:
        self._store = store
        self._clock = clock
        self.losses = losses
        self._cleaning = asyncio.Lock()

    async def look(self) -> None:
        """The beat: measure, and refuse or take messages by it."""
        root, log_usage = await run_blocking(self._store.disk.measure)
        self._store.check_disk(*root, log_usage, self._clock.now_ms())

    async def clean(self) -> None:
        """The beat of deletion."""
        await self._clean_once(manual=False)

    async def _clean_once(self, *, manual: bool) -> bool:
        """Delete what has expired, one batch; False when nothing had."""
        async with self._cleaning:
            root, log_usage = await run_blocking(self._store.disk.measure)
            plan = self._store.plan_retention(
                self._clock.now_ms(), root, manual, log_usage, self._clock.steady_ms()
            )
            if plan is not None:
                await self.losses.count()
                await run_blocking(self._delete, plan)
                await self.look()
            return plan is not None

    def _delete(self, plan: DeletionPlan) -> None:
        """Blocks. Some file systems need space for a deletion: then the reserve is given up."""
        try:
            plan.run()
        except OSError as error:
            if error.errno not in NO_SPACE or not self._store.disk.reserve.release():
                raise
            plan.run()

    async def clean_manually(self, log_too: bool) -> None:
        """An operator asks: expired files of the log (`log_too`), or of queues and index only."""
        if log_too:
            for _ in range(MANUAL_CLEANINGS):
                if not await self._clean_once(manual=True):
                    return
            return
        async with self._cleaning:
            plan = self._store.plan_queue_cleaning()
            if plan is not None:
                await run_blocking(self._delete, plan)

    def usage(self) -> tuple[Usage, Usage]:
        """Total and free bytes of the commit log's disk and of the root's, now."""
        root, log_usage = self._store.disk.measure()
        return log_usage or root, root

    def ratios_text(self) -> str:
        """The used shares of the disks as Apache's refusal shows them (SendMessageProcessor.diskUtil)."""
        log_ratio, root_ratio = self._store.disk.ratios
        return f"CL: {log_ratio:5.2f} CQ: {root_ratio:5.2f} INDEX: {root_ratio:5.2f}"
