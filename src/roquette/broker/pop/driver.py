"""Runs what POP decides: waiting requests again, and the revive log's reader on its beat. Dull on purpose."""

import asyncio
from collections.abc import Callable

from roquette.base.clock import Clock
from roquette.base.lifecycle import Health
from roquette.broker.pop.polling import PollHold
from roquette.broker.pop.state import PopState
from roquette.broker.records.steps import keep_stepping
from roquette.remoting.dispatcher import RequestContext
from roquette.store.results import Arrival


class PopDriver:
    """The asyncio side of `PopState`.

    Args:
        rerun: runs a request again, now; `may_hold` says whether it may go on waiting.
        end_turn: brings to the log what was appended.
    """

    def __init__(
        self,
        pop: PopState,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        rerun: Callable[[RequestContext, bool], None],
        end_turn: Callable[[], None],
    ) -> None:
        self._pop = pop
        self._clock = clock
        self._loop = loop
        self._rerun = rerun
        self._end_turn = end_turn
        pop.wake = self._wake

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Messages are in their queues."""
        self._run(self._pop.on_arrivals(arrivals), may_hold=True)

    def expire(self) -> None:
        """The beat of deadlines."""
        now_ms = self._clock.steady_ms()
        self._run(self._pop.expire(now_ms), may_hold=False)
        self._run(self._pop.freed(now_ms), may_hold=True)

    def drain(self) -> None:
        """The broker stops: nobody waits any more."""
        self._run(self._pop.drain(), may_hold=False)

    async def revive(self, health: Health) -> None:
        """Follow the revive log for ever; messages nobody acknowledged come again."""
        await keep_stepping(
            self._pop.reviver.step,
            self._clock,
            self._end_turn,
            "unacknowledged messages wait",
            health,
        )

    def _run(self, due: list[PollHold], *, may_hold: bool) -> None:
        for hold in due:
            job = hold.job
            if isinstance(job, RequestContext) and not job.peer.closed:
                self._rerun(job, may_hold)
            elif may_hold:  # its client is gone: the message is another's
                due.extend(self._pop.another(hold))

    def _wake(self, hold: PollHold) -> None:
        self._loop.call_soon(lambda: self._run([hold], may_hold=True))
