"""The queue a message goes to, as Apache's proxy chooses it (SendMessageQueueSelector, MessageQueueSelector)."""

from typing import Final

from roquette.base.javatypes import java_hash
from roquette.message.names import PERM_WRITE
from roquette.wire.bodies.route import TopicRouteData

MOST_TOPICS: Final = 4_096


def bucket(group: str, count: int) -> int:
    """The jump consistent hash of a message group (Guava's Hashing.consistentHash of Java's hashCode)."""
    state = java_hash(group) & 0xFFFFFFFFFFFFFFFF
    candidate = 0
    while True:
        state = (2862933555777941757 * state + 1) & 0xFFFFFFFFFFFFFFFF
        step = ((state >> 33) + 1) / 0x80000000
        following = int((candidate + 1) / step)
        if not 0 <= following < count:
            return candidate
        candidate = following


class QueueChoice:
    """Chooses by the message group, else one after the other."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def choose(self, topic: str, route: TopicRouteData, group: str) -> tuple[str, int] | None:
        """Broker name and queue id, among the writable queues in the order of their brokers' names; None: there is none."""
        places = [
            (data.broker_name, data.write_queue_nums)
            for data in route.queue_datas
            if data.perm & PERM_WRITE and data.write_queue_nums > 0
        ]
        if len(places) == 1:
            count = places[0][1]
        else:
            places.sort()
            count = sum(place[1] for place in places)
        if not count:
            return None
        number = bucket(group, count) if group else self._next(topic) % count
        for broker, queues in places:
            if number < queues:
                return broker, number
            number -= queues
        return None

    def _next(self, topic: str) -> int:
        turn = self._turns.get(topic, 0)
        if len(self._turns) >= MOST_TOPICS and topic not in self._turns:
            self._turns.clear()
        self._turns[topic] = turn + 1
        return turn
