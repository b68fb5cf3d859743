"""Concurrent consumption without handlers: messages go, one at a time, to who asks for them, on the asker's own task."""

import asyncio
from typing import Final

from roquette.client.concurrent import ConcurrentQueues
from roquette.client.core.process_queue import ProcessQueue
from roquette.client.handler import HandlerRunner, QueueDelivery
from roquette.client.interceptors import Handled
from roquette.client.queue_locks import Membership, QueueLocks
from roquette.message.message import DONE, Done, HandlerDecision, ReceivedMessage

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
