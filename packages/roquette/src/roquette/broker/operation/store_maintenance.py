"""Runs what the store plans: flushes, allocation and deletion, on other threads."""

from roquette.base.executor import run_blocking
from roquette.base.lifecycle import Tasks
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.disk_watch import BEAT_S as DISK_BEAT_S
from roquette.broker.floor.feature import Beat, Feature
from roquette.errors import StoreError

SHORT_BEAT_S = 0.1
ALLOCATION_BEAT_S = 0.2


class StoreMaintenance(Feature):
    """The beats of the store's files."""

    def __init__(self, core: BrokerCore) -> None:
        self._store = core.store
        self._files = core.disk_files
        self._clock = core.clock
        self._live = core.live
        self._log_sync = core.log_sync
        self._disk = core.disk

    def beats(self) -> list[Beat]:
        """The log's sync, queues and index, files that will be needed, space."""
        store = self._live.store
        return [
            Beat("sync-expiry", SHORT_BEAT_S, self._log_sync.expire),
            Beat("store-check", SHORT_BEAT_S, self.check),
            Beat("log-sync", store.flush_interval_ms / 1000, self._log_sync.request),
            Beat("queue-flush", store.queue_flush_interval_ms / 1000, self.flush_queues),
            Beat("allocation", ALLOCATION_BEAT_S, self.allocate),
            Beat("disk", DISK_BEAT_S, self._disk.look),
            Beat("retention", store.clean_interval_ms / 1000, self._disk.clean),
        ]

    async def start(self, tasks: Tasks) -> None:
        """See what is gone already of what groups have not read."""
        await self._disk.losses.begin()

    async def flush_queues(self) -> None:
        """Bring consume queues and index to the disk."""
        plan = self._store.plan_queue_flush(self._clock.steady_ms())
        if plan is not None:
            await run_blocking(plan.run)
            try:
                self._store.queues_flushed(plan)
            except StoreError as error:
                self._log_sync.abandon(str(error))

    async def allocate(self) -> None:
        """Make the files that will be needed next."""
        plan = self._store.plan_allocation()
        if plan is not None:
            await run_blocking(plan.run)
            self._store.allocated(plan)

    def check(self) -> None:
        """After a failed sync of any file the disk's content is unknown: accept nothing more."""
        error = self._files.sync_error or self._store.failure
        if error is not None:
            self._store.fail(f"the disk failed: {error}")
            self._log_sync.abandon(f"the disk failed: {error}")
