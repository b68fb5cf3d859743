"""Consumer offsets: how far each group has come in each queue. Pure (Apache's ConsumerOffsetManager)."""

import errno
import logging
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from roquette.base.bounds import Bound, unbounded
from roquette.base.checksum import crc32
from roquette.base.descriptors import NO_SPACE
from roquette.base.files import File, Files
from roquette.base.generations import chained, chained_entries
from roquette.wire.bodies import ConsumerOffsetSerializeWrapper, DataVersion
from roquette.wire.codes import ResponseCode

# Changes of the consumer offsets since consumerOffset.json was written, so that a killed process forgets none.
# Two files beside it, `consumerOffset.journal.0` and `.1`, one write a turn: the system keeps what was handed to it when the process dies. Under SYNC_FLUSH they are synced. Each picture of the table that goes to consumerOffset.json is named in the journal by its checksum; at start the changes behind the name of the content that was found are made again, and none when it is not named: Apache's broker, an editor or a backup has written the file. A loss of power may leave any part of a journal, and less of the log: sums are chained, so that what is read is a beginning, and a change that speaks of more log than there is ends it. Byte by byte: docs/formats/offset_journal.md.


log = logging.getLogger("roquette.broker")

NAMES: Final = ("consumerOffset.journal.0", "consumerOffset.journal.1")
FULL: Final = (
    4 << 20
)  # bytes of one file: then consumerOffset.json is to be written before its beat
MOST: Final = 64 << 20  # it cannot be written: no commit is taken any more
_BASE, _CHANGE = 66, 67  # B, C
_encode: Final = msgspec.msgpack.Encoder().encode


class Base(msgspec.Struct, array_like=True, frozen=True):
    """Names a content of consumerOffset.json: what follows has changed since. The first entry of each file is one.

    Attributes:
        generation: one more than that of the other file, whose last sum is `previous`.
        crc, size: of the content; both 0 when there is no file yet.
    """

    generation: int
    previous: int
    crc: int
    size: int


Queues = dict[str, dict[int, int]]


class Change(msgspec.Struct, array_like=True, frozen=True):
    """Changes of one turn, in this order.

    Attributes:
        log_end: physical end of the log that it speaks of.
        dropped: `topic@group` whose offsets and resets are gone.
        offsets: `topic@group` -> queue id -> offset.
        resets: the same for pending resets; -1: over.
    """

    log_end: int
    dropped: list[str]
    offsets: Queues
    resets: Queues


def merged(changes: list[Change]) -> Change:
    """One change that does what several do, in their order."""
    dropped: dict[str, None] = {}
    offsets: Queues = {}
    resets: Queues = {}
    for change in changes:
        for key in change.dropped:
            dropped[key] = None
            offsets.pop(key, None)
            resets.pop(key, None)
        for table, more in ((offsets, change.offsets), (resets, change.resets)):
            for key, queues in more.items():
                table[key] = {**table.get(key, {}), **queues}
    return Change(changes[-1].log_end, list(dropped), offsets, resets)


class _Found:
    """The sound beginning of one file."""

    def __init__(self, data: bytes) -> None:
        self.entries: list[tuple[Base | Change, int, int]] = []  # with its end, and its sum
        position, chain = 0, 0
        for found in chained_entries(data):
            entry: Base | Change
            try:
                if found.kind == _BASE:
                    entry = msgspec.msgpack.decode(found.content, type=Base)
                else:
                    entry = msgspec.msgpack.decode(found.content, type=Change)
            except msgspec.MsgspecError:
                break
            if position == 0 and not isinstance(entry, Base):
                break
            position, chain = found.end, found.crc
            self.entries.append((entry, position, chain))
        self.end, self.chain = position, chain
        self.more = any(data[position:])

    @property
    def first(self) -> Base | None:
        """Its name, if there is one."""
        entry = self.entries[0][0] if self.entries else None
        return entry if isinstance(entry, Base) else None


