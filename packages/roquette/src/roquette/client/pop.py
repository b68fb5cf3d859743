"""Messages popped from a group: each is hidden from the others for a while, and done when it is acknowledged.

Apache: the POP push consumer and SimpleConsumer. Nothing is acknowledged that the application did not; what it neither
acknowledged, extended nor gave back comes again when its time is over.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar
from weakref import WeakValueDictionary, ref

from roquette.base.lifecycle import Health
from roquette.client import pop_requests
from roquette.client.calls import Call
from roquette.client.consumer import Opened
from roquette.client.consumer_options import Selection, matcher, subscription
from roquette.client.interceptors import Handled
from roquette.client.pop_requests import Popped, Receipt
from roquette.client.session import SOON_S, Session
from roquette.client.under_way import Interceptors
from roquette.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    CorruptRecord,
    MessageExpired,
    MessageSettled,
    Retry,
    Unreachable,
)
from roquette.message.message import HandlerDecision, MessageQueue, ReceivedMessage, received
from roquette.message.properties import POP_CK
from roquette.message.record import decode_records
from roquette.wire.bodies import SubscriptionData
from roquette.wire.codes import ResponseCode
from roquette.wire.headers import PopMessageRequestHeader

# Acknowledgements of popped messages: those that come while a request is under way go together in the next.


T = TypeVar("T")

MOST: Final = 256  # of one request
AGAIN_S: Final = 0.5  # between two tries of what may be said twice


class PopBroker:
    """Asks brokers what may be asked twice, until a popped message's time is over."""

    def __init__(self, session: Session, topic: str) -> None:
        self.session = session
        self._topic = topic

    async def ask(self, name: str, call: Call[T], over_s: float) -> T:
        """The answer of a broker's master. Raises ClientError: refused, or no answer in as many tries as a send has."""
        session = self.session
        loop = asyncio.get_running_loop()
        tries = 0
        while True:
            route = session.known_route(self._topic)
            try:
                address = session.master_of(MessageQueue(self._topic, name, -1))
                return await session.api.call(address, call)
            except ClientError as error:
                tries += 1
                enough = tries >= session.config.send_attempts or loop.time() + AGAIN_S >= over_s
                if not error.retriable or enough:
                    raise
            await session.masters.moved(route, self._topic, name, AGAIN_S)


class _Ack:
    __slots__ = ("answer", "over_s", "receipt")

    def __init__(self, receipt: Receipt, over_s: float, answer: "asyncio.Future[None]") -> None:
        self.receipt = receipt
        self.over_s = over_s
        self.answer = answer


class Acks:
    """Of one group and topic."""

    def __init__(self, broker: PopBroker, group: str, topic: str) -> None:
        self._broker = broker
        self._group = group
        self._topic = topic
        self._waiting: dict[str, deque[_Ack]] = {}
        self._singly: set[str] = set()  # brokers that do not know batches

    async def ack(self, receipt: Receipt, over_s: float) -> None:
        """Acknowledge a message. Raises ClientError."""
        name = receipt.broker_name
        if not receipt.batched or name in self._singly:
            await self._one(receipt, over_s)
            return
        ack = _Ack(receipt, over_s, asyncio.get_running_loop().create_future())
        line = self._waiting.get(name)
        if line is None:
            line = self._waiting[name] = deque()
            self._broker.session.tasks.start("pop-acks", self._send(name, line))
        line.append(ack)
        await ack.answer

    async def _one(self, receipt: Receipt, over_s: float) -> None:
        call = pop_requests.ack(self._group, self._topic, receipt)
        await self._broker.ask(receipt.broker_name, call, over_s)

    async def _send(self, name: str, line: deque[_Ack]) -> None:
        acks: list[_Ack] = []
        try:
            while line:
                acks = [line.popleft() for _ in range(min(MOST, len(line)))]
                await self._batch(name, acks)
        finally:
            del self._waiting[name]
            for ack in (*acks, *line):  # the client was closed
                if not ack.answer.done():
                    ack.answer.cancel()

    async def _batch(self, name: str, acks: list[_Ack]) -> None:
        if len(acks) > 1 and name not in self._singly:
            receipts = [ack.receipt for ack in acks]
            call = pop_requests.batch_ack(self._group, self._topic, receipts)
            try:
                await self._broker.ask(name, call, min(ack.over_s for ack in acks))
            except BrokerError as error:  # one by one, each with its own answer
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._singly.add(name)
            except ClientError as error:
                _fail(acks, error)
                return
            else:
                for ack in acks:
                    if not ack.answer.done():
                        ack.answer.set_result(None)
                return
        await asyncio.gather(*[self._answer(ack) for ack in acks])

    async def _answer(self, ack: _Ack) -> None:
        try:
            await self._one(ack.receipt, ack.over_s)
        except ClientError as error:
            _fail([ack], error)
        else:
            if not ack.answer.done():
                ack.answer.set_result(None)


