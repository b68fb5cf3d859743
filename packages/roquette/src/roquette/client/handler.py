"""Running the application's handler: what it answers, what it raises, and whether we are inside of it."""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from functools import partial
from types import CoroutineType
from typing import Any, Final, Self

from roquette.base.lifecycle import Health, waiting_at
from roquette.client import calls
from roquette.client.consumer_options import MemberOptions, Model, for_loop, not_understood, verdict
from roquette.client.core.process_queue import ProcessQueue
from roquette.client.interceptors import Handled
from roquette.client.producer import Producer
from roquette.client.session import Session
from roquette.client.under_way import Interceptors
from roquette.errors import ClientError, MessageSettled, Retry, StoreError
from roquette.message.message import DONE, Done, HandlerDecision, Message, ReceivedMessage
from roquette.message.names import retry_topic
from roquette.message.properties import (
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRAN_MSG,
)
from roquette.wire.bodies.tables import RETRY_WAITS_MS
from roquette.wire.headers import ConsumerSendMsgBackRequestHeader

log = logging.getLogger("roquette.client")

Handler = Callable[[ReceivedMessage], "Awaitable[bool | None] | bool | None"]
"""Returns None or True when done; False, an exception or any other answer lets the message come again later."""

Messages = list[ReceivedMessage]
"""Some of one queue, in its order."""

BatchHandler = Callable[[Messages], "Awaitable[int | None] | int | None"]
"""Returns None or True when all are done, False when none is, or how many of the first are: the others come again."""

ACKED: Final = HandlerDecision(accepted=True)

_RUNNING: Final["ContextVar[HandlerRunner | None]"] = ContextVar("handler", default=None)


def accepted(message: ReceivedMessage, answered: bool) -> bool:
    """Return True when a message is done: as was said of it, or else as the handler answered."""
    return answered if message.decision is None else message.decision.accepted


class QueueDelivery:
    """Delivery of messages of queues: keeps what is said of a message with it."""

    def ack(self, message: ReceivedMessage) -> Done:
        """It is done."""
        return self._decide(message, ACKED)

    def retry(self, message: ReceivedMessage, after_s: float | None) -> Done:
        """It comes again."""
        return self._decide(message, HandlerDecision(after_s=after_s))

    def dead_letter(self, message: ReceivedMessage) -> Done:
        """It is dead."""
        return self._decide(message, HandlerDecision(dead=True))

    def extend(self, message: ReceivedMessage, seconds: float) -> Done:
        """Raises ValueError: it is ours as long as its queue is."""
        raise ValueError(f"message {message.message_id} is not popped: it has no time to extend")

    def expires_in(self, message: ReceivedMessage) -> None:
        """It has no time."""

    def _decide(self, message: ReceivedMessage, decision: HandlerDecision) -> Done:
        if message.decision is not None and message.decision != decision:
            raise MessageSettled(f"message {message.message_id} is settled already")
        message.decision = decision
        return DONE


def inside_handler() -> bool:
    """Return True when a handler, of whatever consumer, is what runs us: it must not wait for its own end."""
    return _RUNNING.get() is not None


