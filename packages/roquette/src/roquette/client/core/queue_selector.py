"""Choice of the queue that the next message goes to. Pure."""

from collections.abc import Iterable, Sequence

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


class KeysPart(Exception):
    """Keys that were to share a queue do not share one of `queues`; nothing was sent to them."""

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        super().__init__(queues)
        self.queues = queues


def shares(
    queues: Sequence[MessageQueue], keys: Sequence[str], places: Iterable[int]
) -> list[list[int]]:
    """The places of keys, those of each queue together and in order; those without a key, "", are a share of their own."""
    found: dict[MessageQueue | None, list[int]] = {}
    for place in places:
        key = keys[place]
        found.setdefault(by_key(queues, key) if key else None, []).append(place)
    return list(found.values())


def by_keys(queues: Sequence[MessageQueue], keys: Iterable[str]) -> MessageQueue:
    """The one queue of all these keys; raises KeysPart."""
    named = list(keys)
    if len(shares(queues, named, range(len(named)))) > 1:
        raise KeysPart(queues)
    return by_key(queues, named[0])
