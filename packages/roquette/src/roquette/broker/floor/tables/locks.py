"""Queue locks of orderly consumers. Pure (Apache's RebalanceLockManager)."""

from collections.abc import Iterable

from roquette.base.bounds import Bound, unbounded
from roquette.broker.floor.tables.bounds import NAME
from roquette.message.message import MessageQueue

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
