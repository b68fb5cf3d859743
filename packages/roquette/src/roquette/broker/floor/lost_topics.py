"""Rebuilds topics.json from the queues after a crash, or refuses to start."""

import logging
from collections.abc import Callable

from roquette.broker.floor.tables.topics import TopicTable
from roquette.errors import StoreError
from roquette.store.message_store import MessageStore
from roquette.wire.bodies import TopicConfig

log = logging.getLogger("roquette.broker")


def restore_topics(
    topics: TopicTable,
    store: MessageStore,
    is_system: Callable[[str], bool],
    now_ms: int,
    *,
    clean: bool,
) -> None:
    """Make topics out of their queues after a crash, which may have come before the file was written.

    A clean stop has written the file, always: without it the directory is another one, or somebody has removed
    it, and with it went what groups have consumed.

    Args:
        is_system: does the broker make the topic itself?
        clean: the store was closed by its last owner.

    Raises:
        StoreError: there must have been a file.
    """
    if topics.all():
        return
    found = {
        topic: max(store.queues_of(topic)) + 1
        for topic in store.topics()
        if not is_system(topic)
        and any(store.max_offset(topic, queue_id) for queue_id in store.queues_of(topic))
    }
    if not found:
        return
    path = f"{store.layout.config}/topics.json"
    if clean:
        raise StoreError(
            f"{path} and its backups are gone, but the store has messages of {len(found)} topics, such as "
            f'"{min(found)}". Put the directory {store.layout.config} back; it also holds what groups have consumed'
        )
    log.error(
        "%s is gone: %d topics are made anew out of their queues, with default settings topics=%s",
        path,
        len(found),
        ",".join(sorted(found)[:20]),
    )
    for topic, queues in sorted(found.items()):
        topics.put(
            TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues), now_ms
        )
