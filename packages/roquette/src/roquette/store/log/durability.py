"""What waits for the disk: tickets released in order when the log is durable far enough. Pure."""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

NEVER = 1 << 62


class DurabilityGate(Generic[T]):
    """Tokens (replies, usually) behind log offsets. The driver syncs and tells how far.

    Appends are in log order, so waiting is a queue; a late comer is put in its place.
    """

    def __init__(self, durable_offset: int = 0) -> None:
        self._waiting: deque[tuple[int, int, T]] = deque()
        self.durable_offset = durable_offset

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, end_offset: int, token: T, deadline_ms: int = NEVER) -> bool:
        """Keep a token until the log is durable up to `end_offset`; False when it already is."""
        if end_offset <= self.durable_offset:
            return False
        entry = (end_offset, deadline_ms, token)
        if not self._waiting or self._waiting[-1][0] <= end_offset:
            self._waiting.append(entry)
        else:
            place = sum(1 for other in self._waiting if other[0] <= end_offset)
            self._waiting.insert(place, entry)
        return True

    def flushed(self, end_offset: int) -> list[T]:
        """The log is durable up to `end_offset`: the tokens to release, in log order."""
        self.durable_offset = max(self.durable_offset, end_offset)
        ready: list[T] = []
        while self._waiting and self._waiting[0][0] <= self.durable_offset:
            ready.append(self._waiting.popleft()[2])
        return ready

    def expire(self, now_ms: int) -> list[T]:
        """Tokens whose deadline has passed, in log order: their senders get FLUSH_DISK_TIMEOUT."""
        if not any(entry[1] <= now_ms for entry in self._waiting):
            return []
        expired = [entry[2] for entry in self._waiting if entry[1] <= now_ms]
        self._waiting = deque(entry for entry in self._waiting if entry[1] > now_ms)
        return expired

    def abandon(self) -> list[T]:
        """All tokens, because no sync will ever come (a failed disk)."""
        left = [entry[2] for entry in self._waiting]
        self._waiting.clear()
        return left
