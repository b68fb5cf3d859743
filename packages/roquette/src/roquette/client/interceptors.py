"""Interceptors of an application, or of a feature such as message trace, around each send and each handled message.

Apache: SendMessageHook, ConsumeMessageHook. Interceptors run on the client's loop and must not wait.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from roquette.client.send_request import SendReceipt
from roquette.message.message import Message, ReceivedMessage

log = logging.getLogger("roquette.client")

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

Sent = Callable[[SendReceipt | None, BaseException | None], None]
"""Called once a send has ended: with its receipt, or with why there is none (both None: one way)."""

Handled = Callable[[bool, BaseException | None], None]
"""Called once a handler has ended: whether it accepted the message, and what it raised."""


class Interceptor(Protocol):
    """Called before each message is sent and before each message is handled.

    What a method returns is called when that has ended; in the same task for a handler.
    """

    def on_send(self, message: Message, group: str) -> Sent | None:
        """Before `message` is sent by the producer group; it may change the message's properties."""
        ...

    def on_receive(self, message: ReceivedMessage, group: str) -> Handled | None:
        """Before a handler of the consumer group gets `message`."""
        ...


class Begun:
    """A send that interceptors have been told of; its end is the end of the `with` block."""

    __slots__ = ("_answer", "_ended", "_receipt")

    def __init__(self, ended: Sent | None) -> None:
        self._ended = ended
        self._answer: asyncio.Future[SendReceipt] | None = None
        self._receipt: SendReceipt | None = None

    def stored(self, receipt: SendReceipt) -> None:
        """The broker has it, whatever becomes of the rest of a batch."""
        if self._ended is not None:
            self._receipt = receipt

    def ends_with(self, answer: "asyncio.Future[SendReceipt]") -> None:
        """Its end is that of the future."""
        if self._ended is not None:
            self._answer = answer
            answer.add_done_callback(self._answered)

    def _answered(self, answer: "asyncio.Future[SendReceipt]") -> None:
        assert self._ended is not None
        error = asyncio.CancelledError() if answer.cancelled() else answer.exception()
        self._ended(None if error is not None else answer.result(), error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended is not None and self._answer is None:
            self._ended(self._receipt, None if self._receipt is not None else error)


UNSEEN: Final = Begun(None)
"""A send nobody is told of."""


class Interceptors:
    """Those of one client, in order; their ends run in reverse. An error of theirs is logged and harms nothing.

    False when there are none: hot paths ask that first.
    """

    def __init__(self) -> None:
        self._listed: list[Interceptor] = []

    def __bool__(self) -> bool:
        return bool(self._listed)

    def add(self, interceptor: Interceptor) -> None:
        """Call this one, too, after those already there."""
        self._listed.append(interceptor)

    def begin(self, message: Message, group: str) -> Begun:
        """Begin a send."""
        ends = [_guarded(each.on_send, message, group) for each in self._listed]

        def ended(receipt: SendReceipt | None, error: BaseException | None) -> None:
            for end in reversed(ends):
                if end is not None:
                    _guarded(end, receipt, error)

        return Begun(ended)

    def on_receive(self, message: ReceivedMessage, group: str) -> Handled:
        """Begin to handle a message; call what is returned at its end."""
        return _at_end([_guarded(each.on_receive, message, group) for each in self._listed])

    def on_batch(self, messages: Sequence[ReceivedMessage], group: str) -> Handled:
        """Begin a call with several messages, after each of them: for those that have an `on_batch`."""
        calls = [getattr(each, "on_batch", None) for each in self._listed]
        return _at_end([_guarded(call, messages, group) for call in calls if call is not None])


def _at_end(ends: Sequence[Handled | None]) -> Handled:
    def ended(accepted: bool, error: BaseException | None) -> None:
        for end in reversed(ends):
            if end is not None:
                _guarded(end, accepted, error)

    return ended


def _guarded(call: Callable[[A, B], T], first: A, second: B) -> T | None:
    try:
        return call(first, second)
    except Exception:
        log.exception("an interceptor failed")
        return None
