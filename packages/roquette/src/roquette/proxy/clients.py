"""The clients that are known: what each negotiated, its Telemetry stream, and when it was heard.

Apache: GrpcClientSettingsManager, GrpcChannelManager. A client is its id. It may come by a new connection while the old one is half
dead: the newest that it is heard on is its own. What clients hold counts for the account that is proven, or else for the connection: where all
is taken, who has most gets no more, and gives to who has less. A broker has one place for a connection in a group, so that of several clients
of one group on one connection (Python and Node share connections within a process) the first gives its id to all there.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from roquette.base.clock import Clock
from roquette.proxy.backend import Backend
from roquette.proxy.service import Caller, Part, ProxyBeat, RpcCall
from roquette.proxy.statuses import RpcError
from roquette.remoting.request import Peer
from roquette.wire.bodies.clients import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.proto.definition_pb2 import ClientType, Code

K = TypeVar("K")

EXPIRED_MS: Final = 120_000  # ConsumerManager.CHANNEL_EXPIRED_TIMEOUT
LOOK_S: Final = 5.0
MOST_SETTINGS: Final = 64 << 10  # bytes of a client's settings,
MOST_BYTES: Final = 256 << 20  # and of all clients,
WEIGHT: Final = 2_684  # each of which counts for so many beside them: there are 100,000
CLOSED_MS: Final = 100  # so long nobody asks again who has most, for one who was refused
GONE: Final = -1  # the owner of clients whose connection is lost, until they come again
MOST_NAMES: Final = 1_000  # topics of a client


class Negotiated(NamedTuple):
    """Settings that a client negotiated.

    Attributes:
        topics: of a producer. group, subscriptions, config: of a consumer; the config as its group had it then.
        kind: of `ClientType`. size: of the settings, in bytes.
    """

    kind: int
    size: int
    topics: tuple[str, ...] = ()
    group: str = ""
    subscriptions: tuple[SubscriptionData, ...] = ()
    config: SubscriptionGroupConfig | None = None


class KnownClient:
    """One client.

    Attributes:
        caller: it, on the connection it was heard on last. call: its Telemetry stream, or None. seen_ms: steady.
        known: its settings have come; else it is known by heartbeats alone, and its subscriptions are not.
        owner: whom it counts for.
    """

    __slots__ = ("call", "caller", "known", "owner", "seen_ms", "wanted")

    def __init__(self, caller: Caller, wanted: Negotiated, known: bool) -> None:
        self.caller = caller
        self.wanted = wanted
        self.known = known
        self.owner: int | str = GONE
        self.call: RpcCall | None = None
        self.seen_ms = 0

    @property
    def id(self) -> str:
        """Its id."""
        return self.caller.client_id

    @property
    def listens(self) -> bool:
        """Commands reach it, and it takes what is written."""
        call = self.call
        return call is not None and not call.over and not call.caller.peer.paused


Place = tuple[int, bool, str]
"""Of a client: its connection's id, whether it produces, and the group (of a producer: the topic)."""


class _Share:
    """Clients and bytes of one account or connection. closed_ms: steady; it gets no more before."""

    def __init__(self) -> None:
        self.clients: dict[str, KnownClient] = {}
        self.closed_ms = 0
        self.size = 0


