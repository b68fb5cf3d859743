"""Every table of the client whose keys applications or servers choose has its bound here. All are caches: the entry that came
first goes, and is asked for again when it is wanted."""

from collections.abc import Container, Iterable
from typing import Final, TypeVar

from roquette.errors import RemoteProtocolError

TOPICS: Final = 10_000  # topics whose route is kept, and the turn of their queues; queues whose headers are half encoded
BROKERS: Final = 10_000  # brokers that are avoided for a while
QUEUES: Final = 1_000_000  # of one topic, on all brokers: a list of them is 120 MB

K = TypeVar("K")
V = TypeVar("V")


def keep(table: dict[K, V], key: K, value: V, most: int, stays: Container[K] = ()) -> None:
    """Set an entry of a table that has `most` at most: the oldest goes that is not in `stays`."""
    if key not in table:
        for _ in range(len(table)):
            if len(table) < most:
                break
            oldest = next(iter(table))
            old = table.pop(oldest)
            if oldest in stays:
                table[oldest] = old  # now the youngest
    table[key] = value


def check_queues(topic: str, counts: Iterable[int]) -> None:
    """Raise RemoteProtocolError when a route names more queues than any topic has."""
    total = sum(max(0, count) for count in counts)
    if total > QUEUES:
        raise RemoteProtocolError(
            f"the route of topic {topic} names {total} queues, more than {QUEUES}: look at what the name servers "
            "hold of it (topicRoute, and its order configuration)"
        )
