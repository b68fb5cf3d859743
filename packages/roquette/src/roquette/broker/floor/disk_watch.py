"""Measures the disks on a beat, deletes expired files, counts what of them groups had not read, and gives refusals of a full
disk their text.

Apache: DefaultMessageStore.CleanCommitLogService, CleanConsumeQueueService.
"""

import asyncio
import logging
from typing import Final

from roquette.base.clock import Clock
from roquette.base.descriptors import NO_SPACE
from roquette.base.executor import run_blocking
from roquette.broker.floor.feature import paced
from roquette.broker.floor.stats import BrokerStats
from roquette.broker.floor.tables.offsets import OffsetTable
from roquette.message.names import is_users_group
from roquette.store.message_store import MessageStore
from roquette.store.upkeep.retention import DiskUsage
from roquette.store.upkeep.upkeep import DeletionPlan

_NAMED: Final = 20  # pairs of topic and group in the log, of one deletion


class Losses:
    """Compares where groups go on with where queues begin, after each deletion of files of the log."""

    def __init__(self, store: MessageStore, offsets: OffsetTable, stats: BrokerStats) -> None:
        self._store = store
        self._offsets = offsets
        self._stats = stats
        self._known: dict[tuple[str, int], int] = {}  # where queues began that a group was behind

    async def begin(self) -> None:
        """Take in what is gone at the start of the broker: it was counted before, or never is."""
        await self._look()

    async def count(self) -> None:
        """Files were just taken out of the log: no offset has moved since."""
        lost = sorted((await self._look()).items(), key=lambda entry: -entry[1])
        for (topic, group), number in lost:
            self._stats.lost(topic, group, number)
        for (topic, group), number in lost[:_NAMED]:
            log.warning(
                "deleted before it was read topic=%s group=%s messages=%d", topic, group, number
            )
        if len(lost) > _NAMED:
            log.warning("deleted before it was read by %d more groups", len(lost) - _NAMED)

    async def _look(self) -> dict[tuple[str, str], int]:
        store, known, lost = self._store, self._known, dict[tuple[str, str], int]()
        self._known = {}
        picture = self._offsets.to_wrapper(with_resets=False).offset_table  # groups read on
        async for key, places in paced(picture.items()):
            topic, _, group = key.partition("@")
            for queue, place in places.items() if is_users_group(group) else ():
                if place >= store.max_offset(topic, queue):
                    continue
                first = store.min_offset(topic, queue)
                if place < first:
                    self._known[topic, queue] = first
                    number = first - max(place, known.get((topic, queue), 0))
                    if number > 0:
                        lost[topic, group] = lost.get((topic, group), 0) + number
        return lost


log = logging.getLogger("roquette.broker")

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
        self._store.check_disk(root, log_usage, self._clock.now_ms())

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

    def usage(self) -> tuple[DiskUsage, DiskUsage]:
        """Total and free bytes of the commit log's disk and of the root's, now."""
        root, log_usage = self._store.disk.measure()
        return log_usage or root, root

    def ratios_text(self) -> str:
        """The used shares of the disks as Apache's refusal shows them (SendMessageProcessor.diskUtil)."""
        log_ratio, root_ratio = self._store.disk.ratios
        return f"CL: {log_ratio:5.2f} CQ: {root_ratio:5.2f} INDEX: {root_ratio:5.2f}"
