"""Clean-ups operators ask for: queue files (306), topics nobody knows (316), expired log files (329).

Apache: AdminBrokerProcessor.cleanExpiredConsumeQueue, cleanUnusedTopic, deleteExpiredCommitLog.
"""

import logging
from collections.abc import Awaitable, Callable

from roquette.broker.tables.deletions import Deletions
from roquette.remoting.dispatcher import RequestContext
from roquette.remoting.outcomes import Outcome, Reply, Task

log = logging.getLogger("roquette.broker")


class UpkeepProcessor:
    """Answers when the files are gone.

    Args:
        clean_files: deletes expired files; with True those of the log too.
        dropped: the outcome that answers once it is noted whose queues went.
    """

    def __init__(
        self,
        deletions: Deletions,
        clean_files: Callable[[bool], Awaitable[None]],
        dropped: Callable[[list[str], Reply], Outcome],
    ) -> None:
        self._deletions = deletions
        self._dropped = dropped
        self._clean_files = clean_files

    def clean_queues(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """CLEAN_EXPIRED_CONSUMEQUEUE: queue and index files whose records the log no longer has."""
        return Task(self._clean(False))

    def clean_log(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """DELETE_EXPIRED_COMMITLOG: files older than fileReservedTime, at any hour."""
        log.info("expired files of the log are deleted on request by=%s", ctx.peer.remote)
        return Task(self._clean(True))

    async def _clean(self, log_too: bool) -> Reply:
        await self._clean_files(log_too)
        return Reply()

    def clean_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """CLEAN_UNUSED_TOPIC: queues of topics that are no longer configured."""
        gone = self._deletions.delete_unused_topics()
        if gone:
            log.info("queues of unknown topics dropped topics=%s", ",".join(gone))
        return self._dropped(gone, Reply())
