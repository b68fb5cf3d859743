"""Topics that were deleted while the log has records of them: after a crash recovery makes their queues again, and so
does a replica that gets the log.

Their names stay in `config/deletedTopics.json`, which Apache's broker does not look at, until the log has moved past them;
at start, and at a replica when its log has come so far, such queues go again, so that a new topic of the same name never
begins with the old one's messages. Replicas have them of their master (`follow`).
"""

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from roquette.base.bounds import Bound
from roquette.broker.floor.config_files import ConfigFiles, Saver
from roquette.store.message_store import MessageStore
from roquette.wire.codes import ResponseCode

log = logging.getLogger("roquette.broker")

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
