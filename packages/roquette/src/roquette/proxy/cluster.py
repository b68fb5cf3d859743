"""CLUSTER: the backend of a proxy in a process of its own, in front of any brokers, ours and Apache's.

Routes, masters, and what a name server tells of changes are those of our client (`client/session.py`). Apache:
ClusterMessageService, ClusterTopicRouteService, ClusterMetadataService, ClusterTransactionService.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.client import calls
from roquette.client.config import ClientConfig
from roquette.client.core.route_cache import BROKERS, TOPICS, TopicRoute, keep
from roquette.client.operator_calls import topic_config
from roquette.client.session import Session
from roquette.errors import (
    ClientError,
    CorruptRecord,
    Refused,
    RequestTimeout,
    RouteNotFound,
    TooManyRequests,
)
from roquette.message.names import is_system_topic, judged_topic
from roquette.message.properties import ORIGIN_GROUP, REAL_TOPIC, decode_properties
from roquette.message.record import decode_record
from roquette.proxy.backend import WAITING, Lookup, TopicFacts, group_config
from roquette.proxy.service import Asks, BrokerAnswer, Caller, Proxy, Then
from roquette.proxy.statuses import PROXY_TIMEOUT
from roquette.remoting.client import RemotingClient
from roquette.remoting.request import Outcome, Peer, RequestContext, Row, Silent
from roquette.remoting.security import OPEN, Security
from roquette.remoting.transport import InnerWire
from roquette.wire.bodies.clients import HeartbeatData
from roquette.wire.bodies.route import MASTER_ID, BrokerData, ClusterInfo
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import ViewMessageRequestHeader
from roquette.wire.proto.definition_pb2 import Endpoints

# Messages that a request names by their place in a broker's log.
# A broker asks for the right to the topic of what stands there; of a proxy's request it sees the proxy's own rights. So the proxy looks itself, before it asks on somebody's behalf.


async def prove_place(
    remoting: RemotingClient, broker: str, code: int, header: Any, may_touch: Callable[[str], None]
) -> None:
    """Have the topic of the message at a place judged.

    Args:
        broker: its address. code, header: of CONSUMER_SEND_MSG_BACK or END_TRANSACTION, which name the place. may_touch: `RequestContext.may_touch`.

    Raises:
        Refused: there is no message, or it is of a topic that the caller has no right to. ClientError: the broker is silent.
    """
    ends = code == RequestCode.END_TRANSACTION
    place = header.commit_log_offset if ends else header.offset
    ext = encode_ext(ViewMessageRequestHeader(offset=place))
    found = await remoting.invoke(broker, RequestCode.VIEW_MESSAGE_BY_ID, ext)
    if found.code != ResponseCode.SUCCESS:
        raise Refused(found.code, found.remark or "")
    try:
        record = decode_record(found.body, 0, False)
        properties = decode_properties(record.properties)
        if ends:  # a half message's own is not its sender's
            topic = properties.get(REAL_TOPIC, "")
        else:
            topic = judged_topic(record.topic, header.group, properties.get(ORIGIN_GROUP, ""))
    except CorruptRecord as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no message at {place}: {error}") from None
    may_touch(topic)


log = logging.getLogger("roquette.proxy")

POLL_MARGIN_MS: Final = 5_000  # an answer to a held POP may come so long after its poll time
CLUSTER_AGAIN_S: Final = 1.0  # name servers are not asked more often for all brokers
PRODUCER_S: Final = 120.0  # a producer group nobody names for so long is left out of heartbeats
TO_BE_MADE_S: Final = 1.0  # the route of a topic that is not there yet is kept so long
ASKED_BROKERS: Final = 3  # for the configuration of a topic or group


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(ClientConfig):
    """Of the client inside a server: how it calls others is the server's.

    Attributes:
        calls: what it says of itself.
    """

    calls: Security = OPEN

    @property
    def security(self) -> Security:
        """Of its connections."""
        return self.calls


class ClusterSession(Session):
    """Our client, which remembers the master of each broker name of any route."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock,
        entropy: Entropy,
        local_host: str,
        more_rows: Sequence[Row] = (),
    ) -> None:
        self.master_addresses: dict[str, str] = {}
        super().__init__(
            config, clock=clock, entropy=entropy, local_host=local_host, more_rows=more_rows
        )

    def learn(self, topic: str, route: TopicRoute) -> None:
        """Take in what a name server says now."""
        super().learn(topic, route)
        for name in route.addresses:
            self.note_master(name, route.master_of(name))

    def note_master(self, name: str, address: str | None) -> None:
        """Note the address of a broker name's master."""
        if address is None:
            self.master_addresses.pop(name, None)
        else:
            keep(self.master_addresses, name, address, BROKERS)


