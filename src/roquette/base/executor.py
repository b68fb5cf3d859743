"""The one door to worker threads: blocking calls run here, state stays on the loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

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
