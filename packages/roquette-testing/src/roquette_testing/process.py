"""A simulated process: what it starts belongs to it, and ends with it, not one instruction later."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any


class Process:
    """One life of one process on one host.

    Ownership travels in the context: tasks, timers, file calls and connections that code of this process
    starts carry it, and the simulated loop skips whatever belongs to the dead.
    """

    __slots__ = ("alive", "context", "host", "stopped_until", "tasks", "waiting")

    def __init__(self, host: str) -> None:
        self.host = host
        self.alive = True
        self.stopped_until = 0.0  # virtual seconds
        self.waiting: list[Handle] = []  # what would have run since it was stopped
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.context = contextvars.copy_context()
        self.context.run(_owner.set, self)

    def __repr__(self) -> str:
        return f"<Process {self.host} {'alive' if self.alive else 'dead'}>"


_owner: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def process_of(context: contextvars.Context | None = None) -> Process | None:
    """The process a context belongs to (default: the running code's); None for the test itself."""
    return _owner.get() if context is None else context.get(_owner)


class Handle(float):
    """Handle of what the loop calls at a time, or soon (-1); nothing of a process that is dead. A float, so that C compares those in the heap."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "is_timed", "loop", "process")

    args: tuple[Any, ...]
    callback: Callable[..., Any] | None
    context: contextvars.Context
    is_cancelled: bool
    is_timed: bool  # it is among the loop's timers
    loop: Any
    process: Process | None

    def cancel(self) -> None:
        """It is not called any more."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self.callback, self.args = None, ()
            if self.is_timed:
                self.loop._timer_cancelled_count += 1

    def cancelled(self) -> bool:
        """Return True if it is not called any more."""
        return self.is_cancelled

    def when(self) -> float:
        """The time, as `asyncio.TimerHandle` says it."""
        return float(self)

    def __repr__(self) -> str:
        return f"<Handle {self.callback!r} of {self.process!r}>"
