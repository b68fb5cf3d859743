"""Runs what the store plans: flushes, allocation and deletion, on other threads."""

import logging

from roquette.base.executor import run_blocking
from roquette.base.lifecycle import Tasks
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.disk_watch import BEAT_S as DISK_BEAT_S
from roquette.broker.floor.feature import Beat, Feature, Lane
from roquette.errors import StoreError
from roquette.remoting.promises import Promise
from roquette.remoting.request import Outcome, Reply, RequestContext, Row, Task, row
from roquette.wire.codes import RequestCode

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


# Clean-up by request: queue files (306), queues of unknown topics (316), expired log files (329).
# Apache: AdminBrokerProcessor.cleanExpiredConsumeQueue, cleanUnusedTopic, deleteExpiredCommitLog.


log = logging.getLogger("roquette.broker")


class UpkeepProcessor(Feature):
    """Answers when the files are gone."""

    def __init__(self, core: BrokerCore) -> None:
        self._disk = core.disk
        self._saved = core.saved
        self._deletions = core.deletions

    def rows(self) -> list[Row]:
        """What it serves."""
        return [
            row(
                RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
                self.clean_queues,
                None,
                Lane.ADMIN,
                Promise.PROCESS,
            ),
            row(RequestCode.CLEAN_UNUSED_TOPIC, self.clean_topics, None, Lane.ADMIN, Promise.FILE),
            row(
                RequestCode.DELETE_EXPIRED_COMMITLOG,
                self.clean_log,
                None,
                Lane.ADMIN,
                Promise.PROCESS,
            ),
        ]

    def clean_queues(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """CLEAN_EXPIRED_CONSUMEQUEUE: queue and index files whose records the log no longer has."""
        return Task(self._clean(False))

    def clean_log(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """DELETE_EXPIRED_COMMITLOG: files older than fileReservedTime, at any hour."""
        log.info("expired files of the log are deleted on request by=%s", ctx.peer.remote)
        return Task(self._clean(True))

    async def _clean(self, log_too: bool) -> Reply:
        await self._disk.clean_manually(log_too)
        return Reply()

    def clean_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """CLEAN_UNUSED_TOPIC: queues of topics that are no longer configured."""
        gone = self._deletions.delete_unused_topics()
        if gone:
            log.info("queues of unknown topics dropped topics=%s", ",".join(gone))
        return self._saved.queues_dropped(gone, Reply())