def _fail(acks: list[_Ack], error: ClientError) -> None:
    for ack in acks:
        if not ack.answer.done():
            ack.answer.set_exception(error)


# Asking brokers for messages: at most one pop under way at each.
# A broker answers a pop although nobody waits for it any more, and hides what it gives. So pops outlive the `PoppedMessages` that asked: the next `PoppedMessages` of the same group, topic and filter gets their answers.


HOLD_EXTRA_MS: Final = 5_000  # an answer to a pop may come so long after the broker has held it


@dataclass(frozen=True, slots=True, kw_only=True)
class PopPlan:
    """Plan of popping; `PopOptions` explains each.

    Attributes:
        timeout_s: after so long without a message there are no more.
    """

    topic: str
    group: str
    wanted: Selection = "*"
    invisible_ms: int = 60_000
    batch: int = 16
    from_first: bool = False
    orderly: bool = False
    renew: bool = False
    most_tries: int = 17
    timeout_s: float | None = None

    @property
    def pool(self) -> tuple[object, ...]:
        """Key of those that ask for the same, and may take each other's answers."""
        return self.topic, self.group, self.wanted, self.orderly


class Taker(Protocol):
    """Receiver of the answers."""

    _plan: PopPlan
    _wanted: SubscriptionData

    def _take(self, popped: Popped, name: str) -> None:
        """Messages of a broker. Raises CorruptRecord, RemoteProtocolError."""
        ...

    def _poll_ended(self) -> None:
        """A pop has ended."""
        ...


class Polls:
    """The pops under way; `to` gets their answers."""

    to: Taker

    def __init__(self, session: Session, topic: str) -> None:
        self._session = session
        self._topic = topic
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._attempts: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def ask(self) -> None:
        """Begin to pop from each broker that is not asked already."""
        route = self._session.known_route(self._topic)
        names = {queue.broker_name for queue in route.subscribe} if route is not None else set()
        for name in names or {""}:  # "": the route is asked for
            if name not in self._tasks:
                self._tasks[name] = self._session.tasks.start("pop", self._poll(name))

    async def _poll(self, name: str) -> None:
        session, topic = self._session, self._topic
        route = session.known_route(topic)
        pause_s = session.config.pull_retry_ms / 1000
        try:
            if not name:
                await session.route(topic, fresh=True)
                route = session.known_route(topic)
                if route is None or not route.subscribe:
                    raise ClientError(f"topic {topic} has no queue that can be read")
                return
            await self._pop(name)
        except (ClientError, CorruptRecord) as error:
            session.noise.warning(
                f"pop-{topic}-{name}", "pop failed topic=%s broker=%s error=%s", topic, name, error
            )
            if isinstance(error, Unreachable):  # it may be starting
                pause_s = SOON_S
            if name:
                await session.masters.moved(route, topic, name, pause_s)
            else:
                await asyncio.sleep(SOON_S)
        finally:
            del self._tasks[name]
            self.to._poll_ended()

    async def _pop(self, name: str) -> None:
        session, plan, wanted = self._session, self.to._plan, self.to._wanted
        hold_ms = session.config.pull_hold_ms
        if plan.orderly and name not in self._attempts:
            self._attempts[name] = session.entropy.token(16)
        header = PopMessageRequestHeader(
            consumer_group=plan.group,
            topic=plan.topic,
            queue_id=-1,
            max_msg_nums=plan.batch,
            invisible_time=plan.invisible_ms,
            poll_time=hold_ms,
            init_mode=0 if plan.from_first else 1,
            exp_type=wanted.expression_type,
            exp=wanted.sub_string,
            order=plan.orderly,
            attempt_id=self._attempts.get(name),
            bname=name,
        )
        address = session.master_of(MessageQueue(plan.topic, name, -1))
        popped = await session.api.call(
            address, pop_requests.pop(header), timeout_ms=hold_ms + HOLD_EXTRA_MS
        )
        self._attempts.pop(name, None)  # one that was not answered gets the same messages again
        if popped.full:
            await asyncio.sleep(session.config.pull_retry_ms / 1000)
        elif popped.records:
            self.to._take(popped, name)


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
