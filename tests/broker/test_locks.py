"""Queue locks: leases, owners, expiry."""

from roquette.broker.floor.tables.bounds import LEASE_MS, LockTable
from roquette.message.message import MessageQueue

QUEUES = [MessageQueue(topic="t", broker_name="b", queue_id=i) for i in range(3)]


def test_a_queue_belongs_to_one_client_until_it_is_released() -> None:
    table = LockTable()

    assert table.lock("g", "a", QUEUES[:2], 0) == QUEUES[:2]
    assert table.lock("g", "b", QUEUES, 1) == QUEUES[2:]
    table.unlock("g", "b", QUEUES)
    assert table.lock("g", "b", QUEUES[:2], 2) == []
    table.unlock("g", "a", QUEUES)
    assert table.lock("g", "b", QUEUES, 3) == QUEUES


def test_groups_do_not_disturb_each_other() -> None:
    table = LockTable()
    table.lock("g", "a", QUEUES, 0)

    assert table.lock("h", "b", QUEUES, 0) == QUEUES


def test_an_expired_lease_is_taken_over_and_a_renewed_one_is_not() -> None:
    table = LockTable()
    table.lock("g", "a", QUEUES[:1], 0)

    assert table.lock("g", "b", QUEUES[:1], LEASE_MS) == []
    assert table.lock("g", "b", QUEUES[:1], LEASE_MS + 1) == QUEUES[:1]
    assert table.any_held("g", LEASE_MS + 2)
    assert not table.any_held("g", 3 * LEASE_MS)


def test_long_expired_locks_are_forgotten() -> None:
    table = LockTable()
    table.lock("g", "a", QUEUES, 0)

    table.expire(2 * LEASE_MS + 1)

    assert table._locks == {}
