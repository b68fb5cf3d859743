"""Messages popped from a group: each is hidden from the others for a while, and done when it is acknowledged.

Apache: the POP push consumer and SimpleConsumer. Nothing is acknowledged that the application did not; what it neither
acknowledged, extended nor gave back comes again when its time is over.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakValueDictionary

from roquette.base.lifecycle import Health
from roquette.client import pop_requests
from roquette.client.interceptors import Handled, Interceptors
from roquette.client.pop_acks import Acks, Broker
from roquette.client.pop_polls import Polls, PopOptions
from roquette.client.pop_requests import Popped, Receipt
from roquette.client.selection import matcher, subscription
from roquette.client.session import Session
from roquette.errors import ClientClosed, ClientError, CorruptRecord, JobExpired, JobSettled
from roquette.message.message import ReceivedMessage, received
from roquette.message.properties import POP_CK
from roquette.message.record import decode_records

log = logging.getLogger("roquette.client")

Work = Callable[[], Coroutine[Any, Any, None]]

SIDE_BY_SIDE: Final = 64  # renewals, and messages given back, at the same time
GIVEN_BACK_MS: Final = 1_000  # what was popped and not handed out comes again after so long


class Job:
    """A popped message: `ack` it when it is done; else it comes again, at the latest when its time is over.

    Attributes:
        message: as every consumer gets it; its `topic` is the one that was popped, also when it was tried before.
        settled: acknowledged, given back or dead, as the broker has confirmed.
    """

    __slots__ = (
        "__weakref__", "_acked", "_ended", "_jobs", "_over_s", "_work", "message", "number", "receipt",
        "settled",
    )  # fmt: skip

    def __init__(
        self, jobs: "Jobs", message: ReceivedMessage, receipt: Receipt, over_s: float
    ) -> None:
        self.message = message
        self.receipt = receipt
        self.settled = False
        self.number = -1
        self._acked = False
        self._jobs = jobs
        self._over_s = over_s
        self._work: asyncio.Task[ClientError | None] | None = None
        self._ended: Handled | None = None

    @property
    def expires_in(self) -> float:
        """Seconds until the message comes again; below 0: it may be with somebody else already."""
        return self._over_s - asyncio.get_running_loop().time()

    async def ack(self) -> None:
        """The message is done. Returns when the broker has confirmed it; acks that wait together go together.

        Cancelled, it is sent all the same. Acknowledging it twice does nothing.

        Raises:
            JobExpired: its time is over: it comes again. JobSettled: it was given back.
            ClientError: the broker refused, or did not answer; it may be tried again while there is time.
        """
        await self._do("acknowledged", self._ack)

    async def extend(self, seconds: float) -> None:
        """Hide the message for so long from now. Raises what `ack` does."""
        invisible_ms = _ms(seconds)
        await self._do("", lambda: self._change(invisible_ms))

    async def retry(self, after: float = 0.0) -> None:
        """It failed: let it come again after so many seconds, with one try more. Raises what `ack` does.

        Popped in order, the messages behind it wait.
        """
        invisible_ms = _ms(after)
        await self._do("given back", lambda: self._change(invisible_ms))

    async def bury(self) -> None:
        """Put it into the group's dead-letter topic `%DLQ%<group>` and acknowledge it. Raises what `ack` does."""
        await self._do("buried", self._bury)

    async def _do(self, ends: str, work: Work) -> None:
        """One thing at a time, which goes on without its caller. `ends`: what has become of the job with it."""
        while self._work is not None and not self._work.done():
            await asyncio.wait({self._work})
        if self.settled:
            if ends == "acknowledged" and self._acked:
                return
            raise JobSettled(f"message {self.message.message_id} is settled already")
        if self.expires_in <= 0:
            error = JobExpired(self.message.message_id)
            self.end(False, error)
            raise error
        self._work = self._jobs.start(self._run(ends, work()))
        try:
            failed = await asyncio.shield(self._work)
        except asyncio.CancelledError:
            if self._work.cancelled():
                raise ClientClosed("the client was closed") from None
            raise
        if failed is not None:
            raise failed

    async def _run(self, ends: str, work: Coroutine[Any, Any, None]) -> ClientError | None:
        try:
            await work
        except ClientError as error:
            return error
        if ends:
            self.settled = True
            self._acked = ends == "acknowledged"
            self._jobs.settled(self)
            self.end(self._acked)
        return None

    async def _ack(self) -> None:
        await self._jobs.acks.ack(self.receipt, self._over_s)

    async def _change(self, invisible_ms: int, suspend: bool = False) -> None:
        jobs = self._jobs
        call = pop_requests.change(
            jobs.options.group, jobs.options.topic, self.receipt, invisible_ms, suspend=suspend
        )
        self.receipt = await jobs.broker.ask(self.receipt.broker_name, call, self._over_s)
        self._over_s = asyncio.get_running_loop().time() + invisible_ms / 1000

    async def _bury(self) -> None:
        jobs, message = self._jobs, self.message
        topic = self.receipt.topic(jobs.options.topic, jobs.options.group)
        call = pop_requests.bury(
            jobs.options.group, topic, message.message_id, message.physical_offset
        )
        await jobs.broker.ask(self.receipt.broker_name, call, self._over_s)
        await self._ack()

    async def give_back(self) -> None:
        """Nobody has seen it: it comes again soon, and that is no try. Raises ClientError."""
        await self._change(GIVEN_BACK_MS, suspend=True)
        self.settled = True

    def begin(self, ended: Handled) -> None:
        """It is handed out, and interceptors want to hear of its end."""
        self._ended = ended

    def end(self, accepted: bool, error: BaseException | None = None) -> None:
        """Tell them, once."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(accepted, error)


def _ms(seconds: float) -> int:
    if seconds < 0:
        raise ValueError(f"{seconds} seconds are in the past")
    return int(seconds * 1000)


class Jobs:
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
        options: PopOptions,
        interceptors: Interceptors,
        polls: Polls | None = None,
    ) -> None:
        self.options = options
        self.expired = 0
        self.unreadable = 0
        self.broker = Broker(session, options.topic)
        self.acks = Acks(self.broker, options.group, options.topic)
        self._session = session
        self._interceptors = interceptors
        self.wanted = subscription(options.topic, options.wanted, 0)
        self._matches = matcher(self.wanted)
        self._ready: deque[Job] = deque()
        self._arrived = asyncio.Event()
        self.polls = polls or Polls(session, options.topic)
        self.polls.to = self
        self._held: WeakValueDictionary[int, Job] = WeakValueDictionary()  # not settled
        self._numbers = itertools.count()
        self._renewing: asyncio.Task[None] | None = None
        self.closed = False

    # what the application does

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Job:
        while not self.closed:
            self._arrived.clear()
            job = self._next()
            if job is not None:
                return job
            self.polls.ask()
            await self._arrived.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End it: what was not handed out goes back at once; jobs that are handed out may still be settled."""
        self.closed = True
        self._arrived.set()
        if self._renewing is not None:
            self._renewing.cancel()
        for job in list(self._held.values()):
            job.end(False)
        left = list(self._ready)
        self._ready.clear()
        if left:
            await asyncio.shield(self.start(self._give_back(left)))

    # popping

    def _next(self) -> Job | None:
        while self._ready:
            job = self._ready.popleft()
            if job.expires_in <= 0:
                self.expired += 1
                continue
            if self._interceptors:
                group = self._session.namespace.shown(self.options.group)
                job.begin(self._interceptors.on_receive(job.message, group))
            if self._interceptors or self.options.renew:
                job.number = next(self._numbers)
                self._held[job.number] = job
            if self.options.renew and self._renewing is None:
                self._renewing = self._session.tasks.keep("pop-renew", self._renew)
            return job
        return None

    def take(self, popped: Popped, name: str) -> None:
        """What a broker gave: to be handed out, or acknowledged, given back or dead."""
        options = self.options
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
                    log.warning(words, options.group, options.topic, error)
                    record.body, record.sys_flag, readable = b"", 0, False
                    message = received(record, name)
                message.topic = options.topic
                self._session.namespace.show(message)
                message.properties.pop(POP_CK, None)
                job = Job(self, message, receipt, over_s)
                if self.closed:
                    aside.append(job.give_back)
                elif not readable or message.reconsume_times >= options.most_tries:
                    aside.append(job.bury)
                elif self._matches is not None and not self._matches(record, message):
                    aside.append(job.ack)
                else:
                    self._ready.append(job)
        finally:
            if aside:
                self.start(self._aside(aside))

    async def _give_back(self, jobs: list[Job]) -> None:
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
        half_s = self.options.invisible_ms / 2000
        while True:
            await asyncio.sleep(half_s / 3)
            due = [
                job
                for job in list(self._held.values())
                if job.expires_in < half_s and not job.settled
            ]
            await self._aside([partial(job.extend, 2 * half_s) for job in due])
            health.worked()

    def arrived(self) -> None:
        """A broker has answered: who waits may look, or ask again."""
        self._arrived.set()

    # what jobs need

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Begin what goes on without its caller."""
        return self._session.tasks.start("pop", work)

    def settled(self, job: Job) -> None:
        """A job has come to its end."""
        self._held.pop(job.number, None)
