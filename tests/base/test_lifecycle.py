"""Tasks with an owner: ended in reverse order, never lost in silence."""

import asyncio
import itertools
import logging

import pytest

from roquette.base.lifecycle import LONGEST_PAUSE_S, Health, Tasks
from roquette_testing.sim_loop import SimLoop, run


def test_stop_cancels_the_youngest_first_and_waits() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(name)
            await asyncio.sleep(0.1)

    async def main(loop: SimLoop) -> None:
        tasks = Tasks()
        for name in ("a", "b", "c"):
            tasks.start(name, work(name))
        await asyncio.sleep(1)
        await tasks.stop()
        assert ended == ["c", "b", "a"]
        assert len(tasks) == 0
        await tasks.stop()

    run(main)


def test_a_crash_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise KeyError("gone")

    async def main(loop: SimLoop) -> None:
        tasks = Tasks()
        tasks.start("reader", work())
        await asyncio.sleep(1)
        assert len(tasks) == 0

    run(main)
    assert "task failed name=reader error=KeyError('gone')" in caplog.text


@pytest.mark.promise("Background work", "a task that fails is logged, counted and started again")
def test_a_beat_goes_on_after_errors(caplog: pytest.LogCaptureFixture) -> None:
    beats: list[float] = []

    async def main(loop: SimLoop) -> None:
        async def step() -> None:
            beats.append(loop.time())
            if len(beats) == 2:
                raise ValueError("once")

        tasks = Tasks()
        tasks.every("beat", 2, step, first_s=0.5)
        tasks.every("plain", 100, lambda: None)
        await asyncio.sleep(7)
        beat, plain = tasks.health()
        assert (beat.name, beat.failures, beat.in_row) == ("beat", 1, 0)
        assert beat.last_error == "ValueError('once')"
        assert round(beat.age_s(), 3) == 0.4
        assert (plain.name, plain.failures, plain.age_s()) == ("plain", 0, 7)
        await tasks.stop()
        assert tasks.health() == []

    with caplog.at_level(logging.ERROR, "roquette"):
        run(main)
    assert [round(beat, 3) for beat in beats] == [0.5, 2.5, 4.6, 6.6]
    assert caplog.text.count("task failed, it goes on in 0.1 s name=beat failures=1") == 1


def test_pauses_grow_to_their_bound_and_begin_anew_after_success() -> None:
    tries: list[float] = []

    async def main(loop: SimLoop) -> None:
        async def work(health: Health) -> None:
            tries.append(loop.time())
            if len(tries) == 12:
                health.worked()
            raise RuntimeError("x" * 1000)

        tasks = Tasks()
        tasks.keep("work", work)
        await asyncio.sleep(100)
        (health,) = tasks.health()
        assert health.failures == len(tries)
        assert len(health.last_error) == 120
        await tasks.stop()

    run(main)
    pauses = [round(b - a, 3) for a, b in itertools.pairwise(tries)]
    assert pauses[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, LONGEST_PAUSE_S]
    assert pauses[8:11] == [10, 10, 10]
    assert pauses[11:13] == [0.1, 0.2]


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, RecursionError])
@pytest.mark.parametrize("place", ["at once", "in the pause", "waiting"])
def test_nothing_but_its_owner_ends_it(error: type[BaseException], place: str) -> None:
    async def main(loop: SimLoop) -> None:
        runs: list[float] = []
        waits: list[asyncio.Future[None]] = []

        async def work(health: Health) -> None:
            runs.append(loop.time())
            if len(runs) == 1 and place != "waiting":
                raise error
            waits.append(loop.create_future())
            await waits[-1]

        tasks = Tasks()
        task = tasks.keep("work", work)
        await asyncio.sleep(0.05)
        if place == "waiting":
            waits[0].set_exception(error("late")) if error is not asyncio.CancelledError else (
                waits[0].cancel()
            )
        elif place == "in the pause":
            waiter = task._fut_waiter  # type: ignore[attr-defined]
            waiter.set_exception(RuntimeError("thrown into the pause"))
        await asyncio.sleep(1)
        assert len(runs) == 2
        assert not task.done()
        assert tasks.health()[0].failures == (2 if place == "in the pause" else 1)
        await tasks.stop()
        assert task.cancelled()

    run(main)


def test_work_that_returns_is_over() -> None:
    async def main(loop: SimLoop) -> None:
        async def work(health: Health) -> None:
            await asyncio.sleep(1)

        tasks = Tasks()
        await tasks.keep("work", work)
        await asyncio.sleep(0)
        assert len(tasks) == 0

    run(main)
