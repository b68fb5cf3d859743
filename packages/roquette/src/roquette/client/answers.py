"""Functions that an application gives, and their answers: one judge of handlers, checks, servers, stores and encoders."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from roquette.base.executor import in_threads
from roquette.errors import ConfigError, MessageIllegal

if TYPE_CHECKING:
    from typing import Never

    from typing_extensions import TypeVar  # of the checkers: Python has it from 3.13 on

    V = TypeVar("V", default=Never, contravariant=True)  # noqa: PLC0105 - shown in signatures
else:
    from typing import TypeVar

    V = TypeVar("V", contravariant=True)  # noqa: PLC0105 - shown in signatures

Encode = Callable[[V], bytes]
"""Makes a body of a value."""


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


def for_loop(function: Callable[..., Any], most: int) -> Callable[..., Any]:
    """A function of an application as the loop may call it: a plain one in threads, `most` calls at a time, one of coroutines as it is."""
    called: Any = getattr(type(function), "__call__", None)  # noqa: B004 - of an object that is one
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        return function
    return in_threads(function, most, "roquette-handler")


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
    """Return the result of a call, awaited if it must be; raises TypeError: it made something that has not run."""
    found = await answer if isinstance(answer, Awaitable) else answer
    if inspect.isgenerator(found) or inspect.isasyncgen(found) or inspect.isawaitable(found):
        raise not_understood(found, "None nor a value")
    return found


def plain(call: Callable[..., Any], *words: object) -> Any:
    """Call a function of a program without an event loop and return its result; raises TypeError for what has not run."""
    found = call(*words)
    if inspect.isgenerator(found) or inspect.isasyncgen(found) or inspect.isawaitable(found):
        raise not_understood(found, "None nor a value: the blocking client calls plain functions")
    return found


def body_of(value: object, encode: Callable[[Any], bytes] | None = None) -> bytes:
    """The body that a value is, or is made into.

    Raises:
        TypeError: it is neither bytes nor str and there is no encoder, or the encoder made something else than bytes.
        MessageIllegal: the encoder raised, which is its cause.
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    kind = type(value).__name__
    if encode is None:
        raise TypeError(f"the body must be bytes or str, not {kind}; or say Client(encode=)")
    try:
        body = encode(value)
    except Exception as error:
        raise MessageIllegal(
            f"encode made no body of {kind}: {type(error).__name__}: {error}"[:500]
        ) from error
    if not isinstance(body, bytes):
        raise TypeError(f"encode made {type(body).__name__} of {kind}, not bytes")
    return body
