"""What functions of an application may be, and what they may answer: one judge of handlers, checks, servers and stores."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from roquette.errors import ConfigError


def check_function(what: str, function: object, *, waits: bool = True) -> None:
    """Refuse what would not run when it is called.

    Args:
        waits: whether a coroutine function may be given.

    Raises:
        ConfigError: it cannot be called, is a class or a generator function, or one of coroutines where none is awaited.
    """
    if not callable(function):
        raise ConfigError(f"{what}={function!r:.200} cannot be called")
    called: Any = getattr(type(function), "__call__", None)  # noqa: B004 - of an object that is one
    forms = (function, called)
    if isinstance(function, type):
        raise ConfigError(f"{what}={function!r:.200} is a class: give an object of it, or a method")
    if any(inspect.isgeneratorfunction(f) or inspect.isasyncgenfunction(f) for f in forms):
        raise ConfigError(
            f"{what}={function!r:.200} has a yield: a call of it makes a generator and runs nothing"
        )
    if not waits and any(inspect.iscoroutinefunction(f) for f in forms):
        raise ConfigError(
            f"{what}={function!r:.200} is a coroutine function, and nobody awaits it here: give a plain one"
        )


def verdict(answer: object) -> bool | None:
    """None, True or False; raises TypeError for anything else: it was not understood, and is no success."""
    if answer is None or answer is True or answer is False:
        return answer
    raise not_understood(answer, "None, True nor False")


def not_understood(answer: object, wanted: str) -> TypeError:
    """The error for an answer that is none of what is wanted."""
    if inspect.iscoroutine(answer):
        answer.close()  # else Python warns of it, too
    return TypeError(f"it returned {answer!r:.80}, neither {wanted}")


async def outcome(answer: object) -> object:
    """What a call has come to, awaited if it must be; raises TypeError: it made something that has not run."""
    found = await answer if isinstance(answer, Awaitable) else answer
    if inspect.isgenerator(found) or inspect.isasyncgen(found) or inspect.isawaitable(found):
        raise not_understood(found, "None nor a value")
    return found


def plain(call: Callable[..., Any], *words: object) -> Any:
    """What a function of a program without an event loop returns; raises TypeError for what has not run."""
    found = call(*words)
    if inspect.isgenerator(found) or inspect.isasyncgen(found) or inspect.isawaitable(found):
        raise not_understood(found, "None nor a value: the blocking client calls plain functions")
    return found
