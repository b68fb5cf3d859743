"""The only reader of wall time. Everything else takes `now_ms` or a `Clock`."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day in whole milliseconds since 1970."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class LoopClock:
    """Wall time derived from an event loop's own clock: in the simulation, virtual time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        self._start_ms = start_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._start_ms + int(self._loop.time() * 1000)
