"""Messages popped from a group: each is hidden from the others for a while, and done when it is acknowledged.

Apache: the POP push consumer and SimpleConsumer. Nothing is acknowledged that the application did not; what it neither
acknowledged, extended nor gave back comes again when its time is over.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakValueDictionary, ref

from roquette.base.lifecycle import Health
from roquette.client import pop_requests
from roquette.client.interceptors import Handled, Interceptors
from roquette.client.opened import Opened
from roquette.client.pop_acks import Acks, PopBroker
from roquette.client.pop_polls import Polls, PopPlan
from roquette.client.pop_requests import Popped, Receipt
from roquette.client.selection import matcher, subscription
from roquette.client.session import Session
from roquette.errors import (
    ClientClosed,
    ClientError,
    CorruptRecord,
    MessageExpired,
    MessageSettled,
    Retry,
)
from roquette.message.message import HandlerDecision, ReceivedMessage, received
from roquette.message.properties import POP_CK
from roquette.message.record import decode_records

log = logging.getLogger("roquette.client")

Work = Callable[[], Coroutine[Any, Any, None]]

SIDE_BY_SIDE: Final = 64  # renewals, and messages given back, at the same time
GIVEN_BACK_MS: Final = 1_000  # what was popped and not handed out comes again after so long


class PoppedJob:
    """A popped message at work: what is said of it goes to its broker. It holds its message until that is handed out."""

    __slots__ = (
        "__weakref__", "_ended", "_jobs", "_over_s", "_work", "message", "message_id", "number", "physical_offset",
        "receipt",
    )  # fmt: skip

    def __init__(
        self, jobs: "PoppedMessages", message: ReceivedMessage, receipt: Receipt, over_s: float
    ) -> None:
        self.message: ReceivedMessage | None = message
        self.message_id = message.message_id
        self.physical_offset = message.physical_offset
        self.receipt = receipt
        self.number = -1
        self._jobs = jobs
        self._over_s = over_s
        self._work: asyncio.Task[ClientError | None] | None = None
        self._ended: Handled | None = None

    def handed_out(self) -> ReceivedMessage:
        """Its message, which the application alone holds from now on: what it forgets is not renewed."""
        message, self.message = self.message, None
        assert message is not None
        message.delivery = self
        return message

    @property
    def left_s(self) -> float:
        """Seconds until the message comes again; below 0: it may be with somebody else already."""
        return self._over_s - asyncio.get_running_loop().time()

    # as a Delivery

    def expires_in(self, message: ReceivedMessage) -> float:
        """Seconds until it comes again."""
        return self.left_s

    def ack(self, message: ReceivedMessage) -> "Settling":
        """Returns when the broker has confirmed it; acks that wait together go together. Twice does nothing."""
        return self._begin(message, HandlerDecision(accepted=True), self._ack)

    def retry(self, message: ReceivedMessage, after_s: float | None) -> "Settling":
        """Let it come again after so many seconds (at once for None). Popped in order, the messages behind it wait."""
        return self._begin(
            message, HandlerDecision(after_s=after_s), partial(self._change, _ms(after_s or 0.0))
        )

    def dead_letter(self, message: ReceivedMessage) -> "Settling":
        """Put it into the dead letters and acknowledge it."""
        return self._begin(message, HandlerDecision(dead=True), self.bury)

    def extend(self, message: ReceivedMessage, seconds: float) -> "Settling":
        """Hide it for so long from now."""
        return self._begin(message, None, partial(self._change, _ms(seconds)))

    def _begin(
        self, message: ReceivedMessage, decision: HandlerDecision | None, work: Work
    ) -> "Settling":
        self._work = self._jobs._work(self._do(self._work, message, decision, work))
        return Settling(self._work)

    async def _do(
        self,
        before: "asyncio.Task[ClientError | None] | None",
        message: ReceivedMessage,
        decision: HandlerDecision | None,
        work: Work,
    ) -> ClientError | None:
        """One thing at a time, in the order of the calls. `decision`: what has become of the message with it."""
        if before is not None and not before.done():
            await asyncio.wait({before})
        if message.decision is not None:
            if decision == message.decision and decision.accepted:
                return None
            return MessageSettled(f"message {self.message_id} is settled already")
        if self.left_s <= 0:
            error = MessageExpired(self.message_id)
            self.end(False, error)
            return error
        try:
            await work()
        except ClientError as failed:
            return failed
        if decision is not None:
            message.decision = decision
            self._jobs._settled(self)
            self.end(decision.accepted)
        return None

    async def _ack(self) -> None:
        await self._jobs._acks.ack(self.receipt, self._over_s)

    async def _change(self, invisible_ms: int, suspend: bool = False) -> None:
        jobs = self._jobs
        call = pop_requests.change(
            jobs._plan.group, jobs._plan.topic, self.receipt, invisible_ms, suspend=suspend
        )
        self.receipt = await jobs._broker.ask(self.receipt.broker_name, call, self._over_s)
        self._over_s = asyncio.get_running_loop().time() + invisible_ms / 1000

    # what nobody has seen, and what is renewed

    async def set_aside(self) -> None:
        """It is not wanted: acknowledge it. Raises ClientError."""
        await self._ack()

    async def bury(self) -> None:
        """Put it into the dead letters and acknowledge it. Raises ClientError."""
        jobs = self._jobs
        topic = self.receipt.topic(jobs._plan.topic, jobs._plan.group)
        call = pop_requests.bury(jobs._plan.group, topic, self.message_id, self.physical_offset)
        await jobs._broker.ask(self.receipt.broker_name, call, self._over_s)
        await self._ack()

    async def give_back(self) -> None:
        """Nobody has seen it: it comes again soon, and that is no try. Raises ClientError."""
        await self._change(GIVEN_BACK_MS, suspend=True)

    async def renew(self, seconds: float) -> None:
        """Hide it for so long from now, unless something else goes on. Raises ClientError."""
        if self.left_s > 0 and (self._work is None or self._work.done()):
            await self._change(_ms(seconds))

    def begin(self, ended: Handled) -> None:
        """It is handed out, and interceptors want to hear of its end."""
        self._ended = ended

    def end(self, accepted: bool, error: BaseException | None = None) -> None:
        """Tell them, once."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(accepted, error)


