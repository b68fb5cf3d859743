"""The only reader of time. Everything else takes times as arguments, or a `Clock`.

There are two times, and they are never compared with each other: docs/decisions/0016-two-times.md.
"""

import asyncio
import time
from typing import Final, Protocol

# The compiler looks a name of another module up at each call, these once.
_wall_ns: Final = time.time_ns
_steady_ns: Final = time.monotonic_ns


class Clock(Protocol):
    """Wall time for what is stored or promised in wall time, steady time for how long something takes."""

    def now_ms(self) -> int:
        """Wall time: milliseconds since 1970. Somebody may set it, forward and back."""
        ...

    def steady_ms(self) -> int:
        """Steady time: milliseconds since an arbitrary moment. Nobody can set it, it never goes back."""
        ...

    def lease_ms(self) -> int:
        """Steady time for what others may take over: it goes on while the machine sleeps, where the system can tell."""
        ...


def _lease_ns() -> int:
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if boot is None else time.clock_gettime_ns(boot)


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall time."""
        return _wall_ns() // 1_000_000

    def steady_ms(self) -> int:
        """Steady time."""
        return _steady_ns() // 1_000_000

    def lease_ms(self) -> int:
        """Steady time, sleep included (CLOCK_BOOTTIME)."""
        return _lease_ns() // 1_000_000


class LoopClock:
    """Both times by an event loop's own clock: in the simulation, virtual time.

    Attributes:
        offset_ms: how far somebody has set the wall clock ahead (or back).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        self._start_ms = start_ms
        self.offset_ms = 0

    def now_ms(self) -> int:
        """Wall time."""
        return self._start_ms + self.offset_ms + int(self._loop.time() * 1000)

    def steady_ms(self) -> int:
        """Steady time."""
        return int(self._loop.time() * 1000)

    def lease_ms(self) -> int:
        """Steady time."""
        return self.steady_ms()