class HandlerRunner(QueueDelivery):
    """The handler of one consumer: what it says of a message counts when it has ended. `busy` counts the calls it is at work on, `cut_off` those it was ended at.

    Each call has a copy of the context that the consumer was made in: what one sets, the next does not see.

    Args:
        many: the handler takes lists of messages.
        most: calls at the same time, of a plain function: it runs in threads, which nobody can cut off.
        next_step: what becomes of a message that the handler failed at, in words.
    """

    def __init__(
        self,
        handler: Handler | BatchHandler,
        group: str,
        interceptors: Interceptors,
        *,
        many: bool = False,
        most: int = 1,
        next_step: Callable[[ReceivedMessage], str] = lambda message: "",
    ) -> None:
        self._next_step = next_step
        self._context = copy_context()
        self._context.run(_RUNNING.set, self)
        self._handler = for_loop(handler, most)
        self._many = many
        self._group = group
        self._interceptors = interceptors
        self.busy = 0
        self.cut_off = 0
        self._waiting: dict[int, tuple[ReceivedMessage, Awaitable[object] | None, float]] = {}

    def stacks(self) -> str:
        """The handlers that wait for something, the oldest first: message, age, and where in the code each is."""
        now = asyncio.get_running_loop().time()
        lines: list[str] = []
        for message, task, began in sorted(self._waiting.values(), key=lambda entry: entry[2]):
            queue = f"{message.queue.topic}@{message.queue.broker_name}:{message.queue.queue_id}"
            lines.append(
                f"handler of {self._group} message={message.message_id} queue={queue} offset={message.queue_offset} "
                f"age={now - began:.3f}s"
            )
            lines += [f"    {line}" for line in (waiting_at(task) if task is not None else ())]
        return "\n".join(lines)

    def inside(self) -> bool:
        """Return True when this handler is what runs us, in its own task or in one that it started."""
        return _RUNNING.get() is self

    def began(self, message: ReceivedMessage) -> Handled | None:
        """The application works on a message that it asked for, outside of the handler; `ended` is called at its end."""
        self.busy += 1
        now = asyncio.get_running_loop().time()
        self._waiting[id(message)] = (message, asyncio.current_task(), now)
        return self._interceptors.on_receive(message, self._group) if self._interceptors else None

    def ended(self, message: ReceivedMessage, tell: Handled | None, accepted: bool) -> None:
        """The application has done that work, or given it up; `tell`: what `began` returned."""
        del self._waiting[id(message)]
        self.busy -= 1
        if tell is not None:
            tell(accepted, None)

    async def run(self, messages: Messages) -> tuple[int, Exception | None]:
        """Run the handler; return how many of the first messages it accepted, and what it raised."""
        self.busy += 1
        context = self._context.copy()
        raised: Exception | None = None
        done, first = 0, messages[0]
        for message in messages:
            message.delivery, message.decision = self, None
        told: list[tuple[int, Handled]] = []
        if self._interceptors:
            told = [
                (place, context.run(self._interceptors.on_receive, message, self._group))
                for place, message in enumerate(messages)
            ]
            if self._many:
                tell = context.run(self._interceptors.on_batch, messages, self._group)
                told.append((len(messages) - 1, tell))
        try:
            result: object = context.run(self._handler, messages if self._many else first)
            if isinstance(result, Awaitable):
                steps = result if isinstance(result, CoroutineType) else _steps(result)
                try:
                    waits_for = context.run(steps.send, None)
                except StopIteration as end:  # most handlers of short work wait for nothing
                    result = end.value
                else:
                    began = asyncio.get_running_loop().time()
                    self._waiting[id(first)] = (first, steps, began)
                    result = await _Within(context, steps, waits_for)
            done = _accepted(result, len(messages)) if self._many else verdict(result) is not False
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self.cut_off += 1
                raise  # we are ended; else something the handler awaited was
        except Retry as again:
            for message in messages:
                if message.decision is None:
                    message.decision = HandlerDecision(after_s=again.after_s)
        except Exception as error:  # noqa: BLE001 - the application's
            self._failed(messages, error)
            raised = error
        finally:
            self._waiting.pop(id(first), None)
            for message in messages:
                message.delivery = None
            if not self._many:
                decision = first.decision
                done = int(done > 0 if decision is None else decision.accepted)
            for place, tell in reversed(told):
                context.run(tell, accepted(messages[place], place < done), raised)
            self.busy -= 1
        return done, raised

    def _failed(self, messages: Messages, error: Exception) -> None:
        first = messages[0]
        log.warning(
            "handler failed group=%s topic=%s id=%s keys=%s of=%d attempt=%d: %s",
            self._group,
            first.topic,
            first.message_id,
            " ".join(first.keys),
            len(messages),
            first.reconsume_times + 1,
            self._next_step(first),
            exc_info=error,
        )


class _Within:
    """Goes on with a coroutine in a context, on the task of who waits: a task for each message would cost more than the rest of the call.

    Args:
        waits_for: what its first step waits for.
    """

    __slots__ = ("_context", "_steps", "_waits_for")

    def __init__(
        self, context: Context, steps: Coroutine[Any, Any, object], waits_for: object
    ) -> None:
        self._context = context
        self._steps = steps
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, object]:
        run, steps, waits_for = self._context.run, self._steps, self._waits_for
        step: Callable[..., Any]
        value: Any
        while True:
            try:
                step, value = steps.send, (yield waits_for)
            except (Exception, asyncio.CancelledError, GeneratorExit) as error:  # noqa: BLE001 - into the handler
                step, value = steps.throw, error
            try:
                waits_for = run(step, value)
            except StopIteration as end:
                return end.value


async def _steps(awaited: Awaitable[object]) -> object:
    """A future, or something else that is no coroutine, as one."""
    return await awaited


def _accepted(result: object, most: int) -> int:
    """Return how many of the first messages an answer of a batch handler accepts."""
    if result is None or result is True:
        return most
    if isinstance(result, int):  # False is 0
        return min(max(result, 0), most)
    raise not_understood(result, "None, True, False nor how many are done")


# Giving a failed message back: to the broker it came from, or as a new message to the retry topic.


DEFAULT_MAX_RECONSUME = 16
_SEND_BACK_MS = 5_000
DEAD = -1
"""The delay level that sends a message to the dead letters at once (AbstractSendMessageProcessor.consumerSendMsgBack)."""


