"""How long a server's loop does nothing else: `python -m benchmarks.loop_watch FILE python -c CODE ARGUMENT ...`.

Runs the code in this process, so that it serves as a prefix of `tests.real_servers`. A timer of the server's own loop comes
every millisecond; FILE holds the longest time between two of them, in ms, as eight bytes, without what the thread waited for a
processor. It is an upper bound of the longest callback on any loop: what blocks counts, what other processes take does not.
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
_FORM = struct.Struct("d")


class Held:
    """The longest stretch of one server's loop, as its parent reads it."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_FORM.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FORM.size)
        self.prefix = [sys.executable, "-m", "benchmarks.loop_watch", str(path)]

    def take(self) -> float:
        """The longest so far in ms; from now on the next."""
        found: float = _FORM.unpack(self._memory[:])[0]
        self.note(0.0)
        return found

    def note(self, milliseconds: float) -> None:
        """From now on it is this."""
        self._memory[:] = _FORM.pack(milliseconds)


def watch(loop: asyncio.AbstractEventLoop, held: Held) -> None:
    """Note every stretch longer than all before."""
    loop.call_soon(_begin, loop, held)


def _begin(loop: asyncio.AbstractEventLoop, held: Held) -> None:
    account = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)

    def mark() -> float:
        waited_ns = int(os.pread(account, 64, 0).split()[1])
        return time.monotonic() - waited_ns / 1e9

    def tick() -> None:
        nonlocal last
        now = mark()
        stretch = (now - last) * 1000
        last = now
        if stretch > _FORM.unpack(held._memory[:])[0]:
            held.note(stretch)
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
