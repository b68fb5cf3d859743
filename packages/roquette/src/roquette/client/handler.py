"""Running the application's handler: what it answers, what it raises, and whether we are inside of it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from types import CoroutineType
from typing import Any, Final

from roquette.base.stacks import waiting_at
from roquette.client.answers import for_loop, not_understood, verdict
from roquette.client.interceptors import Handled, Interceptors
from roquette.errors import MessageSettled, Retry
from roquette.message.message import DONE, Done, HandlerDecision, ReceivedMessage

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
