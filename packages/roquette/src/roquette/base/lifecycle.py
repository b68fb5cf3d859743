"""Tasks with an owner: started by name, stopped in reverse order, never ended in silence.

Work that must go on as long as its owner (`keep`, `every`) is supervised: an exception, wherever it is
raised, is logged and counted, and after a pause that grows to `LONGEST_PAUSE_S` the work begins again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

log = logging.getLogger("roquette.lifecycle")

Interval = float | Callable[[], float]
"""Seconds, or what says how many they are now: a setting that may change."""

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0
_ERROR_LENGTH: Final = 120  # characters of an error that are kept


class Health:
    """State of one supervised task.

    failures: errors since the task was started; each began its work again.
    in_row: of these, the ones since the work last went well.
    last_error: the last of them, cut to `_ERROR_LENGTH` characters; empty without one.
    well_s: the loop's time when the work last went well, or when the task was started.
    """

    __slots__ = ("_loop", "failures", "in_row", "last_error", "name", "well_s")

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.name = name
        self.failures = 0
        self.in_row = 0
        self.last_error = ""
        self.well_s = self._loop.time()

    def worked(self) -> None:
        """A step went well."""
        self.in_row = 0
        self.well_s = self._loop.time()

    def failed(self, error: BaseException) -> float:
        """Count an error; returns the pause (s) before the work begins again."""
        self.failures += 1
        self.in_row += 1
        self.last_error = repr(error)[:_ERROR_LENGTH]
        pause_s = float(min(FIRST_PAUSE_S * 2 ** min(self.in_row - 1, 16), LONGEST_PAUSE_S))
        log.error(
            "task failed, it goes on in %.1f s name=%s failures=%d error=%s",
            pause_s,
            self.name,
            self.failures,
            self.last_error,
            exc_info=error if self.in_row == 1 else None,
        )
        return pause_s

    def age_s(self) -> float:
        """Seconds since the work last went well."""
        return self._loop.time() - self.well_s


Work = Callable[[Health], Coroutine[Any, Any, None]]
"""Supervised work: called again after each error; notes in its `Health` when a step succeeded."""


class Tasks:
    """An ordered owner of asyncio tasks.

    An ordered list and not a TaskGroup: the order of cancellation must not depend on addresses.
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], Health | None] = {}

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` once, until it ends or `stop` is called; a crash is logged, with its name."""
        return self._own(name, work, None)

    def keep(self, name: str, work: Work) -> asyncio.Task[Any]:
        """Run `work` until it returns or `stop` is called; it begins again after an error."""
        health = Health(name)
        return self._own(name, _supervise(health, work), health)

    def every(
        self,
        name: str,
        interval_s: Interval,
        step: Callable[[], Awaitable[object] | None],
        *,
        first_s: float | None = None,
    ) -> asyncio.Task[Any]:
        """Call `step` until `stop` is called, `interval_s` seconds after it ended; a function is asked each time."""
        pauses = [] if first_s is None else [first_s]  # the first one is not that after an error

        def work(health: Health) -> Coroutine[Any, Any, None]:
            return _beat(health, pauses.pop() if pauses else None, interval_s, step)

        return self.keep(name, work)

    def health(self) -> list[Health]:
        """Return the state of the supervised tasks, in the order they were started."""
        return [health for health in self._tasks.values() if health is not None]

    def _own(
        self, name: str, work: Coroutine[Any, Any, Any], health: Health | None
    ) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = health
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


async def _supervise(health: Health, work: Work) -> None:
    pause_s = 0.0
    while True:
        try:
            if pause_s:
                await asyncio.sleep(pause_s)
            await work(health)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            pause_s = health.failed(error)  # what it waited for was cancelled, not the task
        except Exception as error:  # noqa: BLE001 - that is what supervision is
            pause_s = health.failed(error)
        else:
            return


async def _beat(
    health: Health,
    first_s: float | None,
    interval_s: Interval,
    step: Callable[[], Awaitable[object] | None],
) -> None:
    await asyncio.sleep(_seconds(interval_s) if first_s is None else first_s)
    while True:
        result = step()
        if result is not None:
            await result
        health.worked()
        await asyncio.sleep(_seconds(interval_s))


def _seconds(interval: Interval) -> float:
    return interval() if callable(interval) else interval


# Stack of a waiting task: its frames from its own function down to what it awaits.


def waiting_at(task: Awaitable[Any]) -> list[str]:
    """Lines `file:line function`, outermost first, of a task or a coroutine; if it runs now, up to where it asks."""
    lines: list[str] = []
    awaited: Any = task.get_coro() if isinstance(task, asyncio.Task) else task
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return lines
