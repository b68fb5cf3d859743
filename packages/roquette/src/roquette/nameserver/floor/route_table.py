"""All a name server knows of brokers and topics. Pure: time and connection numbers are arguments.

Apache: RouteInfoManager. Where it differs, on purpose:

- A topic is rewritten when the broker's DataVersion changed, as in Apache, and also when what the broker says
  of this topic differs from what it said before. Two registrations of one version lose nothing that way.
- A broker that is alive is replaced, removed and kept alive only over the connection that registered it
  (`rival`), or by a member of its group with a higher epoch (`Claim`). Apache believes every connection; its
  issue 11043 is the good-bye of an old process among them.
- An address that appears under another broker name leaves the old name.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from roquette.errors import Refused
from roquette.message.names import PERM_READ, PERM_WRITE
from roquette.nameserver.floor.config import (
    FILTER_SERVERS,
    LEFT_BROKERS,
    NAME,
    WATCHED_TOPICS,
    NameServerBounds,
)
from roquette.nameserver.floor.identity import (
    BrokerIdentity,
    BrokerKey,
    Claim,
    Registered,
    Registration,
)
from roquette.wire.bodies import (
    ENDED,
    LOST,
    MASTER_ID,
    REFUSED,
    SILENT,
    BrokerData,
    BrokerLeft,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from roquette.wire.codes import ResponseCode

# Brokers that have left within a day and did not come back, and those that are refused. Pure: time is an argument.


KEPT_MS: Final = 86_400_000
REFUSED_MS: Final = 60_000
"""One that is refused says so again every two seconds."""


class Departed:
    """Memory that a name server has of brokers it does not have: the newest, LEFT_BROKERS at most, each text with NAME
    characters at most."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], tuple[int, BrokerLeft]] = {}  # oldest first

    def note(self, who: BrokerIdentity, why: str, now_ms: int, peer: str = "") -> None:
        """A broker has left; with `peer`, the host it calls from, it is refused."""
        self.forget(who.key, peer)
        left = BrokerLeft(who.cluster, who.broker_name, who.broker_id, who.address, why, 0, peer)
        self._found[*who.key, peer] = now_ms, left
        if len(self._found) > LEFT_BROKERS:
            del self._found[next(iter(self._found))]

    def came(self, who: BrokerIdentity, elects: bool) -> None:
        """A broker registers: it, or the one in whose place it comes, is there. `elects`: the members of its group take
        each other's ids."""
        for key, (_, left) in list(self._found.items()):
            same = (left.cluster, left.broker_name, left.broker_id) == who.place
            if key[:2] == who.key or (same and not elects and not left.peer):
                del self._found[key]

    def forget(self, key: BrokerKey, peer: str = "") -> None:
        """It is not expected any more."""
        self._found.pop((*key, peer), None)

    def all(self, now_ms: int) -> list[BrokerLeft]:
        """Those of the last day, and who was refused a moment ago."""
        return [
            msgspec.structs.replace(left, ago_ms=now_ms - at_ms)
            for at_ms, left in self._found.values()
            if now_ms - at_ms <= (REFUSED_MS if left.why == REFUSED else KEPT_MS)
        ]


# Brokers that are alive, over which connections, and with which version of their topics. Pure: time is an argument.


DEFAULT_TIMEOUT_MS: Final = 120_000
ALIVE_MS: Final = 75_000  # a broker registers every 10 to 60 s
BEATING_MS: Final = 10_000  # one that also sends heartbeats does so every second


