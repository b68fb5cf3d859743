"""Work of the broker step by step, between the turns of its clients: on its own log, and for large answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from roquette.base.clock import Clock
from roquette.base.executor import run_blocking
from roquette.base.lifecycle import Health
from roquette.errors import RefusedForNow
from roquette.remoting.outcomes import Outcome, Reply, Task
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.broker")

BEAT_S: Final = 0.1
REFUSED_S: Final = 10.0
STEP_S: Final = 0.005  # a step of a long answer
MANY: Final = 500  # rows of an answer: more are written beside the loop

T = TypeVar("T")


async def paced(items: Iterable[T], at_once: int = 1_000) -> AsyncIterator[T]:
    """The items; after STEP_S, or so many of them, the others have a turn. Nobody else changes `items`."""
    time = asyncio.get_running_loop().time
    end = time() + STEP_S
    for number, item in enumerate(items, 1):
        yield item
        if number % at_once == 0 or time() >= end:
            await asyncio.sleep(0)
            end = time() + STEP_S


async def encode_rows(value: Any, rows: int, *, java_keys: bool = False) -> bytes:
    """`encode_body` of a value with so many rows, which does not change any more."""
    if rows <= MANY:
        return encode_body(value, java_keys=java_keys)
    return await run_blocking(partial(encode_body, java_keys=java_keys), value)


async def reply_of(outcome: Outcome) -> Reply | None:
    """What an outcome that is a reply, or a task, answers."""
    if isinstance(outcome, Task):
        return await outcome.work
    assert isinstance(outcome, Reply)
    return outcome


async def run_steps(
    step: Callable[[int, int], bool],
    clock: Clock,
    end_turn: Callable[[], None],
    log_when_refused: str,
    health: Health,
) -> None:
    """Work for ever: a step at once after one that left work, else after a beat.

    Args:
        step: does a bounded piece of work at a wall and a steady time; whether there is more. Raises
            RefusedForNow when the store takes nothing now: the next step comes after ten seconds.
        end_turn: brings to the log what was appended.
        log_when_refused: the log's line when the store takes nothing now.
        health: told of each step that went well.
    """
    while True:
        try:
            more = step(clock.now_ms(), clock.steady_ms())
            wait_s = 0.0 if more else BEAT_S
        except RefusedForNow as refusal:
            log.warning("%s reason=%s", log_when_refused, refusal.remark)
            wait_s = REFUSED_S
        end_turn()
        health.worked()
        await asyncio.sleep(wait_s)
