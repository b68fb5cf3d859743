"""Topics that were deleted while the log has records of them: after a crash recovery makes their queues again.

Their names stay in `config/deletedTopics.json`, which Apache's broker does not look at, until a topic of the name is made or the
log has moved past them; at start such queues go again, so that a new topic of the same name never begins with the old one's messages.
"""

import logging
from collections.abc import Callable

import msgspec

from roquette.base.bounds import Bound
from roquette.broker.files.config_files import ConfigFiles, Saver
from roquette.store.message_store import MessageStore
from roquette.wire.codes import ResponseCode

log = logging.getLogger("roquette.broker")

FILE = "deletedTopics.json"


class DeletedTopicTable(msgspec.Struct, rename="camel"):
    """deletedTopics.json: topic -> physical end of the log when it was deleted."""

    deleted_topics: dict[str, int] = {}


class DeletedTopics:
    """Keeps the file.

    Attributes:
        file: to be written before a deletion is answered.
    """

    def __init__(self, files: ConfigFiles, store: MessageStore, bound: Bound) -> None:
        self.bound = bound
        self._files = files
        self._store = store
        self._ends: dict[str, int] = {}
        self.file = Saver(files, FILE, lambda: DeletedTopicTable(dict(self._ends)))

    def load(self, known: Callable[[str], object | None]) -> None:
        """Drop queues that recovery has made again. Blocks; raises StoreError when the file cannot be read."""
        found = self._files.load(FILE, DeletedTopicTable)
        for name, end in ({} if found is None else found.deleted_topics).items():
            if known(name) is None:
                self._ends[name] = end
                if self._store.queues_of(name):
                    log.info("queues of a deleted topic dropped again topic=%s", name)
                    self._store.delete_topic(name)

    def deleted(self, name: str) -> None:
        """A topic is gone, its queues too."""
        self._expire()
        self._ends.pop(name, None)
        self._ends[name] = self._store.max_physical_offset
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
        """A topic is there, perhaps again."""
        if self._ends.pop(name, None) is not None:
            self.file.mark()
