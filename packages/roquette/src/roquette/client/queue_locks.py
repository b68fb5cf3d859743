"""The broker's locks of queues (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ), and what the queues of a group's member need of it.

Orderly members lock under their group's name, as Apache's do, and work on nothing without. The others lock under a
name of its own, which Apache's clients do not know, so that queues go from one of ours to another only when their
offsets are committed: whoever takes a queue up waits for the lock, `PATIENCE_MS` at most.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from roquette.client import calls
from roquette.client.core.process_queue import ProcessQueue
from roquette.client.core.rates import ConsumeRates
from roquette.client.handler import Messages
from roquette.client.producer import Producer
from roquette.client.retries import SendBacks
from roquette.client.session import Session
from roquette.errors import ClientError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.message.names import HANDOVER_PREFIX

log = logging.getLogger("roquette.client")

PATIENCE_MS: Final = 2_000
REVOKE_S: Final = 0.5  # so long the application may take to let queues go
GIVE_UP_S: Final = 1.5  # handlers and that together; what is left of the patience is for commits
_PAUSES_S: Final = (
    0.02,
    1.0,
)  # between two tries for a lock: half of what was waited, within these


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Member of a group, as those that work on its queues use it.

    Attributes:
        max_reconsume_times: see MemberOptions.
        shares: False for broadcasting, which needs no locks and sends nothing back.
        handle: runs the application's handler with messages of one queue; how many of the first are done.
        rates: counts what is handled otherwise.
        revoked: tells the application of queues that are given up.
        handlers_s: how long handlers at work on such queues are waited for.
        retry_levels: see MemberOptions.
        save: commits offsets; False when a broker did not take one.
        changed: called when queues may be shared again.
        idle: set when a queue has nothing left to work on.
    """

    session: Session
    producer: Producer
    group: str
    max_reconsume_times: int
    shares: bool
    handle: Callable[[ProcessQueue, Messages], Awaitable[int]]
    rates: ConsumeRates
    revoked: Callable[[list[MessageQueue]], Awaitable[None]]
    handlers_s: float
    retry_levels: tuple[int, ...]
    save: Callable[[Iterable[ProcessQueue]], Awaitable[bool]]
    changed: Callable[[], None]
    idle: asyncio.Event

    def send_backs(self) -> SendBacks:
        """Make what takes this member's failed messages back to their broker."""
        return SendBacks(
            self.session, self.producer, self.group, self.max_reconsume_times, self.finish
        ).with_levels(self.retry_levels)

    def finish(self, state: ProcessQueue, message: ReceivedMessage) -> None:
        """A message is done with."""
        state.finish(message)
        if not state.count:
            self.idle.set()


class QueueLocks:
    """The locks of one member.

    Args:
        orderly: nothing is done without a lock; else it is waited for with patience, for a hand-over.
    """

    def __init__(self, member: Membership, *, orderly: bool) -> None:
        self._session = member.session
        self._shares = member.shares
        self._orderly = orderly
        self._name = member.group if orderly else HANDOVER_PREFIX + member.group
        self._turn = asyncio.Lock()  # brokers may work on two requests of a connection in any order
        self._asked: dict[MessageQueue, None] = {}  # those that may be locked for us
        self._waiting: dict[MessageQueue, int] = {}  # since when others hold what we ask for
        self._closed = False

    async def lock(self, queues: Collection[MessageQueue]) -> list[MessageQueue]:
        """Ask for queues; those that are ours now. Ask for the rest again after `pause_s`."""
        if not self._shares:
            return list(queues)
        now_ms = self._session.clock.steady_ms()
        granted = await self.renew(queues)
        for queue in queues:
            if queue in granted:
                self._waiting.pop(queue, None)
            elif self._is_late(queue, now_ms):
                granted.add(queue)
                del self._waiting[queue]
        return [queue for queue in queues if queue in granted]

    def _is_late(self, queue: MessageQueue, now_ms: int) -> bool:
        waited_ms = now_ms - self._waiting.setdefault(queue, now_ms)
        return waited_ms >= PATIENCE_MS and not self._orderly and not self._closed

    def pause_s(self) -> float:
        """Return how long to wait before the next try for what others hold, s."""
        now_ms, (least, most) = self._session.clock.steady_ms(), _PAUSES_S
        longest_ms = max((now_ms - since for since in self._waiting.values()), default=0)
        pause_s = min(max(least, longest_ms / 2_000), most)
        left_s = (PATIENCE_MS - longest_ms) / 1_000
        return min(pause_s, left_s) if left_s > 0 else pause_s

    async def renew(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Ask for queues; those that are locked for us now."""
        locked: set[MessageQueue] = set()
        async with self._turn:
            if self._closed:
                return locked
            for address, asked in self._by_broker(queues):
                self._asked.update(dict.fromkeys(asked))
                try:
                    call = calls.lock(self._name, self._session.client_id, asked)
                    answer = await self._session.api.call(address, call)
                except ClientError as error:
                    words = "lock failed group=%s broker=%s error=%s"
                    self._session.noise.warning(
                        f"lock-{address}", words, self._name, address, error
                    )
                    continue
                ours = set(answer)
                locked.update(ours.intersection(asked))
                for queue in set(asked) - ours:
                    self._asked.pop(queue, None)
        return locked

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Give locks back."""
        if self._shares:
            async with self._turn:
                await self._unlock(queues)

    async def close(self) -> None:
        """Give all locks back, and take none any more."""
        self._closed = True
        await self.unlock(list(self._asked))

    def asked(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that may be locked for us."""
        return [queue for queue in self._asked if queue.topic == topic]

    async def keep(self, topic: str, wanted: set[MessageQueue]) -> None:
        """Of a topic nothing but `wanted` is asked for any more."""
        for queue in [q for q in self._waiting if q.topic == topic and q not in wanted]:
            del self._waiting[queue]
        if others := [q for q in self.asked(topic) if q not in wanted]:
            await self.unlock(others)

    async def _unlock(self, queues: Collection[MessageQueue]) -> None:
        for address, asked in self._by_broker(queues):
            try:
                call = calls.unlock(self._name, self._session.client_id, asked)
                await self._session.api.call(address, call)
            except ClientError as error:
                log.debug("unlock failed group=%s error=%s", self._name, error)
        for queue in queues:
            self._asked.pop(queue, None)

    def _by_broker(self, queues: Iterable[MessageQueue]) -> list[tuple[str, list[MessageQueue]]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            try:
                found.setdefault(self._session.master_of(queue), []).append(queue)
            except ClientError as error:
                log.debug("no broker to lock at queue=%s error=%s", queue, error)
        return sorted(found.items())