async def hand_back(
    session: Session,
    producer: Producer,
    group: str,
    message: ReceivedMessage,
    max_reconsume_times: int,
    delay_level: int = 0,
) -> bool:
    """Let the message come again later, or with `DEAD` never; False when no way worked (sendMessageBack, its
    fall-back, which would send an unreadable body for a good one and is for those that come again only)."""
    most = max_reconsume_times if max_reconsume_times >= 0 else DEFAULT_MAX_RECONSUME
    header = ConsumerSendMsgBackRequestHeader(
        offset=message.physical_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.message_id,
        origin_topic=session.namespace.wrap(message.topic),
        max_reconsume_times=most,
        bname=message.queue.broker_name,
    )
    try:
        address = session.master_of(message.queue)
        await session.api.call(address, calls.send_back(header), timeout_ms=_SEND_BACK_MS)
        return True
    except ClientError as error:
        if delay_level == DEAD:
            log.warning("dead letter failed id=%s error=%s", message.message_id, error)
            return False
        log.warning(
            "send back failed, sending to the retry topic id=%s error=%s", message.message_id, error
        )
    return await resend(producer, group, message, message.reconsume_times + 1, most, delay_level)


def next_step(options: MemberOptions, pause_ms: int, message: ReceivedMessage) -> str:
    """Say what becomes of a message that the handler failed at, for the log."""
    failures, most = message.reconsume_times, options.max_reconsume_times
    if options.model is Model.BROADCASTING:
        return "it is dropped, broadcasting has no retries"
    if options.orderly:
        return f"it is tried again in {pause_ms} ms, what follows in its queue waits"
    if failures >= (most if most >= 0 else DEFAULT_MAX_RECONSUME):
        return "it goes to the dead letters"
    levels = options.retry_levels
    level = levels[min(failures, len(levels) - 1)] if levels else 3 + failures
    return f"it comes again, delay level {level}"


def level_after(after_s: float | None) -> int:
    """The first delay level, of Apache's, that is not shorter, or the longest; 0 for None: the broker's by failures."""
    if after_s is None:
        return 0
    return min(bisect_left(RETRY_WAITS_MS, after_s * 1000) + 1, len(RETRY_WAITS_MS))


class SendBacks:
    """Messages of one member that go back to the broker.

    Args:
        finish: called with what has gone back.
    """

    def __init__(
        self,
        session: Session,
        producer: Producer,
        group: str,
        max_reconsume_times: int,
        finish: Callable[[ProcessQueue, ReceivedMessage], None],
    ) -> None:
        self._hand_back = partial(hand_back, session, producer, group)
        self._most = max_reconsume_times
        self._tasks = session.tasks
        self._finish = finish
        self._levels: tuple[int, ...] = ()
        self._pending: dict[ProcessQueue, int] = {}

    def with_levels(self, levels: tuple[int, ...]) -> Self:
        """Give back with these delay levels, by failures; (): with the broker's."""
        self._levels = levels
        return self

    def has_pending(self, state: ProcessQueue) -> bool:
        """Return True when some messages of a queue are on their way."""
        return state in self._pending

    def begin(self, state: ProcessQueue, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Hand a message back, as often as it takes while its queue is ours."""
        decision = message.decision
        if not delay_level and decision is not None:
            delay_level = DEAD if decision.dead else level_after(decision.after_s)
        if not delay_level and self._levels:
            delay_level = self._levels[min(message.reconsume_times, len(self._levels) - 1)]
        self._pending[state] = self._pending.get(state, 0) + 1
        task = self._tasks.keep("hand-back", partial(self._repeat, state, message, delay_level))
        task.add_done_callback(lambda _: self._count_down(state))

    def _count_down(self, state: ProcessQueue) -> None:
        self._pending[state] -= 1
        if not self._pending[state]:
            del self._pending[state]

    async def _repeat(
        self, state: ProcessQueue, message: ReceivedMessage, delay_level: int, health: Health
    ) -> None:
        while not await self._hand_back(message, self._most, delay_level):
            if state.dropped:
                return
            await asyncio.sleep(5.0)  # neither way back worked: it stays ours, unacknowledged
        self._finish(state, message)


async def resend(
    producer: Producer,
    group: str,
    message: ReceivedMessage,
    failures: int,
    most: int,
    delay_level: int = 0,
) -> bool:
    """Send a failed message to the retry topic; with `failures` >= `most` the broker moves it to the dead-letter topic.

    False when it could not be sent.
    """
    again = Message(retry_topic(group), message.body, flag=message.flag)
    again.properties = {
        **{
            name: value
            for name, value in message.properties.items()
            if name not in (TRAN_MSG, DELAY)
        },
        ORIGIN_MESSAGE_ID: message.properties.get(ORIGIN_MESSAGE_ID, message.message_id),
        RETRY_TOPIC: producer.namespace.wrap(message.topic),
        RECONSUME_TIME: str(failures),
        MAX_RECONSUME_TIMES: str(most),
    }
    again.delay_level = min(delay_level or 3 + message.reconsume_times, producer.max_delay_level)
    try:
        await producer.send(again)
        return True
    except (ClientError, StoreError) as error:
        log.warning("message could not be given back id=%s error=%s", message.message_id, error)
        return False