class _Request(NamedTuple):
    """Request that waits for a connection.

    Attributes:
        ext: `header` as it is sent.
        may_touch: judges the topic of the message that `header` names by its place in the log; None: it names none.
    """

    code: int
    ext: bytes
    body: bytes
    timeout_ms: int
    header: Any
    may_touch: Callable[[str], None] | None


class ClusterAsk:
    """A request under way to a broker."""

    __slots__ = ("_on_failure", "_stays", "_then")

    def __init__(self, then: Then, on_failure: Callable[[], None], *, stays: bool) -> None:
        self._then: Then | None = then
        self._on_failure = on_failure
        self._stays = stays

    def cancel(self) -> None:
        """Nobody wants the answer; that to a POP is told all the same, since its messages are out."""
        if not self._stays:
            self._then = None

    def answered(self, future: "asyncio.Future[Command]") -> None:
        """The answer has come, or there will be none."""
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self.failed(error)
            return
        command = future.result()
        self.end(BrokerAnswer(command.code, command.remark or "", command.ext, command.body))

    def failed(self, error: BaseException) -> None:
        """There will be no answer."""
        if isinstance(error, TooManyRequests):
            self.end(BrokerAnswer(ResponseCode.SYSTEM_BUSY, str(error), b"", b""))
            return
        self._on_failure()
        code = PROXY_TIMEOUT if isinstance(error, RequestTimeout) else ResponseCode.SYSTEM_ERROR
        self.end(BrokerAnswer(code, str(error), b"", b""))

    def end(self, answer: BrokerAnswer) -> None:
        """Tell who waits, once."""
        then, self._then = self._then, None
        if then is not None:
            then(answer)


