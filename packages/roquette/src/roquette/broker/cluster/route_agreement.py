"""Checks that all name servers give the same routes, and warns if they do not.

Name servers never talk to each other, so one that does not know a broker goes unnoticed until producers
are unbalanced and queues have no consumer. A broker is the cheapest place to notice: it knows all of them.
"""

import asyncio
import logging

from roquette.base.logs import RateLimited
from roquette.broker.floor.config import name_servers
from roquette.broker.floor.core import BrokerCore
from roquette.errors import ClientError
from roquette.message.names import is_system_topic
from roquette.wire.bodies import TopicRouteData, canonical

log = logging.getLogger("roquette.broker.agreement")

TOPICS_A_ROUND = 8  # of our own, in turn; a broker unknown to a name server shows in any of them
SETTLE_S = 2.0  # a change on its way is no disagreement: what differs is asked again
TIMEOUT_MS = 3_000
WARN_EVERY_MS = 60_000


class RouteConsistencyCheck:
    """Compares what the name servers say of some of this broker's topics, in turn, each round."""

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._topics = core.tables.topics
        self._outbound = core.outbound
        self._noise = RateLimited(log, core.clock, WARN_EVERY_MS)
        self._next = 0

    async def check(self) -> None:
        """One round; costs nothing where there is one name server."""
        if len(name_servers(self._live.current)) < 2:
            return
        doubtful = [
            topic for topic in self._next_topics() if len(await self._answers_by_server(topic)) > 1
        ]
        if not doubtful:
            return
        await asyncio.sleep(SETTLE_S)
        for topic in doubtful:
            sides = await self._answers_by_server(topic)
            if len(sides) > 1:
                text = " / ".join(f"{','.join(who)} say {what}" for what, who in sides)
                self._noise.warning(topic, "name servers disagree topic=%s: %s", topic, text)

    def _next_topics(self) -> list[str]:
        """The topic that every broker of the cluster has, and the next few of the users'."""
        cluster = self._live.current.broker_cluster_name
        own = [t.name for t in self._topics.all() if not is_system_topic(t.name)]
        names = [name for name in own if name not in (cluster, self._live.current.broker_name)]
        count = min(len(names), TOPICS_A_ROUND)
        chosen = [names[(self._next + i) % len(names)] for i in range(count)]
        self._next += count
        return [cluster, *chosen] if self._topics.find(cluster) is not None else chosen

    async def _answers_by_server(self, topic: str) -> list[tuple[str, list[str]]]:
        """The answers about a topic, with the servers that gave each; servers that do not answer are left out."""
        seen: dict[object, tuple[str, list[str]]] = {}
        for address in name_servers(self._live.current):
            try:
                route = await self._outbound.route(address, topic, TIMEOUT_MS)
            except ClientError:
                continue
            form = None if route is None else canonical(route)
            seen.setdefault(form, (_words(route), []))[1].append(address)
        return list(seen.values())


def _words(route: TopicRouteData | None) -> str:
    """The queues of a route by broker, for the log."""
    if route is None:
        return "nothing"
    queues = sorted(
        (q.broker_name, q.read_queue_nums, q.write_queue_nums) for q in route.queue_datas
    )
    return "+".join(f"{name}(r{reads}w{writes})" for name, reads, writes in queues) or "nothing"
