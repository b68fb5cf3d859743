"""Consumer offsets: how far each group has come in each queue. Pure (Apache's ConsumerOffsetManager). HOT."""

from collections.abc import Callable, Iterable

from roquette.base.bounds import Bound, unbounded
from roquette.broker.floor.tables.offset_journal import Change, Queues
from roquette.wire.bodies import ConsumerOffsetSerializeWrapper, DataVersion
from roquette.wire.codes import ResponseCode

NOT_FOUND = -1
MAX_QUEUE_ID = 65_535
_VERSION_STEP = 500  # commits per data version step (consumerOffsetUpdateVersionStep)
LONG_MAX = (1 << 63) - 1


def _keys_of_group(keys: Iterable[str], group: str) -> list[str]:
    end = f"@{group}"
    size = len(end)
    return [key for key in keys if key.endswith(end) and key.find("@") == len(key) - size]


def _keys_of_topic(keys: Iterable[str], topic: str) -> list[str]:
    begin = f"{topic}@"
    return [key for key in keys if key.startswith(begin)]


def _accept(group: str, topic: str, queue_id: int, offset: int, old: int, client: str) -> bool:
    return True


class OffsetTable:
    """`topic@group` -> queue id -> offset of the next message to consume.

    Pull offsets (where the last pull began) are kept beside, in memory only. A reset asked for by an operator
    is pending until the queue's next pull is answered with it; commits in between change nothing.

    Attributes:
        pending_resets: queues whose reset no pull has taken yet: the one number a pull looks at.
        overruled: how often somebody else than consumers moved offsets: resets, clones, deletions.
        log_end: the log up to there is in what was loaded, besides what the file says.
        unsafe: why changes cannot be written down now; None when they can.
        own_words: the next change holds words of the broker's own, which speak of its log; else clients' only.
        followed: of a replica: the end of its master's log that its offsets speak of; -1: it has none yet.
        bound, pulled: of the committed offsets, and of the pairs of topic and group with a last pull.
    """

    def __init__(
        self,
        now_ms: int,
        bound: Bound | None = None,
        pulled: Bound | None = None,
        may_move_back: Callable[[str, str, int, int, int, str], bool] = _accept,
    ) -> None:
        self.bound = bound or unbounded()
        self.pulled = pulled or unbounded()
        self._count = 0  # of the committed offsets
        self._own: set[str] | None = None  # keys whose queues no picture shares; None: all
        self._offsets: dict[str, dict[int, int]] = {}
        self._pulls: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self.pending_resets = 0
        self._may_move_back = may_move_back
        self._commits = 0
        self.data_version = DataVersion(counter=0, state_version=0, timestamp=now_ms)
        self.dirty = False  # set by commits, cleared by whoever persists
        self.overruled = 0
        self.log_end = 0
        self.unsafe: str | None = None
        self.own_words = False
        self.followed: int | None = None
        self._dropped: dict[str, None] = {}  # what the journal does not know yet: see `Change`
        self._moved: Queues = {}
        self._reset_moved: Queues = {}

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, or -1."""
        queues = self._offsets.get(f"{topic}@{group}")
        return NOT_FOUND if queues is None else queues.get(queue_id, NOT_FOUND)

    def commit(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        now_ms: int = 0,
        client: str = "",
    ) -> bool:
        """Remember an offset, a smaller one too. Callers have checked that group and topic exist.

        Args:
            client: whose word it is; without, the broker's own, which there is always room for.

        Returns:
            False when nothing changed: a reset is pending, or the group refuses to move back.

        Raises:
            Refused: there is no room for a new offset.
        """
        key = f"{topic}@{group}"
        if self.pending_resets and queue_id in self._resets.get(key, ()):
            return False
        queues = self._offsets.get(key)
        old = NOT_FOUND if queues is None else queues.get(queue_id, NOT_FOUND)
        if offset < old and not self._may_move_back(group, topic, queue_id, offset, old, client):
            return False
        if offset != old:
            if old == NOT_FOUND and client:
                self.make_room(group, topic, [queue_id])
            self._put(key, queue_id, offset)
            moved = self._moved.get(key)
            if moved is None:
                moved = self._moved[key] = {}
            moved[queue_id] = offset
            if not client:
                self.own_words = True
        self._changed(now_ms)
        return True

    def _put(self, key: str, queue_id: int, offset: int) -> None:
        queues = self._offsets.get(key)
        if queues is None or (self._own is not None and key not in self._own):
            queues = self._of_key(key)
        self._count += queue_id not in queues
        queues[queue_id] = offset

    def _of_key(self, key: str) -> dict[int, int]:
        """The queues of a key, to be changed."""
        queues = self._offsets.get(key)
        if self._own is not None and key not in self._own:
            self._own.add(key)
            queues = self._offsets[key] = {} if queues is None else queues.copy()
        elif queues is None:
            queues = self._offsets[key] = {}
        return queues

    def make_room(
        self, group: str, topic: str, queue_ids: Iterable[int], *, by_operator: bool = False
    ) -> None:
        """Raises Refused when offsets of these queues do not fit. A group goes on with the other queues of a topic
        of which it has one: up to twice the bound."""
        queues = self._offsets.get(f"{topic}@{group}")
        new = sum(queues is None or queue_id not in queues for queue_id in queue_ids)
        if new:
            self.bound.check(
                self._count + new - 1,
                ResponseCode.SYSTEM_ERROR if by_operator else ResponseCode.SYSTEM_BUSY,
                f"the offset of group {group} on topic {topic} is not kept",
                known=by_operator or queues is not None,
            )

    def _changed(self, now_ms: int) -> None:
        self.dirty = True
        self._commits += 1
        if self._commits % _VERSION_STEP == 0:
            self._step(now_ms)

    # Resets (assignResetOffset, hasOffsetReset, queryThenEraseResetOffset).

    def reset(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int) -> None:
        """Continue from `offset`, whatever clients commit until their next pull of the queue."""
        if queue_id < 0 or offset < 0:
            return
        key = f"{topic}@{group}"
        self.pending_resets += queue_id not in self._resets.get(key, ())
        for table in (self._resets, self._moved, self._reset_moved):
            table.setdefault(key, {})[queue_id] = offset
        self._put(key, queue_id, offset)
        self.overruled += 1
        self.own_words = True
        self._changed(now_ms)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return True while a reset of the queue waits for its pull."""
        return self.pending_resets > 0 and queue_id in self._resets.get(f"{topic}@{group}", ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset of a pending reset, which is over with this; None when there is none."""
        key = f"{topic}@{group}"
        queues = self._resets.get(key)
        if queues is None or queue_id not in queues:
            return None
        offset = queues.pop(queue_id)
        self._reset_moved.setdefault(key, {})[queue_id] = NOT_FOUND
        if not queues:
            del self._resets[key]
        self.pending_resets -= 1
        self.own_words = self.dirty = True
        return offset

    def count(self) -> None:
        """Count what is pending and committed, after changes of many."""
        self.pending_resets = sum(map(len, self._resets.values()))
        self._count = sum(map(len, self._offsets.values()))

    # What operators ask across groups.

    def of_topic(self, group: str, topic: str) -> dict[int, int]:
        """Committed offsets of a group on a topic, by queue id."""
        return dict(self._offsets.get(f"{topic}@{group}", {}))

    def keys(self) -> list[str]:
        """Every topic@group with committed offsets."""
        return list(self._offsets)

    def pulled_pairs(self) -> list[tuple[str, str, dict[int, int]]]:
        """Every (topic, group) that pulled since the start, with where its last pulls began."""
        return [
            (key.partition("@")[0], key.partition("@")[2], queues)
            for key, queues in self._pulls.items()
        ]

    def clone(self, source: str, target: str, topic: str, now_ms: int) -> bool:
        """Give `target` the offsets `source` has on a topic; False when it has none (cloneOffset)."""
        queues = self._offsets.get(f"{topic}@{source}")
        if queues is None:
            return False
        key = f"{topic}@{target}"
        self._count += len(queues) - len(self._offsets.get(key, ()))
        self._offsets[key] = dict(queues)
        self._dropped[key] = None
        self._moved[key] = dict(queues)
        self._reset_moved[key] = dict(self._resets.get(key, {}))
        self.overruled += 1
        self.own_words = True
        self._changed(now_ms)
        return True

    def least_of_groups(
        self, topic: str, without: Iterable[str], first: Callable[[int], int]
    ) -> dict[int, int]:
        """The smallest offset of any group in each queue of a topic (queryMinOffsetInAllGroup).

        Args:
            without: groups that do not count.
            first: queue id -> its first offset; smaller committed offsets do not count.
        """
        left_out = set(without)
        least: dict[int, int] = {}
        for group in self.groups_of(topic):
            if group in left_out:
                continue
            for queue_id, offset in self._offsets[f"{topic}@{group}"].items():
                known = least.get(queue_id)
                if (known is None or offset < known) and offset >= first(queue_id):
                    least[queue_id] = offset
        return least

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """Return where the group's last pull of the queue began, or -1."""
        queues = self._pulls.get(f"{topic}@{group}")
        return NOT_FOUND if queues is None else queues.get(queue_id, NOT_FOUND)

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember where a pull began."""
        key = f"{topic}@{group}"
        queues = self._pulls.get(key)
        if queues is None:
            if not self.pulled.room(len(self._pulls)):
                return
            queues = self._pulls[key] = {}
        queues[queue_id] = offset

    def topics_of(self, group: str) -> list[str]:
        """Topics the group has committed offsets for, sorted."""
        return sorted(key[: -len(group) - 1] for key in _keys_of_group(self._offsets, group))

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed offsets for the topic, sorted."""
        return sorted(key[len(topic) + 1 :] for key in _keys_of_topic(self._offsets, topic))

    def delete_group(self, group: str) -> None:
        """Forget a group (removeOffset)."""
        self._drop(lambda keys: _keys_of_group(keys, group))

    def delete_topic(self, topic: str) -> None:
        """Forget a topic (cleanOffsetByTopic)."""
        self._drop(lambda keys: _keys_of_topic(keys, topic))

    def _drop(self, chosen: Callable[[Iterable[str]], list[str]]) -> None:
        for table in (self._offsets, self._pulls, self._resets):
            for key in chosen(table):
                del table[key]
                self._dropped[key] = None
                self._moved.pop(key, None)
                self._reset_moved.pop(key, None)
        self.overruled += 1
        self.own_words = True
        self.count()
        self.dirty = True

    # The journal: what has changed since its last entry.

    @property
    def moved(self) -> bool:
        """True when anything has changed."""
        return bool(self._moved or self._reset_moved or self._dropped)

    def change(self, log_end: int) -> Change:
        """The next entry of the journal, when the log ends at `log_end`."""
        if self.followed is not None:
            log_end = max(0, self.followed)
        return Change(log_end, list(self._dropped), self._moved, self._reset_moved)

    def told(self) -> None:
        """It has taken the last change."""
        self._dropped, self._moved, self._reset_moved = {}, {}, {}
        self.own_words = False

    # A replica's table is its master's.

    def follow(self, change: Change) -> None:
        """Make a change of the master's; the journal gets it, too."""
        for key in change.dropped:
            self._count -= len(self._offsets.pop(key, ()))
            self._resets.pop(key, None)
            self._moved.pop(key, None)
            self._reset_moved.pop(key, None)
            self._dropped[key] = None
        for key, queues in change.offsets.items():
            own = self._of_key(key)
            self._count += len(queues.keys() - own.keys())
            own.update(queues)
            self._moved.setdefault(key, {}).update(queues)
        for key, queues in change.resets.items():
            resets = self._resets.pop(key, {}) | queues
            if left := {queue: offset for queue, offset in resets.items() if offset >= 0}:
                self._resets[key] = left
            self._reset_moved.setdefault(key, {}).update(queues)
        if change.resets or change.dropped:
            self.pending_resets = sum(map(len, self._resets.values()))
        self.followed = max(change.log_end, self.followed or 0)
        self.dirty = True

    def difference(self, key: str, queues: dict[int, int], resets: dict[int, int]) -> Change | None:
        """Return the change that makes one key's offsets and resets those of the master; None: they are."""
        own, reset = self._offsets.get(key, {}), self._resets.get(key, {})
        if own == queues and reset == resets:
            return None
        return Change(0, [key], {key: queues} if queues else {}, {key: resets} if resets else {})

    def cut(self, end_of: Callable[[str, int], int]) -> int:
        """Offsets that point behind their queues' ends go back to them; returns how many did."""
        count = 0
        for key in list(self._offsets):
            topic = key.partition("@")[0]
            for queue_id, offset in list(self._offsets[key].items()):
                end = end_of(topic, queue_id)
                if offset > end:
                    self._of_key(key)[queue_id] = end
                    self._moved.setdefault(key, {})[queue_id] = end
                    count += 1
        self.dirty = self.dirty or count > 0
        return count

    def apply(self, change: Change) -> None:
        """Make a change again that it had. What it did is counted when all are made: `count`."""
        for key in change.dropped:
            self._offsets.pop(key, None)
            self._resets.pop(key, None)
        for key, queues in change.offsets.items():
            self._of_key(key).update(queues)
        for key, queues in change.resets.items():
            resets = self._resets.setdefault(key, {}) | queues
            self._resets[key] = {q: offset for q, offset in resets.items() if offset >= 0}
            if not self._resets[key]:
                del self._resets[key]
        self.log_end = change.log_end
        self.dirty = True

    def load(self, wrapper: ConsumerOffsetSerializeWrapper) -> None:
        """Take over what a file held."""
        for key, queues in wrapper.offset_table.items():
            self._offsets[key] = {int(queue_id): offset for queue_id, offset in queues.items()}
        for key, queues in (wrapper.reset_offset_table or {}).items():
            self._resets[key] = {int(queue_id): offset for queue_id, offset in queues.items()}
        self.count()
        self.data_version = wrapper.data_version

    def to_wrapper(self, *, with_resets: bool = True) -> ConsumerOffsetSerializeWrapper:
        """The shape of consumerOffset.json; without resets that of GET_ALL_CONSUMER_OFFSET.

        It shares the queues of each key with this table, which copies them before it changes them.
        """
        self._own = set()
        resets = {key: queues.copy() for key, queues in self._resets.items()}
        return ConsumerOffsetSerializeWrapper(
            offset_table=self._offsets.copy(),
            data_version=self.data_version,
            reset_offset_table=resets if with_resets and resets else None,
        )

    def _step(self, now_ms: int) -> None:
        self.data_version = self.data_version.next(now_ms)
