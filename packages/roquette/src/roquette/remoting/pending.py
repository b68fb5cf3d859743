"""Requests we sent and whose answers we await: opaque -> who waits, bounded, expiring."""

import heapq
from typing import Protocol

from roquette.errors import ClientError, ConnectError, RequestTimeout, TooManyRequests
from roquette.wire.command import Command


class Waiter(Protocol):
    """Waiter for an answer: a future, or something lighter whose methods raise nothing."""

    def done(self) -> bool:
        """It waits no longer."""
        ...

    def set_result(self, result: Command, /) -> None:
        """The answer."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """Take the reason why there is none."""
        ...


class PendingTable:
    """The outstanding requests of one connection. Deadlines are event-loop seconds.

    Raises:
        TooManyRequests: by `add`, when `capacity` requests are in flight (Apache: clientAsyncSemaphoreValue).
    """

    __slots__ = ("_capacity", "_deadlines", "_waiters", "answered")

    def __init__(self, capacity: int = 65_535) -> None:
        self._capacity: int = capacity
        self.answered: bool = False  # once, by whoever is at the other end
        self._waiters: dict[int, Waiter] = {}
        self._deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._waiters)

    def check(self) -> None:
        """Raise TooManyRequests when full: asked before a request is encoded."""
        if len(self._waiters) >= self._capacity:
            raise TooManyRequests(f"{self._capacity} requests are in flight on this connection")

    def add(self, opaque: int, waiter: Waiter, deadline: float) -> None:
        """Remember a request until it is answered, expires or the connection is lost."""
        self._waiters[opaque] = waiter
        heapq.heappush(self._deadlines, (deadline, opaque))

    def resolve(self, command: Command) -> bool:
        """Give an answer to who waits for it; False without one."""
        waiter = self._waiters.pop(command.opaque, None)
        if waiter is None:
            return False
        self.answered = True
        if not waiter.done():
            waiter.set_result(command)
        if not self._waiters:
            self._deadlines.clear()
        return True

    def expire(self, now: float, address: str) -> None:
        """Fail what is past its deadline."""
        while self._deadlines and self._deadlines[0][0] <= now:
            opaque = heapq.heappop(self._deadlines)[1]
            waiter = self._waiters.pop(opaque, None)
            if waiter is not None and not waiter.done():
                waiter.set_exception(RequestTimeout(f"no answer from {address} in time"))

    def fail_all(self, error: ClientError | None, address: str) -> None:
        """The connection is gone: nothing will be answered."""
        waiters = list(self._waiters.values())
        self._waiters.clear()
        self._deadlines.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error or ConnectError(f"connection to {address} was lost"))
