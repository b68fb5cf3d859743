"""Consumer offsets: how far each group has come in each queue. Pure (Apache's ConsumerOffsetManager)."""

from collections.abc import Callable, Mapping

from roquette.wire.bodies import ConsumerOffsetSerializeWrapper, DataVersion

NOT_FOUND = -1
MAX_QUEUE_ID = 65_535  # bounds a table that clients fill
_VERSION_STEP = 500  # commits per data version step (consumerOffsetUpdateVersionStep)


class OffsetTable:
    """`topic@group` -> queue id -> offset of the next message to consume.

    Pull offsets (where the last pull began) are kept beside, in memory only.
    """

    def __init__(self, now_ms: int) -> None:
        self._offsets: dict[str, dict[int, int]] = {}
        self._pulls: dict[str, dict[int, int]] = {}
        self._commits = 0
        self.data_version = DataVersion(counter=0, state_version=0, timestamp=now_ms)
        self.dirty = False  # set by commits, cleared by whoever persists

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, or -1."""
        queues = self._offsets.get(f"{topic}@{group}")
        return NOT_FOUND if queues is None else queues.get(queue_id, NOT_FOUND)

    def commit(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int = 0) -> None:
        """Remember an offset, a smaller one too. Callers have checked that group and topic exist."""
        key = f"{topic}@{group}"
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
        queues[queue_id] = offset
        self.dirty = True
        self._commits += 1
        if self._commits % _VERSION_STEP == 0:
            self._step(now_ms)

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """Where the group's last pull of the queue began, or -1."""
        queues = self._pulls.get(f"{topic}@{group}")
        return NOT_FOUND if queues is None else queues.get(queue_id, NOT_FOUND)

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember where a pull began."""
        key = f"{topic}@{group}"
        queues = self._pulls.get(key)
        if queues is None:
            queues = self._pulls[key] = {}
        queues[queue_id] = offset

    def topics_of(self, group: str) -> list[str]:
        """Topics the group has committed offsets for, sorted."""
        return sorted(t for t, _, g in (key.partition("@") for key in self._offsets) if g == group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed offsets for the topic, sorted."""
        return sorted(g for t, _, g in (key.partition("@") for key in self._offsets) if t == topic)

    def delete_group(self, group: str) -> None:
        """Forget a group."""
        self._drop(lambda topic, name: name == group)

    def delete_topic(self, topic: str) -> None:
        """Forget a topic (cleanOffsetByTopic)."""
        self._drop(lambda name, group: name == topic)

    def _drop(self, matches: Callable[[str, str], bool]) -> None:
        for table in (self._offsets, self._pulls):
            for key in [
                key for key in table if matches(key.partition("@")[0], key.partition("@")[2])
            ]:
                del table[key]
        self.dirty = True

    def load(self, table: Mapping[str, Mapping[int, int]], version: DataVersion | None) -> None:
        """Take over what a file held."""
        for key, queues in table.items():
            self._offsets[key] = {int(queue_id): offset for queue_id, offset in queues.items()}
        if version is not None:
            self.data_version = version

    def to_wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """The shape of consumerOffset.json."""
        return ConsumerOffsetSerializeWrapper(
            offset_table={key: dict(queues) for key, queues in self._offsets.items()},
            data_version=self.data_version,
        )

    def _step(self, now_ms: int) -> None:
        self.data_version = self.data_version.next(now_ms)
