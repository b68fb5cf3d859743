"""Orderly consumption: one message of a queue at a time, or some in a row, under the broker's queue lock.

Apache: ConsumeMessageOrderlyService, RebalanceImpl.lock and unlock. A queue that is given up is unlocked only
when the handler at work on it has ended, so that no two members ever work on one queue.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from roquette.base.lifecycle import Health
from roquette.client import calls
from roquette.client.core.process_queue import ConsumeRates, ProcessQueue
from roquette.client.handler import DEAD, Messages, SendBacks, accepted, resend
from roquette.client.producer import Producer
from roquette.client.session import Session
from roquette.errors import ClientError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.message.names import HANDOVER_PREFIX

# The broker's locks of queues (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ), and what the queues of a group's member need of it.
# Orderly members lock under their group's name, as Apache's do, and work on nothing without. The others lock under a name of its own, which Apache's clients do not know, so that queues go from one of ours to another only when their offsets are committed: whoever takes a queue up waits for the lock, `PATIENCE_MS` at most.


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


_Waiting = asyncio.Queue[ReceivedMessage | None]  # None ends the task that takes from it


class OrderlyQueues:
    """The queues one consumer works on in order."""

    def __init__(self, member: Membership, locks: QueueLocks, batch: int = 1) -> None:
        """`batch`: how many messages in a row are handled at once, at most."""
        self._batch = batch
        self._member = member
        self._locks = locks
        self._send_backs = member.send_backs()
        self._waiting: dict[MessageQueue, _Waiting] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._leaving: dict[MessageQueue, None] = {}

    def start(self, name: str) -> list["asyncio.Task[None]"]:
        """Each queue has a task of its own."""
        return []

    def begin(self, state: ProcessQueue) -> None:
        """Work on a queue that is locked for us."""
        queue = state.queue
        before = self._waiting.get(queue)
        if before is not None:
            before.put_nowait(None)
        state.locked = True
        waiting = self._waiting[queue] = asyncio.Queue()
        self._tasks[queue] = self._member.session.tasks.keep(
            f"order-{queue.topic}-{queue.queue_id}", partial(self._work, state, waiting, [])
        )

    def submit(self, state: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Queue what was pulled."""
        waiting = self._waiting.get(state.queue)
        if waiting is not None and not state.dropped:
            for message in messages:
                waiting.put_nowait(message)

    def bury(self, state: ProcessQueue, message: ReceivedMessage) -> None:
        """Send a message to the dead letters."""
        self._send_backs.begin(state, message, DEAD)

    def drop(self, state: ProcessQueue) -> None:
        """Begin nothing more of a queue that is about to be given up."""
        state.drop()

    def leaving(self) -> set[MessageQueue]:
        """The queues that are given up but whose handlers have not ended yet."""
        return set(self._leaving)

    def give_up(self, states: list[ProcessQueue]) -> None:
        """Unlock queues, each as soon as its handler has ended."""
        for state in states:
            state.drop()
            self._leaving[state.queue] = None
            self._member.session.tasks.start("leave-queue", self._leave(state))

    async def _leave(self, state: ProcessQueue) -> None:
        queue = state.queue
        try:
            await self._end(queue)
            await self._member.save([state])
            await self._member.revoked([queue])
            # Last: whoever gets the lock reads the offset that was saved above.
            await self._locks.unlock([queue])
        finally:
            del self._leaving[queue]
        self._member.changed()

    async def rest(self, queue: MessageQueue) -> None:
        """Wait until no handler works on a queue any more; its lock stays."""
        await self._end(queue)

    async def _end(self, queue: MessageQueue) -> None:
        waiting, task = self._waiting.pop(queue, None), self._tasks.pop(queue, None)
        if waiting is not None and task is not None:
            waiting.put_nowait(None)
            await asyncio.gather(task, return_exceptions=True)

    async def close(self, limit_s: float) -> None:
        """Wait for the handlers at work, `limit_s` seconds at most; the rest is cancelled."""
        tasks = list(self._tasks.values())
        try:
            async with asyncio.timeout(limit_s):
                for queue in list(self._tasks):
                    await self._end(queue)
        except TimeoutError:
            for task in tasks:
                task.cancel()

    # the work

    async def _work(
        self,
        state: ProcessQueue,
        waiting: _Waiting,
        current: list[ReceivedMessage],
        health: Health,
    ) -> None:
        """`current`: the messages at work, kept over an error, so that no message is skipped."""
        while True:
            if not current:
                message = await waiting.get()
                while message is not None:
                    current.append(message)
                    if len(current) == self._batch or waiting.empty():
                        break
                    message = waiting.get_nowait()
                if message is None:
                    return
            if state.dropped:
                return
            await self._consume(state, current)
            current.clear()
            health.worked()

    async def _consume(self, state: ProcessQueue, current: list[ReceivedMessage]) -> None:
        """Try until all messages are handled or dead-lettered, in order, or the queue was given up before."""
        failures = current[0].reconsume_times
        while current and not state.dropped:
            pause_s = self._member.session.config.orderly_suspend_ms / 1000
            # Without the broker's lock another member may be at work on this queue.
            if state.locked:
                answered = await self._member.handle(state, list(current))
                done = self._ends(state, current, answered)
                # Apache: ConsumeMessageOrderlyService.checkReconsumeTimes; -1, the default, tries without end.
                if done == 0 and 0 <= self._member.max_reconsume_times <= failures:
                    done = int(await self._is_buried(current[0], failures))
                    for message in current[:done]:
                        self._member.finish(state, message)
                del current[:done]
                if done and current:
                    failures = current[0].reconsume_times
                    continue
                failures += 1
                decision = current[0].decision if current else None
                if decision is not None and decision.after_s is not None:
                    pause_s = decision.after_s
            if current:
                await asyncio.sleep(pause_s)

    def _ends(self, state: ProcessQueue, current: list[ReceivedMessage], answered: int) -> int:
        """Count the first messages that have come to their ends: done, or dead as the application says."""
        for place, message in enumerate(current):
            if accepted(message, place < answered):
                self._member.finish(state, message)
            elif message.decision is not None and message.decision.dead:
                self._bury(state, message)
            else:
                return place
        return len(current)

    def _bury(self, state: ProcessQueue, message: ReceivedMessage) -> None:
        if self._member.shares:
            self.bury(state, message)
        else:
            self._member.finish(state, message)  # broadcasting has no dead letters

    async def _is_buried(self, message: ReceivedMessage, failures: int) -> bool:
        member = self._member
        if not member.shares:
            log.warning("message dropped, broadcasting has no retry id=%s", message.message_id)
            return True
        return await resend(
            member.producer, member.group, message, failures, member.max_reconsume_times
        )

    async def renew(self, queues: Mapping[MessageQueue, ProcessQueue]) -> None:
        """Renew all locks, also those of queues about to be given up; a queue without its lock pauses."""
        asked = dict(queues)  # what is locked while the broker answers is not asked for here
        locked = await self._locks.renew([*asked, *(q for q in self._leaving if q not in asked)])
        for queue, state in asked.items():
            if queues.get(queue) is state:
                state.locked = queue in locked
