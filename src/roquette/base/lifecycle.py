"""Tasks with an owner: started by name, stopped in reverse order, never lost in silence."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger("roquette.lifecycle")


class Tasks:
    """An ordered owner of asyncio tasks.

    An ordered list and not a TaskGroup: the order of cancellation must not depend on addresses.
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` until it ends or `stop` is called; a crash is logged once, with its name."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed name=%s error=%r", task.get_name(), error, exc_info=error)

    def __len__(self) -> int:
        return len(self._tasks)

    async def stop(self) -> None:
        """Cancel everything, youngest first, and wait until it is gone."""
        tasks = list(self._tasks)[::-1]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def every(
    interval_s: float, step: Callable[[], Awaitable[object] | None], *, first_s: float | None = None
) -> None:
    """Call `step` for ever, `interval_s` seconds after it ended; an error is logged and the beat goes on."""
    await asyncio.sleep(interval_s if first_s is None else first_s)
    while True:
        try:
            result = step()
            if result is not None:
                await result
        except Exception as error:
            log.error(
                "periodic step failed step=%s error=%r",
                getattr(step, "__qualname__", step),
                error,
                exc_info=error,
            )
        await asyncio.sleep(interval_s)
