"""Stack of a waiting task: its frames from its own function down to what it awaits."""

import asyncio
from collections.abc import Awaitable
from typing import Any


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
