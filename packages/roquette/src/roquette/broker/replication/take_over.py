"""What a master makes good at its start when it was a replica before: tables come beside the log, and may be ahead of it
or behind it by what was under way when the master died."""

import logging
from typing import Final

import msgspec

from roquette.base.executor import run_blocking
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Start
from roquette.wire.bodies import TopicConfig

log = logging.getLogger("roquette.broker.replication")

FILE: Final = "replicaOf.json"


class ReplicaOf(msgspec.Struct):
    """replicaOf.json.

    Attributes:
        master: whose tables these are; empty: this broker's own.
        lacks: which of them this store has never had, though its log is a master's.
    """

    master: str = ""
    lacks: list[str] = []


class OffsetTakeOver(Feature):
    """Offsets that point behind their queues' ends go back to them: what will come there has not been consumed. Topics that
    the log has messages of get default settings: their table had not come yet. Deleted ones stay deleted
    (`DeletedTopics`)."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._saved = core.saved
        self._deletions = core.deletions
        self._lacks: list[str] = []
        self._start: Start | None = None  # there is something to do

    def load(self, start: Start) -> None:
        """Outside of a group only a broker that has copied tables looks."""
        found = self._core.files.load(FILE, ReplicaOf)
        was_replica = found is not None and bool(found.master)
        if was_replica or self._core.live.current.enable_controller_mode:
            self._start = start
        if found is not None and found.lacks and self._core.store.max_physical_offset:
            self._lacks = self._saved.lacks = found.lacks
            log.error(
                "master without %s, which it never got: consumers may begin anew, and replicas keep theirs",
                ", ".join(found.lacks),
            )

    def health(self) -> dict[str, str]:
        """What this master has never had."""
        return {"tablesNotCopied": ",".join(self._lacks)} if self._lacks else {}

    async def prepare(self) -> None:
        """After the tables, whose changes are followed already."""
        core = self._core
        if self._start is None:
            return
        cut = core.tables.offsets.cut(core.store.max_offset)
        if cut:
            log.warning("%d consumer offsets pointed behind their queues' ends", cut)
        for topic in core.store.topics():
            self._make_topic(topic, self._start.now_ms)
        written = self._saved.turn_written(core.store.max_physical_offset)
        if await self._saved.topics_saved() and written:
            await run_blocking(core.files.save, FILE, ReplicaOf("", self._lacks))

    def _make_topic(self, name: str, now_ms: int) -> None:
        store, topics = self._core.store, self._core.tables.topics
        queues = store.queues_of(name)
        if topics.find(name) is not None or self._deletions.is_system(name):
            return
        if any(store.max_offset(name, queue) for queue in queues):
            count = max(queues) + 1
            config = TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
            topics.put(config, now_ms)
            log.warning("topic made anew out of its queues topic=%s queues=%d", name, count)
