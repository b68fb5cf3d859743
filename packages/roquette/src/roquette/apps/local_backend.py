"""LOCAL: the backend of the proxy inside a broker.

Apache: LocalMessageService, LocalTopicRouteService. Here a broker's port speaks everything, so routes name the ports
that brokers advertise, and of this broker the address that the client has used itself. A port that does not speak (Apache's
brokers) is named to nobody.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

import roquette.wire.http2_ngh2  # noqa: F401 - what connections are made of, loaded with the rest
from roquette.access.model import Action
from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.broker.floor.config import LiveConfig, name_servers
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.tables.topics import Created, TopicTable
from roquette.broker.floor.tables.topics import Topic as BrokerTopic
from roquette.errors import ClientError, ConnectError, Refused
from roquette.message.names import TBW102, is_system_topic, topic_error
from roquette.proxy.access import CallGuard
from roquette.proxy.backend import Lookup, TopicFacts
from roquette.proxy.parts import make_proxy
from roquette.proxy.service import Asks, BrokerAnswer, Caller, Then
from roquette.proxy.sessions import Sessions
from roquette.proxy.settings import ProxySettings
from roquette.remoting.client import split_address
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.http2_probe import speaks_http2
from roquette.remoting.request import Peer, RequestContext
from roquette.remoting.transport import InnerWire
from roquette.wire.bodies.clients import HeartbeatData
from roquette.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from roquette.wire.bodies.tables import SubscriptionGroupConfig, TopicConfig
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.connection import VERSION
from roquette.wire.headers import UnregisterClientRequestHeader
from roquette.wire.json_body import encode_body
from roquette.wire.proto.definition_pb2 import AddressScheme, Endpoints

log = logging.getLogger("roquette.proxy")

ROUTE_MS: Final = 3_000
MOST_KNOWN: Final = 10_000  # topics whose description is kept
MESSAGE_TYPE: Final = "message.type"
MADE_FOR_V5: Final = {MESSAGE_TYPE: "MIXED"}
"""Attributes of a topic that a v5 client's question makes: it takes messages of every type (docs/compatibility.md)."""


def _nothing(answer: BrokerAnswer) -> None:
    return None


def _unasked(opaque: int, code: int, ext: bytes, body: bytes, oneway: bool) -> None:
    """Nobody asks the broker's own caller anything."""


class _Inside:
    """A request that the dispatcher has, or None for one that was answered at once."""

    __slots__ = ("_asks", "_dispatcher", "_job", "_number")

    def __init__(
        self, dispatcher: Dispatcher, asks: Asks, number: int, job: RequestContext | None
    ) -> None:
        self._dispatcher = dispatcher
        self._asks = asks
        self._number = number
        self._job = job

    def cancel(self) -> None:
        if self._asks.drop(self._number) and self._job is not None:
            self._dispatcher.cancel(self._job)


class _NoTransport(asyncio.Transport):
    """Of the peer that is no connection."""


