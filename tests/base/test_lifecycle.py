"""Tasks with an owner: ended in reverse order, never lost in silence."""

import asyncio
import logging

import pytest

from roquette.base.lifecycle import Tasks, every
from roquette.testing.sim_loop import SimLoop, run


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


def test_a_beat_goes_on_after_errors(caplog: pytest.LogCaptureFixture) -> None:
    beats: list[float] = []

    async def main(loop: SimLoop) -> None:
        async def step() -> None:
            beats.append(loop.time())
            if len(beats) == 2:
                raise ValueError("once")

        tasks = Tasks()
        tasks.start("beat", every(2, step, first_s=0.5))
        tasks.start("plain", every(100, lambda: None))
        await asyncio.sleep(7)
        await tasks.stop()

    with caplog.at_level(logging.ERROR, "roquette"):
        run(main)
    assert beats == [0.5, 2.5, 4.5, 6.5]
    assert caplog.text.count("periodic step failed") == 1