class OffsetJournal:
    """The journal of one broker. Everything runs on the loop; `load` and `close` may block.

    Args:
        make_room: asked when the disk is full; True when the write may be tried again.

    Attributes:
        failure: why the last write failed; None when it did not.
    """

    def __init__(self, files: Files, directory: str, make_room: Callable[[], bool]) -> None:
        self._files = files
        self._paths = [f"{directory}/{name}" for name in NAMES]
        self._directory = directory
        self._make_room = make_room
        self._open: list[File | None] = [None, None]
        self._made = False  # files that their directory does not have on the disk
        self._active = 0
        self._generation = 0
        self._position = 0
        self._chain = 0
        self._named = (
            False  # the active file names the content that is on the disk: the other is free
        )
        self._owed: list[tuple[int, int]] = []  # pictures that could not be named yet, two at most
        self.failure: str | None = None
        self._since: list[Change] | None = None  # changes after a picture that has no name yet

    def load(self, crc: int, size: int, log_end: int) -> list[Change]:
        """The changes since a content of consumerOffset.json, in order; goes on behind them.

        Args:
            log_end: where the log ends.
        """
        found = [_Found(self._read(path)) for path in self._paths]
        order = sorted((0, 1), key=lambda n: first.generation if (first := found[n].first) else -1)
        older, newer = found[order[0]], found[order[1]]
        first = newer.first
        if first is None:
            order = []
        elif older.first is None or (older.first.generation + 1, older.chain) != (
            first.generation,
            first.previous,
        ):
            order = order[1:]
        changes = self._follow(found, order, crc, size, log_end)
        self._generation = 0 if first is None else first.generation
        if changes is None:
            self._named = False
            if first is not None:
                log.info("journal of offsets not used: consumerOffset.json was written by others")
            self._cut(0, 0, found[0])
            self._cut(1, 0, found[1])
            self._active, self._position, self._chain = 0, 0, 0
            self._name(crc, size)
            self._named = not self._owed
            return []
        begun = found[self._active].first
        assert begun is not None
        self._generation = begun.generation
        for number in (0, 1):
            if number not in order[: order.index(self._active) + 1]:
                self._cut(number, 0, found[number])
        self._cut(self._active, self._position, found[self._active])
        return changes

    def _follow(
        self, found: list[_Found], order: list[int], crc: int, size: int, log_end: int
    ) -> list[Change] | None:
        """The changes behind the last name of a content, and the place behind them; None: it is not named."""
        changes: list[Change] | None = None
        for number in order:
            self._named = False
            for entry, end, chain in found[number].entries:
                if isinstance(entry, Base):
                    if (entry.crc, entry.size) == (crc, size):
                        changes, self._named = [], True
                elif entry.log_end > log_end:
                    return changes
                elif changes is not None:
                    changes.append(entry)
                self._active, self._position, self._chain = number, end, chain
        return changes

    def _read(self, path: str) -> bytes:
        return self._files.read_bytes(path) if self._files.exists(path) else b""

    def _cut(self, number: int, position: int, found: _Found) -> None:
        """Bytes behind a position must never be read again."""
        if found.more or found.end > position:
            file = self._file(number)
            file.truncate(position)
            file.sync()

    def _file(self, number: int) -> File:
        file = self._open[number]
        if file is None:
            self._files.make_dirs(self._directory)
            self._made = True
            file = self._open[number] = self._files.open_file(self._paths[number], create=True)
        return file

    # While the broker runs.

    @property
    def full(self) -> bool:
        """True when consumerOffset.json should be written soon."""
        return self._position >= FULL

    def append(self, change: Change) -> bool:
        """Hand one turn's changes to the system; False when it does not take them, see `failure`."""
        if self._names_all() and self._write(_CHANGE, change):
            self.failure = None
            if self._since is not None:
                self._since.append(change)
            return True
        return False

    def picture(self) -> None:
        """A picture of the table is taken now; `pictured` gives it its name when it is encoded."""
        self._since = []

    def pictured(self, data: bytes) -> bool:
        """The picture is encoded: name it, and write again behind the name, as one change, what has changed since.

        Returns:
            False when that cannot be written: then the picture must not become consumerOffset.json.
        """
        since, self._since = self._since, None
        self._name(crc32(data), len(data))
        return not since or (self._names_all() and self._write(_CHANGE, merged(since)))

    def saved(self) -> None:
        """The last picture is on the disk as consumerOffset.json: what came before its name is not needed."""
        self._named = True
        self._names_all()

    def _name(self, crc: int, size: int) -> None:
        self._owed = [*self._owed[-1:], (crc, size)]
        self._names_all()

    def _names_all(self) -> bool:
        """Name what is owed; False when that cannot be written now."""
        while self._owed:
            if not self._begin(*self._owed[0]):
                return False
            del self._owed[0]
        return True

    def _begin(self, crc: int, size: int) -> bool:
        """Name a content: at the start of the other file when that is free, else where we are."""
        if self._position and not self._named:
            return self._write(_BASE, Base(self._generation, 0, crc, size))
        before = (self._active, self._position, self._chain)
        base = Base(self._generation + 1, self._chain, crc, size)
        if self._position:
            self._active, self._position, self._chain = 1 - self._active, 0, 0
        if not self._write(_BASE, base):
            self._active, self._position, self._chain = before
            return False
        self._generation += 1
        self._named = False
        return True

    def _write(self, kind: int, entry: Base | Change) -> bool:
        data, crc = chained(kind, _encode(entry), self._chain)
        try:
            if self._position + len(data) > MOST:
                raise OSError(errno.EFBIG, "it is full, for consumerOffset.json cannot be written")
            self._put(data)
        except OSError as error:
            if self.failure is None:
                log.error("journal of offsets not written path=%s error=%s", self._paths[0], error)
            self.failure = str(error)
            return False
        self._position += len(data)
        self._chain = crc
        return True

    def _put(self, data: bytes) -> None:
        try:
            self._file(self._active).pwrite(data, self._position)
        except OSError as error:
            if error.errno not in NO_SPACE or not self._make_room():
                raise
            self._file(self._active).pwrite(data, self._position)

    def sync(self) -> None:
        """Bring what was written to the disk. Blocks, in a worker thread: meanwhile the loop writes on. Raises OSError."""
        made, self._made = self._made, False
        try:
            for file in list(self._open):
                if file is not None:
                    file.sync()
            if made:
                self._files.sync_dir(self._directory)
        except OSError:
            self._made |= made
            raise

    def close(self, *, remove: bool) -> None:
        """The broker ends; `remove`: consumerOffset.json holds everything."""
        for number, path in enumerate(self._paths):
            file, self._open[number] = self._open[number], None
            if file is not None:
                file.close()
            if remove:
                self._files.remove(path)


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
