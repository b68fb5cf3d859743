"""Orderly pops: which messages of a queue are out, and when the queue may be popped again. Pure.

Apache: ConsumerOrderInfoManager (in 5.5 QueueLevelConsumerManager) and its lock manager.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping

from roquette.base.bounds import Bound, unbounded
from roquette.broker.pop.receipt import offset_count_info, queue_count_info
from roquette.wire.bodies import ConsumerOrderInfoSerializeWrapper, OrderInfo
from roquette.wire.codes import ResponseCode

ILLEGAL = -1
NO_COMMIT = -2
_KEEP_MS = 24 * 3_600_000  # CLEAN_SPAN_FROM_LAST


class OrderTable:
    """The last orderly pop of each topic, group and queue, see `clean`.

    Times given are steady (`now_ms`); those kept, as the file has them, are wall times, and count from the setting of
    the clock at the queue's last pop: `wall_ms`.
    """

    def __init__(self, bound: Bound | None = None) -> None:
        self.bound = bound or unbounded()
        self._count = 0  # queues in the table
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self._locks: list[tuple[int, str, str, int]] = []  # (free at, topic, group, queue id)
        self._shift = 0  # steady minus wall time, for what was loaded
        self._shifts: dict[tuple[str, str, int], int] = {}  # the same at the last pop
        self.dirty = False

    def make_room(self, topic: str, group: str, queue_id: int) -> None:
        """Before an orderly pop: raises Refused when a queue not yet known is one too many."""
        if self.find(topic, group, queue_id) is None:
            what = f"group {group} does not pop queue {queue_id} of topic {topic} in order"
            known = f"{topic}@{group}" in self._table
            self.bound.check(self._count, ResponseCode.SYSTEM_BUSY, what, known=known)

    def _forget(self, key: str, queue_id: int) -> None:
        queues = self._table.get(key, {})
        if queues.pop(queue_id, None) is not None:
            topic, _, group = key.partition("@")
            self._shifts.pop((topic, group, queue_id), None)
            self._count -= 1
            self.dirty = True
            if not queues:
                del self._table[key]

    def wall_ms(self, topic: str, group: str, queue_id: int, steady_ms: int) -> int:
        """A steady time by the clock as it was set at the queue's last pop."""
        return steady_ms - self._shifts.get((topic, group, queue_id), self._shift)

    def update(
        self,
        topic: str,
        group: str,
        queue_id: int,
        *,
        attempt_id: str | None,
        pop_time: int,
        invisible_time: int,
        offsets: list[int],
        now_ms: int,
    ) -> list[str]:
        """A pop hands out messages; returns the entries of orderCountInfo."""
        queues = self._table.setdefault(f"{topic}@{group}", {})
        previous = queues.get(queue_id)
        info = OrderInfo(
            pop_time=pop_time,
            invisible_time=invisible_time,
            offsets=[offsets[0], *(offset - offsets[0] for offset in offsets[1:])],
            last_consume=pop_time,
            attempt_id=attempt_id,
        )
        if previous is not None:
            info.consumed = _merged(info, previous)
        queues[queue_id] = info
        self._count += previous is None
        self._shifts[topic, group, queue_id] = now_ms - pop_time
        self.dirty = True
        self._note_lock(topic, group, queue_id, info, now_ms)
        counts = info.consumed or {}
        entries = [
            offset_count_info(topic, queue_id, offset, count) for offset, count in counts.items()
        ]
        least = min(counts.values()) if len(counts) == len(offsets) else 0
        return [*entries, queue_count_info(topic, queue_id, least)]

    def blocked(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        *,
        invisible_time: int,
        now_ms: int,
    ) -> bool:
        """Return True while messages of the queue are out (checkBlock); the same attempt may have them again."""
        info = self.find(topic, group, queue_id)
        if info is None or not info.offsets:
            return False
        if info.attempt_id is not None and info.attempt_id == attempt_id:
            return False
        if not info.invisible_time or info.invisible_time <= 0:
            info.invisible_time = invisible_time
        wall_ms = self.wall_ms(topic, group, queue_id, now_ms)
        return any(wall_ms < _visible_at(info, index) for index in _unacknowledged(info))

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Forget a queue: its offset was reset."""
        self._forget(f"{topic}@{group}", queue_id)

    def commit_and_next(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, now_ms: int
    ) -> int:
        """A message is acknowledged: the offset to commit, or ILLEGAL, or NO_COMMIT for another pop's receipt."""
        info = self.find(topic, group, queue_id)
        if info is None:
            return offset + 1
        if not info.offsets:
            return ILLEGAL
        if pop_time != info.pop_time:
            return NO_COMMIT
        offsets = _queue_offsets(info)
        if offset not in offsets:
            return ILLEGAL
        info.committed |= 1 << offsets.index(offset)
        self.dirty = True
        self._note_lock(topic, group, queue_id, info, now_ms)
        return next_offset(info)

    def set_next_visible(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        *,
        pop_time: int,
        next_visible: int,
        now_ms: int,
    ) -> None:
        """The invisible time of one message was changed (updateNextVisibleTime)."""
        info = self.find(topic, group, queue_id)
        if info is None or pop_time != info.pop_time or offset not in _queue_offsets(info):
            return
        if info.next_visible is None:
            info.next_visible = {}
        info.next_visible[offset] = next_visible
        self.dirty = True
        self._note_lock(topic, group, queue_id, info, now_ms)

    def find(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        """Return what is held of a queue."""
        return self._table.get(f"{topic}@{group}", {}).get(queue_id)

    def restore(
        self, topic: str, group: str, queue_id: int, info: OrderInfo | None, now_ms: int
    ) -> None:
        """Take over what was held of a queue, or nothing."""
        key = f"{topic}@{group}"
        if info is None:
            self._forget(key, queue_id)
        else:
            queues = self._table.setdefault(key, {})
            self._count += queue_id not in queues
            queues[queue_id] = info
            self._note_lock(topic, group, queue_id, info, now_ms)
        self.dirty = True

    def freed(self, now_ms: int) -> list[tuple[str, str, int]]:
        """Topic, group and queue id of the queues whose time has come (NotifyLockFreeTimerTask)."""
        found: dict[tuple[str, str, int], None] = {}
        while self._locks and self._locks[0][0] <= now_ms:
            _, topic, group, queue_id = heapq.heappop(self._locks)
            info = self.find(topic, group, queue_id)
            wall_ms = self.wall_ms(topic, group, queue_id, now_ms)
            if info is not None and (_free_at(info) or 0) <= wall_ms:
                found[(topic, group, queue_id)] = None
        return list(found)

    def held(self) -> Iterator[tuple[str, int]]:
        """`topic@group` of each queue with an orderly pop, and how many of its messages are not acknowledged."""
        for key, queues in list(self._table.items()):
            for info in list(queues.values()):
                yield key, len(_unacknowledged(info))

    def start(self, now_ms: int, steady_ms: int) -> None:
        """Set the clock by which what former lives left counts: as it is set now."""
        self._shift = steady_ms - now_ms

    def load(self, table: Mapping[str, Mapping[int, OrderInfo]], now_ms: int) -> None:
        """Take over what a file held."""
        for key, queues in table.items():
            topic, _, group = key.partition("@")
            self._table[key] = dict(queues)
            self._count += len(queues)
            for queue_id, info in queues.items():
                self._note_lock(topic, group, queue_id, info, now_ms)

    def clean(self, alive: Callable[[str, str, int], bool], now_ms: int | None = None) -> None:
        """Forget what has no topic, group or queue any more, and what was not popped for a day (autoClean)."""
        for key, queues in list(self._table.items()):
            topic, _, group = key.partition("@")
            for queue_id, info in list(queues.items()):
                place = (topic, group, queue_id)
                old = now_ms is not None and (
                    self.wall_ms(*place, now_ms) - info.last_consume > _KEEP_MS
                )
                if old or not alive(*place):
                    self._forget(key, queue_id)

    def to_wrapper(self) -> ConsumerOrderInfoSerializeWrapper:
        """The shape of consumerOrderInfo.json."""
        return ConsumerOrderInfoSerializeWrapper(table=self._table)

    def _note_lock(
        self, topic: str, group: str, queue_id: int, info: OrderInfo, now_ms: int
    ) -> None:
        free_at = _free_at(info)
        wall_ms = self.wall_ms(topic, group, queue_id, now_ms)
        if free_at is None or free_at <= wall_ms:
            return
        heapq.heappush(self._locks, (free_at - wall_ms + now_ms, topic, group, queue_id))
        if len(self._locks) > max(4_096, 8 * self._count):  # old times of the same queues
            newest = {(entry[1], entry[2], entry[3]): entry for entry in sorted(self._locks)}
            self._locks = sorted(newest.values())


def next_offset(info: OrderInfo) -> int:
    """The first offset that is not acknowledged, or the one after all; -1 when nothing is held."""
    if not info.offsets:
        return -1
    offsets, rest = _queue_offsets(info), _unacknowledged(info)
    return offsets[rest[0]] if rest else offsets[-1] + 1


def _queue_offsets(info: OrderInfo) -> list[int]:
    first = info.offsets[0]
    return [first, *(first + distance for distance in info.offsets[1:])]


def _unacknowledged(info: OrderInfo) -> list[int]:
    return [i for i in range(len(info.offsets)) if not info.committed >> i & 1]


def _visible_at(info: OrderInfo, index: int) -> int:
    moved = (info.next_visible or {}).get(_queue_offsets(info)[index])
    return info.pop_time + (info.invisible_time or 0) if moved is None else moved


def _free_at(info: OrderInfo) -> int | None:
    """Return when nothing of the pop is invisible any more; None when all of it is acknowledged."""
    if not info.offsets:
        return None
    return max((_visible_at(info, index) for index in _unacknowledged(info)), default=None)


def _merged(info: OrderInfo, previous: OrderInfo) -> dict[int, int]:
    """Return how often each message was out before (mergeOffsetConsumedCount)."""
    counts = previous.consumed or {}
    if previous.attempt_id is not None and previous.attempt_id == info.attempt_id:
        return counts
    before = set(_queue_offsets(previous)) if previous.offsets else set()
    return {
        offset: counts.get(offset, 0) + 1 for offset in _queue_offsets(info) if offset in before
    }
