"""What an application, or a feature such as message trace, does around each send and each handled message.

Apache: SendMessageHook, ConsumeMessageHook. Interceptors run on the client's loop and must not wait.
"""

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

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

    def on_send(self, message: Message, group: str) -> Sent:
        """Begin a send; call what is returned at its end."""
        ends = [_guarded(each.on_send, message, group) for each in self._listed]

        def ended(receipt: SendReceipt | None, error: BaseException | None) -> None:
            for end in reversed(ends):
                if end is not None:
                    _guarded(end, receipt, error)

        return ended

    def on_receive(self, message: ReceivedMessage, group: str) -> Handled:
        """Begin to handle a message; call what is returned at its end."""
        ends = [_guarded(each.on_receive, message, group) for each in self._listed]

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
