"""Division of queues among the members of a group. Pure: every member computes the same table from the same lists.

Results equal those of Apache's AllocateMessageQueueStrategy classes (golden: tests/golden/allocation).
"""

import bisect
import hashlib
from collections.abc import Callable, Sequence
from typing import Final

from roquette.message.message import MessageQueue
from roquette.message.names import RETRY_PREFIX

Strategy = Callable[[str, Sequence[str], Sequence[MessageQueue]], list[MessageQueue]]
"""(own client id, sorted client ids, sorted queues) -> own queues."""

_VIRTUAL_NODES: Final = 10


def averagely(
    client_id: str, clients: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """AVG: contiguous shares; the first members get one more (AllocateMessageQueueAveragely)."""
    if client_id not in clients or not queues:
        return []
    index, rest = clients.index(client_id), len(queues) % len(clients)
    size = 1 if len(queues) <= len(clients) else len(queues) // len(clients) + (index < rest)
    start = index * size if rest and index < rest else index * size + rest
    return list(queues[start : start + size])


def averagely_by_circle(
    client_id: str, clients: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: dealt like cards (AllocateMessageQueueAveragelyByCircle)."""
    if client_id not in clients:
        return []
    return list(queues[clients.index(client_id) :: len(clients)])


def consistent_hash(
    client_id: str, clients: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """CONSISTENT_HASH: ten virtual nodes a member on a ring of MD5 (AllocateMessageQueueConsistentHash)."""
    if client_id not in clients:
        return []
    ring = sorted(
        (_ring_hash(f"{client}-{node}"), client)
        for client in clients
        for node in range(_VIRTUAL_NODES)
    )
    places = [place for place, _ in ring]
    found = []
    for queue in queues:
        at = bisect.bisect_left(places, _ring_hash(_queue_text(queue)))
        if ring[at % len(ring)][1] == client_id:
            found.append(queue)
    return found


def _queue_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _ring_hash(text: str) -> int:
    """ConsistentHashRouter.MD5Hash: the first four bytes of the digest."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def by_config(assigned: Sequence[MessageQueue]) -> Strategy:
    """CONFIG: the queues somebody wrote down (AllocateMessageQueueByConfig).

    Other than there, failed messages come again: the queues of a retry topic of which none is written down are shared
    as by AVG. Write them down in all members, or in none.
    """

    def allocate(
        client_id: str, clients: Sequence[str], queues: Sequence[MessageQueue]
    ) -> list[MessageQueue]:
        topics = {queue.topic for queue in queues}
        found = [queue for queue in assigned if queue.topic in topics]
        if not found and any(topic.startswith(RETRY_PREFIX) for topic in topics):
            return averagely(client_id, clients, queues)
        return found

    return allocate


def by_machine_room(rooms: frozenset[str]) -> Strategy:
    """MACHINE_ROOM: only brokers named `room@broker` of the given rooms (AllocateMessageQueueByMachineRoom)."""

    def allocate(
        client_id: str, clients: Sequence[str], queues: Sequence[MessageQueue]
    ) -> list[MessageQueue]:
        if client_id not in clients:
            return []
        wanted = [
            q
            for q in queues
            if len(q.broker_name.split("@")) == 2 and q.broker_name.split("@")[0] in rooms
        ]
        index, (share, rest) = clients.index(client_id), divmod(len(wanted), len(clients))
        found = wanted[index * share : (index + 1) * share]
        if rest > index:
            found.append(wanted[index + share * len(clients)])
        return found

    return allocate


def nearby(
    room_of_broker: Callable[[str], str],
    room_of_client: Callable[[str], str],
    within: Strategy = averagely,
) -> Strategy:
    """MACHINE_ROOM_NEARBY: a room's queues to the room's own members; those of a room that has none to all members
    (AllocateMachineRoomNearby).

    Args:
        room_of_broker: of a broker's name. room_of_client: of a client id. within: shares the queues of one room.
    """

    def allocate(
        client_id: str, clients: Sequence[str], queues: Sequence[MessageQueue]
    ) -> list[MessageQueue]:
        if client_id not in clients:
            return []
        rooms: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            rooms.setdefault(room_of_broker(queue.broker_name), []).append(queue)
        members: dict[str, list[str]] = {}
        for client in clients:
            members.setdefault(room_of_client(client), []).append(client)
        own = room_of_client(client_id)
        found = within(client_id, members[own], rooms.pop(own)) if own in rooms else []
        for room in sorted(rooms):
            if room not in members:
                found += within(client_id, clients, rooms[room])
        return found

    return allocate


STRATEGIES: Final[dict[str, Strategy]] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": averagely_by_circle,
    "CONSISTENT_HASH": consistent_hash,
}
"""Strategies without parameters, by Apache's names."""
