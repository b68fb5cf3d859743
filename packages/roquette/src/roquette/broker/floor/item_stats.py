"""Counters by name and key over the last minute, hour and day, as VIEW_BROKER_STATS_DATA (315) shows them. Pure.

Apache: BrokerStatsManager, StatsItemSet, StatsItem. A counter only grows; snapshots of it every 10 seconds, 10 minutes
and hour make the figures. The hot path never comes here: it counts in ints that `sample` collects.
"""

from array import array
from collections.abc import Callable, Iterator
from typing import Final

from roquette.wire.bodies import BrokerStatsData, BrokerStatsItem

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"  # key: topic
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"  # key: topic@group
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"  # key: topic@group
GROUP_ACK_NUMS: Final = "GROUP_ACK_NUMS"  # key: topic@group; of POP
GROUP_CK_NUMS: Final = "GROUP_CK_NUMS"
QUEUE_PUT_NUMS: Final = "QUEUE_PUT_NUMS"  # key: topic@queueId
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"  # key: cluster
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
BROKER_ACK_NUMS: Final = "BROKER_ACK_NUMS"
BROKER_CK_NUMS: Final = "BROKER_CK_NUMS"
BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC: Final = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC: Final = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"

MINUTE, HOUR, DAY = 0, 1, 2
_SPANS: Final = ((10_000, 7), (600_000, 7), (3_600_000, 25))  # interval in ms, snapshots kept
_WIDTH: Final = 3  # a snapshot: when (ms), times, value
CAPACITY: Final = 50_000  # counters; one takes 1.3 KiB at most. Those of queues have half of it


class Item:
    """One counter: `value` in total, `times` it was added to; snapshots of both."""

    __slots__ = ("_spans", "times", "value")

    def __init__(self) -> None:
        self.value: int = 0
        self.times: int = 0
        self._spans: tuple[array[int], ...] = (array("q"), array("q"), array("q"))

    def sample(self, span: int, now_ms: int) -> None:
        """Take a snapshot. What has been idle for all of the span takes none."""
        kept = self._spans[span]
        interval_ms, limit = _SPANS[span]
        if not kept:
            kept.extend((now_ms - interval_ms, 0, 0))
        elif len(kept) == limit * _WIDTH and kept[2] == kept[-1]:
            if self.value == kept[-1]:
                return
            kept[:] = array("q", (now_ms - interval_ms, kept[-2], kept[-1]))
        kept.extend((now_ms, self.times, self.value))
        if len(kept) > limit * _WIDTH:
            del kept[:_WIDTH]

    def idle(self) -> bool:
        """Return True when nothing happened for a whole day."""
        kept = self._spans[DAY]
        return len(kept) == _SPANS[DAY][1] * _WIDTH and kept[2] == kept[-1] == self.value

    def figures(self, span: int) -> BrokerStatsItem:
        """Sum, rate a second, and sum per time of a span (StatsItem.computeStatsData)."""
        kept = self._spans[span]
        if not kept:
            return BrokerStatsItem()
        elapsed_ms, times, total = (kept[i - _WIDTH] - kept[i] for i in range(_WIDTH))
        return BrokerStatsItem(
            sum=total,
            tps=total * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0,
            avgpt=total / times if times > 0 else 0.0,
        )


class ItemStats:
    """Counters by (name, key), at most CAPACITY; when half of it is used, what is idle for a day is forgotten."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._items: dict[tuple[str, str], Item] = {}
        self._sampled_ms = [-1, -1, -1]

    def __len__(self) -> int:
        return len(self._items)

    def add(self, name: str, key: str, count: int = 1) -> None:
        """`count` more of something rare: it is not for the hot path."""
        item = self._item(name, key)
        if item is not None:
            item.value += count
            item.times += 1

    def set_total(self, name: str, key: str, value: int, times: int = 0) -> None:
        """Set what a counter kept elsewhere has come to. One that never counted gets no place."""
        if value == 0 and (name, key) not in self._items:
            return
        item = self._item(name, key)
        if item is not None:
            item.value, item.times = value, times

    def _item(self, name: str, key: str) -> Item | None:
        item = self._items.get((name, key))
        if item is None:
            if name == QUEUE_PUT_NUMS and len(self._items) >= self._capacity // 2:
                return None  # the rates of topics and groups matter more
            if len(self._items) >= self._capacity:
                return None
            item = self._items[name, key] = Item()
        return item

    def find(self, name: str, key: str) -> BrokerStatsData | None:
        """The three figures of a counter; None when it never counted."""
        item = self._items.get((name, key))
        if item is None:
            return None
        return BrokerStatsData(
            stats_minute=item.figures(MINUTE),
            stats_hour=item.figures(HOUR),
            stats_day=item.figures(DAY),
        )

    @property
    def full(self) -> bool:
        """True when there is no room for another one."""
        return len(self._items) >= self._capacity

    def knows(self, name: str, key: str) -> bool:
        """Return True when there is a counter."""
        return (name, key) in self._items

    def tps(self, name: str, key: str) -> float:
        """Events a second over the last minute; 0 for what has no counter."""
        item = self._items.get((name, key))
        return 0.0 if item is None else item.figures(MINUTE).tps

    def sample_steps(self, now_ms: int) -> Iterator[None]:
        """Every ten seconds: take the snapshots that are due, one each step."""
        for span, (interval_ms, _) in enumerate(_SPANS):
            if span != MINUTE and 0 <= self._sampled_ms[span] > now_ms - interval_ms:
                continue
            if span != MINUTE and self._sampled_ms[span] < 0:
                self._sampled_ms[span] = now_ms
                continue
            self._sampled_ms[span] = now_ms
            for item in list(self._items.values()):
                item.sample(span, now_ms)
                yield
            if span == DAY and len(self._items) > self._capacity // 2:
                self._items = {key: item for key, item in self._items.items() if not item.idle()}

    def forget(self, gone: Callable[[str, str], bool]) -> None:
        """Drop the counters for whose (name, key) `gone` is true."""
        self._items = {key: item for key, item in self._items.items() if not gone(*key)}

    def forget_topic(self, topic: str) -> None:
        """A topic is deleted (onTopicDeleted)."""
        self.forget(lambda name, key: key == topic or key.startswith(f"{topic}@"))

    def forget_group(self, group: str) -> None:
        """A group is deleted (onGroupDeleted)."""
        self.forget(lambda name, key: key.endswith(f"@{group}"))
