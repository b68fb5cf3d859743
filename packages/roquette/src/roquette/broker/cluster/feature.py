"""The broker in its cluster: registration, and questions to name servers."""

from roquette.base.lifecycle import Tasks
from roquette.base.metric_families import REGISTERED, MetricTable, labels
from roquette.broker.cluster.cluster_queues import ClusterQueues
from roquette.broker.cluster.registration import BrokerRegistrar
from roquette.broker.cluster.route_agreement import RouteConsistencyCheck
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, row
from roquette.wire.bodies import MASTER_ID
from roquette.wire.codes import RequestCode
from roquette.wire.headers import NotifyMinBrokerIdChangeRequestHeader


class ClusterFeature(Feature):
    """Keeps the broker known.

    Attributes:
        registration: with the name servers.
        queues: of topics in the whole cluster.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._again_ms = 0
        self.registration = BrokerRegistrar(core, RouteConsistencyCheck(core))
        core.saved.registrar = self.registration
        core.outbound.lost.append(self.registration.connection_lost)
        self.queues = ClusterQueues(core)

    def rows(self) -> list[Row]:
        """What is served."""
        header = NotifyMinBrokerIdChangeRequestHeader
        code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        return [row(code, self._members_changed, header, Lane.ADMIN, Promise.NOTHING)]

    def _members_changed(
        self, ctx: RequestContext, header: NotifyMinBrokerIdChangeRequestHeader, body: bytes
    ) -> Reply:
        """NOTIFY_MIN_BROKER_ID_CHANGE: a replica asks the name servers where its master is, once a second at most."""
        if self._core.identity.broker_id != MASTER_ID and ctx.steady_ms >= self._again_ms:
            self._again_ms = ctx.steady_ms + 1_000
            self.registration.again()
        return Reply()

    def measures(self, now_ms: int) -> list[MetricTable]:
        """Its metrics."""
        taken = self.registration.taken().items()
        shown = ((labels({"namesrv": address}), float(done)) for address, done in taken)
        return [MetricTable(REGISTERED, len(taken), shown)]

    async def start(self, tasks: Tasks) -> None:
        """Register; waits for the name servers, but not for long."""
        await self.registration.start()

    def unready(self) -> str:
        """No client finds it."""
        return self.registration.trouble

    async def leave(self) -> None:
        """Unregister."""
        await self.registration.stop()

    async def stop(self) -> None:
        """Close connections to others."""
        await self._core.outbound.close()