class LiveBroker:
    """One registered broker process."""

    __slots__ = (
        "alive_ms",
        "connection",
        "data_version",
        "ha_address",
        "identity",
        "outside",
        "timeout_ms",
        "updated_ms",
    )

    def __init__(self, registration: Registration) -> None:
        self.identity = registration.identity
        self.ha_address = registration.ha_address
        self.outside = registration.outside
        self.timeout_ms = (
            DEFAULT_TIMEOUT_MS if registration.timeout_ms is None else registration.timeout_ms
        )
        self.alive_ms = min(self.timeout_ms, ALIVE_MS)
        self.data_version = registration.data_version
        self.connection = registration.connection
        self.updated_ms = registration.now_ms

    @property
    def epoch(self) -> int:
        """Of the group's newest master as far as this broker knows; 0: the group elects nobody."""
        return self.data_version.state_version

    def is_elsewhere(self, connection: int, now_ms: int) -> bool:
        """Return True when the broker is alive, and not on this connection."""
        return self.connection != connection and now_ms - self.updated_ms <= self.alive_ms


class LiveBrokers:
    """The registered brokers by cluster and address, and by connection."""

    def __init__(self) -> None:
        self._brokers: dict[BrokerKey, LiveBroker] = {}
        self._by_connection: dict[int, dict[BrokerKey, None]] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def all(self) -> list[LiveBroker]:
        """Every registered broker."""
        return list(self._brokers.values())

    def find(self, cluster: str, address: str) -> LiveBroker | None:
        """A registered broker."""
        return self._brokers.get((cluster, address))

    def add(self, live: LiveBroker) -> bool:
        """Enter a registration instead of the one before; True when there was none."""
        key = live.identity.key
        new = self.remove(key) is None
        self._brokers[key] = live
        self._by_connection.setdefault(live.connection, {})[key] = None
        return new

    def remove(self, key: BrokerKey) -> LiveBroker | None:
        """Forget a registration; returns it."""
        live = self._brokers.pop(key, None)
        if live is not None:
            keys = self._by_connection[live.connection]
            del keys[key]
            if not keys:
                del self._by_connection[live.connection]
        return live

    def of_connection(self, connection: int) -> list[BrokerKey]:
        """The brokers that registered over a connection, and not over a newer one since."""
        return list(self._by_connection.get(connection, ()))

    def overdue(self, now_ms: int) -> list[LiveBroker]:
        """The brokers whose heartbeat is overdue."""
        return [
            live for live in self._brokers.values() if live.updated_ms + live.timeout_ms < now_ms
        ]

    def find_data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The version a broker registered with last; None: it must register."""
        live = self._brokers.get((cluster, address))
        return None if live is None else live.data_version

    def touch(
        self, cluster: str, address: str, *, connection: int, now_ms: int, beats: bool = False
    ) -> bool:
        """Note a sign of life; of a broker that had fallen silent it also binds the registration to its connection.

        Args:
            beats: it is one of those that come every second.

        Returns:
            False when the broker is alive on another connection: the sign is not its own.
        """
        live = self._brokers.get((cluster, address))
        if live is None:
            return True
        if live.is_elsewhere(connection, now_ms):
            return False
        live.updated_ms = now_ms
        if beats:
            live.alive_ms = min(live.timeout_ms, BEATING_MS)
        if connection != live.connection:
            self.remove(live.identity.key)
            live.connection = connection
            self.add(live)
        return True

    def heard(self, connection: int, now_ms: int) -> None:
        """The brokers of a connection live, though what they say now is not taken in."""
        for key in self._by_connection.get(connection, ()):
            self._brokers[key].updated_ms = now_ms

    def rival(
        self, places: list[BrokerKey], connection: int, now_ms: int, claim: Claim | None = None
    ) -> int | None:
        """The connection of the first living broker among `places` that is not on `connection`, and that `claim`
        does not outrank."""
        for key in places:
            live = self._brokers.get(key)
            if live is None or not live.is_elsewhere(connection, now_ms):
                continue
            if claim is None or not claim.outranks(live.identity, live.epoch):
                return live.connection
        return None


# Connections that want to hear of topics at once, and of which, and what has changed since they were told. Pure.


class RouteWatches:
    """Topics by the connections that asked for them. Nobody needs it: routes are pulled all the same.

    Attributes:
        wake: called when there is something to `take`.
    """

    def __init__(self, bounds: NameServerBounds) -> None:
        self.wake: Callable[[], None] = _nothing
        self._bound = bounds.watches
        self._watchers: dict[str, dict[int, None]] = {}
        self._topics: dict[int, dict[str, None]] = {}  # by connection
        self._count = 0
        self._changed: dict[str, None] = {}

    def __len__(self) -> int:
        return self._count

    def watch(self, connection: int, topics: list[str]) -> None:
        """Tell this connection of these topics, instead of those it asked for before; raises Refused."""
        if len(topics) > WATCHED_TOPICS or any(len(topic) > NAME for topic in topics):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"one client watches {WATCHED_TOPICS} topics at most, of {NAME} characters",
            )
        wanted = dict.fromkeys(topics)
        had = len(self._topics.get(connection, ()))
        if len(wanted) > had:
            used = self._count - had + len(wanted) - 1
            self._bound.check(used, ResponseCode.SYSTEM_ERROR, "routes are not watched")
        self.forget(connection)
        if wanted:
            self._topics[connection] = wanted
            self._count += len(wanted)
        for topic in wanted:
            self._watchers.setdefault(topic, {})[connection] = None

    def forget(self, connection: int) -> None:
        """The connection has ended."""
        topics = self._topics.pop(connection, {})
        self._count -= len(topics)
        for topic in topics:
            watchers = self._watchers[topic]
            del watchers[connection]
            if not watchers:
                del self._watchers[topic]

    def changed(self, topic: str) -> None:
        """The route of a topic is another one."""
        if topic in self._watchers:
            self._add([topic])

    def _add(self, topics: list[str]) -> None:
        first = bool(topics) and not self._changed
        self._changed.update(dict.fromkeys(topics))
        if first:
            self.wake()

    def changed_any(self, topics: Mapping[str, object]) -> None:
        """The routes of many topics are others: a broker has another address."""
        few: Mapping[str, object] = self._watchers
        few, many = (few, topics) if len(few) <= len(topics) else (topics, few)
        self._add([topic for topic in few if topic in many])

    def take(self) -> dict[int, list[str]]:
        """By connection: the topics that have changed since the last call."""
        changed, self._changed = self._changed, {}
        found: dict[int, list[str]] = {}
        for topic in changed:
            for connection in self._watchers.get(topic, ()):
                found.setdefault(connection, []).append(topic)
        return found


def _nothing() -> None:
    return None


log = logging.getLogger("roquette.nameserver.route")

UNIT: Final = 1  # TopicSysFlag
UNIT_SUB: Final = 2
STEP: Final = 2_000  # topics of a registration that are taken in at once
ONE_TOPIC: Final = "it is unknown and brought a single topic"


class RouteTable:
    """Topic, broker, cluster, filter-server and mapping tables, and which brokers are alive.

    `revision` grows whenever the answer to a lookup may have changed.
    """

    def __init__(self, bounds: NameServerBounds | None = None) -> None:
        self.bounds = bounds or NameServerBounds()
        self.live = LiveBrokers()
        self.departed = Departed()
        self.revision = 0
        self.watches = RouteWatches(self.bounds)
        self._told_count = 0  # entries of `_told`
        self._mapped = 0  # entries of `_mappings`
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._told: dict[
            str, dict[str, QueueData]
        ] = {}  # broker name -> topic -> its last registration
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._filters: dict[BrokerKey, list[str]] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}

    # Registration

    def rival(
        self, identity: BrokerIdentity, *, connection: int, now_ms: int, claim: Claim | None = None
    ) -> int | None:
        """The connection of a living broker whose place `identity` asks for over another one; None: it is free.

        The place is an address in its cluster, an id under a broker name, and the name in one cluster. A broker
        is alive while its connection is open and its last sign of life is recent; the connection's end removes it.
        A `claim` takes the places of those it outranks.
        """
        places = [identity.key]
        broker = self._brokers.get(identity.broker_name)
        if broker is not None:
            same = broker.cluster == identity.cluster
            places += [
                (broker.cluster, address)
                for broker_id, address in broker.broker_addrs.items()
                if not same or broker_id == identity.broker_id or address == identity.address
            ]
        return self.live.rival(places, connection, now_ms, claim)

    def epoch(self, cluster: str, broker_name: str) -> int:
        """The highest epoch that a registered member of a group names; 0: none."""
        addresses = self.find_members(broker_name).values()
        members = (self._member(cluster, broker_name, address) for address in addresses)
        return max((live.epoch for live in members if live is not None), default=0)

    def _member(self, cluster: str, broker_name: str, address: str) -> LiveBroker | None:
        live = self.live.find(cluster, address)
        return live if live is not None and live.identity.broker_name == broker_name else None

    def check_epoch(self, registration: Registration) -> None:
        """Raise Refused for a master that others of its group know to be deposed."""
        identity, epoch = registration.identity, registration.data_version.state_version
        newest = self.epoch(identity.cluster, identity.broker_name) if epoch > 0 else 0
        if identity.broker_id == MASTER_ID and epoch < newest:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"broker {identity} is not the master any more: it names epoch {epoch}, its group is at {newest}",
            )

    def register(self, registration: Registration, *, stepwise: bool = False) -> Registered | None:
        """Take in what a broker says of itself; None refuses it.

        The first registration of an unknown broker must not be a single topic, or the rest of its topics would be
        missing until later.

        Args:
            stepwise: take in `STEP` topics; the caller goes through `rest`, and may let others in between. It ends
                when the broker is gone or has registered again.

        Raises:
            Refused: there is no room for another broker. Topics without room are left out, see `bounds.topics`.
        """
        identity = registration.identity
        if self.live.find(*identity.key) is None:
            what = "the broker is not registered"
            self.bounds.brokers.check(len(self.live), ResponseCode.SYSTEM_ERROR, what)
        filters = registration.filter_servers and registration.filter_servers[:FILTER_SERVERS]
        identity.check(
            registration.ha_address, registration.outside, registration.zone, *(filters or ())
        )
        self.check_epoch(registration)
        self._leave_other_name(identity)
        holder = self.find_members(identity.broker_name).get(identity.broker_id)
        other = None
        if holder is not None and holder != identity.address:
            other = self._member(identity.cluster, identity.broker_name, holder)
        if (
            other is not None
            and other.data_version.state_version > registration.data_version.state_version
        ):
            why = "an older epoch"
            log.warning("registration ignored broker=%s holder=%s why=%s", identity, holder, why)
            self.live.remove(identity.key)
            return Registered()
        if other is not None:
            log.warning("broker deposed broker=%s by=%s", other.identity, identity)
            self.live.remove(other.identity.key)
            self._set_filters(other.identity.key, [])
        if holder is None and len(registration.topics) == 1:
            log.warning("registration refused broker=%s why=%s", identity, ONE_TOPIC)
            return None
        broker, first = self._place(identity, registration.zone)
        answer = self._answer(identity, broker)
        if identity.broker_id == MASTER_ID or _is_prime(registration, broker):
            self._take_topics(registration, answer, first=first)
        if filters is not None:
            self._set_filters(identity.key, filters)
        if self.live.add(LiveBroker(registration)):
            self.departed.came(identity, elects=registration.data_version.state_version > 0)
            log.info("broker registered broker=%s", identity)
        for _ in () if stepwise else answer.rest:
            pass
        return answer

    def _take_topics(self, registration: Registration, answer: Registered, *, first: bool) -> None:
        """Begin to take in the topics of a broker that speaks for its name; `answer.rest` does what is left."""
        identity, name = registration.identity, registration.identity.broker_name
        before = self.live.find_data_version(*identity.key)
        changed = first or before != registration.data_version
        if registration.delete_absent and not registration.mappings:
            self._delete_absent(name, registration.topics)
        answer.rest = self._write_topics(registration, answer, rewrite=changed)
        next(answer.rest, None)
        if changed and registration.mappings:
            self._write_mappings(name, registration.mappings)

    def _leave_other_name(self, identity: BrokerIdentity) -> None:
        """The process at this address has another configuration: its old name loses the address."""
        before = self.live.find(*identity.key)
        if before is not None and before.identity.broker_name != identity.broker_name:
            log.warning("broker renamed from=%s to=%s", before.identity, identity)
            self.live.remove(identity.key)
            self._remove_address(before.identity)

    def _place(self, identity: BrokerIdentity, zone: str | None) -> tuple[BrokerData, bool]:
        """Enter address and cluster; True when the name or the id is seen for the first time."""
        name, address, broker_id = identity.broker_name, identity.address, identity.broker_id
        cluster = self._clusters.setdefault(identity.cluster, {})
        if name not in cluster:
            cluster[name] = None
            self.revision += 1
        broker = self._brokers.get(name)
        if broker is None:
            broker = self._brokers[name] = BrokerData(
                cluster=identity.cluster, broker_name=name, broker_addrs={}
            )
            self._told[name] = {}
        speaks = broker_id == MASTER_ID or MASTER_ID not in broker.broker_addrs
        if speaks and broker.zone_name != zone:
            broker.zone_name = zone
            self._changed(name)
        addresses = broker.broker_addrs
        for other_id in [i for i, a in addresses.items() if a == address and i != broker_id]:
            del addresses[other_id]  # a replica has become master: one entry per address
        old = addresses.get(broker_id)
        if old != address:
            addresses[broker_id] = address
            broker.broker_addrs = dict(sorted(addresses.items()))
            self._changed(name)
        return broker, old is None

    def _changed(self, broker_name: str) -> None:
        """The members of a broker name are others, and so are the routes of all its topics."""
        self.revision += 1
        self.watches.changed_any(self._told.get(broker_name, {}))

    def _write_topics(
        self, registration: Registration, answer: Registered, *, rewrite: bool
    ) -> Iterator[None]:
        identity = registration.identity
        broker_name = identity.broker_name
        told = self._told[broker_name]
        for number, (key, config) in enumerate(registration.topics.items()):
            if number % STEP == 0 and number:
                yield
                if self.live.find_data_version(*identity.key) is not registration.data_version:
                    return
            topic = config.topic_name or key
            queue_data = QueueData(
                broker_name=broker_name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                topic_sys_flag=config.topic_sys_flag,
            )
            if not rewrite and told.get(topic) == queue_data:
                continue  # a wiped write permission survives heartbeats
            if not self._tell(broker_name, topic, queue_data):
                answer.left_out += 1
                continue
            queues = self._topics.setdefault(topic, {})
            if queues.get(broker_name) != queue_data:
                queues[broker_name] = queue_data
                self.revision += 1
                self.watches.changed(topic)

    def _write_mappings(self, name: str, mappings: dict[str, TopicQueueMappingInfo]) -> None:
        for topic, mapping in mappings.items():
            if mapping.bname != name:
                continue  # no broker speaks for another one
            known = name in self._mappings.get(topic, ())
            if known or (len(topic) <= NAME and self.bounds.mappings.room(self._mapped)):
                self._mapped += not known
                self._mappings.setdefault(topic, {})[name] = mapping
        self.revision += 1

    def _tell(self, broker_name: str, topic: str, queue_data: QueueData) -> bool:
        """Remember what a broker says of a topic; False when there is no room for one more."""
        told = self._told[broker_name]
        if topic not in told:
            if not self.bounds.topics.room(self._told_count if len(topic) <= NAME else 1 << 62):
                return False
            self._told_count += 1
        told[topic] = queue_data
        return True

    def _delete_absent(self, broker_name: str, topics: dict[str, TopicConfig]) -> None:
        present = {config.topic_name or key for key, config in topics.items()}
        for topic in [t for t in self._told[broker_name] if t not in present]:
            self._remove_topic_of(broker_name, topic)

    def _set_filters(self, key: BrokerKey, servers: list[str]) -> None:
        if servers:
            self._filters[key] = servers
            self.revision += 1
        elif self._filters.pop(key, None) is not None:
            self.revision += 1

    def _answer(self, identity: BrokerIdentity, broker: BrokerData) -> Registered:
        master = broker.broker_addrs.get(MASTER_ID)
        if identity.broker_id == MASTER_ID or master is None:
            return Registered()
        live = self.live.find(identity.cluster, master)
        return Registered() if live is None else Registered(live.ha_address, master)

    # The ends of a registration

    def unregister(self, identity: BrokerIdentity, *, connection: int, now_ms: int) -> bool:
        """A broker says good-bye; False when it is alive on another connection, or is not registered."""
        live = self.live.find(*identity.key)
        if live is None or live.is_elsewhere(connection, now_ms):
            return False
        if connection < live.connection or live.identity.broker_name != identity.broker_name:
            log.warning("stale unregistration ignored broker=%s", identity)
            return False
        self._remove(identity.key, ENDED, now_ms)
        return True

    def connection_lost(self, connection: int, now_ms: int) -> list[LiveBroker]:
        """Remove what was registered over this connection and not over a newer one since."""
        keys = self.live.of_connection(connection)
        return [self._remove(key, LOST, now_ms) for key in keys]

    def expire(self, now_ms: int) -> list[LiveBroker]:
        """Remove brokers whose heartbeat is overdue."""
        late = self.live.overdue(now_ms)
        return [self._remove(live.identity.key, SILENT, now_ms) for live in late]

    def _remove(self, key: BrokerKey, why: str, now_ms: int) -> LiveBroker:
        live = self.live.remove(key)
        assert live is not None, key
        log.info("broker removed broker=%s why=%s", live.identity, why)
        self.departed.note(live.identity, why, now_ms)
        self._remove_address(live.identity)
        return live

    def _remove_address(self, identity: BrokerIdentity) -> None:
        name = identity.broker_name
        self._changed(name)
        self._filters.pop(identity.key, None)
        broker = self._brokers.get(name)
        if broker is None:
            return
        for broker_id in [i for i, a in broker.broker_addrs.items() if a == identity.address]:
            del broker.broker_addrs[broker_id]
        if not broker.broker_addrs:
            self._remove_name(name)

    def _remove_name(self, name: str) -> None:
        for topic in list(self._told[name]):
            self._remove_topic_of(name, topic)
        del self._told[name]
        del self._brokers[name]
        for cluster in [c for c, names in self._clusters.items() if name in names]:
            del self._clusters[cluster][name]
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        for topic in [t for t, brokers in self._mappings.items() if name in brokers]:
            del self._mappings[topic][name]
            self._mapped -= 1
            if not self._mappings[topic]:
                del self._mappings[topic]

    def _remove_topic_of(self, broker_name: str, topic: str) -> None:
        self._told_count -= self._told[broker_name].pop(topic, None) is not None
        queues = self._topics.get(topic)
        if queues is not None and queues.pop(broker_name, None) is not None:
            self.revision += 1
            self.watches.changed(topic)
            if not queues:
                del self._topics[topic]

    # Operators

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        names = self._topics.get(topic, {})
        inside = names if cluster is None else self._clusters.get(cluster, {})
        for name in [name for name in names if name in inside]:
            self._remove_topic_of(name, topic)

    def register_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Enter a topic for brokers that are known; others are skipped."""
        for data in queues:
            if data.broker_name in self._brokers and self._tell(data.broker_name, topic, data):
                self._topics.setdefault(topic, {})[data.broker_name] = data
                self.revision += 1
                self.watches.changed(topic)

    def wipe_write_perm(self, broker_name: str) -> int:
        """No new messages to a broker; lasts until its DataVersion changes. Returns topics touched."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Undo `wipe_write_perm`: permission 6 on every topic of the broker, as Apache does."""
        return self._change_perm(broker_name, lambda perm: PERM_READ | PERM_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for topic, queues in self._topics.items():
            data = queues.get(broker_name)
            if data is not None:
                queues[broker_name] = msgspec.structs.replace(data, perm=change(data.perm))
                count += 1
                self.watches.changed(topic)
        self.revision += 1
        return count

    # Lookups

    def find_route(self, topic: str) -> TopicRouteData | None:
        """Return where a topic is; None when no broker has it (RouteInfoManager.pickupTopicRouteData)."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        filters: dict[str, list[str]] = {}
        if self._filters:
            for broker in brokers:
                for address in broker.broker_addrs.values():
                    servers = self._filters.get((broker.cluster, address))
                    if servers:
                        filters[address] = servers
        return TopicRouteData(
            queue_datas=list(queues.values()),
            broker_datas=brokers,
            filter_server_table=filters,
            topic_queue_mapping_by_broker=self._mappings.get(topic),
        )

    def cluster_info(self, now_ms: int) -> ClusterInfo:
        """Every broker and cluster, and who has left."""
        return ClusterInfo(
            broker_addr_table=dict(self._brokers),
            cluster_addr_table={c: list(names) for c, names in self._clusters.items()},
            brokers_left=self.departed.all(now_ms),
        )

    def outside(self, broker: BrokerData) -> BrokerData:
        """As clients from outside reach it: members without an address for them have the one they have."""
        live = {at: self.live.find(broker.cluster, at) for at in broker.broker_addrs.values()}
        told = {at: each.outside for at, each in live.items() if each is not None and each.outside}
        addresses = {number: told.get(at, at) for number, at in broker.broker_addrs.items()}
        return msgspec.structs.replace(broker, broker_addrs=addresses)

    def find_cluster(self, broker_name: str) -> str:
        """Of one broker name; empty when nobody has it."""
        broker = self._brokers.get(broker_name)
        return "" if broker is None else broker.cluster

    def find_members(self, broker_name: str) -> dict[int, str]:
        """Addresses of one broker name by id."""
        broker = self._brokers.get(broker_name)
        return {} if broker is None else dict(broker.broker_addrs)

    @property
    def topic_count(self) -> int:
        """How many topics there are."""
        return len(self._topics)

    def topics(self) -> list[str]:
        """Every topic."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics on any broker of a cluster."""
        names = self._clusters.get(cluster, {})
        return [t for t, queues in self._topics.items() if not names.keys().isdisjoint(queues)]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Cluster and broker names, which are topics too, and the address of one broker."""
        found: list[str] = []
        for cluster, names in self._clusters.items():
            found += [cluster, *names]
        for broker in self._brokers.values():
            for address in broker.broker_addrs.values():
                return found, address
        return found, None

    def topics_with_flags(
        self, *, unit: bool | None = None, unit_sub: bool | None = None
    ) -> list[str]:
        """Topics by the unit bits of their first queue data; None does not care."""
        mask = (UNIT if unit is not None else 0) | (UNIT_SUB if unit_sub is not None else 0)
        wanted = (UNIT if unit else 0) | (UNIT_SUB if unit_sub else 0)
        return [
            topic
            for topic, queues in self._topics.items()
            if next(iter(queues.values())).topic_sys_flag & mask == wanted
        ]


def _is_prime(registration: Registration, broker: BrokerData) -> bool:
    """Return True when a replica speaks for a group that has lost its master."""
    return (
        registration.modern
        and MASTER_ID not in broker.broker_addrs
        and registration.identity.broker_id == min(broker.broker_addrs)
    )
