"""Throws an unexpected exception into one task of a simulated process, at one of its awaits."""

import collections.abc
from collections.abc import Coroutine, Generator
from typing import Any, Final

# Where an exception cannot come from, and breaks a promise of asyncio's own if it is thrown there.
_SPARED: Final = ("asyncio/locks.py", "asyncio/queues.py", "asyncio/taskgroups.py")


class Unexpected(Exception):
    """Exception that is thrown: no code of ours raises or expects it."""


class Thrower:
    """Counts the awaits of every task, and throws at the one that was chosen.

    A task is known by host and name, or by its coroutine's name when it has none; all tasks of one name count together.

    Attributes:
        awaits: how often each task went on after an await.
        thrown: whether it has been thrown.
    """

    def __init__(self) -> None:
        self.awaits: dict[tuple[str, str], int] = {}
        self.thrown = False
        self._chosen: tuple[str, str] | None = None
        self._number = 0

    def choose(self, host: str, name: str, number: int) -> None:
        """Throw when that task goes on after its await with this number, counted from now on, from 1."""
        self._chosen = host, name
        self._number = self.awaits.get(self._chosen, 0) + number

    def watch(self, host: str, name: str, coro: Coroutine[Any, Any, Any]) -> "Watched":
        """The coroutine to run in place of `coro`."""
        return Watched(self, host, name, coro)

    def is_due(self, host: str, name: str, coro: Coroutine[Any, Any, Any]) -> bool:
        """A task goes on: is it to be thrown at? Asked once for each await."""
        task = host, name
        count = self.awaits[task] = self.awaits.get(task, 0) + 1
        if self.thrown or task != self._chosen or count < self._number or _spared(coro):
            return False
        self.thrown = True
        return True


class Watched(collections.abc.Coroutine[Any, Any, Any]):
    """A coroutine whose awaits are counted."""

    def __init__(
        self, thrower: Thrower, host: str, name: str, coro: Coroutine[Any, Any, Any]
    ) -> None:
        self._thrower = thrower
        self._host, self._name = host, name
        self._coro = coro
        self._begun = False

    def send(self, value: Any) -> Any:
        """Go on after an await."""
        if not self._begun:
            self._begun = True
        elif self._thrower.is_due(self._host, self._name, self._coro):
            return self._coro.throw(Unexpected(f"thrown into {self._name} of {self._host}"))
        return self._coro.send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error."""
        self._begun = True
        return self._coro.throw(*error)

    def close(self) -> None:
        """End it."""
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._coro.__await__())


def _spared(coro: Any) -> bool:
    """Return True if what is awaited innermost is a part of asyncio that no exception comes from."""
    inner, code = coro, None
    while inner is not None:
        frame = getattr(inner, "cr_frame", None)
        if frame is None:
            break
        code = frame.f_code
        inner = inner.cr_await
    return code is not None and code.co_filename.endswith(_SPARED)
