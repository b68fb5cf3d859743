"""Which queue the next message goes to. Pure."""

from collections.abc import Sequence

from roquette.base.javatypes import java_hash
from roquette.message.message import MessageQueue


class RoundRobin:
    """One after the other; on a retry, another broker than the one that failed (TopicPublishInfo)."""

    __slots__ = ("_next",)

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def pick(self, queues: Sequence[MessageQueue], avoid_broker: str | None = None) -> MessageQueue:
        """The next queue; `queues` is not empty."""
        count = len(queues)
        for _ in range(count if avoid_broker is not None else 1):
            self._next += 1
            queue = queues[self._next % count]
            if queue.broker_name != avoid_broker:
                return queue
        return self.pick(queues) if avoid_broker is not None else queue


def by_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Messages of one key share a queue (SelectMessageQueueByHash)."""
    return queues[abs(java_hash(key)) % len(queues)]
