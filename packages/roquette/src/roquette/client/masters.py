"""Finding the new master of a group quickly: routes are asked for again and again while the one we know does not answer.

Apache's client keeps a route for pollNameServerInterval (30 s); ours asks every name server each `ROUND_S` from the
first failure on, until one names another master.
"""

import asyncio
from typing import Final, Protocol

from roquette.base.lifecycle import Tasks
from roquette.client import calls
from roquette.client.broker_api import BrokerApi
from roquette.client.core.route_cache import TopicRoute
from roquette.errors import ClientError

ROUND_S: Final = 0.15  # between two rounds of questions
ANSWER_S: Final = 1.0  # a round waits so long for the first answer
SEARCH_S: Final = 15.0  # then the route is left to the next failure, and to the periodic refresh


class SessionRoutes(Protocol):
    """Part of the session that the search for a master needs."""

    tasks: Tasks
    api: BrokerApi

    @property
    def name_servers(self) -> list[str]:
        """Their addresses."""
        ...

    def known_route(self, topic: str) -> TopicRoute | None:
        """The route as it is cached."""
        ...

    def learn(self, topic: str, route: TopicRoute) -> None:
        """Take in what a name server says now."""
        ...


class MasterSearch:
    """Asks for routes of topics, some of whose brokers have no master that answers."""

    def __init__(self, session: SessionRoutes) -> None:
        self._session = session
        self._rounds: dict[str, asyncio.Future[None]] = {}  # topics searched for: the present round

    def begin(self, topic: str) -> "asyncio.Future[None]":
        """Ask for a topic's route until it names another master; the future is done after the next round."""
        found = self._rounds.get(topic)
        if found is None:
            found = self._rounds[topic] = asyncio.get_running_loop().create_future()
            self._session.tasks.start(f"master-{topic}", self._search(topic))
        return found

    async def found(self, topic: str, limit_s: float) -> TopicRoute | None:
        """The topic's route once some queue of it can be written; else what is known of it after `limit_s`."""
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    await asyncio.shield(self.begin(topic))
                    route = self._session.known_route(topic)
                    if route is not None and route.publish:
                        return route
        except TimeoutError:
            return self._session.known_route(topic)

    async def moved(
        self, route: TopicRoute | None, topic: str, broker_name: str, pause_s: float
    ) -> bool:
        """After a failure by `route`: wait until there is another one, `pause_s` at most; False: it is the same."""
        if self._session.known_route(topic) is not route:
            return True
        if route is None or not route.has_replicas(broker_name):
            await asyncio.sleep(pause_s)
            return False
        try:
            async with asyncio.timeout(pause_s):
                while self._session.known_route(topic) is route:
                    await asyncio.shield(self.begin(topic))
        except TimeoutError:
            return False
        return True

    async def _search(self, topic: str) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + SEARCH_S
        known = self._session.known_route(topic)
        try:
            while self._session.known_route(topic) is known and loop.time() < end:
                began = loop.time()
                await self._round(topic, known)
                turn, self._rounds[topic] = self._rounds[topic], loop.create_future()
                turn.set_result(None)
                if self._session.known_route(topic) is known:
                    await asyncio.sleep(began + ROUND_S - loop.time())
        finally:
            self._rounds.pop(topic).set_result(None)

    async def _round(self, topic: str, known: TopicRoute | None) -> None:
        """Ask every name server; the first route with another master is the one. Who is slow is not waited for."""
        loop = asyncio.get_running_loop()
        began, answered = loop.time(), False
        asks = {
            self._session.tasks.start(f"route-{topic}", self._ask(address, topic))
            for address in self._session.name_servers
        }
        try:
            while asks:
                limit = began + (ROUND_S if answered else ANSWER_S) - loop.time()
                done, asks = await asyncio.wait(
                    asks, timeout=max(0.0, limit), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    return
                for ask in done:
                    route = ask.result()
                    answered = answered or route is not None
                    if route is not None and route.names_other_master(known):
                        self._session.learn(topic, route)
                        return
        finally:
            for ask in asks:
                ask.cancel()

    async def _ask(self, address: str, topic: str) -> TopicRoute | None:
        try:
            return TopicRoute(topic, await self._session.api.call(address, calls.route(topic)))
        except ClientError:
            return None