class Clients(Part):
    """All clients of this server."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._clients: dict[str, KnownClient] = {}
        self._places: dict[Place, dict[str, KnownClient]] = {}
        self._producers: dict[str, dict[str, KnownClient]] = {}
        self._of_peer: dict[int, dict[str, KnownClient]] = {}
        self._shares: dict[int | str, _Share] = {}
        self._bytes = 0
        self.gone: Callable[[str], None] = lambda client_id: None  # told of who ends
        self.may_publish: Callable[[Caller, str], bool] = lambda caller, topic: True  # now

    def __len__(self) -> int:
        return len(self._clients)

    def find(self, client_id: str) -> KnownClient | None:
        """The client of an id."""
        return self._clients.get(client_id)

    def producer_of(self, topic: str, peer: Peer | None, message_topic: str) -> KnownClient | None:
        """A producer of a topic that listens, one after the other; those on connection `peer` first.

        Args:
            message_topic: of the message it is to be shown: who may not publish there any more is passed over.
        """
        near = {} if peer is None else self._places.get((peer.id, True, topic), {})
        for members in (near, self._producers.get(topic, {})):
            able = (one for one in members.values() if one.listens)
            client = next(
                (one for one in able if self.may_publish(one.caller, message_topic)), None
            )
            if client is not None:
                members[client.id] = members.pop(client.id)
                return client
        return None

    def config(
        self, caller: Caller, group: str, then: Callable[[SubscriptionGroupConfig | None], None]
    ) -> None:
        """A group as it is now, or else as it was when this client asked; settings of a client are not needed."""

        def found(config: SubscriptionGroupConfig | None) -> None:
            if config is None:
                client = self._clients.get(caller.client_id)
                if client is not None and client.wanted.group == group:
                    config = client.wanted.config
            then(config)

        self._backend.group(caller, group, found)

    def put(self, caller: Caller, wanted: Negotiated, *, known: bool = True) -> KnownClient:
        """A client says what it wants; it is registered. Raises RpcError: there is no room."""
        client = self._clients.get(caller.client_id)
        before = 0 if client is None else WEIGHT + client.wanted.size
        self._make_room(_owner(caller), WEIGHT + wanted.size - before)
        if client is None:
            client = self._clients[caller.client_id] = KnownClient(caller, wanted, known)
        else:
            stay = set(_groups(wanted))
            self._leave(client, [one for one in _groups(client.wanted) if one not in stay])
            self._unindex(client)
            client.caller, client.wanted, client.known = caller, wanted, known
        self._index(client)
        self._register(client)
        return client

    def heard(self, client: KnownClient, caller: Caller) -> None:
        """A client lives, on this connection: its registration goes on."""
        if caller.peer is not client.caller.peer:
            self._unindex(client)
            client.caller = caller
            self._index(client)
        else:
            client.caller = caller
        self._register(client)

    def drop(self, client_id: str) -> KnownClient | None:
        """A client says goodbye."""
        client = self._clients.pop(client_id, None)
        if client is not None:
            self._leave(client, _groups(client.wanted))
            self._unindex(client)
            self.gone(client_id)
        return client

    def beats(self) -> Iterable[ProxyBeat]:
        """Expiry."""
        return (ProxyBeat("v5-clients", LOOK_S, self.expire),)

    def expire(self) -> None:
        """Drop who was not heard: consumers whose registration has ended, and producers without a stream, too."""
        before = self._clock.steady_ms() - EXPIRED_MS
        for client in list(self._clients.values()):
            if client.seen_ms < before and (client.wanted.group or client.call is None):
                self.drop(client.id)

    def connection_lost(self, peer: Peer) -> None:
        """Its clients are kept for their time: they come again by another one."""
        for client in self._of_peer.pop(peer.id, {}).values():
            for place in _places(client):
                self._unplace(place, client)
            self._uncount(client)
            self._count(client, GONE)

    def stop(self) -> None:
        """End all: further calls find nobody."""
        for table in (
            self._clients, self._places, self._producers, self._of_peer, self._shares,
        ):  # fmt: skip
            table.clear()
        self._bytes = 0

    def _register(self, client: KnownClient) -> None:
        client.seen_ms = self._clock.steady_ms()
        data = self._heartbeat(client)
        if data is not None:
            self._backend.register(client.caller, data)

    def _heartbeat(self, client: KnownClient) -> HeartbeatData | None:
        wanted = client.wanted
        if not wanted.group:
            producers = [ProducerData(group_name=topic) for topic in wanted.topics]
            return (
                HeartbeatData(client_id=client.id, producer_data_set=producers)
                if producers
                else None
            )
        here = self._places[client.caller.peer.id, False, wanted.group]
        consumer = ConsumerData(
            group_name=wanted.group,
            consume_type=consume_type(wanted.kind),
            subscription_data_set=list(wanted.subscriptions),
        )
        data = HeartbeatData(client_id=next(iter(here)), consumer_data_set=[consumer])
        if not client.known:  # the group's subscriptions stay as they are: heartbeat version 2
            data.without_sub, data.heartbeat_fingerprint = True, 1
        return data

    def _leave(self, client: KnownClient, groups: Iterable[str]) -> None:
        """Leave groups at the broker; another client of the connection takes the place at once."""
        wanted = client.wanted
        producer = not wanted.group
        for group in groups:
            here = self._places.get((client.caller.peer.id, producer, group), {})
            stood = next(iter(here), None) == client.id
            if (producer and len(here) > 1) or not here or not (stood or producer):
                continue
            self._backend.unregister(client.caller, client.id, group, producer=producer)
            other = next((one for one in here.values() if one is not client), None)
            if other is not None:
                self._unplace((client.caller.peer.id, producer, group), client)
                data = self._heartbeat(other)
                if data is not None:
                    self._backend.register(other.caller, data)

    def _make_room(self, owner: int | str, more: int) -> None:
        """Drop clients of whoever has most, where all is taken; raise RpcError when that is who wants more."""
        now = self._clock.steady_ms()
        own = self._shares.get(owner)
        has = more if own is None else own.size + more
        while self._bytes + more > MOST_BYTES:
            # First those whose connection is lost. Else who has most gives, so that one owner with many
            # clients pushes out its own and nobody's with few.
            giver = self._shares.get(GONE)
            if giver is None:
                if own is None or own.closed_ms <= now:
                    giver = max(self._shares.values(), key=lambda share: share.size)
                if giver is None or giver.size <= has:
                    if own is not None:
                        own.closed_ms = now + CLOSED_MS
                    raise RpcError(Code.TOO_MANY_REQUESTS, "there are too many clients")
            self.drop(next(reversed(giver.clients)))

    def _count(self, client: KnownClient, owner: int | str) -> None:
        share = self._shares.setdefault(owner, _Share())
        share.clients[client.id] = client
        client.owner = owner
        share.size += WEIGHT + client.wanted.size
        self._bytes += WEIGHT + client.wanted.size

    def _uncount(self, client: KnownClient) -> None:
        share = self._shares[client.owner]
        del share.clients[client.id]
        share.size -= WEIGHT + client.wanted.size
        self._bytes -= WEIGHT + client.wanted.size
        if not share.clients:
            del self._shares[client.owner]

    def _index(self, client: KnownClient) -> None:
        self._count(client, _owner(client.caller))
        self._of_peer.setdefault(client.caller.peer.id, {})[client.id] = client
        for place in _places(client):
            self._places.setdefault(place, {})[client.id] = client
            if place[1]:
                self._producers.setdefault(place[2], {})[client.id] = client

    def _unindex(self, client: KnownClient) -> None:
        self._uncount(client)
        _discard(self._of_peer, client.caller.peer.id, client.id)
        for place in _places(client):
            self._unplace(place, client)

    def _unplace(self, place: Place, client: KnownClient) -> None:
        _discard(self._places, place, client.id)
        if place[1]:
            _discard(self._producers, place[2], client.id)


def consume_type(kind: int) -> str:
    """Return the kind of a consumer as remoting names it (Apache: ClientActivity.buildConsumeType)."""
    return "CONSUME_ACTIVELY" if kind == ClientType.SIMPLE_CONSUMER else "CONSUME_PASSIVELY"


def _owner(caller: Caller) -> int | str:
    return caller.account or caller.peer.id


def _groups(wanted: Negotiated) -> tuple[str, ...]:
    return (wanted.group,) if wanted.group else wanted.topics


def _places(client: KnownClient) -> list[Place]:
    wanted = client.wanted
    peer = client.caller.peer.id
    return [(peer, not wanted.group, group) for group in _groups(wanted)]


def _discard(table: dict[K, dict[str, KnownClient]], key: K, client_id: str) -> None:
    found = table.get(key)
    if found is not None:
        found.pop(client_id, None)
        if not found:
            del table[key]
