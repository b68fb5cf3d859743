"""Every table of the broker whose keys its peers choose has its bound here: settings, and constants for the rest.

Memory at the bound, measured (docs/reference/limits.md). Nothing expires that Apache's broker keeps.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Final

from roquette.base import bounds
from roquette.base.bounds import Bound, unbounded
from roquette.base.options import OptionKind, live
from roquette.message.message import MessageQueue

PULLED: Final = 200_000  # pairs of topic and group of which the last pull is shown
FORBIDDEN: Final = 100_000  # pairs of group and topic that may not be read
MODES: Final = 100_000  # pairs of topic and group with a request mode
ORDERLY: Final = 200_000  # queues of which an orderly pop is remembered
CHANNELS: Final = 200_000  # pairs of group and connection; producers and consumers each
CHANNELS_OF_PEER: Final = 20_000  # the same of one connection
LOCKS: Final = 500_000  # queue locks
PAIRS: Final = 20_000  # pairs of topic and group that are counted, of each kind
THRESHOLDS: Final = 20_000  # groups with a threshold of their own for cold reads
TIMER_TOPICS: Final = 50_000  # topics whose waiting timer messages are counted
DELETED: Final = 100_000  # deleted topics that the log still has messages of
SLOW_BROKERS: Final = 1_000  # brokers and name servers that were late
NAME: Final = (
    1_024  # characters of a name that Apache does not measure: client ids, producer groups
)
_RAISE: Final = "or raise"
CAPACITY: Final = OptionKind(least=1, most=10_000_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoundSettings:
    """The bounds an operator may want to change; ours, Apache's broker has none."""

    max_subscription_groups: int = live(
        100_000, "Consumer groups clients may create; operators: twice as many.", kind=CAPACITY
    )
    max_auto_created_topics: int = live(
        50_000, "Topics from which on sends create none; operators: twice as many.", kind=CAPACITY
    )
    max_consumer_offsets: int = live(
        1_000_000,
        "Offsets from which on none of a new group or topic is kept; of known ones: twice as many.",
        least=1,
        most=100_000_000,
    )


class BrokerBounds(bounds.TableBounds):
    """The bounds of one broker's tables."""

    def __init__(self, settings: Callable[[], BoundSettings]) -> None:
        unused = "delete what nobody uses"
        self.groups = Bound(
            "consumer groups",
            lambda: settings().max_subscription_groups,
            f"{unused} (mqadmin deleteSubGroup), {_RAISE} maxSubscriptionGroups",
        )
        self.topics = Bound(
            "topics",
            lambda: settings().max_auto_created_topics,
            f"{unused} (mqadmin deleteTopic), create the topic with mqadmin updateTopic, {_RAISE} "
            "maxAutoCreatedTopics",
        )
        self.retry_topics = Bound(
            "retry and dead-letter topics",
            lambda: 2 * settings().max_subscription_groups,
            f"{unused} (mqadmin deleteTopic), {_RAISE} maxSubscriptionGroups, half of it",
        )
        self.offsets = Bound(
            "committed offsets",
            lambda: settings().max_consumer_offsets,
            f"delete groups nobody uses with their offsets (mqadmin deleteSubGroup -r true), {_RAISE} "
            "maxConsumerOffsets",
        )
        self.pulled = Bound("places of last pulls", PULLED, "the others are not shown")
        self.forbidden = Bound("forbidden topics of groups", FORBIDDEN, "allow some again")
        self.modes = Bound("request modes", MODES, f"{unused}, groups or topics")
        self.orderly = Bound(
            "queues with orderly pops", ORDERLY, "what is not popped for a day is forgotten"
        )
        gone = "those that send no heartbeat for 120 s go"
        self.producers = Bound("connections of producer groups", CHANNELS, gone)
        self.consumers = Bound("connections of consumer groups", CHANNELS, gone)
        self.locks = Bound("locked queues", LOCKS, "those that are not renewed go after 120 s")
        self.counted = Bound("pairs of topic and group that are counted", PAIRS, unused)
        self.thresholds = Bound(
            "thresholds of cold reads",
            THRESHOLDS,
            "remove some (mqadmin removeColdDataFlowCtrGroupConfig)",
        )
        self.timer_topics = Bound("topics with timer messages", TIMER_TOPICS, "none is lost")
        self.deleted = Bound(
            "deleted topics", DELETED, "wait until the log's oldest files have expired"
        )


# Queue locks of orderly consumers. Pure (Apache's RebalanceLockManager).


LEASE_MS = 60_000  # rocketmq.broker.rebalance.lockMaxLiveTime


class LockTable:
    """Group -> queue -> (client id, time of the last lock). A lease ends after 60 s without renewal."""

    def __init__(self, lease_ms: int = LEASE_MS, bound: Bound | None = None) -> None:
        self.bound = bound or unbounded()
        self._count = 0
        self._lease_ms = lease_ms
        self._locks: dict[str, dict[MessageQueue, tuple[str, int]]] = {}

    def __len__(self) -> int:
        return self._count

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[MessageQueue]:
        """Lock what is free, expired or already ours, as far as there is room; returns the queues that are now the
        client's."""
        held = self._locks.setdefault(group, {})
        locked: list[MessageQueue] = []
        for queue in queues:
            owner = held.get(queue)
            if owner is None:
                sizes = len(group), len(client_id), len(queue.topic), len(queue.broker_name)
                if max(sizes) > NAME or not self.bound.room(self._count):
                    continue
                self._count += 1
            if owner is None or owner[0] == client_id or now_ms - owner[1] > self._lease_ms:
                held[queue] = (client_id, now_ms)
                locked.append(queue)
        if not held:
            del self._locks[group]
        return locked

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release what the client holds; others' locks stay."""
        held = self._locks.get(group, {})
        for queue in queues:
            owner = held.get(queue)
            if owner is not None and owner[0] == client_id:
                del held[queue]
                self._count -= 1
        if group in self._locks and not held:
            del self._locks[group]

    def any_held(self, group: str, now_ms: int) -> bool:
        """True while any lock of the group is unexpired (isLockAllExpired, negated)."""
        return any(
            now_ms - owner[1] <= self._lease_ms for owner in self._locks.get(group, {}).values()
        )

    def renew(self, now_ms: int) -> None:
        """Every lock has just been renewed."""
        for held in self._locks.values():
            for queue, (client_id, _) in held.items():
                held[queue] = (client_id, now_ms)

    def expire(self, now_ms: int) -> None:
        """Forget locks whose lease ended long ago, so that the table stays bounded."""
        for group, held in list(self._locks.items()):
            for queue, owner in list(held.items()):
                if now_ms - owner[1] > 2 * self._lease_ms:
                    del held[queue]
                    self._count -= 1
            if not held:
                del self._locks[group]
