"""Syncs the commit log beside the loop, one sync at a time, and releases what waited for it.

What is appended while a sync runs goes with the next one: group commit. A sync that fails ends the store's
life: nothing that waits is acknowledged (Apache: GroupCommitService, PutMessageStatus.FLUSH_DISK_TIMEOUT).
"""

import asyncio
from typing import Final, Protocol

from roquette.base.clock import Clock
from roquette.base.executor import submit, sync_file
from roquette.errors import StoreError
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.outcomes import Later, Reply
from roquette.remoting.request import RequestContext
from roquette.store.log.durability import DurabilityGate
from roquette.store.message_store import MessageStore
from roquette.store.upkeep.plans import SyncPlan
from roquette.wire.codes import ResponseCode

SHORT_PAUSE_S: Final = 0.1


class Waiting:
    """A reply that waits for the disk, or a future that somebody awaits."""

    __slots__ = ("dispatcher", "future", "job", "reply")

    def __init__(
        self,
        dispatcher: Dispatcher | None,
        job: RequestContext | None,
        reply: Reply | None,
        future: "asyncio.Future[bool] | None" = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.job = job
        self.reply = reply
        self.future = future


class Shell(Protocol):
    """The broker, as its syncs see it."""

    def wake(self) -> None:
        """After every sync: readers may see more (SYNC_FLUSH)."""

    def fail(self, why: str) -> None:
        """The disk failed; called once."""


class LogSync:
    """Drives syncs.

    Args:
        timeout_ms: a reply waits so long at most (syncFlushTimeout)."""

    def __init__(self, store: MessageStore, clock: Clock, timeout_ms: int, shell: Shell) -> None:
        self._store = store
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._shell = shell
        self._gate: DurabilityGate[Waiting] = DurabilityGate(store.synced_offset)
        self._running: SyncPlan | None = None
        self._rest: asyncio.Future[None] | None = None  # of `finish`: no sync is running
        self._due = False
        self._broken = False

    def park(self, dispatcher: Dispatcher, job: RequestContext, later: Later) -> None:
        """Keep a reply until the log is on the disk up to its offset."""
        waiting = Waiting(dispatcher, job, later.reply)
        deadline = self._clock.steady_ms() + self._timeout_ms
        if not self._gate.wait(later.end_offset, waiting, deadline):
            dispatcher.answer(job, later.reply)

    async def wait(self, end_offset: int) -> bool:
        """Wait for the disk; False after the timeout.

        Raises:
            asyncio.CancelledError: the broker ends.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        deadline = self._clock.steady_ms() + self._timeout_ms
        if not self._gate.wait(end_offset, Waiting(None, None, None, future), deadline):
            return True
        self.kick()
        return await future

    def request(self) -> None:
        """Sync soon, whether or not anything waits: the beat of asynchronous flushing."""
        self._due = True
        self.kick()

    def kick(self) -> None:
        """Begin a sync when there is a reason and none is running. Runs at the end of every turn."""
        if self._running is not None or self._broken or not (self._due or len(self._gate)):
            return
        self._due = False
        try:
            plan = self._store.plan_sync()
        except StoreError as error:
            self.abandon(str(error))
            return
        if plan is None:  # all of it is there already
            self._flushed(self._store.synced_offset)
            return
        self._running = plan
        if not sync_file(plan.descriptor, self._ended):
            submit(plan.run).add_done_callback(self._ran)

    def _ran(self, future: "asyncio.Future[None]") -> None:
        if not future.cancelled():
            future.result()
            self._ended(None)

    def _ended(self, error: OSError | None) -> None:
        plan, self._running = self._running, None
        assert plan is not None
        if error is not None:
            plan.error = error
        try:
            end_offset = self._store.synced(plan)
        except StoreError as refusal:
            self.abandon(str(refusal))
        else:
            self._flushed(end_offset)
            if plan.short is None:
                self.kick()
            else:  # until files can be opened again
                self._due = True
                asyncio.get_running_loop().call_later(SHORT_PAUSE_S, self.kick)
        if self._rest is not None and not self._rest.done() and self._running is None:
            self._rest.set_result(None)

    def _flushed(self, end_offset: int) -> None:
        for waiting in self._gate.flushed(end_offset):
            self._release(waiting, None)
        self._shell.wake()

    def expire(self) -> None:
        """Answer what waited too long: FLUSH_DISK_TIMEOUT, with the header of success."""
        if len(self._gate):
            for waiting in self._gate.expire(self._clock.steady_ms()):
                self._release(waiting, ResponseCode.FLUSH_DISK_TIMEOUT)

    def abandon(self, why: str) -> None:
        """No sync will ever come: nothing that waits is acknowledged, and the broker must end."""
        if self._broken:
            return
        self._broken = True
        for waiting in self._gate.abandon():
            self._release(waiting, ResponseCode.SERVICE_NOT_AVAILABLE)
        self._shell.fail(why)

    def _release(self, waiting: Waiting, code: int | None) -> None:
        if waiting.future is not None and not waiting.future.done():
            waiting.future.set_result(code is None)
        if waiting.dispatcher is not None and waiting.job is not None:
            assert waiting.reply is not None
            if code is not None:
                waiting.reply.code = int(code)
                if code == ResponseCode.SERVICE_NOT_AVAILABLE:
                    waiting.reply.ext = b""
                    waiting.reply.remark = "service not available now: the broker's disk failed"
            waiting.dispatcher.answer(waiting.job, waiting.reply)

    async def finish(self) -> None:
        """Wait for the running sync, if any, and answer what it released."""
        while self._running is not None:
            self._rest = asyncio.get_running_loop().create_future()
            await self._rest
