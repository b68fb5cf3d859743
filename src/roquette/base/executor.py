"""The one door to worker threads: blocking calls run here, state stays on the loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def use_small_pool(loop: asyncio.AbstractEventLoop, workers: int = 4) -> None:
    """Give a real loop a pool of few threads; the simulated loop has none and needs none."""
    loop.set_default_executor(ThreadPoolExecutor(workers, thread_name_prefix="roquette-file"))


def submit(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
    """Run one blocking call in the pool; the future resolves on the loop."""
    assert not kwargs
    return asyncio.get_running_loop().run_in_executor(None, call, *args)


async def run_blocking(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run one blocking call in the pool and wait for its value."""
    return await submit(call, *args, **kwargs)


class LoopThread:
    """An event loop in a thread of its own, for callers that have none."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def start(self) -> None:
        """Begin to run the loop."""
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its value."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def run(self, step: Callable[[], T]) -> T:
        """Run a plain function on the loop and wait for its value."""

        async def once() -> T:
            return step()

        return self.call(once())

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
        self._loop.close()
