"""Syncs the commit log beside the loop, one sync at a time, and releases what waited for it, or for replicas.

What is appended while a sync runs goes with the next one: group commit. A sync that fails ends the store's
life: nothing that waits is acknowledged (Apache: GroupCommitService, PutMessageStatus.FLUSH_DISK_TIMEOUT).
"""

import asyncio
from typing import Final, Protocol

from roquette.base.clock import Clock
from roquette.base.executor import submit, sync_file
from roquette.broker.floor.config import LiveConfig
from roquette.errors import StoreError
from roquette.remoting.account import WAITING
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.request import Later, Reply, RequestContext
from roquette.store.format.config import FlushDiskType
from roquette.store.log.commit_log import NEVER, DurabilityGate
from roquette.store.message_store import MessageStore
from roquette.store.upkeep.upkeep import SyncPlan
from roquette.wire.codes import RequestCode, ResponseCode

SHORT_PAUSE_S: Final = 0.1
SENDS: Final = frozenset(
    {
        int(RequestCode.SEND_MESSAGE),
        int(RequestCode.SEND_MESSAGE_V2),
        int(RequestCode.SEND_BATCH_MESSAGE),
    }
)
"""Requests whose answers tell how safe a message is."""


class Waiting:
    """A reply that waits, or a future that somebody awaits."""

    __slots__ = ("dispatcher", "end_offset", "future", "job", "reply", "size")

    def __init__(
        self,
        end_offset: int,
        dispatcher: Dispatcher | None,
        job: RequestContext | None,
        reply: Reply | None,
        future: "asyncio.Future[int] | None" = None,
        size: int = 0,
    ) -> None:
        self.end_offset = end_offset
        self.dispatcher = dispatcher
        self.job = job
        self.reply = reply
        self.future = future
        self.size = size  # of what was sent


class SyncedBroker(Protocol):
    """The broker, as its syncs see it."""

    def wake(self) -> None:
        """After every sync: readers may see more (SYNC_FLUSH)."""

    def fail(self, why: str) -> None:
        """The disk failed; called once."""


class ReplicaState:
    """Kept by the feature that replicates, read where messages are taken in.

    Attributes:
        waits: answers wait until replicas have what they speak of (brokerRole SYNC_MASTER).
        refusal: why messages are refused now; None: they are not.
        receipt: the code of an answer to a send that waited for replicas: 0, or SLAVE_NOT_AVAILABLE while a group's master
            is alone in the set. `LogSync` reads it when the answer leaves.
    """

    __slots__ = ("receipt", "refusal", "waits")

    def __init__(self, live: LiveConfig) -> None:
        self.waits: bool = live.current.broker_role == "SYNC_MASTER"
        self.refusal: str | None = None
        self.receipt: int = 0


