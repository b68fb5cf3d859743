"""How long a server's loop does nothing else: `python -m benchmarks.loop_watch FILE python -c CODE ARGUMENT ...`.

Runs the code in this process, so that it serves as a prefix of `tests.real_servers`. A timer of the server's own loop comes every
millisecond; FILE has the longest time between two of them, without what the thread waited for a processor, and the most CPU that
it used between two, both in ms. They are upper bounds of the longest callback on any loop: the first counts what blocks and what
other threads keep (of a busy machine too much, for they wait for processors, too), the second is the loop's own work.
"""

import asyncio
import mmap
import os
import struct
import sys
import threading
import time
from pathlib import Path

PERIOD_S = 0.001
_FORM = struct.Struct("dd")


class Held:
    """The longest stretch of one server's loop, as its parent reads it."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_FORM.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FORM.size)
        self.prefix = [sys.executable, "-m", "benchmarks.loop_watch", str(path)]

    def look(self) -> tuple[float, float]:
        """The longest so far: all of it, and CPU."""
        stretch, cpu = _FORM.unpack(self._memory[:])
        return stretch, cpu

    def note(self, stretch: float = 0.0, cpu: float = 0.0) -> None:
        """From now on it is this."""
        self._memory[:] = _FORM.pack(stretch, cpu)


def watch(loop: asyncio.AbstractEventLoop, held: Held) -> None:
    """Note every stretch longer than all before."""
    loop.call_soon(_begin, loop, held)


def _begin(loop: asyncio.AbstractEventLoop, held: Held) -> None:
    account = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)

    def mark() -> tuple[float, float]:
        waited_ns = int(os.pread(account, 64, 0).split()[1])
        return time.monotonic() - waited_ns / 1e9, time.thread_time()

    def tick() -> None:
        nonlocal last
        now, before = mark(), last
        last = now
        spans = [(here - there) * 1000 for here, there in zip(now, before, strict=True)]
        longest = held.look()
        if spans[0] > longest[0] or spans[1] > longest[1]:
            held.note(max(spans[0], longest[0]), max(spans[1], longest[1]))
        loop.call_later(PERIOD_S, tick)

    last = mark()
    loop.call_later(PERIOD_S, tick)


def main() -> None:
    """The command."""
    from roquette.apps import running

    held, made = Held(Path(sys.argv[1])), running.new_loop

    def watched() -> asyncio.AbstractEventLoop:
        loop = made()
        watch(loop, held)
        return loop

    running.new_loop = watched
    code = sys.argv[4]
    sys.argv = ["-c", *sys.argv[5:]]
    exec(compile(code, "<server>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
