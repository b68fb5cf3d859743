"""/metrics, /healthz and /readyz of a name server."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from roquette.base import metric_families as m
from roquette.base.lifecycle import Tasks
from roquette.base.metric_families import KIND, Exposition, MetricTable, labels
from roquette.base.server_metrics import LoopLag, ServerFigures, server_families, why_unhealthy
from roquette.nameserver.floor.core import NameServerCore
from roquette.remoting.account import MemoryAccount
from roquette.remoting.http_pages import HttpPages, StreamedPage
from roquette.remoting.pem import ENDS_BEAT_S, CertificateEnds
from roquette.wire.bodies import MASTER_ID

if TYPE_CHECKING:
    from roquette.remoting.http1 import HttpListener

LAG_BEAT_S = 1.0
ABOUT = (
    "This is a RocketMQ name server: clients of the remoting protocol (4.x, and 5.x ones of org.apache.rocketmq:"
    "rocketmq-client) have its address as namesrvAddr; clients of the v5 SDKs (gRPC) go to a broker or a proxy."
)


class NameServerMetrics:
    """Shows what a name server knows of itself.

    Args:
        connections: how many there are. kept: for them. refused: what was refused since the start, by why.
        ends: of the certificates it uses.

    Attributes:
        pages: for its own port. listener: the port of metricsListen, when there is one.
    """

    def __init__(
        self,
        core: NameServerCore,
        tasks: Tasks,
        connections: Callable[[], int],
        kept: MemoryAccount,
        refused: Callable[[], Mapping[str, int]],
        ends: CertificateEnds,
    ) -> None:
        self._core = core
        self._tasks = tasks
        self._connections = connections
        self._kept = kept
        self._refused = refused
        self._ends = ends
        self._loop_lag = LoopLag(LAG_BEAT_S)
        self.pages = HttpPages(
            about=ABOUT,
            anyone=True,
            shown=True,
            check_health=lambda: why_unhealthy(tasks.health()),
            check_readiness=self._why_not_ready,
            streams={"/metrics": StreamedPage(kind=KIND, begin=self._pieces)},
        )
        self.listener: HttpListener | None = None

    async def start(self) -> None:
        """Begin to look at the loop, and open the port. Raises ConfigError when it is taken."""
        address = self._core.config.metrics_address()
        if address:
            from roquette.remoting.http1 import HttpListener  # few have a port of its own

            self.listener = HttpListener(self.pages)
            await self.listener.start(address)
        loop = asyncio.get_running_loop()
        self._tasks.every("loop-lag", LAG_BEAT_S, lambda: self._loop_lag.look(loop.time()))
        if self._ends.files:
            self._tasks.every("certificates", ENDS_BEAT_S, self._ends.look, first_s=0.0)

    def _why_not_ready(self) -> str:
        """Return why a sender gets no route here."""
        core = self._core
        if wait_s := core.waits_s():
            return f"routes are refused for {wait_s:.0f} s more (needWaitForService)"
        if not len(core.routes.live):
            left = len(core.routes.departed.all(core.clock.steady_ms()))
            return f"no broker is registered here; {left} have left within a day"
        return ""

    def _brokers(self, text: str) -> Iterator[MetricTable]:
        """Yield who is there, who left and who is refused; of each name whether it has a master."""
        routes, masters = self._core.routes, dict[tuple[str, str], bool]()
        found = [(*live.identity.place, live.identity.address, "") for live in routes.live.all()]
        for cluster, name, number, _, _ in found:
            masters[cluster, name] = masters.get((cluster, name), False) or number == MASTER_ID
        for left in routes.departed.all(self._core.clock.steady_ms()):
            place = left.cluster, left.broker_name, left.broker_id
            found.append((*place, left.broker_addr, left.why))
        names = "cluster", "broker", "broker_id", "address", "why"
        up = ((labels(dict(zip(names, row, strict=True))), float(not row[-1])) for row in found)
        yield MetricTable(m.BROKER_UP, len(found), ((f"{text},{row}", value) for row, value in up))
        has = ((labels(dict(zip(names, key))), float(value)) for key, value in masters.items())
        yield MetricTable(
            m.HAS_MASTER, len(masters), ((f"{text},{row}", value) for row, value in has)
        )

    def _pieces(self) -> Iterator[bytes]:
        core, routes = self._core, self._core.routes
        text = labels({"node_type": "namesrv", "environment": core.config.product_env_name})
        out = Exposition()
        for family, value in (
            (m.BROKERS, len(routes.live)),
            (m.ROUTES, routes.topic_count),
            (m.CONNECTIONS, self._connections()),
        ):
            yield from out.family(family, [(text, value)])
        for table in self._brokers(text):
            yield from out.table(table)
        figures = ServerFigures(
            now_ms=core.clock.now_ms(),
            not_ready=self.pages.why_not_ready(),
            refused=self._refused(),
            ends=self._ends.found,
            kept=(self._kept.total, self._kept.most),
            loop_lag_s=self._loop_lag.longest_s(),
            tasks=self._tasks.health(),
        )
        for family, samples in server_families(figures, text):
            yield from out.family(family, samples)

    async def close(self) -> None:
        """Close the port."""
        if self.listener is not None:
            await self.listener.close()
