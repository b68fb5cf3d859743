"""Modules that share servers have topics of their own, wherever they run: what one has left there is not for another to find.

Which modules share a worker's servers depends on the order of files and on how long tests take, so two that use one name fail
now and then only. Here both orders fail, and two workers, too.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from roquette.message.names import is_system_topic
from roquette_spark.workers.inspector import ClusterInspector

Ends = dict[str, dict[tuple[str, int], int]]


@contextlib.contextmanager
def own_topics(address: str, module: str, claims: Path) -> Iterator[None]:
    """Claim for a module what it makes, changes or writes to meanwhile.

    Args:
        address: of the name server.
        claims: a directory that all workers of a run share.
    """
    before = queue_ends(address)
    yield
    claim(claims, module, touched(before, queue_ends(address)))


def queue_ends(address: str) -> Ends:
    """Of all topics: their queues, by broker and number, and the end of each."""
    inspector = ClusterInspector(address)
    found: Ends = {}
    for broker in inspector.brokers():
        topics = inspector.topics_of(broker)
        for topic in topics:
            found.setdefault(topic, {})
        for state in inspector.queue_states(broker, topics):
            place = (state.queue.broker_name, state.queue.queue_id)
            found[state.queue.topic][place] = state.max_offset
    return found


def touched(before: Ends, after: Ends) -> set[str]:
    """Topics that have come, or have other queues or ends; the servers' own are nobody's."""
    return {
        topic
        for topic, ends in after.items()
        if before.get(topic) != ends and not is_system_topic(topic)
    }


def claim(claims: Path, module: str, topics: Iterable[str]) -> None:
    """Note that topics are a module's; AssertionError if one is another's already.

    A note is a symbolic link to the module's name: it is there as a whole, or not at all.
    """
    claims.mkdir(parents=True, exist_ok=True)
    taken = dict[str, str]()
    for topic in sorted(topics):
        note = claims / topic
        try:
            note.symlink_to(module)
        except FileExistsError:
            owner = os.readlink(note)
            if owner != module:
                taken[topic] = owner
    assert not taken, f"{module} uses topics that other modules use on shared servers: {taken}"
