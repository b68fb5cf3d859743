"""Pulls that wait, seen from the loop: they are kept, and run again when messages, a deadline or an order come."""

from collections.abc import Callable

from roquette.broker.pop.polling import PollHold
from roquette.broker.pulling.hold_table import HeldPull, HoldTable
from roquette.remoting.dispatcher import RequestContext
from roquette.remoting.outcomes import Held
from roquette.store.results import Arrival


class WaitingPulls:
    """The asyncio side of `HoldTable`.

    Args:
        rerun: runs a request again, now; the flag says whether it may go on waiting.
    """

    def __init__(self, holds: HoldTable, rerun: Callable[[RequestContext, bool], None]) -> None:
        self._holds = holds
        self._rerun = rerun

    def held(self, job: RequestContext, outcome: Held) -> None:
        """A processor found nothing and has told what it waits for."""
        if isinstance(outcome.hold, PollHold):
            outcome.hold.job = job  # its processor has put it into its table
            return
        pull: HeldPull = outcome.hold
        pull.job = job
        if not self._holds.hold(pull):
            self._rerun(job, False)

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Messages are in their queues and may be seen."""
        if not len(self._holds):
            return
        on_arrival = self._holds.on_arrival
        for arrival in arrivals:
            due = on_arrival(
                arrival.topic,
                arrival.queue_id,
                arrival.queue_offset,
                arrival.tags_code,
                arrival.physical_offset,
                arrival.size,
            )
            if due:
                self._run(due)

    def wake_topic(self, topic: str) -> None:
        """All pulls on a topic are answered now."""
        self._run(self._holds.take(topic, lambda pull: True))

    def wake_group(self, topic: str, group: str) -> None:
        """A group's pulls on a topic are answered now."""

        def of_group(pull: HeldPull) -> bool:
            job = pull.job
            return isinstance(job, RequestContext) and job.header.consumer_group == group

        self._run(self._holds.take(topic, of_group))

    def expire(self, now_ms: int) -> None:
        """The beat of deadlines."""
        self._run(self._holds.expire(now_ms))

    def recheck(self, max_offset: Callable[[str, int], int]) -> None:
        """Readers whose filters match nothing are sent on."""
        self._run(self._holds.behind(max_offset))

    def drain(self) -> None:
        """The broker stops: nobody waits any more."""
        self._run(self._holds.drain())

    def _run(self, due: list[HeldPull]) -> None:
        for pull in due:
            assert isinstance(pull.job, RequestContext)
            self._rerun(pull.job, False)
