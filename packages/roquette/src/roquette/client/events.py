"""Events of a client, told to its application as they happen: connections, routes, shares of queues, full windows."""

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from roquette.errors import ClientError
from roquette.message.message import MessageQueue

log = logging.getLogger("roquette.client")


class EventKind(enum.StrEnum):
    """Kind of an event."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    ROUTE_CHANGED = "route changed"
    REBALANCED = "rebalanced"
    BLOCKED = "blocked"


class Event(NamedTuple):
    """One event of a client; what does not belong to its kind is empty.

    Attributes:
        address: of the name server or broker of a connection.
        topic: whose route changed, or to which the send is that waits.
        group: whose consumer has other queues now; `queues`: all that it has.
    """

    kind: EventKind
    address: str = ""
    topic: str = ""
    group: str = ""
    queues: tuple[MessageQueue, ...] = ()


Listener = Callable[[Event], object]
"""A plain function, called on the client's loop: it must not block."""


class Events:
    """The listeners of one client, told in order. An error of theirs is logged and harms nothing."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> None:
        """Tell this one, too."""
        self._listeners.append(listener)

    def tell(
        self,
        kind: EventKind,
        address: str = "",
        *,
        topic: str = "",
        group: str = "",
        queues: tuple[MessageQueue, ...] = (),
    ) -> None:
        """It has happened."""
        event = Event(kind, address, topic, group, queues)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("a listener of events failed")


# Sends that have begun and not ended, so that a flush, or the client's end, can wait for them.


class Lot:
    """Sends that began between two flushes. `with` around each, or `begin` and `end`."""

    __slots__ = ("count", "ended")

    def __init__(self) -> None:
        self.count = 0
        self.ended: asyncio.Future[None] | None = None  # made by who waits

    def begin(self) -> None:
        """One more."""
        self.count += 1

    def end(self, *error: object) -> None:
        """One less."""
        self.count -= 1
        if self.ended is not None and not self.count and not self.ended.done():
            self.ended.set_result(None)

    # The same functions, not calls of them: each send comes by here.
    __enter__ = begin
    __exit__ = end


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
