"""Messages of one queue that a consumer holds and works on, and the offset that may be committed. Pure."""

import heapq
from collections.abc import Iterable

from roquette.message.message import MessageQueue, ReceivedMessage


class Prefetch:
    """Bytes of bodies that a client has pulled and not handled, over all its queues."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class ProcessQueue:
    """Bookkeeping of one assigned queue (Apache: ProcessQueue).

    The offset to commit is the smallest unfinished one, or the next to pull when all are finished.
    """

    __slots__ = (
        "_first",
        "_heap",
        "_prefetch",
        "_unfinished",
        "count",
        "dropped",
        "finished_to",
        "last_pull_ms",
        "locked",
        "next_offset",
        "queue",
        "size",
    )

    def __init__(
        self, queue: MessageQueue, next_offset: int, prefetch: Prefetch | None = None
    ) -> None:
        self.queue = queue
        self._first = next_offset
        self._prefetch = prefetch or Prefetch(0)
        self.next_offset = next_offset
        self.finished_to = -1  # the largest offset that is finished
        self.count = 0
        self.size = 0
        self.dropped = False
        self.locked = False
        self.last_pull_ms = 0
        self._unfinished: dict[int, int] = {}  # queue offset -> body size
        self._heap: list[int] = []

    def take(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Remember what was pulled; `next_offset` is where the next pull begins."""
        for message in messages:
            offset = message.queue_offset
            if offset not in self._unfinished:
                self._unfinished[offset] = len(message.body)
                heapq.heappush(self._heap, offset)
                self.count += 1
                self.size += len(message.body)
                if not self.dropped:
                    self._prefetch.used += len(message.body)
        self.next_offset = next_offset

    def finish(self, message: ReceivedMessage) -> None:
        """A message was consumed, or handed back to the broker."""
        size = self._unfinished.pop(message.queue_offset, None)
        if size is not None:
            self.count -= 1
            self.finished_to = max(self.finished_to, message.queue_offset)
            self.size -= size
            if not self.dropped:
                self._prefetch.used -= size

    def drop(self) -> None:
        """Given up: what is still in work counts for whoever has the queue next."""
        if not self.dropped:
            self.dropped = True
            self._prefetch.used -= self.size

    def must_wait(self) -> bool:
        """Return True when the client has pulled enough: a queue with nothing in work may pull all the same."""
        return self.size > 0 and self._prefetch.used > self._prefetch.limit

    def committable(self) -> int:
        """The offset from which a successor must continue."""
        while self._heap and self._heap[0] not in self._unfinished:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else self.next_offset

    def moved(self) -> bool:
        """Return True when there is more to commit than where we began."""
        return self.committable() != self._first

    def span(self) -> int:
        """Distance from the oldest unfinished offset to the newest pulled one."""
        return max(0, self.next_offset - self.committable())
