"""Blocking calls beside a loop."""

import asyncio
import os
import signal
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from roquette.base.executor import LoopThread, run_blocking, submit, sync_file, use_worker_threads


def run(main: object) -> None:
    if sys.platform == "win32":
        asyncio.run(main)  # type: ignore[arg-type]
    else:
        import uvloop

        uvloop.run(main)  # type: ignore[arg-type]


def boom() -> None:
    raise OSError(5, "the disk")


@pytest.mark.parametrize("own_threads", [True, False])
def test_values_and_errors_come_back_on_the_loop(own_threads: bool) -> None:
    async def main() -> None:
        threads = use_worker_threads(asyncio.get_running_loop()) if own_threads else None
        here = threading.get_ident()
        assert await run_blocking(threading.get_ident) != here
        assert await run_blocking(divmod, 7, 3) == (2, 1)
        with pytest.raises(OSError, match="the disk"):
            await run_blocking(boom)
        assert await run_blocking(divmod, 9, 4) == (2, 1), "a thread outlives an error"
        if threads is not None:
            threads.close()

    run(main())


def test_calls_run_side_by_side_and_the_loop_goes_on() -> None:
    async def main() -> None:
        threads = use_worker_threads(asyncio.get_running_loop(), workers=4)
        all_at_once, met, gate = threading.Barrier(4), list[int](), threading.Event()

        def work() -> None:
            met.append(all_at_once.wait(60))
            gate.wait(60)

        calls = [submit(work) for _ in range(4)]
        async with asyncio.timeout(60):
            while len(met) < 4:
                await asyncio.sleep(0.01)
        assert not any(call.done() for call in calls)
        gate.set()
        await asyncio.gather(*calls)
        threads.close()

    run(main())


def test_a_cancelled_wait_harms_nobody() -> None:
    async def main() -> None:
        threads = use_worker_threads(asyncio.get_running_loop(), workers=1)
        gate = threading.Event()
        first = submit(gate.wait, 5)
        first.cancel()
        second = submit(divmod, 7, 3)
        gate.set()
        assert await second == (2, 1)
        assert first.cancelled()
        threads.close()

    run(main())


def test_close_waits_for_what_was_submitted() -> None:
    done: list[int] = []

    async def main() -> None:
        threads = use_worker_threads(asyncio.get_running_loop(), workers=2)
        for number in range(6):
            submit(lambda n: (time.sleep(0.02), done.append(n)), number)
        threads.close()

    run(main())
    assert sorted(done) == list(range(6))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own syncs are Linux's")
def test_the_kernel_syncs_a_file_beside_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        threads = use_worker_threads(asyncio.get_running_loop())
        ends: asyncio.Queue[OSError | None] = asyncio.Queue()
        end = ends.put_nowait
        with (tmp_path / "log").open("wb", buffering=0) as file:
            for _ in range(20):
                file.write(b"x" * 5000)
                assert sync_file(file.fileno(), end)
                assert not sync_file(file.fileno(), end), "one at a time: the next takes a thread"
                assert await ends.get() is None
        reader, writer = os.pipe()
        assert not sync_file(writer, end), "a pipe cannot be synced"
        assert not sync_file(None, end)
        os.close(reader)
        os.close(writer)
        threads.close()
        assert not sync_file(0, end), "closed"
        assert ends.empty()

    run(main())


def test_without_the_kernels_help_threads_sync() -> None:
    async def main() -> None:
        assert not sync_file(1, lambda error: None)

    asyncio.run(main())


def test_a_task_that_a_thread_waited_for_ends_its_life_on_the_loops_thread() -> None:
    """Where it does, callbacks run: on the caller's thread they would swallow a Ctrl-C."""
    thread = LoopThread("loop-of-a-test")
    thread.start()
    died: list[str] = []

    async def work(fails: bool) -> int:
        weakref.finalize(
            asyncio.current_task(), lambda: died.append(threading.current_thread().name)
        )
        await asyncio.sleep(0)
        if fails:
            raise ValueError("no")
        return 7

    for _ in range(50):
        assert thread.call(work(False)) == 7
        with pytest.raises(ValueError, match="no"):
            thread.call(work(True))
    thread.stop()
    assert set(died) == {"loop-of-a-test"}
    assert len(died) == 100


@pytest.mark.skipif(sys.platform == "win32", reason="has no timer that raises a signal")
def test_what_nobody_waits_for_any_more_is_cancelled_begun_or_not() -> None:
    class Impatient(Exception):
        """What a signal handler raises."""

    def hurry(*_: object) -> None:
        raise Impatient

    thread = LoopThread("loop-of-a-test")
    thread.start()
    ended = threading.Event()
    held = threading.Event()

    async def hold() -> None:
        held.wait(30)

    async def forever() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.set()

    before = signal.signal(signal.SIGALRM, hurry)
    try:
        for busy in (False, True):
            if busy:
                blocker = threading.Thread(target=thread.call, args=(hold(),))
                blocker.start()
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Impatient):
                thread.call(forever())
            if busy:
                held.set()
                blocker.join()
            else:
                assert ended.wait(30)
                held.clear()
        assert thread.call(asyncio.sleep(0, 7)) == 7
    finally:
        signal.signal(signal.SIGALRM, before)
        thread.stop()
