"""Concurrent consumption: up to `concurrency` handlers at a time, whatever the queue; failed messages go back to the broker.

Apache: ConsumeMessageConcurrentlyService. A queue that is given up goes to its next member when the handlers at
work on it have ended, `Membership.handlers_s` at most, and its offset is committed; then its lock is free.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final

from roquette.base.lifecycle import Health
from roquette.client.core.process_queue import ProcessQueue
from roquette.client.handler import DEAD, HandlerRunner, Messages, QueueDelivery, accepted
from roquette.client.interceptors import Handled
from roquette.client.orderly import Membership, QueueLocks
from roquette.message.message import DONE, Done, HandlerDecision, MessageQueue, ReceivedMessage

log = logging.getLogger("roquette.client")

EXPIRY_BEAT_S: Final = 60.0
SETTLE_S: Final = 0.3


class ConcurrentQueues:
    """The queues one consumer works on side by side."""

    def __init__(
        self, member: Membership, locks: QueueLocks, concurrency: int, batch: int = 1
    ) -> None:
        """`batch`: how many messages of a queue a worker handles at once, at most."""
        self._member = member
        self._locks = locks
        self._concurrency = concurrency
        self._batch = batch
        self._send_backs = member.send_backs()
        self._work: asyncio.Queue[ProcessQueue] = asyncio.Queue()  # once for each batch at most
        self._waiting: dict[ProcessQueue, deque[ReceivedMessage]] = {}
        self._at_work: dict[int, tuple[ProcessQueue, Messages, int]] = {}  # by worker
        self._leaving: dict[ProcessQueue, list[ReceivedMessage]] = {}  # with what failed since
        self._giving_up: dict[asyncio.Task[None], None] = {}

    def start(self, name: str) -> list["asyncio.Task[None]"]:
        """Begin to work."""
        tasks = self._member.session.tasks
        started = [
            tasks.keep(f"{name}-worker-{index}", partial(self._worker, index))
            for index in range(self._concurrency)
        ]
        if self._member.shares:
            started.append(tasks.every(f"{name}-timeouts", EXPIRY_BEAT_S, self._expire))
        return started

    def begin(self, state: ProcessQueue) -> None:
        """Work on a queue."""

    def submit(self, state: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Queue pulled messages for the handlers; bounded by the pull loop's thresholds."""
        self._waiting.setdefault(state, deque()).extend(messages)
        for _ in range(0, len(messages), self._batch):
            self._work.put_nowait(state)

    def _next(self, state: ProcessQueue) -> Messages:
        """Take the messages that a worker handles now: those of several pulls go together; none: others have taken them."""
        if state.dropped:
            self._waiting.pop(state, None)
        waiting = self._waiting.get(state)
        if not waiting:
            return []
        if self._batch == 1:
            found = [waiting.popleft()]
        else:
            found = [waiting.popleft() for _ in range(min(self._batch, len(waiting)))]
        if not waiting:
            del self._waiting[state]
        return found

    def bury(self, state: ProcessQueue, message: ReceivedMessage) -> None:
        """Send a message to the dead letters."""
        self._send_backs.begin(state, message, DEAD)

    async def rest(self, queue: MessageQueue) -> None:
        """Handlers at work go on, but their results are not counted."""

    # giving up

    def drop(self, state: ProcessQueue) -> None:
        """Begin nothing more of a queue that is about to be given up."""
        state.drop()
        self._leaving[state] = []

    def leaving(self) -> set[MessageQueue]:
        """The queues that are given up but whose offsets are not committed yet."""
        return {state.queue for state in self._leaving}

    def give_up(self, states: list[ProcessQueue]) -> None:
        """Release queues as soon as their offsets are committed."""
        for state in states:
            self.drop(state)
        task = self._member.session.tasks.start("leave-queues", self._give_up(states))
        self._giving_up[task] = None
        task.add_done_callback(self._giving_up.pop)

    async def _give_up(self, states: list[ProcessQueue]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._member.handlers_s
        left = states
        try:
            while left:
                late = loop.time() >= deadline
                ready = [state for state in left if late or not self._busy(state)]
                await self._settle(ready)
                if ready and (await self._member.save(ready) or late):
                    await self._member.revoked([state.queue for state in ready])
                    await self._locks.unlock([state.queue for state in ready])
                    left = [state for state in left if state not in ready]
                    self._forget(ready)
                else:
                    await asyncio.sleep(0.01)
        finally:
            self._forget(states)
        self._member.changed()

    def _forget(self, states: list[ProcessQueue]) -> None:
        for state in states:
            self._leaving.pop(state, None)

    async def close(self, limit_s: float) -> None:
        """Wait until all that was dropped is at rest, `limit_s` seconds at most."""
        while not self._work.empty():
            self._work.get_nowait()  # not handled: the queue's next owner pulls them again
        self._waiting.clear()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        if self._giving_up:
            await asyncio.wait(self._giving_up, timeout=limit_s)
        while any(self._busy(state) for state in self._leaving) and loop.time() < deadline:
            await asyncio.sleep(0.01)
        await self._settle(list(self._leaving))

    def _busy(self, state: ProcessQueue) -> bool:
        return self._send_backs.has_pending(state) or any(
            state is other for other, _, _ in self._at_work.values()
        )

    async def _settle(self, states: list[ProcessQueue]) -> None:
        """Send failed messages back if a later one is finished, which would be repeated otherwise."""
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        for state in states:
            failed, self._leaving[state] = self._leaving[state], []
            for message in failed:
                if message.queue_offset < state.finished_to:
                    self._send_backs.begin(state, message)
        while any(self._send_backs.has_pending(state) for state in states):
            if asyncio.get_running_loop().time() >= deadline:
                return
            await asyncio.sleep(0.01)

    # the work

    async def _worker(self, index: int, health: Health) -> None:
        if (left := self._at_work.pop(index, None)) is not None:
            for message in left[1]:
                self._end(left[0], message, accepted(message, False))
        while True:
            health.worked()
            state = await self._work.get()
            if not (messages := self._next(state)):
                continue
            self._at_work[index] = (state, messages, self._member.session.clock.steady_ms())
            done = await self._member.handle(state, messages)
            if self._at_work.pop(index, None) is None:
                continue  # it took too long: the messages have gone back already
            for place, message in enumerate(messages):
                decision = message.decision
                self._end(state, message, place < done if decision is None else decision.accepted)

    def _end(self, state: ProcessQueue, message: ReceivedMessage, is_done: bool) -> None:
        if is_done:
            self._member.finish(state, message)
        else:
            self._failed(state, message)

    def _failed(self, state: ProcessQueue, message: ReceivedMessage) -> None:
        if not self._member.shares:
            log.warning("message dropped, broadcasting has no retry id=%s", message.message_id)
            state.finish(message)
        elif not state.dropped:
            self._send_backs.begin(state, message)
        elif state in self._leaving:
            self._leaving[state].append(message)  # else: whoever has the queue now gets it again

    def _expire(self) -> None:
        """Messages a handler works on for too long go back to the broker (ProcessQueue.cleanExpiredMsg)."""
        limit_ms = self._member.session.config.consume_timeout_ms
        now_ms = self._member.session.clock.steady_ms()
        for index, (state, messages, began_ms) in list(self._at_work.items()):
            if now_ms - began_ms <= limit_ms or state.dropped:
                continue
            del self._at_work[index]
            log.warning(
                "handler takes too long, the message goes back group=%s id=%s of=%d ms=%d",
                self._member.group,
                messages[0].message_id,
                len(messages),
                now_ms - began_ms,
            )
            for message in messages:
                self._end(state, message, accepted(message, False))

    async def renew(self, queues: Mapping[MessageQueue, ProcessQueue]) -> None:
        """Renew the locks, also those of queues about to be given up."""
        await self._locks.renew({**queues, **{s.queue: s for s in self._leaving}})


# Concurrent consumption without handlers: messages go, one at a time, to who asks for them, on the asker's own task.


TURN_S: Final = 0.005  # so long messages that are there are handed out before others get a turn
AGAIN: Final = HandlerDecision()
_HERE: Final = 0  # the key of the message at work


class HandedQueues(QueueDelivery, ConcurrentQueues):
    """At most one message is at work: `take` gives the next one, `settle` ends it.

    Args:
        runner: counts what is at work, and tells the interceptors.
    """

    def __init__(self, member: Membership, locks: QueueLocks, runner: HandlerRunner) -> None:
        super().__init__(member, locks, 0)
        self._runner = runner
        self._some = asyncio.Event()
        self._closed = False
        self._current: ReceivedMessage | None = None
        self._tell: Handled | None = None
        self._asked: dict[int, asyncio.Future[bool]] = {}  # of operators, by id() of the message
        self._turn_ends = 0.0

    def submit(self, state: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Keep pulled messages until they are asked for."""
        super().submit(state, messages)
        self._some.set()

    async def take(self) -> ReceivedMessage | None:
        """The next message, which is at work from now on; None: there are no more, the group is left."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._turn_ends:
            await asyncio.sleep(0)
            self._turn_ends = loop.time() + TURN_S
        while not self._closed:
            while self._current is None and not self._work.empty():
                state = self._work.get_nowait()
                for message in self._next(state):  # one, or none any more
                    self._begin(state, message)
                    return message
            self._some.clear()
            await self._some.wait()
            self._turn_ends = loop.time() + TURN_S
        return None

    def _begin(self, state: ProcessQueue, message: ReceivedMessage) -> None:
        self._current = message
        message.delivery, message.decision = self, None
        if id(message) not in self._asked:  # else the runner knows
            self._at_work[_HERE] = (state, [message], self._member.session.clock.steady_ms())
            self._tell = self._runner.began(message)

    def _decide(self, message: ReceivedMessage, decision: HandlerDecision) -> Done:
        super()._decide(message, decision)
        if message is self._current:
            self.settle(decision)
        return DONE

    def settle(self, decision: HandlerDecision) -> None:
        """The message at work is done, dead, or failed and comes again; nothing happens when there is none."""
        message, self._current = self._current, None
        if message is None:
            return
        message.delivery, message.decision, accepted = None, decision, decision.accepted
        self._some.set()  # whoever else asks
        asked = self._asked.pop(id(message), None)
        if asked is not None:
            asked.set_result(accepted)
            return
        tell, self._tell = self._tell, None
        self._runner.ended(message, tell, accepted)
        entry = self._at_work.pop(_HERE, None)
        if entry is None:
            return  # it took too long: the message has gone back already
        state, _, began_ms = entry
        took_ms = self._member.session.clock.steady_ms() - began_ms
        self._member.rates.handled(state.queue.topic, int(accepted), int(not accepted), took_ms)
        if accepted:
            self._member.finish(state, message)
        else:
            self._failed(state, message)

    async def handle(self, message: ReceivedMessage) -> bool:
        """Hand out a message of no queue of ours, when its turn comes; whether it was accepted."""
        if self._closed:
            return False
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked[id(message)] = decided
        try:
            self.submit(ProcessQueue(message.queue, message.queue_offset), [message])
            return await decided
        finally:
            self._asked.pop(id(message), None)

    async def close(self, limit_s: float) -> None:
        """Hand out nothing more; the message at work comes again."""
        self._closed = True
        self._some.set()
        self.settle(AGAIN)
        for decided in self._asked.values():
            decided.cancel()
        await super().close(limit_s)
