"""Requests we sent and whose answers we await: opaque -> future, bounded, expiring."""

import asyncio
import heapq

from roquette.errors import ClientError, ConnectError, RequestTimeout, TooManyRequests
from roquette.wire.command import Command


class PendingTable:
    """The outstanding requests of one connection. Deadlines are event-loop seconds.

    Raises:
        TooManyRequests: by `add`, when `capacity` requests are in flight (Apache: clientAsyncSemaphoreValue).
    """

    __slots__ = ("_capacity", "_deadlines", "_futures", "answered")

    def __init__(self, capacity: int = 65_535) -> None:
        self._capacity: int = capacity
        self.answered: bool = False  # once, by whoever is at the other end
        self._futures: dict[int, asyncio.Future[Command]] = {}
        self._deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._futures)

    def check(self) -> None:
        """Raise TooManyRequests when full: asked before a request is encoded."""
        if len(self._futures) >= self._capacity:
            raise TooManyRequests(f"{self._capacity} requests are in flight on this connection")

    def add(self, opaque: int, future: "asyncio.Future[Command]", deadline: float) -> None:
        """Remember a request until it is answered, expires or the connection is lost."""
        self._futures[opaque] = future
        heapq.heappush(self._deadlines, (deadline, opaque))

    def resolve(self, command: Command) -> bool:
        """Give an answer to the future that waits for it; False without one."""
        future = self._futures.pop(command.opaque, None)
        if future is None:
            return False
        self.answered = True
        if not future.done():
            future.set_result(command)
        if not self._futures:
            self._deadlines.clear()
        return True

    def expire(self, now: float, address: str) -> None:
        """Fail what is past its deadline."""
        while self._deadlines and self._deadlines[0][0] <= now:
            opaque = heapq.heappop(self._deadlines)[1]
            future = self._futures.pop(opaque, None)
            if future is not None and not future.done():
                future.set_exception(RequestTimeout(f"no answer from {address} in time"))

    def fail_all(self, error: ClientError | None, address: str) -> None:
        """The connection is gone: nothing will be answered."""
        futures = list(self._futures.values())
        self._futures.clear()
        self._deadlines.clear()
        for future in futures:
            if not future.done():
                future.set_exception(error or ConnectError(f"connection to {address} was lost"))
