"""/metrics, /healthz and /readyz of a broker: on its ports for this machine, on a port of their own for others."""

import asyncio
from collections.abc import Iterator
from typing import Final

from roquette.base.exposition import KIND
from roquette.base.lifecycle import Tasks
from roquette.base.server_metrics import LoopLag, ServerFigures, unwell
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import ABOUT, Beat, Feature
from roquette.broker.floor.steps import paced
from roquette.broker.operation.metrics.lag_times import LagTimes
from roquette.broker.operation.metrics.rows import Popped, ScrapeRows, queues_of
from roquette.broker.operation.metrics.scrape import Scrape
from roquette.remoting import pem
from roquette.remoting.http_listener import HttpListener
from roquette.remoting.http_pages import HttpPages
from roquette.remoting.http_stream import StreamedPage

LAG_BEAT_S: Final = 1.0
ENDS_BEAT_S: Final = 10.0


class MetricsFeature(Feature):
    """Shows what others count.

    Attributes:
        listener: the port of metricsListen, when there is one.
    """

    def __init__(self, core: BrokerCore, popped: Popped) -> None:
        self._core = core
        self._items = core.items
        self._is_system = core.deletions.is_system
        self._popped = popped
        self._times = LagTimes()
        self._loop_lag = LoopLag(LAG_BEAT_S)
        self._not_ready = "it starts"
        self._pages = HttpPages(
            about=ABOUT,
            anyone=True,
            shown=True,
            ready=self._why_not_ready,
            well=self._why_unwell,
            streams={"/metrics": StreamedPage(kind=KIND, begin=self._scrape)},
        )
        self.listener: HttpListener | None = None

    def pages(self) -> HttpPages:
        """What the broker's own ports get."""
        return self._pages

    def beats(self) -> list[Beat]:
        """Looks at the loop, and at where topics end."""
        ends = self._core.protection.ends
        return [
            Beat("loop-lag", LAG_BEAT_S, self._look_at_loop),
            Beat("topic-ends", ENDS_BEAT_S, self._look_at_ends),
            *([Beat("certificates", pem.ENDS_BEAT_S, ends.look)] if ends.files else []),
        ]

    async def prepare(self) -> None:
        """Open the port of its own. Raises ConfigError when it is taken."""
        await self._core.protection.ends.look()
        address = self._core.live.current.metrics_address()
        if address:
            self.listener = HttpListener(self._pages)
            await self.listener.start(address)

    async def start(self, tasks: Tasks) -> None:
        """Requests are accepted."""
        self._not_ready = ""

    async def leave(self) -> None:
        """The broker is about to stop."""
        self._not_ready = "it stops"

    async def stop(self) -> None:
        """Close the port."""
        if self.listener is not None:
            await self.listener.close()

    def _why_unwell(self) -> str:
        return unwell(self._core.shell.tasks.health())

    def _why_not_ready(self) -> str:
        refusal = self._core.store.send_refusal or self._core.replicas.refusal
        words = f"it refuses messages: {refusal}" if refusal else ""
        return self._not_ready or words or self._core.shell.unready()

    def _look_at_loop(self) -> None:
        self._loop_lag.look(asyncio.get_running_loop().time())

    async def _look_at_ends(self) -> None:
        """Where topics that groups read end now."""
        core = self._core
        keys = core.tables.offsets.keys()
        async for name in paced({key.partition("@")[0]: None for key in keys}):
            topic = core.tables.topics.find(name)
            if topic is not None:
                ids = queues_of(core.store, topic)
                ends = (core.store.max_offset(name, queue) for queue in ids)
                self._times.note(name, sum(ends), core.clock.steady_ms())

    def _scrape(self) -> Iterator[bytes]:
        core = self._core
        most = core.live.current.metrics_max_series
        rows = ScrapeRows(core, self._is_system, self._times, most, self._popped)
        kept = core.shell.kept()
        figures = ServerFigures(
            now_ms=core.clock.now_ms(),
            not_ready=self._pages.why_not_ready(),
            refused=core.shell.refusals(),
            ends=core.protection.ends.found,
            kept=(kept.total, kept.most),
            loop_lag_s=self._loop_lag.longest_s(),
            tasks=core.shell.tasks.health(),
        )
        return Scrape(core, self._items, rows, figures).pieces()

    def forget_topic(self, topic: str) -> None:
        """Its ends begin at 0 again."""
        self._times.forget(topic)
