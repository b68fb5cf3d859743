"""Deletes a topic or group with everything that the broker keeps of it, and remembers the topics.

Apache: AdminBrokerProcessor.deleteTopic, deleteSubscriptionGroup. Features that keep something by topic or group
override `forget_topic` or `forget_group`.

Recovery makes the queues of a deleted topic again while the log has its records, and so does a replica that gets the log.
The names stay in `config/deletedTopics.json`, which Apache's broker does not look at, until the log has moved past them;
at start, and at a replica when its log has come so far, such queues go again, so that a new topic of the same name never
begins with the old one's messages. Replicas have them of their master (`follow`).
"""

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from roquette.base.bounds import Bound
from roquette.broker.floor.config import BrokerConfig, system_topics
from roquette.broker.floor.config_files import ConfigFiles, Saver
from roquette.broker.floor.parts import BrokerParts
from roquette.message.names import is_system_topic, pop_retry_topic
from roquette.store.message_store import MessageStore
from roquette.wire.codes import ResponseCode

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
        """Return True for a topic that every broker has, its own and its cluster's name included."""
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


FILE = "deletedTopics.json"
_NEVER: Final = 1 << 63


class DeletedTopicTable(msgspec.Struct, rename="camel"):
    """deletedTopics.json: topic -> physical end of the log when it was deleted."""

    deleted_topics: dict[str, int] = {}


class DeletedTopics:
    """Keeps the file.

    Attributes:
        file: to be written before a deletion is answered.
        changes: how often the marks have changed.
        due: when the log of a replica is so long, `obey` has something to do.
    """

    def __init__(self, files: ConfigFiles, store: MessageStore, bound: Bound) -> None:
        self.bound = bound
        self._files = files
        self._store = store
        self._ends: dict[str, int] = {}
        self.changes = 0
        self.due = _NEVER
        self.file = Saver(files, FILE, lambda: DeletedTopicTable(dict(self._ends)))

    def load(self) -> None:
        """Drop queues that recovery has made again. Blocks; raises StoreError when the file cannot be read, OSError."""
        found = self._files.load(FILE, DeletedTopicTable)
        if found is None:
            return
        end = self._store.max_physical_offset
        # What comes where the log was cut is of later topics.
        self._ends = {name: min(place, end) for name, place in found.deleted_topics.items()}
        if self._ends != found.deleted_topics:
            self._files.save(FILE, DeletedTopicTable(self._ends))
        self._expire()
        self.obey()

    def obey(self) -> None:
        """Drop what the log has brought of deleted topics."""
        self.due = _NEVER
        self._drop(self._ends)

    def _drop(self, marks: Mapping[str, int]) -> None:
        end = self._store.max_physical_offset
        for name, place in marks.items():
            self._store.drop_queues_before(name, place)
            if place > end:
                self.due = place if self.due == _NEVER else max(place, self.due)

    @property
    def marks(self) -> dict[str, int]:
        """Topic -> physical end of the log when it was deleted, oldest first."""
        self._expire()
        return dict(self._ends)

    def follow(self, marks: Mapping[str, int], begin: int = _NEVER) -> None:
        """A replica learns of its master's; `begin`: what it does not tell, though it is of the log from there on, is
        no deletion there."""
        new = {name: end for name, end in marks.items() if self._ends.get(name) != end}
        known = {name: end for name, end in self._ends.items() if end <= begin} | dict(marks)
        if known != self._ends:
            newest = sorted(known.items(), key=lambda mark: mark[1])
            self._ends = dict(newest[-2 * self.bound.most :])
            self._changed()
        self._drop(new)

    def deleted(self, name: str) -> None:
        """A topic is gone, its queues too."""
        self._expire()
        self._ends.pop(name, None)
        self._ends[name] = self._store.max_physical_offset
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self.file.mark()

    def _expire(self) -> None:
        """Forget what the log has moved past: the oldest come first."""
        low = self._store.min_physical_offset
        while self._ends and self._ends[oldest := next(iter(self._ends))] <= low:
            del self._ends[oldest]

    def make_room(self, name: str) -> None:
        """Before a deletion: raises Refused when too many names must be remembered."""
        self._expire()
        if name not in self._ends:
            what = f"the topic {name} is not deleted"
            self.bound.check(len(self._ends), ResponseCode.SYSTEM_ERROR, what)

    def made(self, name: str) -> None:
        """A replica's master has a topic of that name; whether there was another one it tells next."""
        if self._ends.pop(name, None) is not None:
            self._changed()
