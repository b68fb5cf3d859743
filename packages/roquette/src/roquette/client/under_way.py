"""Sends, and messages at handlers, from begin to end: what interceptors are told, and what a flush waits for. HOT."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from roquette.client.interceptors import Handled, Interceptor, Sent
from roquette.client.receipt import SendReceipt
from roquette.errors import ClientError
from roquette.message.message import Message, ReceivedMessage
from roquette.message.names import RETRY_PREFIX

log = logging.getLogger("roquette.client")

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


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
        """Begin a send; of those that our consumers give back nobody is told."""
        if not self._listed or message.topic.startswith(RETRY_PREFIX):
            return UNSEEN
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


# Sends that have begun and not ended, so that a flush, or the client's end, can wait for them.


class Lot:
    """Sends that began between two flushes. `with` around each, or `begin` and `end`."""

    __slots__ = ("count", "ended")

    def __init__(self) -> None:
        self.count: int = 0
        self.ended: asyncio.Future[None] | None = None  # made by who waits

    def begin(self) -> None:
        """One more."""
        self.count += 1

    def end(self) -> None:
        """One less."""
        self.count -= 1
        if self.ended is not None and not self.count and not self.ended.done():
            self.ended.set_result(None)

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.end()


class UnderWay:
    """The sends of one producer.

    Attributes:
        lot: what begins now is one of these.
    """

    def __init__(self) -> None:
        self.lot = Lot()
        self._older: list[Lot] = []

    async def wait(self, limit_s: float | None) -> int:
        """Until what has begun so far has ended, not what begins meanwhile; how many have not after `limit_s`."""
        self._older = lots = [lot for lot in (*self._older, self.lot) if lot.count]
        self.lot = Lot()
        loop = asyncio.get_running_loop()
        for lot in lots:
            if lot.ended is None:
                lot.ended = loop.create_future()
        if lots:
            await asyncio.wait([lot.ended for lot in lots if lot.ended], timeout=limit_s)
        return sum(lot.count for lot in lots)


class OneWays:
    """One-way sends to each address since an answer of it has said that all before had come there.

    Attributes:
        lost: sends whose connection ended before such an answer.
    """

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}
        self.lost = 0

    def sent(self, address: str) -> None:
        """One more."""
        self._sent[address] = self._sent.get(address, 0) + 1

    def count(self, address: str) -> int:
        """Return how many have gone there: what is asked now is answered after them."""
        return self._sent.get(address, 0)

    def arrived(self, address: str, count: int) -> None:
        """So many of them have come there."""
        if (left := self._sent.pop(address, 0) - count) > 0:
            self._sent[address] = left

    def end(self, address: str) -> None:
        """The connection has ended."""
        self.lost += self._sent.pop(address, 0)

    async def wait(self, beat: Callable[[str, int], Awaitable[None]], limit_s: float) -> int:
        """Ask each address something that is answered behind them; how many have perhaps not come there."""
        for address in list(self._sent):
            try:
                await beat(address, max(1, int(limit_s * 1000)))
            except ClientError as error:
                log.info("one-way sends may be lost address=%s error=%s", address, error)
                self.end(address)
        lost, self.lost = self.lost, 0
        return lost
