"""Clean-up by request: queue files (306), queues of unknown topics (316), expired log files (329).

Apache: AdminBrokerProcessor.cleanExpiredConsumeQueue, cleanUnusedTopic, deleteExpiredCommitLog.
"""

import logging

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane
from roquette.remoting.outcomes import Outcome, Reply, Task
from roquette.remoting.promises import Promise
from roquette.remoting.request import RequestContext, Row, row
from roquette.wire.codes import RequestCode

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
