"""The broker in its cluster: registration, and questions to name servers."""

import logging

from roquette.base.lifecycle import Tasks
from roquette.base.metric_families import REGISTERED, MetricTable, labels
from roquette.broker.cluster.registration import BrokerRegistrar
from roquette.broker.cluster.route_agreement import RouteConsistencyCheck
from roquette.broker.floor.config import name_servers
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane
from roquette.errors import ClientError
from roquette.message.message import MessageQueue
from roquette.message.names import PERM_READ
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, row
from roquette.wire.bodies import MASTER_ID
from roquette.wire.codes import RequestCode
from roquette.wire.headers import NotifyMinBrokerIdChangeRequestHeader

# The queues of a topic in the whole cluster, from the name servers. Apache: TopicRouteInfoManager.


log = logging.getLogger("roquette.broker")

FRESH_MS = 10_000
TOPICS = 10_000  # kept at most
QUEUES = 65_536  # of a topic on one broker: no broker has more
TIMEOUT_MS = 3_000


class ClusterQueues:
    """Asks the name servers, and remembers for some seconds."""

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._topics = core.tables.topics
        self._outbound = core.outbound
        self._clock = core.clock
        self._known: dict[str, tuple[int, list[MessageQueue]]] = {}

    async def find(self, topic: str) -> list[MessageQueue] | None:
        """The readable queues; None if no name server knows the topic. Without name servers, our own queues."""
        now_ms = self._clock.steady_ms()
        known = self._known.get(topic)
        if known is not None and now_ms < known[0]:
            return known[1]
        servers = name_servers(self._live.current)
        if not servers:
            return self._own(topic)
        for address in servers:
            try:
                route = await self._outbound.route(address, topic, TIMEOUT_MS)
            except ClientError as error:
                log.warning("no route topic=%s name_server=%s: %s", topic, address, error)
                continue
            if route is not None:
                queues = [
                    MessageQueue(topic, data.broker_name, number)
                    for data in route.queue_datas
                    if data.perm & PERM_READ
                    for number in range(min(data.read_queue_nums, QUEUES))
                ]
                self._keep(topic, queues, now_ms)
                return queues
        return known[1] if known is not None else None

    def _keep(self, topic: str, queues: list[MessageQueue], now_ms: int) -> None:
        self._known.pop(topic, None)
        if len(self._known) >= TOPICS:
            del self._known[next(iter(self._known))]
        self._known[topic] = (now_ms + FRESH_MS, queues)

    def _own(self, topic: str) -> list[MessageQueue] | None:
        found = self._topics.find(topic)
        if found is None:
            return None
        name = self._live.current.broker_name
        return [MessageQueue(topic, name, number) for number in range(found.read_queues)]


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
        """Return the rows of the requests that are served."""
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
