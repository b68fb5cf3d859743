"""The queues of a topic in the whole cluster, from the name servers. Apache: TopicRouteInfoManager."""

import logging

from roquette.broker.floor.config import name_servers
from roquette.broker.floor.core import BrokerCore
from roquette.errors import ClientError
from roquette.message.message import MessageQueue
from roquette.message.names import PERM_READ

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
