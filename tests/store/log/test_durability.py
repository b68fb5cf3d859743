"""The gate: tokens leave in log order, once, when durable or late."""

from roquette.store.log.commit_log import DurabilityGate


def test_tokens_are_released_in_log_order() -> None:
    gate: DurabilityGate[str] = DurabilityGate()
    gate.wait(10, "a")
    gate.wait(30, "c")
    gate.wait(20, "b")

    assert gate.flushed(9) == []
    assert gate.flushed(20) == ["a", "b"]
    assert gate.flushed(15) == []
    assert gate.flushed(30) == ["c"]


def test_what_is_durable_does_not_wait() -> None:
    gate: DurabilityGate[str] = DurabilityGate(100)

    assert not gate.wait(100, "a")
    assert gate.wait(101, "b")
    assert len(gate) == 1


def test_late_tokens_expire_once() -> None:
    gate: DurabilityGate[str] = DurabilityGate()
    gate.wait(10, "a", 500)
    gate.wait(20, "b", 900)

    assert gate.expire(499) == []
    assert gate.expire(500) == ["a"]
    assert gate.flushed(20) == ["b"]


def test_a_failed_disk_abandons_all() -> None:
    gate: DurabilityGate[str] = DurabilityGate()
    gate.wait(10, "a")

    assert gate.abandon() == ["a"]
    assert len(gate) == 0
