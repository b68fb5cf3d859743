"""Interceptors of an application, or of a feature such as message trace, around each send and each handled message.

Apache: SendMessageHook, ConsumeMessageHook. Interceptors run on the client's loop and must not wait.
"""

from collections.abc import Callable
from typing import Protocol

from roquette.client.receipt import SendReceipt
from roquette.message.message import Message, ReceivedMessage

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
