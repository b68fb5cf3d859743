"""The thrower: counts awaits, throws once, where it was told to."""

import asyncio
from typing import Any

from roquette_testing.sim_loop import SimLoop, Thrower, Unexpected, run


def test_it_throws_once_at_the_chosen_await() -> None:
    seen: list[Any] = []

    async def work() -> None:
        for number in range(6):
            try:
                await asyncio.sleep(1)
                seen.append(number)
            except Unexpected:
                seen.append("thrown")

    async def main(loop: SimLoop) -> None:
        loop.thrower = Thrower()
        loop.thrower.choose("10.0.0.1", "work", 3)

        async def begin() -> None:
            await loop.create_task(work(), name="work")

        await loop.run_in(loop.new_process("10.0.0.1"), begin())
        assert loop.thrower.awaits["10.0.0.1", "work"] == 6
        assert loop.thrower.thrown

    run(main)
    assert seen == [0, 1, "thrown", 3, 4, 5]


def test_locks_keep_what_asyncio_promises() -> None:
    """An exception cannot come out of a lock: it waits for the next await."""
    seen: list[str] = []

    async def work(lock: asyncio.Lock) -> None:
        async with lock:
            seen.append("locked")
            await asyncio.sleep(1)
            seen.append("not reached")

    async def main(loop: SimLoop) -> None:
        loop.thrower = Thrower()
        loop.thrower.choose("10.0.0.1", "work", 1)

        async def begin() -> None:
            lock = asyncio.Lock()
            await lock.acquire()
            loop.call_later(1, lock.release)
            task = loop.create_task(work(lock), name="work")
            await asyncio.gather(task, return_exceptions=True)
            assert isinstance(task.exception(), Unexpected) and not lock.locked()

        await loop.run_in(loop.new_process("10.0.0.1"), begin())

    run(main)
    assert seen == ["locked"]


def test_clocks_of_processes_are_moved_by_themselves() -> None:
    from roquette.base.clock import LoopClock

    async def main(loop: SimLoop) -> None:
        one, other = LoopClock(loop, 1_000), LoopClock(loop, 1_000)
        one.offset_ms = -500
        await asyncio.sleep(1)
        assert (one.now_ms(), other.now_ms()) == (1_500, 2_000)
        assert one.steady_ms() == other.steady_ms() == 1_000

    run(main)
