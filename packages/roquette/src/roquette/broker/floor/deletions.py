"""Deletes a topic or group with everything that the broker keeps of it.

Apache: AdminBrokerProcessor.deleteTopic, deleteSubscriptionGroup. Features that keep something by topic or group
override `forget_topic` or `forget_group`.
"""

import logging

from roquette.broker.floor.config import BrokerConfig, system_topics
from roquette.broker.floor.parts import BrokerParts
from roquette.message.names import is_system_topic, pop_retry_topic

log = logging.getLogger("roquette.broker")


class Deletions:
    """Deletes topics and groups of one broker."""

    def __init__(self, core: BrokerParts) -> None:
        tables = core.tables
        self._live = core.live
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._stats = core.stats
        self._store = core.store
        self._shell = core.shell
        self._own: frozenset[str] = frozenset()
        self._named_for: BrokerConfig | None = None  # the settings `_own` was made from

    def is_system(self, topic: str) -> bool:
        """Whether the topic is one that every broker has, its own and its cluster's name included."""
        config = self._live.current
        if config is not self._named_for:
            self._named_for = config
            own = [config.broker_cluster_name, config.broker_name]
            self._own = frozenset(own + [row.topic_name for row in system_topics(config)])
        return topic in self._own or is_system_topic(topic)

    def delete_topic(self, name: str, now_ms: int) -> list[str]:
        """Delete a topic and the retry topics POP made for it; returns the names of what went."""
        gone = [name]
        if self._live.current.clear_retry_topic_when_delete_topic:
            gone += self._pop_retry_topics(name)
        for topic in gone:
            self._topics.delete(topic, now_ms)
            self._offsets.delete_topic(topic)
            self._groups.forget_topic(topic, now_ms)
            self._stats.forget_topic(topic)
            self._store.delete_topic(topic)
            self._shell.forget_topic(topic)
        log.info("topic deleted topics=%s", ",".join(gone))
        return gone

    def _pop_retry_topics(self, name: str) -> list[str]:
        found: list[str] = []
        for group in self._offsets.groups_of(name):
            first = pop_retry_topic(name, group)
            # Form 1 may also be the retry topic of a group whose name holds an underscore: that one stays.
            if self._groups.known(f"{group}_{name}") is None and self._topics.find(first):
                found.append(first)
            second = pop_retry_topic(name, group, v2=True)
            if self._topics.find(second):
                found.append(second)
        return found

    def delete_group(self, name: str, *, clean_offset: bool, now_ms: int) -> None:
        """Delete a group; with `clean_offset` its progress too."""
        self._groups.delete(name, now_ms)
        if clean_offset:
            self._offsets.delete_group(name)
        self._stats.forget_group(name)
        self._shell.forget_group(name, clean_offset)
        log.info("group deleted group=%s clean_offset=%s", name, clean_offset)

    def delete_unused_topics(self) -> list[str]:
        """Drop the queues of topics that no longer exist (cleanUnusedTopic); returns their names."""
        unused = [
            name
            for name in self._store.topics()
            if self._topics.find(name) is None and not self.is_system(name)
        ]
        for name in unused:
            self._store.delete_topic(name)
        return unused
