"""Work of the broker on its own log, step by step between the turns of its clients."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from roquette.base.clock import Clock
from roquette.base.lifecycle import Health
from roquette.errors import RefusedForNow

log = logging.getLogger("roquette.broker")

BEAT_S: Final = 0.1
REFUSED_S: Final = 10.0


async def keep_stepping(
    step: Callable[[int, int], bool],
    clock: Clock,
    end_turn: Callable[[], None],
    refused: str,
    health: Health,
) -> None:
    """Work for ever: a step at once after one that left work, else after a beat.

    Args:
        step: does a bounded piece of work at a wall and a steady time; whether there is more. Raises
            RefusedForNow when the store takes nothing now: the next step comes after ten seconds.
        end_turn: brings to the log what was appended.
        refused: what the log says has to wait.
        health: told of each step that went well.
    """
    while True:
        try:
            more = step(clock.now_ms(), clock.steady_ms())
            wait_s = 0.0 if more else BEAT_S
        except RefusedForNow as refusal:
            log.warning("%s reason=%s", refused, refusal.remark)
            wait_s = REFUSED_S
        end_turn()
        health.worked()
        await asyncio.sleep(wait_s)
