"""One client process in one cluster: connections, routes, heartbeats, and which consumers hear of changes.

Name servers: a random one first, the next one when a call fails. Routes are refreshed every
30 s and compared between name servers, since one that disagrees does harm in silence.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.client import calls
from roquette.client.broker_requests import InspectableConsumer, OperatorRequests
from roquette.client.calls import AHEAD, ANY_NAME_SERVER, Answer, Ask, Call, Operation
from roquette.client.config import RENEW_S, ClientConfig, NameServers
from roquette.client.core.namespace import Namespace
from roquette.client.core.process_queue import Prefetch
from roquette.client.core.route_cache import TOPICS, TopicRoute, keep, route_from_template
from roquette.client.events import EventKind, Events
from roquette.client.under_way import OneWays
from roquette.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    ConfigError,
    ConnectError,
    RouteNotFound,
    Unreachable,
)
from roquette.message.message import MessageQueue
from roquette.message.names import RETRY_PREFIX
from roquette.remoting.client import RemotingClient
from roquette.remoting.request import Outcome, Peer, RequestContext, Row, Silent
from roquette.wire.bodies import ConsumerData, HeartbeatData, ProducerData, TopicList, canonical
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import NotifyConsumerIdsChangedRequestHeader
from roquette.wire.json_body import decode_body

# Calls and operations on the event loop.


T = TypeVar("T")


class BrokerApi:
    """Runs calls by address. Methods raise ClientError; a refusal is a BrokerError with its code."""

    def __init__(self, remoting: RemotingClient, timeout_ms: int) -> None:
        self._remoting = remoting
        self._timeout_ms = timeout_ms

    async def call(self, address: str, call: Call[T], *, timeout_ms: int | None = None) -> T:
        """Send a request to a server and return what its answer says."""
        answer = await self._remoting.invoke(
            address, call.code, call.ext, call.body, timeout_ms=timeout_ms or self._timeout_ms
        )
        return call.result(answer, address)


class OperationRun:
    """Drives one operation: servers side by side, `AHEAD` requests at each."""

    def __init__(
        self, api: BrokerApi, ask_name_servers: Callable[[Call[Any]], Awaitable[Any]]
    ) -> None:
        self._api = api
        self._ask_name_servers = ask_name_servers
        self._turns: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AHEAD))
        self._silent: dict[str, ClientError] = {}

    async def result(self, operation: Operation[T]) -> T:
        """Run the operation and return its result, or raise what it raises."""
        try:
            asks = next(operation)
            while True:
                answers = await asyncio.gather(*[self._answer(ask) for ask in asks])
                asks = operation.send(answers)
        except StopIteration as end:
            found: T = end.value
            return found

    async def _answer(self, ask: Ask) -> Answer[Any]:
        address = ask.address
        async with self._turns[address]:
            if address in self._silent:
                return Answer(address, error=self._silent[address])
            try:
                if address == ANY_NAME_SERVER:
                    return Answer(address, await self._ask_name_servers(ask.call))
                return Answer(address, await self._api.call(address, ask.call))
            except ClientError as error:
                if ask.is_silence(error):
                    self._silent[address] = error
                return Answer(address, error=error)


# Finding the new master of a group quickly: routes are asked for again and again while the one we know does not answer.
# Apache's client keeps a route for pollNameServerInterval (30 s); ours asks every name server each `ROUND_S` from the first failure on, until one names another master.


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

    def known_route(self, topic: str, /) -> TopicRoute | None:
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


# Being told of route changes at once by a name server of ours. Apache's refuse, and routes are polled as ever.


log = logging.getLogger("roquette.client")

BEAT_S: Final = 1.0
WATCHED: Final = 5_000  # topics; a name server takes no more from one client
AGAIN_S: Final = 600.0  # a name server that refused is asked again after


class RouteWatch:
    """Asks one name server to tell of the topics in use.

    Args:
        changed: called with topics whose routes may have changed while nobody told.
    """

    def __init__(
        self, remoting: RemotingClient, changed: Callable[[Collection[str]], None]
    ) -> None:
        self._remoting = remoting
        self._changed = changed
        self._told: dict[str, None] = {}
        self._peer: Peer | None = None  # who tells
        self._refused: dict[str, float] = {}  # name servers, until when they are left alone

    async def step(self, address: str, topics: Collection[str], now_s: float) -> None:
        """See that the name server at `address` knows what to tell of."""
        peer = self._remoting.peer(address)
        wanted = dict.fromkeys(topics)
        if peer is None or (peer is self._peer and wanted == self._told):
            return
        if self._refused.get(address, 0.0) > now_s:
            return
        call = calls.watch_routes(list(wanted))
        try:
            answer = await peer.invoke(call.code, call.ext, call.body, 3_000)
            call.result(answer, address)
        except BrokerError as error:
            self._refused[address] = now_s + AGAIN_S
            log.debug("route changes are not told of by=%s error=%s", address, error)
            return
        except ClientError:
            return  # it is asked again with the next beat
        known = self._told if peer is self._peer else {}
        self._peer, self._told = peer, wanted
        self._changed([topic for topic in wanted if topic not in known])


class GroupConsumer(InspectableConsumer, Protocol):
    """Consumer that is part of a group, as the session uses it."""

    group: str

    def describe(self) -> ConsumerData:
        """Its part of a heartbeat."""
        ...

    def topics(self) -> list[str]:
        """Topics whose routes it needs."""
        ...

    def rebalance_soon(self) -> None:
        """The group's members changed."""
        ...

    def master_moved(self) -> None:
        """A broker of its topics has another master, which knows no member and no lock yet."""
        ...


