"""The broker in its cluster: registration, and questions to name servers."""

from roquette.base.lifecycle import Tasks
from roquette.broker.cluster.cluster_queues import ClusterQueues
from roquette.broker.cluster.outbound import Outbound
from roquette.broker.cluster.registration import Registration
from roquette.broker.cluster.route_agreement import RouteConsistencyCheck
from roquette.broker.core import BrokerCore
from roquette.broker.feature import Feature
from roquette.remoting.client import RemotingClient


class ClusterFeature(Feature):
    """Keeps the broker known.

    Attributes:
        outbound: calls of others.
        registration: with the name servers.
        queues: of topics in the whole cluster.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._client = RemotingClient(core.clock, on_lost=self._lost)
        self.outbound = Outbound(self._client)
        agreement = RouteConsistencyCheck(core, self.outbound)
        self.registration = Registration(core, self.outbound, agreement)
        self.queues = ClusterQueues(core, self.outbound)

    def _lost(self, name_server: str) -> None:
        self.registration.connection_lost(name_server)

    async def start(self, tasks: Tasks) -> None:
        """Register; waits for the name servers, but not for long."""
        await self.registration.start()

    async def leave(self) -> None:
        """Unregister."""
        await self.registration.stop()

    async def stop(self) -> None:
        """Close connections to others."""
        await self._client.close()
