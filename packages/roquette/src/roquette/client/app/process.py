"""A process that serves until it is told to end: signals, the loop, the longest end, the exit status."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from roquette.base.executor import new_loop

log = logging.getLogger("roquette.client")

LEAVE_S: Final = 5.0  # beside handlers: offsets are saved, groups left, connections closed

Body = Callable[[asyncio.Event], Awaitable[int]]
"""Ends after the event is set; how many handlers were ended at work."""


def run_until_told(body: Body, *, limit_s: float) -> int:
    """Run it on a loop of its own (uvloop's where installed) until SIGTERM or SIGINT; returns 0.

    The process ends at once, with status 1, when something was ended at work or the end takes too long: a thread,
    or a task that will not be cancelled, would hold it up. A second signal ends it as well, with 128 + its number.

    Args:
        limit_s: the longest that the end may take.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        if (unfinished := runner.run(_serve(body, limit_s))) > 0:
            _end(1, f"ended with {unfinished} handlers at work")
    return 0


def _end(status: int, why: str) -> None:
    log.error("%s; what was not done comes again", why)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


async def _serve(body: Body, limit_s: float) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            _end(128 + number, "told twice to end")
        stop.set()
        loop.call_later(limit_s, _end, 1, f"the end took longer than {limit_s} s")

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, on_signal, number)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda n, _: loop.call_soon_threadsafe(on_signal, n))
    return await body(stop)