class Session:
    """Shared by the producers and consumers of one `Client`. `start` before use, `close` after.

    Args:
        more_rows: further requests that servers may send to us.

    Attributes:
        known_route: gives a topic's route as it is cached, or None. Each send asks: no function of ours comes between.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock,
        entropy: Entropy,
        local_host: str,
        more_rows: Sequence[Row] = (),
        events: Events | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.entropy = entropy
        self.local_host = local_host
        self.namespace = Namespace(config.namespace)
        instance = config.instance_name or f"{entropy.process_id}#{entropy.token(6)}"
        self.client_id = f"{local_host}@{instance}"
        self.tasks = Tasks()
        self._servers = NameServers(config.name_servers, clock, entropy, self.tasks)
        self.noise = RateLimited(log, clock)
        self._routes: dict[str, TopicRoute] = {}
        self.known_route: Callable[[str], TopicRoute | None] = self._routes.get
        self._fetching: dict[str, asyncio.Future[TopicRoute]] = {}
        self._producer_groups: dict[str, None] = {}
        self._consumers: dict[str, GroupConsumer] = {}
        self._heartbeat_lock = asyncio.Lock()
        self._greeted: set[str] = set()
        self._closed = False
        self.events = events or Events()
        self.one_ways = OneWays()
        self.prefetch = Prefetch(config.prefetch_bytes)
        rows = [
            Row(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                self._ids_changed,
                NotifyConsumerIdsChangedRequestHeader,
                0,
            ),
            Row(RequestCode.ROUTES_CHANGED, self._routes_changed, None, 0),
            *OperatorRequests(self._consumers.get).rows(),
            *more_rows,
        ]
        self.remoting = RemotingClient(
            clock,
            rows=rows,
            on_lost=self._connection_lost,
            connect_timeout_s=config.connect_timeout_ms / 1000,
            local_host=config.local_host,
            security=config.security,
        )
        self.remoting.made = partial(self.events.tell, EventKind.CONNECTED)
        self.api = BrokerApi(self.remoting, config.call_timeout_ms)
        self.masters = MasterSearch(self)
        self._watch = RouteWatch(self.remoting, self._renew_all)

    async def start(self) -> None:
        """Begin the periodic work."""
        config = self.config
        self.tasks.every("routes", config.poll_routes_ms / 1000, self.refresh_routes)
        self.tasks.every("watch-routes", BEAT_S, self._watch_routes)
        self.tasks.every("heartbeats", config.heartbeat_ms / 1000, self.heartbeat, first_s=1.0)
        if self._servers.changes:
            self.tasks.every("name-servers", RENEW_S, self._renew_name_servers)
        if len(self.name_servers) > 1 or self._servers.changes:
            step = config.compare_name_servers_ms / 1000
            compare = self.compare_name_servers
            self.tasks.every("compare-name-servers", step, compare, first_s=step / 2)

    # name servers and routes

    @property
    def name_servers(self) -> list[str]:
        """Their addresses; of a list that is looked up as it is known now."""
        return self._servers.addresses

    async def _renew_name_servers(self) -> None:
        await self._servers.renew(now=True)

    async def ask_name_servers(self, call: Call[T]) -> T:
        """Ask the current name server, and each other one while connections fail; a list that is looked up is then
        looked up again.

        Raises:
            ConnectError: none can be reached.
            RouteNotFound, BrokerError: the one that answered said so.
        """
        try:
            return await self._ask_each(call)
        except ConnectError:
            if not await self._servers.renew():
                raise
        return await self._ask_each(call)

    async def _ask_each(self, call: Call[T]) -> T:
        if not self.name_servers:
            await self._servers.renew()
        last: ClientError | None = None
        for _ in range(len(self.name_servers)):
            if (address := self._servers.current()) is None:
                break
            try:
                return await self.api.call(address, call)
            except BrokerError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                last = ConnectError(f"{address} is no name server (a broker, perhaps?): {error}")
            except RouteNotFound:
                raise
            except ClientError as error:
                last = error
            self._servers.leave(address)
        raise self._servers.unreachable(last) from last

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation, such as those of the admin room: return its result, or raise what it raises."""
        return await OperationRun(self.api, self.ask_name_servers).result(operation)

    async def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """A topic's route; concurrent callers share one request. Raises RouteNotFound or ConnectError."""
        if self._closed:
            raise ClientClosed("the client is closed")
        known = self._routes.get(topic)
        if known is not None and not fresh:
            return known
        pending = self._fetching.get(topic)
        if pending is None:
            pending = asyncio.get_running_loop().create_future()
            self._fetching[topic] = pending
            self.tasks.start(f"route-{topic}", self._fetch(topic, pending))
        return await asyncio.shield(pending)

    async def learn_route(self, topic: str, group: str) -> TopicRoute | None:
        """A fresh route for a consumer, or what is known without; the log names a topic that has none yet."""
        try:
            return await self.route(topic, fresh=True)
        except ClientError as error:
            if not topic.startswith(RETRY_PREFIX):
                words = "topic has no route yet group=%s topic=%s error=%s"
                self.noise.warning(f"route-{topic}", words, group, topic, error)
            return self.known_route(topic)

    async def _fetch(self, topic: str, result: "asyncio.Future[TopicRoute]") -> None:
        try:
            route = TopicRoute(topic, await self.ask_name_servers(calls.route(topic)))
            self.learn(topic, route)
            result.set_result(route)
        except asyncio.CancelledError:
            result.set_exception(ClientClosed("the client was closed"))
            raise
        except ClientError as error:
            result.set_exception(error)
        finally:
            if not result.done():  # an unexpected error is logged; callers wait for an answer
                result.set_exception(ConnectError(f"no route of {topic}: the request failed"))
            result.exception()  # seen, even when every caller has gone
            self._fetching.pop(topic, None)

    def learn(self, topic: str, route: TopicRoute) -> None:
        """Take in what a name server says now."""
        old = self._routes.get(topic)
        in_use = {t for c in self._consumers.values() for t in c.topics()} if old is None else ()
        keep(self._routes, topic, route, TOPICS, in_use)
        if old is None or not old.same_as(route):
            if old is not None:
                log.info("route changed topic=%s", topic)
                self.events.tell(EventKind.ROUTE_CHANGED, topic=self.namespace.shown(topic))
            for consumer in self._consumers.values():
                if topic in consumer.topics():
                    consumer.rebalance_soon()
        if old is not None and route.names_other_master(old):
            self._follow_masters(topic, old, route)

    def _follow_masters(self, topic: str, old: TopicRoute, route: TopicRoute) -> None:
        """Nothing waits any more for who was master; all that is ours goes to who is now."""
        for name in route.addresses:
            before, now = old.master_of(name), route.master_of(name)
            if now is None or now == before or name not in old.addresses:
                continue
            log.info("master changed broker=%s from=%s to=%s", name, before, now)
            if before is not None:
                self.remoting.drop(before)
            self._greeted.discard(now)
            self.greet_soon(now)
            for other, known in list(self._routes.items()):
                if name in known.addresses and known.master_of(name) != now:
                    self._renew_all([other])
        for consumer in self._consumers.values():
            if topic in consumer.topics():
                consumer.master_moved()

    def _topics_in_use(self) -> set[str]:
        return set(self._routes) | {t for c in self._consumers.values() for t in c.topics()}

    async def _watch_routes(self) -> None:
        if (address := self._servers.current()) is None:
            return
        now_s = asyncio.get_running_loop().time()
        await self._watch.step(address, sorted(self._topics_in_use())[:WATCHED], now_s)

    def _routes_changed(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """A name server tells of topics whose routes have changed."""
        told = decode_body(TopicList, body).topic_list
        self._renew_all(self._topics_in_use().intersection(told))
        return Silent()

    def _renew_all(self, topics: Collection[str]) -> None:
        self.tasks.start("routes-changed", self._renew(sorted(topics)))

    async def _renew(self, topics: list[str]) -> None:
        for start in range(0, len(topics), AHEAD):
            await asyncio.gather(*map(self._renew_one, topics[start : start + AHEAD]))

    async def _renew_one(self, topic: str) -> None:
        try:
            await self.route(topic, fresh=True)
        except ClientError as error:
            log.debug("route refresh failed topic=%s error=%s", topic, error)

    async def publish_route(self, topic: str) -> TopicRoute:
        """The route to send by: the topic's own, or TBW102's for a topic still to be created.

        Raises:
            RouteNotFound: there is neither.
        """
        try:
            route = await self.route(topic)
        except RouteNotFound:
            try:
                template = await self.route(self.config.create_topic_key)
            except RouteNotFound:
                raise RouteNotFound(topic) from None
            return route_from_template(topic, template.data, self.config.default_topic_queues)
        return route

    async def refresh_routes(self) -> None:
        """Every 30 s: ask again for every topic in use, and leave brokers that no route names."""
        for topic in sorted(self._topics_in_use()):
            try:
                await self.route(topic, fresh=True)
            except RouteNotFound:
                # Kept, as Java's client does: a name server that was restarted knows nothing yet.
                log.debug("no name server knows the topic now topic=%s", topic)
            except ClientError as error:
                self.noise.warning("routes", "route refresh failed topic=%s error=%s", topic, error)
                return
        wanted = {*self.name_servers, *self.broker_addresses()}
        for address in self.remoting.addresses():
            if address not in wanted:
                log.info("broker is in no route any more address=%s", address)
                self.remoting.drop(address)

    async def compare_name_servers(self) -> None:
        """Warn when name servers do not tell the same route for a topic."""
        if len(self.name_servers) < 2:
            return
        for topic in sorted(self._routes):
            seen: dict[object, list[str]] = {}
            for address in self.name_servers:
                try:
                    form: object = canonical(await self.api.call(address, calls.route(topic)))
                except RouteNotFound:
                    form = None
                except ClientError:
                    continue  # one that is down is no contradiction
                seen.setdefault(form, []).append(address)
            if len(seen) > 1:
                sides = " / ".join(",".join(addresses) for addresses in seen.values())
                self.noise.warning(
                    f"disagree-{topic}", "name servers disagree topic=%s servers=%s", topic, sides
                )

    def master_of(self, queue: MessageQueue) -> str:
        """Return the address at which a queue is written and its group's offsets live; raises ConnectError when unknown."""
        route = self._routes.get(self.namespace.wrap(queue.topic))
        address = route.master_of(queue.broker_name) if route is not None else None
        if address is None:
            address = self.address_of_broker(queue.broker_name)
        return address

    def queue_at(self, broker_name: str) -> MessageQueue | None:
        """A queue to send to at a broker, of any topic; None when no route names it."""
        for route in self._routes.values():
            for queue in route.publish:
                if queue.broker_name == broker_name:
                    return queue
        return None

    def address_of_broker(self, broker_name: str) -> str:
        """Any address of a broker name, the master's first; raises ConnectError when none is known."""
        for route in self._routes.values():
            address = route.address_for_read(broker_name)
            if address is not None:
                return address
        raise Unreachable(f"no route names broker {broker_name}")

    def broker_addresses(self) -> list[str]:
        """Addresses of all brokers of all routes in use, sorted."""
        return sorted(
            {
                address
                for route in self._routes.values()
                for members in route.addresses.values()
                for address in members.values()
            }
        )

    def _connection_lost(self, address: str) -> None:
        self.events.tell(EventKind.DISCONNECTED, address)
        self._greeted.discard(address)
        self.one_ways.end(address)
        if not self._closed and address not in self.name_servers:
            log.info("connection lost address=%s", address)

    # groups

    def add_producer_group(self, group: str) -> None:
        """Heartbeats name this producer group from now on."""
        self._producer_groups[group] = None

    def drop_producer_group(self, group: str) -> None:
        """Heartbeats name it no more."""
        self._producer_groups.pop(group, None)

    async def add_consumer(self, consumer: GroupConsumer) -> None:
        """Heartbeats name this consumer from now on; one per group."""
        if consumer.group in self._consumers:
            raise ConfigError(
                f"this client already has a consumer of group {consumer.group}: use another Client"
            )
        self._consumers[consumer.group] = consumer

    async def remove_consumer(self, consumer: GroupConsumer) -> None:
        """Leave the group on every broker, so that the others take over at once."""
        if self._consumers.get(consumer.group) is not consumer:
            return
        del self._consumers[consumer.group]
        for address in self.broker_addresses():
            if self.remoting.peer(address) is None:
                continue
            try:
                await self.api.call(
                    address, calls.unregister(self.client_id, consumer_group=consumer.group)
                )
            except ClientError as error:
                self.noise.warning(
                    "leave", "leaving failed group=%s error=%s", consumer.group, error
                )

    def _heartbeat_data(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in self._producer_groups],
            consumer_data_set=[consumer.describe() for consumer in self._consumers.values()],
        )

    async def heartbeat(self) -> None:
        """Tell every broker of our routes who we are; a broker that is down is skipped."""
        if not self._producer_groups and not self._consumers:
            return
        async with self._heartbeat_lock:
            for address in self.broker_addresses():
                try:
                    await self.beat(address)
                    self._greeted.add(address)
                except ClientError as error:
                    self.noise.warning(
                        f"beat-{address}", "heartbeat failed address=%s error=%s", address, error
                    )

    def greet_soon(self, address: str) -> None:
        """Make sure a broker we rely on knows us before the next heartbeat is due."""
        if address not in self._greeted and not self._closed:
            self._greeted.add(address)
            self.tasks.start("greet", self._greet(address))

    async def _greet(self, address: str) -> None:
        try:
            await self.beat(address)
        except ClientError:
            self._greeted.discard(address)

    async def beat(self, address: str, timeout_ms: int | None = None) -> None:
        """A heartbeat; its answer says that what was sent one way before it has come there."""
        await self.remoting.connect(address)  # before it is written: a group may be left meanwhile
        sent = self.one_ways.count(address)
        call = calls.heartbeat(self._heartbeat_data())
        await self.api.call(address, call, timeout_ms=timeout_ms)
        self.one_ways.arrived(address, sent)

    def _ids_changed(
        self, ctx: RequestContext, header: NotifyConsumerIdsChangedRequestHeader, body: bytes
    ) -> Outcome:
        consumer = self._consumers.get(header.consumer_group or "")
        if consumer is not None:
            consumer.rebalance_soon()
        return Silent()

    async def close(self) -> None:
        """Leave producer groups, end the periodic work, close connections."""
        if self._closed:
            return
        for group in self._producer_groups:
            for address in self.broker_addresses():
                if self.remoting.peer(address) is not None:
                    try:
                        await self.api.call(
                            address, calls.unregister(self.client_id, producer_group=group)
                        )
                    except ClientError as error:
                        log.debug("leaving failed group=%s error=%s", group, error)
        self._closed = True
        await self.tasks.stop()
        await self.remoting.close()


# Members of a group, as its brokers say.


SOON_S: Final = 0.5
"""Between two looks for what a consumer needs to begin: a topic, a broker, a name server."""
CANCEL_S: Final = 0.15
"""Who joins a group and is cancelled ends within it; the group is left without him."""


async def members_of(session: Session, group: str, topic: str) -> list[str]:
    """Sorted client ids; empty when no broker of the topic knows a member, or answers.

    A broker that does not know us yet, as one that came after our last heartbeat, is told of us and asked again.
    """
    route = session.known_route(topic)
    found: list[str] = []
    for name in sorted(route.addresses) if route is not None else ():
        address = route.address_for_read(name) if route is not None else None
        if address is None:
            continue
        try:
            found = await _ask_broker(session, group, address) or found
            if session.client_id not in found:
                await session.beat(address)
                found = await _ask_broker(session, group, address) or found
        except ClientError:
            continue
        if session.client_id in found:
            break
    return found


async def _ask_broker(session: Session, group: str, address: str) -> list[str]:
    try:
        return await session.api.call(address, calls.members(group))
    except BrokerError:
        return []  # nobody of the group is there
