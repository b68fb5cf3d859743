"""No background task dies: each one that a running cluster has is crashed where it waits, and must go on.

The tasks are found by listing them, so that a new one that is not supervised fails here.
"""

import asyncio
from typing import Any

import pytest
from tests.broker.test_timers import stored

from roquette import StartFrom
from roquette.base.lifecycle import LONGEST_PAUSE_S, Health, Tasks
from roquette_testing.cluster import SimCluster, simulate

NS, BROKER, CLIENT = "10.0.0.1", "10.0.1.1", "10.0.2.1"
LONGEST_BEAT_S = 650  # nothing has a longer one: after it each task has gone well again


def owners(*services: Any) -> list[tuple[str, Tasks]]:
    """Every `Tasks` that a service or one of its parts holds."""
    found: dict[int, tuple[str, Tasks]] = {}
    seen: set[int] = set()

    def look(value: Any, path: str, depth: int) -> None:
        if isinstance(value, Tasks):
            found.setdefault(id(value), (path, value))
        elif depth and id(value) not in seen and type(value).__module__.startswith("roquette."):
            seen.add(id(value))
            slots = [
                name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())
            ]
            for name in [*slots, *getattr(value, "__dict__", {})]:
                look(getattr(value, name, None), f"{path}.{name}", depth - 1)

    for service in services:
        look(service, type(service).__name__, 6)
    return list(found.values())


def crash(task: asyncio.Task[Any], error: BaseException) -> bool:
    """Throw into a task where it waits; False when it does not wait for a future."""
    waiter = task._fut_waiter  # type: ignore[attr-defined]
    if waiter is None or waiter.done() or type(waiter) is not asyncio.Future:
        return False
    waiter.set_exception(error)
    waiter.exception()
    return True


@pytest.mark.promise("Background work", "a task that fails is logged, counted and started again")
def test_each_task_of_a_cluster_is_crashed_and_goes_on() -> None:
    seen: list[str] = []

    async def scenario(cluster: SimCluster) -> None:
        name_server = await cluster.add_namesrv(NS)
        broker = await cluster.add_broker(BROKER, "broker-a")
        mq = await cluster.client(CLIENT)
        got: list[bytes] = []
        await mq.send("T", b"first")

        async def consume() -> Any:
            def handler(message: Any) -> None:
                got.append(message.body)

            return await mq.subscribe(
                "T", group="g", handler=handler, concurrency=2, start_from=StartFrom.FIRST
            )

        consumer = await cluster.run_on(CLIENT, consume())
        await asyncio.sleep(20)
        assert got == [b"first"]
        before: list[Health] = []
        for path, tasks in owners(name_server, broker, mq):
            for task, health in list(tasks._tasks.items()):
                assert health is not None, f"{path}: {task.get_name()} is not supervised"
                for error in (RuntimeError("thrown in"), RuntimeError("and again")):
                    for _ in range(400):  # until it waits for what can be failed
                        if crash(task, error):
                            break
                        await asyncio.sleep(0.013)
                    else:
                        raise AssertionError(f"{path}: {task.get_name()} cannot be crashed")
                    await asyncio.sleep(0)
                assert health.failures >= 1, f"{path}: {task.get_name()}"
                before.append(health)
                seen.append(health.name)
        await asyncio.sleep(LONGEST_BEAT_S)
        now = [health for _, tasks in owners(name_server, broker, mq) for health in tasks.health()]
        for health in before:
            assert health in now, f"{health.name} is gone"
            assert health.last_error.startswith("RuntimeError")
        await mq.send("T", b"second")
        await mq.send("T", b"later", delay_level=2)
        await asyncio.sleep(30)
        assert got == [b"first", b"second", b"later"]
        assert len(stored(broker.store, "SCHEDULE_TOPIC_XXXX", 1)) == 1
        assert consumer is not None
        late = [h.name for h in now if h.name not in IDLE and h.age_s() > LONGEST_BEAT_S]
        assert late == []
        assert max(h.in_row for h in now if h.name not in IDLE) == 0

    simulate(scenario, seed=3)
    for name in ("delay-levels", "revive", "timer", "scan-brokers", "hold-expiry", "set-aside"):
        assert name in seen
    assert len(seen) > 40
    assert LONGEST_PAUSE_S < 60


IDLE = ("consumer-g-worker-0", "consumer-g-worker-1")  # go well when there is a message
