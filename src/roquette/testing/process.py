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
        self.waiting: list[asyncio.Handle] = []  # what would have run since it was stopped
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.context = contextvars.copy_context()
        self.context.run(_owner.set, self)

    def __repr__(self) -> str:
        return f"<Process {self.host} {'alive' if self.alive else 'dead'}>"


_owner: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def process_of(context: contextvars.Context | None = None) -> Process | None:
    """The process a context belongs to (default: the running code's); None for the test itself."""
    return _owner.get() if context is None else context.get(_owner)


class Call:
    """What the loop runs in place of a callback of a process."""

    __slots__ = ("args", "callback", "handle", "process")

    def __init__(
        self, process: Process, callback: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        """Run it, unless the process is dead; a stopped one runs it when it goes on."""
        process, handle = self.process, self.handle
        if not process.alive:
            return
        if process.stopped_until and handle is not None:
            process.waiting.append(handle)
            return
        self.handle = None
        self.callback(*self.args)

    def __repr__(self) -> str:
        return f"<Call {self.callback!r} of {self.process!r}>"
