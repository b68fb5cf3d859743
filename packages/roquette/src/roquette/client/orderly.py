"""Orderly consumption: one message of a queue at a time, or some in a row, under the broker's queue lock.

Apache: ConsumeMessageOrderlyService, RebalanceImpl.lock and unlock. A queue that is given up is unlocked only
when the handler at work on it has ended, so that no two members ever work on one queue.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from roquette.base.lifecycle import Health
from roquette.client.core.process_queue import ProcessQueue
from roquette.client.handler import accepted
from roquette.client.queue_locks import Membership, QueueLocks
from roquette.client.retries import DEAD, resend
from roquette.message.message import MessageQueue, ReceivedMessage

log = logging.getLogger("roquette.client")

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