class LogSync:
    """Drives syncs, and keeps answers until what they speak of is as safe as they promise.

    Under SYNC_FLUSH that is on the disk, as a SYNC_MASTER with the replicas too (`replicated`).
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        live: LiveConfig,
        replicas: ReplicaState,
        shell: SyncedBroker,
    ) -> None:
        self._store = store
        self._clock = clock
        self._live = live
        self._shell = shell
        self._sync_flush = live.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._replicas = replicas
        self._replicated = 0 if replicas.waits else NEVER
        self._disk: DurabilityGate[Waiting] = DurabilityGate(store.synced_offset)
        self._answers: DurabilityGate[Waiting] = DurabilityGate(self._safe_offset())
        self._running: SyncPlan | None = None
        self._began_ms = 0  # steady time, of that
        self.syncs = 0  # that have ended well, since the start,
        self.sync_ms = 0  # and how long they took together
        self._rest: asyncio.Future[None] | None = None  # of `finish`: a sync has ended
        self._due = False
        self._broken = False
        self.in_flight = 0  # bytes of the requests whose replies wait
        self.full = False  # those are too many: sends are refused for now

    def _safe_offset(self) -> int:
        """Return the end of the log that is as safe as answers promise."""
        disk = self._store.synced_offset if self._sync_flush else NEVER
        return min(disk, self._replicated)

    def _deadline(self) -> int:
        store, current = self._live.store, self._live.current
        disk = store.sync_flush_timeout_ms if self._sync_flush else 0
        replicas = current.slave_timeout if self._replicated != NEVER else 0
        return self._clock.steady_ms() + max(disk, replicas)

    def park(self, dispatcher: Dispatcher, job: RequestContext, later: Later) -> None:
        """Keep a reply until the log is safe up to its offset."""
        size = WAITING + later.size
        waiting = Waiting(later.end_offset, dispatcher, job, later.reply, None, size)
        self._flies(size)
        if not self._answers.wait(later.end_offset, waiting, self._deadline()):
            self._release(waiting, ResponseCode.SUCCESS)

    def _flies(self, more: int) -> None:
        self.in_flight += more
        self.full = self.in_flight > self._live.current.max_waiting_send_bytes

    async def safe(self, end_offset: int, size: int = 0) -> int:
        """Wait as an answer does, to a request of `size` bytes: SUCCESS, FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT.

        Raises:
            asyncio.CancelledError: the broker ends.
        """
        return await self._wait(self._answers, end_offset, self._deadline(), WAITING + size)

    @property
    def answers_wait(self) -> bool:
        """True where answers wait for the disk or for replicas."""
        return self._replicas.waits or self._sync_flush

    async def all_on_disk(self) -> bool:
        """`on_disk` for all that the log has now."""
        return await self.on_disk(self._store.max_physical_offset)

    async def on_disk(self, end_offset: int) -> bool:
        """Wait for the disk alone; False after the timeout. Raises CancelledError as `safe`."""
        deadline = self._clock.steady_ms() + self._live.store.sync_flush_timeout_ms
        return await self._wait(self._disk, end_offset, deadline) == ResponseCode.SUCCESS

    async def _wait(
        self, gate: DurabilityGate[Waiting], end_offset: int, deadline: int, size: int = 0
    ) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if not gate.wait(end_offset, Waiting(end_offset, None, None, None, future, size), deadline):
            return ResponseCode.SUCCESS
        self._flies(size)
        self.kick()
        return await future

    def replicated(self, end_offset: int) -> None:
        """All whose word counts have the log up to `end_offset`: let out the answers that waited for it."""
        if end_offset > self._replicated:
            self._replicated = end_offset
            self._let_out()

    def _let_out(self) -> None:
        for waiting in self._answers.flushed(self._safe_offset()):
            self._release(waiting, ResponseCode.SUCCESS)

    def request(self) -> None:
        """Sync soon, whether or not anything waits: the beat of asynchronous flushing."""
        self._due = True
        self.kick()

    def kick(self) -> None:
        """Begin a sync when there is a reason and none is running. Runs at the end of every turn."""
        if self._running is not None or self._broken:
            return
        wanted = self._due or len(self._disk) or (self._sync_flush and len(self._answers))
        if not wanted:
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
        self._began_ms = self._clock.steady_ms()
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
            self.syncs += 1
            self.sync_ms += self._clock.steady_ms() - self._began_ms
            self._flushed(end_offset)
            if plan.short is None:
                self.kick()
            else:  # until files can be opened again
                self._due = True
                asyncio.get_running_loop().call_later(SHORT_PAUSE_S, self.kick)
        if self._rest is not None and not self._rest.done():  # it looks whether another one runs
            self._rest.set_result(None)

    def _flushed(self, end_offset: int) -> None:
        for waiting in self._disk.flushed(end_offset):
            self._release(waiting, ResponseCode.SUCCESS)
        if self._sync_flush:
            self._let_out()
        self._shell.wake()

    def expire(self) -> None:
        """Answer what waited too long: FLUSH_DISK_TIMEOUT or FLUSH_SLAVE_TIMEOUT, with the header of success."""
        now_ms = self._clock.steady_ms()
        for gate in (self._disk, self._answers):
            for waiting in gate.expire(now_ms) if len(gate) else ():
                late = self._sync_flush and waiting.end_offset > self._store.synced_offset
                code = ResponseCode.FLUSH_DISK_TIMEOUT if late else ResponseCode.FLUSH_SLAVE_TIMEOUT
                self._release(waiting, code)

    def abandon(self, why: str) -> None:
        """No sync will ever come: nothing that waits is acknowledged, and the broker must end."""
        if self._broken:
            return
        self._broken = True
        for waiting in [*self._disk.abandon(), *self._answers.abandon()]:
            self._release(waiting, ResponseCode.SERVICE_NOT_AVAILABLE)
        self._shell.fail(why)

    def _release(self, waiting: Waiting, code: ResponseCode) -> None:
        self._flies(-waiting.size)
        if waiting.future is not None and not waiting.future.done():
            waiting.future.set_result(code)
        if waiting.dispatcher is not None and waiting.job is not None:
            assert waiting.reply is not None
            if code == ResponseCode.SUCCESS:
                if self._replicas.receipt and waiting.job.command.code in SENDS:
                    waiting.reply.code = self._replicas.receipt
            else:
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
