"""Syncs the journal of offsets beside the loop, one sync at a time: what is written meanwhile goes with the next."""

import asyncio
import logging

from roquette.base.executor import submit
from roquette.broker.files.offset_journal import OffsetJournal

log = logging.getLogger("roquette.broker")


class JournalSync:
    """Under SYNC_FLUSH each turn that has moved offsets asks for one."""

    def __init__(self, journal: OffsetJournal) -> None:
        self._journal = journal
        self._waiting: list[asyncio.Future[bool]] = []
        self._running = False
        self._due = False

    def request(self) -> None:
        """Sync soon what is written now."""
        self._due = True
        if not self._running:
            self._begin()

    def synced(self) -> "asyncio.Future[bool]":
        """Resolves when what is written now is on the disk; False: it is not."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.request()
        return future

    def _begin(self) -> None:
        self._running, self._due = True, False
        served, self._waiting = self._waiting, []

        def ended(sync: "asyncio.Future[None]") -> None:
            error = None if sync.cancelled() else sync.exception()
            if error is not None:
                log.error("journal of offsets not synced error=%s", error)
            for future in served:
                if not future.done():
                    future.set_result(error is None)
            self._running = False
            if self._due:
                self._begin()

        submit(self._journal.sync).add_done_callback(ended)