class ClusterBackend:
    """Brokers, found by name servers. `start` before use, `close` after.

    Args:
        config: of the client inside: name servers, how it proves who it is.
        cluster: brokers of this cluster are asked about groups; of all, where there is none of the name.
        guard: asked with each request and its header before it goes to a broker, which sees the proxy's own account;
            raises `Refused`.

    Attributes:
        proxy: whose clients are asked about transactions; set before `start`.
    """

    in_process = False

    def __init__(
        self,
        config: ClusterConfig,
        clock: Clock,
        entropy: Entropy,
        local_host: str,
        cluster: str,
        guard: Callable[[RequestContext, Any], None] | None = None,
    ) -> None:
        self._clock = clock
        self._guard = guard
        self.proxy: Proxy | None = None
        self.session = ClusterSession(
            config,
            clock=clock,
            entropy=entropy,
            local_host=local_host,
            more_rows=[Row(RequestCode.CHECK_TRANSACTION_STATE, self._check_transaction, None, 0)],
        )
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._connecting = 0
        self._producers: dict[str, float] = {}  # groups: when they were named last
        self._told_soon = False
        self._next = 0
        tasks, now_s = self.session.tasks, self._loop.time
        self._topics: Lookup[TopicFacts] = Lookup(self._find_topic, tasks, now_s)
        self._groups: Lookup[SubscriptionGroupConfig] = Lookup(self._find_group, tasks, now_s)
        self._brokers: Lookup[ClusterInfo] = Lookup(self._find_brokers, tasks, now_s)
        self._looked_s = -CLUSTER_AGAIN_S
        asks = Asks()
        wire = InnerWire(asks.answered, lambda *_: None, list)
        nobody = asyncio.Transport()
        self._own = Caller(
            Peer(_Nowhere(self._loop), nobody, 0, bytes(8), "the proxy", wire), "proxy", asks
        )

    @property
    def own(self) -> Caller:
        """Caller of requests that no client makes."""
        return self._own

    async def start(self) -> None:
        """Begin the periodic work."""
        await self.session.start()
        self.session.tasks.every("producers", PRODUCER_S / 4, self._forget_producers)

    async def close(self) -> None:
        """Close the connections; brokers forget who was there."""
        for group in self._producers:
            self.session.drop_producer_group(group)
        await self.session.close()

    # requests

    def ask(
        self, caller: Caller, broker: str, code: int, header: Any, body: bytes, then: Then,
        timeout_ms: int = 3000,
    ) -> ClusterAsk:  # fmt: skip
        """Send a request to the master of a broker name (`Backend.ask`)."""
        pops = code == RequestCode.POP_MESSAGE
        may_touch = None
        if self._guard is not None and caller is not self._own:
            job = self._job(caller, code, body, header)
            try:
                self._guard(job, header)
            except Refused as refusal:
                ask = ClusterAsk(then, _nothing, stays=False)
                ask.end(BrokerAnswer(refusal.code, refusal.remark, b"", b""))
                return ask
            may_touch = job.may_touch
        if pops:
            timeout_ms = max(timeout_ms, header.poll_time + POLL_MARGIN_MS)
        ext = b"" if header is None else encode_ext(header)
        topic = getattr(header, "topic", "")
        ask = ClusterAsk(then, lambda: self._unreachable(broker, topic), stays=pops)
        address = self.session.master_addresses.get(broker)
        peer = None if address is None else self.session.remoting.peer(address)
        # The usual case costs no task: there is a connection, and the guard has judged all that it must.
        if peer is not None and may_touch is None:
            self._send(peer, ask, code, ext, body, timeout_ms)
        elif self._connecting >= WAITING:
            ask.end(BrokerAnswer(ResponseCode.SYSTEM_BUSY, f"broker {broker} is sought", b"", b""))
        else:
            self._connecting += 1
            request = _Request(code, ext, body, timeout_ms, header, may_touch)
            work = self._connect(broker, topic, ask, request)
            self.session.tasks.start(f"ask-{broker}", work)
        return ask

    def _job(self, caller: Caller, code: int, body: bytes, header: Any) -> RequestContext:
        """A request as a guard sees it."""
        row = Row(code, _nothing, None, 0)
        job = RequestContext(
            caller.peer, Command(code=code, opaque=0, body=body), row, self._clock.steady_ms()
        )
        job.account, job.header = caller.account, header
        return job

    @staticmethod
    def _send(
        peer: Peer, ask: ClusterAsk, code: int, ext: bytes, body: bytes, timeout_ms: int
    ) -> None:
        try:
            future = peer.invoke(code, ext, body, timeout_ms)
        except TooManyRequests as error:
            ask.failed(error)
            return
        future.add_done_callback(ask.answered)

    async def _connect(self, broker: str, topic: str, ask: ClusterAsk, request: _Request) -> None:
        """Send a request when there is a connection."""
        try:
            address = self.session.master_addresses.get(broker)
            if address is None:
                address = await self._locate(broker)
            if address is None:
                text = f"cannot find broker {broker}"
                ask.end(BrokerAnswer(ResponseCode.SYSTEM_ERROR, text, b"", b""))
                return
            peer = await self.session.remoting.connect(address)
            if request.may_touch is not None:
                await prove_place(
                    self.session.remoting, address, request.code, request.header, request.may_touch
                )
            self._send(peer, ask, request.code, request.ext, request.body, request.timeout_ms)
        except ClientError as error:
            ask.failed(error)
        except Refused as refusal:
            ask.end(BrokerAnswer(refusal.code, refusal.remark, b"", b""))
        finally:
            self._connecting -= 1

    def _unreachable(self, broker: str, topic: str) -> None:
        """A request to a broker failed: it may have another master by now."""
        route = self.session.known_route(topic)
        if route is not None and broker in route.addresses:
            if route.has_replicas(broker):
                self.session.masters.begin(topic)
        else:
            self.session.note_master(broker, None)  # the next request looks for it

    async def _locate(self, broker: str) -> str | None:
        """The master's address of a broker that no route named yet."""
        if self._loop.time() - self._looked_s >= CLUSTER_AGAIN_S:
            await self._cluster_info(fresh=True)
        return self.session.master_addresses.get(broker)

    async def _cluster_info(self, *, fresh: bool = False) -> ClusterInfo | None:
        if fresh:
            self._brokers.forget("")
        found: asyncio.Future[ClusterInfo | None] = self._loop.create_future()

        def take(info: ClusterInfo | None) -> None:
            if not found.done():
                found.set_result(info)

        self._brokers.get("", take)
        return await found

    async def _find_brokers(self, name: str) -> ClusterInfo:
        self._looked_s = self._loop.time()
        info = await self.session.ask_name_servers(calls.cluster_info())
        for broker, data in info.broker_addr_table.items():
            self.session.note_master(broker, data.broker_addrs.get(MASTER_ID))
        return info

    # topics and groups

    def topic(self, caller: Caller, name: str, then: Callable[[TopicFacts | None], None]) -> None:
        """Look a topic up (`Backend.topic`)."""
        known, route = self._topics.known(name), self.session.known_route(name)
        if known is not None and route is not None and known.route is not route.data:
            self._topics.put(name, known._replace(route=route.data))  # told by a name server
        self._topics.get(name, then)

    def route(
        self, caller: Caller, name: str, used: Endpoints, then: Callable[[TopicFacts | None], None]
    ) -> None:
        """All brokers are reached through this proxy: the same."""
        self.topic(caller, name, then)

    def endpoints(
        self, caller: Caller, broker: BrokerData, number: int, used: Endpoints
    ) -> Endpoints:
        """Return what the client used to get here."""
        return used

    async def _find_topic(self, name: str) -> TopicFacts | None:
        known = self._topics.known(name)
        try:
            route = await self.session.route(name, fresh=known is not None)
        except RouteNotFound:
            return None if is_system_topic(name) else await self._to_be_made(name)
        kind = "UNSPECIFIED" if known is None else known.kind
        for data in self._in_turn(route.data.broker_datas):
            address = data.broker_addrs.get(MASTER_ID)
            if address is None:
                continue
            try:
                config = await self.session.api.call(address, topic_config(name))
            except ClientError as error:
                log.debug("topic is not told of by=%s error=%s", address, error)
                continue
            if config is not None:
                kind = config.attributes.get("message.type", "NORMAL")
                break
        return TopicFacts(name, kind, route.data)

    async def _to_be_made(self, name: str) -> TopicFacts | None:
        """The topic that a first message makes, where brokers make topics."""
        try:
            template = await self.session.publish_route(name)
        except RouteNotFound:
            return None
        self._loop.call_later(TO_BE_MADE_S, self._topics.forget, name)
        return TopicFacts(name, "UNSPECIFIED", template.data)

    def group(
        self, caller: Caller, name: str, then: Callable[[SubscriptionGroupConfig | None], None]
    ) -> None:
        """Look a consumer group up. One that brokers do not have they make, or refuse, themselves: at the first POP."""
        self._groups.get(name, then)

    async def _find_group(self, name: str) -> SubscriptionGroupConfig | None:
        info = await self._cluster_info()
        if info is None:
            return self._groups.known(name)
        names = info.cluster_addr_table.get(self._cluster) or list(info.broker_addr_table)
        table = info.broker_addr_table
        config: SubscriptionGroupConfig | None = None
        last: ClientError | None = None
        for data in self._in_turn([table[one] for one in names if one in table]):
            address = data.broker_addrs.get(MASTER_ID)
            if address is None:
                continue
            try:
                config = await self.session.api.call(address, group_config(name))
            except ClientError as error:
                last = error
                continue
            if config is not None:
                return config
            last = None
        if last is not None:
            raise last
        return SubscriptionGroupConfig(group_name=name)

    def _in_turn(self, brokers: list[Any]) -> list[Any]:
        """Some of them, another one first each time."""
        if not brokers:
            return []
        self._next = (self._next + 1) % len(brokers)
        return (brokers[self._next :] + brokers[: self._next])[:ASKED_BROKERS]

    # clients

    def register(self, caller: Caller, heartbeat: HeartbeatData) -> None:
        """A client lives: the proxy stands for its producer groups at the brokers, as they ask about transactions."""
        now_s = self._loop.time()
        for producer in heartbeat.producer_data_set:
            name = producer.group_name
            if name in self._producers:
                self._producers[name] = now_s
            elif len(self._producers) < TOPICS:
                self._producers[name] = now_s
                self.session.add_producer_group(name)
                self._tell_soon()

    def unregister(self, caller: Caller, client_id: str, group: str, *, producer: bool) -> None:
        """A client has left a group: others may have it too, so that it ends with its time."""

    def _tell_soon(self) -> None:
        if not self._told_soon:
            self._told_soon = True
            self.session.tasks.start("tell-producers", self._tell())

    async def _tell(self) -> None:
        await asyncio.sleep(0.5)  # many clients come together
        self._told_soon = False
        await self.session.heartbeat()

    def _forget_producers(self) -> None:
        now_s = self._loop.time()
        for group, named_s in list(self._producers.items()):
            if now_s - named_s > PRODUCER_S:
                del self._producers[group]
                self.session.drop_producer_group(group)

    def _check_transaction(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """CHECK_TRANSACTION_STATE: a client that sends to the topic is asked; its answer is EndTransaction."""
        if self.proxy is not None:
            ext = ctx.command.ext
            code = ctx.command.code
            text = b"" if ext is None else bytes(ext)
            if not self.proxy.asked(None, code, text, body, lambda answer: None):
                log.debug("no client to ask about a transaction broker=%s", ctx.peer.remote)
        return Silent()


def _nothing() -> None:
    return None


class _Nowhere:
    """The turns of a peer that is no connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def mark(self, peer: Peer) -> None:
        """It is written nowhere."""