class LocalBackend:
    """The broker of this process."""

    in_process = True

    def __init__(
        self,
        core: BrokerCore,
        dispatcher: Dispatcher,
        created: Created,
    ) -> None:
        self._core = core
        self._name = core.live.current.broker_name
        self._dispatcher = dispatcher
        self._outbound = core.outbound
        self._created = created
        self._topics: TopicTable = core.tables.topics
        self._live: LiveConfig = core.live
        self._tasks = Tasks()
        self._known: dict[str, tuple[TopicConfig, int, TopicFacts]] = {}
        self._routes: Lookup[TopicRouteData] = Lookup(
            self._look, self._tasks, lambda: core.clock.steady_ms() / 1000
        )
        self._ports: Lookup[bool] = Lookup(
            partial(speaks_http2, core.protection.calls, RateLimited(log, core.clock)),
            self._tasks,
            lambda: core.clock.steady_ms() / 1000,
        )
        asks = Asks()
        wire = InnerWire(asks.answered, _unasked, list)
        peer = Peer(
            dispatcher, _NoTransport(), -1, core.address.store_host, str(core.address), wire
        )
        peer.reads_less = False  # there is nothing to read
        self._own = Caller(peer, f"proxy@{core.live.current.broker_name}", asks)

    @property
    def own(self) -> Caller:
        return self._own

    def ask(
        self,
        caller: Caller,
        broker: str,
        code: int,
        header: Any,
        body: bytes,
        then: Then,
        timeout_ms: int = 3000,
    ) -> _Inside:
        """See `Backend`. The broker answers each request in its own time: there is no timeout."""
        asks = caller.asks
        number = asks.add(then)
        job = None
        if broker and broker != self._name:
            text = f"broker {broker} is not served here, this is {self._name}"
            asks.answered(number, ResponseCode.NO_PERMISSION, text, b"", b"")
        else:
            command = Command(
                code=code,
                opaque=number,
                version=VERSION,
                language=caller.language or "OTHER",
                body=body,
            )
            job = self._dispatcher.submit(caller.peer, command, header, caller.account)
            if job is not None and caller is self._own:
                job.admitted = True  # a client that was let in has asked for it
        return _Inside(self._dispatcher, asks, number, job)

    def topic(self, caller: Caller, name: str, then: Callable[[TopicFacts | None], None]) -> None:
        """See `Backend`: one that is nowhere is made, as by a first message, for who may send that."""
        found = self._topics.find(name)
        if found is not None:
            then(self._facts_of(found))
        elif not self._may_make(caller, name):
            then(None)
        elif name_servers(self._core.live.current):
            self._routes.get(name, lambda route: self._absent(caller, name, route, then))
        else:
            self._absent(caller, name, None, then)

    def _may_make(self, caller: Caller, name: str) -> bool:
        return self._core.live.current.auto_create_topic_enable and self._core.access.permits(
            caller.account or "", caller.peer, name, Action.PUB
        )

    def _absent(
        self,
        caller: Caller,
        name: str,
        route: TopicRouteData | None,
        then: Callable[[TopicFacts | None], None],
    ) -> None:
        """This broker does not have the topic; `route`: other brokers do, as their operator wants it."""
        found = self._core.tables.topics.find(name)
        if found is not None:  # made meanwhile
            then(self._facts_of(found))
            return
        made = None
        if route is None and self._may_make(caller, name):
            with suppress(Refused):
                made = self._make(name)
        if made is None:
            then(None)
        else:
            self._tasks.start(f"topic-{name}", self._made(made, then))

    def _make(self, name: str) -> BrokerTopic | None:
        config = self._core.live.current
        if is_system_topic(name) or topic_error(name, self._core.live.store.max_topic_length):
            return None
        return self._core.tables.topics.auto_create(
            name,
            default_topic=TBW102,
            queues=config.default_topic_queue_nums,
            sys_flag=0,
            enabled=config.auto_create_topic_enable,
            now_ms=self._core.clock.now_ms(),
            attributes=MADE_FOR_V5,
        )

    async def _made(self, topic: BrokerTopic, then: Callable[[TopicFacts | None], None]) -> None:
        await self._created(topic, TBW102)
        then(self._facts_of(topic))

    def _facts_of(self, topic: BrokerTopic) -> TopicFacts:
        shown, perm = topic.shown, self._live.current.broker_permission
        known = self._known.get(topic.name)
        if known is None or known[0] is not shown or known[1] != perm:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[topic.name] = shown, perm, self._describe(topic)
        return known[2]

    def _describe(self, topic: BrokerTopic) -> TopicFacts:
        core = self._core
        queues = QueueData(
            broker_name=self._name,
            read_queue_nums=topic.read_queues,
            write_queue_nums=topic.write_queues,
            perm=topic.perm & core.live.current.broker_permission,
            topic_sys_flag=topic.sys_flag,
        )
        cluster = core.live.current.broker_cluster_name
        broker = BrokerData(
            cluster=cluster,
            broker_name=self._name,
            broker_addrs={core.identity.broker_id: str(core.address)},
        )
        kind = topic.attributes.get(MESSAGE_TYPE, "NORMAL")
        return TopicFacts(
            topic.name, kind, TopicRouteData(queue_datas=[queues], broker_datas=[broker])
        )

    def route(
        self, caller: Caller, name: str, used: Endpoints, then: Callable[[TopicFacts | None], None]
    ) -> None:
        """See `Backend`: what the name servers say of ports that speak this protocol, and of this broker what it knows itself."""

        def told(route: TopicRouteData | None) -> None:
            own = self._core.tables.topics.find(name)
            if route is not None:
                then(self._joined(name, None if own is None else self._facts_of(own), route))
            elif own is not None:
                then(self._facts_of(own))
            else:
                self._absent(caller, name, None, then)

        if name_servers(self._core.live.current):
            self._routes.get(name, told)
        else:
            told(None)

    async def _look(self, name: str) -> TopicRouteData | None:
        outside = bool(self._core.live.current.outside_addr)
        for server in name_servers(self._core.live.current):
            try:
                route = await self._outbound.route(server, name, ROUTE_MS, outside=outside)
            except ClientError:
                continue
            if route is not None:
                return await self._spoken(route)
        return None

    async def _spoken(self, route: TopicRouteData) -> TopicRouteData:
        """A route without ports that do not speak this protocol, and without queues where none is left."""
        found = {one for data in route.broker_datas for one in data.broker_addrs.values()}
        asked = {one: asyncio.get_running_loop().create_future() for one in found}
        for address, future in asked.items():
            self._ports.get(address, future.set_result)
        speak = {one for one, future in asked.items() if await future} | {str(self._core.address)}
        brokers = [
            msgspec.structs.replace(
                data, broker_addrs={n: one for n, one in data.broker_addrs.items() if one in speak}
            )
            for data in route.broker_datas
        ]
        silent = {data.broker_name for data in brokers if not data.broker_addrs}
        queues = [data for data in route.queue_datas if data.broker_name not in silent]
        return TopicRouteData(queue_datas=queues, broker_datas=brokers)

    def _joined(self, name: str, own: TopicFacts | None, route: TopicRouteData) -> TopicFacts:
        if own is None:
            return TopicFacts(name, "UNSPECIFIED", route)
        queues = [data for data in route.queue_datas if data.broker_name != self._name]
        brokers = [data for data in route.broker_datas if data.broker_name != self._name]
        mine = [data for data in route.broker_datas if data.broker_name == self._name]
        return TopicFacts(
            name,
            own.kind,
            TopicRouteData(
                queue_datas=[*own.route.queue_datas, *queues],
                broker_datas=[*(mine or own.route.broker_datas), *brokers],
            ),
        )

    def endpoints(
        self, caller: Caller, broker: BrokerData, number: int, used: Endpoints
    ) -> Endpoints:
        """See `Backend`: this broker is where the client reached it, whatever it advertises; others are where clients
        from outside reach them for who came to this one's outsideAddr."""
        address = broker.broker_addrs[number]
        if broker.broker_name == self._name and address == str(self._core.address):
            if len(used.addresses) == 1:
                return used
            reached = endpoints_of(caller.authority)  # of several it has tried one
            if reached.addresses:
                return reached
        if broker.outside_addrs and self._is_outside(caller, used):
            address = broker.outside_addrs.get(number, address)
        return endpoints_of(address)

    def _is_outside(self, caller: Caller, used: Endpoints) -> bool:
        here = endpoints_of(self._core.live.current.outside_addr).addresses
        return any(
            one in here for one in [*used.addresses, *endpoints_of(caller.authority).addresses]
        )

    def group(
        self, caller: Caller, name: str, then: Callable[[SubscriptionGroupConfig | None], None]
    ) -> None:
        """See `Backend`: made where autoCreateSubscriptionGroup lets it."""
        try:
            found = self._core.tables.groups.find(name, self._core.clock.now_ms())
        except Refused:
            found = None
        then(found)

    def register(self, caller: Caller, heartbeat: HeartbeatData) -> None:
        self.ask(caller, "", RequestCode.HEART_BEAT, None, encode_body(heartbeat), _nothing)

    def unregister(self, caller: Caller, client_id: str, group: str, *, producer: bool) -> None:
        header = UnregisterClientRequestHeader(
            client_id=client_id,
            producer_group=group if producer else None,
            consumer_group=None if producer else group,
        )
        self.ask(caller, "", RequestCode.UNREGISTER_CLIENT, header, b"", _nothing)

    async def close(self) -> None:
        """End what is under way."""
        await self._tasks.stop()


def endpoints_of(address: str) -> Endpoints:
    """host:port as the protocol writes it."""
    found = Endpoints()
    try:
        host, port = split_address(address)
    except ConnectError:
        return found
    try:
        version = ipaddress.ip_address(host).version
        found.scheme = AddressScheme.IPv4 if version == 4 else AddressScheme.IPv6
    except ValueError:
        found.scheme = AddressScheme.DOMAIN_NAME
    found.addresses.add(host=host, port=port)
    return found


def make_local(
    core: BrokerCore, dispatcher: Dispatcher, settings: ProxySettings, created: Created
) -> tuple[LocalBackend, Sessions]:
    """The backend, and the connections that a proxy in front of it serves."""
    backend = LocalBackend(core, dispatcher, created)

    def most() -> int:
        return core.live.store.max_message_size

    proxy = make_proxy(backend, settings, core.clock, core.entropy, most)
    sessions = Sessions(dispatcher, proxy, settings, core.clock, max_body=most())
    if core.access.guard is not None:
        guard = CallGuard(core.access.guard)
        sessions.prove = guard.prove
        guard.watch(proxy)
    return backend, sessions
