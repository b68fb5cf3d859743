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

    __slots__ = ("alive", "context", "host", "tasks")

    def __init__(self, host: str) -> None:
        self.host = host
        self.alive = True
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.context = contextvars.copy_context()
        self.context.run(_owner.set, self)

    def __repr__(self) -> str:
        return f"<Process {self.host} {'alive' if self.alive else 'dead'}>"


_owner: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def process_of(context: contextvars.Context | None = None) -> Process | None:
    """The process a context belongs to (default: the running code's); None for the test itself."""
    return _owner.get() if context is None else context.get(_owner)


def run_if_alive(process: Process, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """What the loop runs in place of `callback`."""
    if process.alive:
        callback(*args)
