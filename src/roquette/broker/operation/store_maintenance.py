"""What the store plans, done where it may take long: on other threads, between the turns of clients."""

from roquette.base.clock import Clock
from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.broker.operation.stats import BrokerStats
from roquette.broker.records.log_sync import LogSync
from roquette.errors import StoreError
from roquette.store.message_store import MessageStore
from roquette.store.queues.queue_read import QueueRead
from roquette.store.results import Found


class StoreWork:
    """The beats of the store's files; its log is `LogSync`'s, old files are `DiskWatch`'s."""

    def __init__(
        self, store: MessageStore, files: Files, clock: Clock, log_sync: LogSync, stats: BrokerStats
    ) -> None:
        self._store = store
        self._files = files
        self._clock = clock
        self._log_sync = log_sync
        self._stats = stats

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

    async def read_cold(self, read: QueueRead) -> Found:
        """Read messages that are not in memory."""
        began_ms = self._clock.steady_ms()
        found = await run_blocking(read.run)
        self._stats.get_durations.add(self._clock.steady_ms() - began_ms, 1)
        return found

    def check(self) -> None:
        """After a failed sync, of whatever file, nobody knows what the disk holds: nothing more is accepted."""
        error = self._files.sync_error or self._store.failure
        if error is not None:
            self._store.fail(f"the disk failed: {error}")
            self._log_sync.abandon(f"the disk failed: {error}")
