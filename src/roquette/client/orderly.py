"""Orderly consumption: one message of a queue at a time, under the broker's queue lock.

Apache: ConsumeMessageOrderlyService, RebalanceImpl.lock and unlock. A queue that is given up is unlocked only
when the handler at work on it has ended, so that no two members ever work on one queue.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from roquette.base.lifecycle import Health
from roquette.client.core.process_queue import ProcessQueue
from roquette.client.producer import Producer
from roquette.client.retries import resend
from roquette.client.session import Session
from roquette.errors import ClientError
from roquette.message.message import MessageQueue, ReceivedMessage

log = logging.getLogger("roquette.client")

_Waiting = asyncio.Queue[ReceivedMessage | None]  # None ends the task that takes from it


class OrderlyQueues:
    """The queues one consumer works on in order.

    Args:
        handle: runs the application's handler; False when it failed.
        save: commits the offset of a queue that is given up.
        changed: called when queues may be shared again.
        shares: False for broadcasting, which needs no locks and sends nothing back.
    """

    def __init__(
        self,
        session: Session,
        producer: Producer,
        group: str,
        max_reconsume_times: int,
        *,
        handle: Callable[[ReceivedMessage], Awaitable[bool]],
        save: Callable[[ProcessQueue], Awaitable[None]],
        changed: Callable[[], None],
        shares: bool,
    ) -> None:
        self._session = session
        self._producer = producer
        self._group = group
        self._limit = max_reconsume_times
        self._handle = handle
        self._save = save
        self._changed = changed
        self._shares = shares
        self._waiting: dict[MessageQueue, _Waiting] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._leaving: dict[MessageQueue, None] = {}

    def begin(self, state: ProcessQueue) -> None:
        """Work on a queue that is locked for us."""
        queue = state.queue
        before = self._waiting.get(queue)
        if before is not None:
            before.put_nowait(None)
        state.locked = True
        waiting = self._waiting[queue] = asyncio.Queue()
        self._tasks[queue] = self._session.tasks.keep(
            f"order-{queue.topic}-{queue.queue_id}", partial(self._work, state, waiting, [])
        )

    def submit(self, state: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Queue what was pulled."""
        waiting = self._waiting.get(state.queue)
        if waiting is not None and not state.dropped:
            for message in messages:
                waiting.put_nowait(message)

    def is_leaving(self, queue: MessageQueue) -> bool:
        """Whether a queue is given up but its handler has not ended yet."""
        return queue in self._leaving

    def give_up(self, state: ProcessQueue) -> None:
        """Unlock a dropped queue as soon as its handler has ended."""
        self._leaving[state.queue] = None
        self._session.tasks.start("leave-queue", self._leave(state))

    async def _leave(self, state: ProcessQueue) -> None:
        queue = state.queue
        try:
            await self._end(queue)
            await self._save(state)
            if self._shares:
                await self.unlock([queue])
        finally:
            del self._leaving[queue]
        self._changed()

    async def rest(self, queue: MessageQueue) -> None:
        """Wait until nobody works on a queue any more; its lock stays."""
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
        """`current`: the message at work, kept over an error, so that none is passed over."""
        while True:
            message = current[0] if current else await waiting.get()
            if message is None or state.dropped:
                return
            current[:] = [message]
            if await self._consume(state, message):
                state.finish(message)
            current.clear()
            health.worked()

    async def _consume(self, state: ProcessQueue, message: ReceivedMessage) -> bool:
        """Until the message is handled or among the dead letters; False when the queue was given up before."""
        failures = message.reconsume_times
        while not state.dropped:
            if state.locked:
                if await self._handle(message):
                    return True
                if 0 <= self._limit <= failures and await self._is_buried(message, failures):
                    return True
                failures += 1
            await asyncio.sleep(self._session.config.orderly_suspend_ms / 1000)
        return False

    async def _is_buried(self, message: ReceivedMessage, failures: int) -> bool:
        if not self._shares:
            log.warning("message dropped, broadcasting has no retry id=%s", message.message_id)
            return True
        return await resend(self._producer, self._group, message, failures, self._limit)

    # the broker's locks

    async def lock(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Ask for queues; those that are ours now."""
        if not self._shares:
            return queues
        locked: list[MessageQueue] = []
        for address, asked in self._by_broker(queues):
            try:
                locked += await self._session.api.lock(
                    address, self._group, self._session.client_id, asked
                )
            except ClientError as error:
                log.warning("lock failed group=%s broker=%s error=%s", self._group, address, error)
        return [queue for queue in queues if queue in locked]

    async def renew(self, queues: Mapping[MessageQueue, ProcessQueue]) -> None:
        """Ask again for all, those about to be left included; without its lock a queue rests."""
        asked = dict(queues)  # what is locked while the broker answers is not asked for here
        locked = await self.lock([*asked, *(q for q in self._leaving if q not in asked)])
        for queue, state in asked.items():
            if queues.get(queue) is state:
                state.locked = queue in locked

    async def unlock(self, queues: list[MessageQueue]) -> None:
        """Give locks back."""
        for address, asked in self._by_broker(queues):
            try:
                await self._session.api.unlock(address, self._group, self._session.client_id, asked)
            except ClientError as error:
                log.debug("unlock failed group=%s error=%s", self._group, error)

    def _by_broker(self, queues: list[MessageQueue]) -> list[tuple[str, list[MessageQueue]]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            try:
                found.setdefault(self._session.master_of(queue), []).append(queue)
            except ClientError as error:
                log.debug("no broker to lock at queue=%s error=%s", queue, error)
        return sorted(found.items())