class Settling:
    """Work for a popped message, which goes on without its caller; awaited, it raises what it has come to."""

    __slots__ = ("_work",)

    def __init__(self, work: "asyncio.Task[ClientError | None]") -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, None]:
        try:
            failed = yield from asyncio.shield(self._work).__await__()
        except asyncio.CancelledError:
            if self._work.cancelled():
                raise ClientClosed("the client was closed") from None
            raise
        if failed is not None:
            raise failed


def _ms(seconds: float) -> int:
    if seconds < 0:
        raise ValueError(f"{seconds} seconds are in the past")
    return int(seconds * 1000)


class PoppedMessages(Opened):
    """An asynchronous iterator over popped messages; several tasks may iterate over it at the same time.

    Brokers are asked when somebody waits and nothing is left of what they gave: `batch` messages each at most. A
    message whose time is over before it is handed out is not handed out.

    Attributes:
        expired: messages that were not handed out, since their time was over.
        unreadable: messages that went to the dead letters, since their bodies cannot be decompressed.
        closed: no more messages come.
    """

    def __init__(
        self,
        session: Session,
        plan: PopPlan,
        interceptors: Interceptors,
        polls: Polls | None = None,
    ) -> None:
        self._plan = plan
        self.expired = 0
        self.unreadable = 0
        self._broker = PopBroker(session, plan.topic)
        self._acks = Acks(self._broker, plan.group, plan.topic)
        self._session = session
        self._interceptors = interceptors
        self._wanted = subscription(plan.topic, plan.wanted, 0)
        self._matches = matcher(self._wanted)
        self._ready: deque[PoppedJob] = deque()
        self._arrived = asyncio.Event()
        self._polls = polls or Polls(session, plan.topic)
        self._polls.to = self
        self._held: WeakValueDictionary[int, PoppedJob] = WeakValueDictionary()  # not settled
        self._numbers = itertools.count()
        self._renewing: asyncio.Task[None] | None = None
        self.closed = False
        self._last: ref[ReceivedMessage] | None = None  # that was handed out

    # what the application does

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        loop = asyncio.get_running_loop()
        limit_s = self._plan.timeout_s
        until = None if limit_s is None else loop.time() + limit_s
        while not self.closed:
            self._arrived.clear()
            job = self._next()
            if job is not None:
                message = job.handed_out()
                self._last = ref(message)
                return message
            self._polls.ask()
            try:
                async with asyncio.timeout_at(until):
                    await self._arrived.wait()
            except TimeoutError:
                break
        raise StopAsyncIteration

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        last = None if self._last is None else self._last()
        if isinstance(error, Retry) and last is not None and not last.settled:
            await last.retry(error.after_s)
        await self.close()

    async def close(self) -> None:
        """End it: what was not handed out goes back at once; messages that are handed out may still be settled."""
        self.closed = True
        self._arrived.set()
        if self._renewing is not None:
            self._renewing.cancel()
        for job in list(self._held.values()):
            job.end(False)
        left = list(self._ready)
        self._ready.clear()
        if left:
            await asyncio.shield(self._work(self._give_back(left)))

    # popping

    def _next(self) -> PoppedJob | None:
        while self._ready:
            job = self._ready.popleft()
            if job.left_s <= 0:
                self.expired += 1
                continue
            if self._interceptors:
                group = self._session.namespace.shown(self._plan.group)
                assert job.message is not None
                job.begin(self._interceptors.on_receive(job.message, group))
            if self._interceptors or self._plan.renew:
                job.number = next(self._numbers)
                self._held[job.number] = job
            if self._plan.renew and self._renewing is None:
                self._renewing = self._session.tasks.keep("pop-renew", self._renew)
            return job
        return None

    def _take(self, popped: Popped, name: str) -> None:
        """Take in what a broker gave: to be handed out, or acknowledged, given back or dead."""
        plan = self._plan
        over_s = asyncio.get_running_loop().time() + popped.invisible_ms / 1000
        aside: list[Work] = []
        try:
            for record in decode_records(popped.records):
                receipt = popped.receipt(record, name)
                readable = True
                try:
                    message = received(record, name)
                except CorruptRecord as error:
                    self.unreadable += 1
                    words = "body is unreadable, the message is buried group=%s topic=%s error=%s"
                    log.warning(words, plan.group, plan.topic, error)
                    record.body, record.sys_flag, readable = b"", 0, False
                    message = received(record, name)
                message.topic = plan.topic
                self._session.namespace.show(message)
                message.properties.pop(POP_CK, None)
                job = PoppedJob(self, message, receipt, over_s)
                # Popped for us, and nobody reads it: others need not wait until its time is over.
                if self.closed:
                    aside.append(job.give_back)
                elif not readable or message.reconsume_times >= plan.most_tries:
                    aside.append(job.bury)
                elif self._matches is not None and not self._matches(record, message):
                    aside.append(job.set_aside)
                else:
                    self._ready.append(job)
        finally:  # a corrupt record raises: what was read before it is settled all the same
            if aside:
                self._work(self._aside(aside))

    async def _give_back(self, jobs: list[PoppedJob]) -> None:
        await self._aside([job.give_back for job in jobs])

    async def _aside(self, works: list[Work]) -> None:
        for start in range(0, len(works), SIDE_BY_SIDE):
            for result in await asyncio.gather(
                *[work() for work in works[start : start + SIDE_BY_SIDE]], return_exceptions=True
            ):
                if isinstance(result, Exception):
                    log.debug("popped message comes again error=%s", result)

    async def _renew(self, health: Health) -> None:
        """Extend what is at work, each at half of its time."""
        half_s = self._plan.invisible_ms / 2000
        while True:
            await asyncio.sleep(half_s / 3)
            due = [job for job in list(self._held.values()) if job.left_s < half_s]
            await self._aside([partial(job.renew, 2 * half_s) for job in due])
            health.worked()

    def _poll_ended(self) -> None:
        """A broker has answered: who waits may look, or ask again."""
        self._arrived.set()

    # what jobs need

    def _work(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Begin what goes on without its caller."""
        return self._session.tasks.start("pop", work)

    def _settled(self, job: PoppedJob) -> None:
        """A job has come to its end."""
        self._held.pop(job.number, None)
