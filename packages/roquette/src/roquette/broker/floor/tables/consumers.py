"""Consumers: groups, their connections and subscriptions. Pure: time and peers come in.

The rules are those of Apache's ConsumerManager and ConsumerGroupInfo. HOT.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from roquette.base.bounds import Bound, unbounded
from roquette.broker.floor.tables.bounds import CHANNELS_OF_PEER, NAME
from roquette.broker.floor.tables.filters import SubscriptionFilters, is_tag_type
from roquette.errors import ExpressionError
from roquette.remoting.request import Peer
from roquette.store.queue_read import MATCH_ALL, RecordFilter
from roquette.wire.bodies import SubscriptionData

log = logging.getLogger("roquette.broker.consumers")

CHANNEL_EXPIRED_MS = 120_000  # ConsumerManager.CHANNEL_EXPIRED_TIMEOUT


class ClientChannel:
    """One client's connection, as its last heartbeat described it. account: of the user who signed it, or ""."""

    __slots__ = (
        "account",
        "client_id",
        "language",
        "last_update_ms",
        "outdated",
        "peer",
        "signature",
        "suspected_duplicate",
        "version",
    )

    def __init__(
        self, peer: Peer, client_id: str, language: str, version: int, now_ms: int
    ) -> None:
        self.peer = peer
        self.client_id = client_id
        self.language = language
        self.version = version
        self.last_update_ms = now_ms
        self.account = ""
        self.suspected_duplicate: ClientChannel | None = (
            None  # a newer connection with the same client id
        )
        self.outdated = (
            False  # it pulls by a newer version of its subscription than its heartbeat had
        )
        self.signature = ""  # what it subscribes to, as members must have in common


class ConsumerGroup:
    """A group that is online: its channels by peer id, its subscriptions by topic.

    Attributes:
        being_told, changed: a change is on its way to the members; there was another one meanwhile.
    """

    __slots__ = (
        "_client_ids",
        "being_told",
        "changed",
        "channels",
        "consume_from_where",
        "consume_type",
        "filters",
        "fingerprint",
        "message_model",
        "name",
        "signatures",
        "subscriptions",
    )

    def __init__(
        self, name: str, consume_type: str, message_model: str, consume_from_where: str
    ) -> None:
        self.name = name
        self.consume_type = consume_type
        self.message_model = message_model
        self.consume_from_where = consume_from_where
        self.channels: dict[int, ClientChannel] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        # Topic -> what is let through; a topic whose selector cannot be used is not in it.
        self.filters: dict[str, RecordFilter] = {}
        self.fingerprint: int | None = None  # of the last heartbeat of any member; 0: version 1
        self.signatures: dict[str, int] = {}  # how many members subscribe to what
        self.being_told = self.changed = False
        self._client_ids: list[str] | None = None

    @property
    def broadcasting(self) -> bool:
        """True when each member gets every message."""
        return self.message_model == "BROADCASTING"

    def client_ids(self) -> list[str]:
        """Ids of the members, each once, sorted; not to be changed. After a change every member asks for them."""
        if self._client_ids is None:
            self._client_ids = sorted({channel.client_id for channel in self.channels.values()})
        return self._client_ids

    def put(self, channel: ClientChannel) -> None:
        """A member joins, or its connection has another client id than before."""
        self.channels[channel.peer.id] = channel
        self._client_ids = None

    def remove(self, number: int) -> ClientChannel | None:
        """The connection with this number leaves."""
        self._client_ids = None
        return self.channels.pop(number, None)

    def channel_of(self, client_id: str) -> ClientChannel | None:
        """The newest connection of a client."""
        found = [c for c in self.channels.values() if c.client_id == client_id]
        return found[-1] if found else None

    def want_subscriptions(self, peer: Peer) -> None:
        """A member pulls by a newer version of its subscription than is known: its next heartbeat is asked for it.

        The Java client skips the heartbeat that would tell the new version when another one is on its way; those
        of version 2 that follow leave the subscriptions out, and it would pull in vain for ever.
        """
        channel = self.channels.get(peer.id)
        if channel is not None:
            channel.outdated = True

    def peers(self) -> list[Peer]:
        """Connections of the members, oldest first."""
        return [channel.peer for channel in self.channels.values()]


class Watch(Protocol):
    """Sees members come, beat and go (see `members.py`)."""

    def added(self, group: ConsumerGroup, channel: ClientChannel) -> None:
        """A connection joined the group."""
        ...

    def beat(self, group: ConsumerGroup, channel: ClientChannel) -> None:
        """A connection that has a suspected_duplicate sent a heartbeat."""
        ...

    def subscribed(
        self,
        group: ConsumerGroup,
        channel: ClientChannel,
        message_model: str,
        subscriptions: Iterable[SubscriptionData],
    ) -> bool:
        """Take in what a member's heartbeat subscribes to; True when it is not what the same member said before."""
        ...

    def left(self, group: ConsumerGroup, channel: ClientChannel) -> None:
        """A connection left the group."""
        ...


class ConsumerTable:
    """All groups that are online.

    Attributes:
        bound, of_peer: how many pairs of group and connection there are at most, and of one connection.
    """

    def __init__(
        self,
        filters: SubscriptionFilters | None = None,
        watch: Watch | None = None,
        bound: Bound | None = None,
    ) -> None:
        self.bound = bound or unbounded()
        self.of_peer = CHANNELS_OF_PEER
        self._count = 0
        self._filters = filters if filters is not None else SubscriptionFilters()
        self._watch = watch
        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_of_peer: dict[int, dict[str, None]] = {}

    def __len__(self) -> int:
        return self._count

    def admits(self, name: str, peer: Peer, client_id: str) -> bool:
        """Return True when a member of a group has its place, or there is room for it."""
        group = self._groups.get(name)
        if group is not None and peer.id in group.channels:
            return len(client_id) <= NAME
        return (
            len(self._groups_of_peer.get(peer.id, ())) < self.of_peer
            and len(client_id) <= NAME
            and self.bound.room(self._count)
        )

    def find(self, group: str) -> ConsumerGroup | None:
        """The group, when at least one member is connected."""
        return self._groups.get(group)

    def filter_of(self, group: str, topic: str) -> RecordFilter | None:
        """Return the filter of what a group that is online lets through of a topic."""
        online = self._groups.get(group)
        return online.filters.get(topic) if online is not None else None

    def groups(self) -> list[ConsumerGroup]:
        """Every group online."""
        return list(self._groups.values())

    def groups_of_topic(self, topic: str) -> list[str]:
        """Names of groups online that subscribe to `topic`, sorted."""
        return sorted(name for name, group in self._groups.items() if topic in group.subscriptions)

    def register(
        self,
        name: str,
        peer: Peer,
        *,
        client_id: str,
        language: str,
        version: int,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: Iterable[SubscriptionData] | None,
        now_ms: int,
    ) -> bool:
        """Take in one group of a heartbeat; True when members must rebalance (ConsumerManager.registerConsumer).

        Without `subscriptions` those the group has stay (registerConsumerWithoutSub).
        """
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = ConsumerGroup(
                name, consume_type, message_model, consume_from_where
            )
        group.consume_type = consume_type
        group.message_model = message_model
        group.consume_from_where = consume_from_where
        changed = self._update_channel(group, peer, client_id, language, version, now_ms)
        if subscriptions is None:
            return changed
        wanted = list(subscriptions)
        other_mind = False
        if self._watch is not None:
            channel = group.channels[peer.id]
            other_mind = self._watch.subscribed(group, channel, message_model, wanted)
        return self._update_subscriptions(group, wanted, other_mind) or changed

    def _update_channel(
        self,
        group: ConsumerGroup,
        peer: Peer,
        client_id: str,
        language: str,
        version: int,
        now_ms: int,
    ) -> bool:
        channel = group.channels.get(peer.id)
        if channel is not None and channel.client_id == client_id:
            channel.last_update_ms = now_ms
            if channel.suspected_duplicate is not None and self._watch is not None:
                self._watch.beat(group, channel)
            return False
        if channel is not None and self._watch is not None:
            self._watch.left(group, channel)
        self._count += channel is None
        added = ClientChannel(peer, client_id, language, version, now_ms)
        group.put(added)
        self._groups_of_peer.setdefault(peer.id, {})[group.name] = None
        if self._watch is not None:
            self._watch.added(group, added)
        return True

    def _update_subscriptions(
        self, group: ConsumerGroup, wanted: list[SubscriptionData], other_mind: bool
    ) -> bool:
        """Take over what is newer, or what a client now says otherwise than before: versions are clients' clocks,
        and clocks go back (apache/rocketmq#6679).
        """
        changed = False
        for data in wanted:
            old = group.subscriptions.get(data.topic)
            if old is None or data.sub_version > old.sub_version or other_mind:
                changed = changed or old is None
                group.subscriptions[data.topic] = data
                self._set_filter(group, data)
        if len(wanted) == 1 == len(group.subscriptions):
            return changed  # it is that one, for it has just been looked up or put
        topics = {data.topic for data in wanted}
        for topic in [t for t in group.subscriptions if t not in topics]:
            del group.subscriptions[topic]
            group.filters.pop(topic, None)
            changed = True
        return changed

    def _set_filter(self, group: ConsumerGroup, data: SubscriptionData) -> None:
        """Compile the expression; an invalid selector yields no filter, as in Apache; pulls then report the error."""
        try:
            group.filters[data.topic] = self._filter_of(data)
        except ExpressionError as error:
            group.filters.pop(data.topic, None)
            log.warning(
                "filter expression refused group=%s topic=%s error=%s",
                group.name,
                data.topic,
                error,
            )

    def prepare(self, data: SubscriptionData) -> bool:
        """Compile a subscription's selector before its group is registered; False when there is nothing to do."""
        if data.class_filter_mode or is_tag_type(data.expression_type):
            return False
        return self._filters.prepare(data.sub_string, data.expression_type)

    def _filter_of(self, data: SubscriptionData) -> RecordFilter:
        if data.class_filter_mode:
            return MATCH_ALL
        if not is_tag_type(data.expression_type):
            return self._filters.build(data.sub_string, data.expression_type)
        codes = codes_of(data)
        return MATCH_ALL if codes is None else RecordFilter(codes)

    def unregister(self, name: str, peer: Peer) -> bool:
        """A client leaves a group on its own connection; True when others must rebalance.

        Its older connections that sent nothing since this one came are dead, and leave with it.
        """
        group = self._groups.get(name)
        own = group.channels.get(peer.id) if group is not None else None
        if group is None or own is None:
            return False
        dead = [
            number
            for number, channel in group.channels.items()
            if channel.suspected_duplicate is own
        ]
        for number in [peer.id, *dead]:
            self._drop(group, number)
        return True

    def remove_peer(self, peer: Peer) -> list[str]:
        """A connection ended; returns the groups whose members must rebalance."""
        names = list(self._groups_of_peer.pop(peer.id, ()))
        for name in names:
            group = self._groups.get(name)
            if group is not None:
                self._drop(group, peer.id)
        return names

    def renew(self, now_ms: int) -> None:
        """Every channel has just sent a heartbeat."""
        for group in self._groups.values():
            for channel in group.channels.values():
                channel.last_update_ms = now_ms

    def expire(self, now_ms: int, after_ms: int = CHANNEL_EXPIRED_MS) -> list[tuple[str, Peer]]:
        """Remove channels without a heartbeat for `after_ms` (ConsumerManager.scanNotActiveChannel)."""
        removed: list[tuple[str, Peer]] = []
        for group in list(self._groups.values()):
            for number, channel in list(group.channels.items()):
                if now_ms - channel.last_update_ms > after_ms:
                    removed.append((group.name, channel.peer))
                    self._drop(group, number)
        return removed

    def _drop(self, group: ConsumerGroup, number: int) -> None:
        channel = group.remove(number)
        self._count -= channel is not None
        if channel is not None and self._watch is not None:
            self._watch.left(group, channel)
        names = self._groups_of_peer.get(number)
        if names is not None:
            names.pop(group.name, None)
            if not names:
                del self._groups_of_peer[number]
        if not group.channels:
            self._groups.pop(group.name, None)


def codes_of(data: SubscriptionData) -> frozenset[int] | None:
    """The tag hashes a subscription lets through; None lets everything through."""
    if data.class_filter_mode or not data.sub_string or data.sub_string == "*":
        return None
    return frozenset(data.code_set)


# Producer groups and their connections, from heartbeats. Pure (Apache's ProducerManager).


class ProducerTable:
    """Producer group -> channels by peer id.

    Attributes:
        bound, of_peer: how many channels there are at most, and of one connection.
    """

    def __init__(self, bound: Bound | None = None) -> None:
        self.bound = bound or unbounded()
        self.of_peer = CHANNELS_OF_PEER
        self._count = 0
        self._groups: dict[str, dict[int, ClientChannel]] = {}
        self._groups_of_peer: dict[int, dict[str, None]] = {}
        self._clients: dict[str, dict[str, ClientChannel]] = {}  # client id -> group -> channel
        self._turn = 0

    def __len__(self) -> int:
        return self._count

    def register(
        self,
        group: str,
        peer: Peer,
        *,
        client_id: str,
        language: str,
        version: int,
        now_ms: int,
        account: str = "",
    ) -> bool:
        """Take in one group of a heartbeat; `now_ms` is steady time. False when there is no room for it, or when
        another user's client has this id: what is meant for that one would go to this one."""
        channel = self._groups.get(group, {}).get(peer.id)
        own = channel is not None and channel.client_id == client_id
        # All channels of a client id are one user's.
        known = channel if own else self.find_client(client_id)
        if known is not None and known.account != account:
            return False
        if own and channel is not None:
            channel.last_update_ms = now_ms
            return True
        if channel is not None:
            self._drop(group, peer.id)
        if (
            len(self._groups_of_peer.get(peer.id, ())) >= self.of_peer
            or max(len(group), len(client_id)) > NAME
            or not self.bound.room(self._count)
        ):
            return False
        channel = ClientChannel(peer, client_id, language, version, now_ms)
        channel.account = account
        self._groups.setdefault(group, {})[peer.id] = channel
        self._groups_of_peer.setdefault(peer.id, {})[group] = None
        self._clients.setdefault(client_id, {})[group] = channel
        self._count += 1
        return True

    def unregister(self, group: str, peer: Peer) -> None:
        """A client leaves a group on its own connection."""
        if peer.id in self._groups.get(group, {}):
            self._drop(group, peer.id)

    def remove_peer(self, peer: Peer) -> None:
        """A connection ended."""
        for group in list(self._groups_of_peer.get(peer.id, ())):
            self._drop(group, peer.id)

    def renew(self, now_ms: int) -> None:
        """Every channel has just sent a heartbeat."""
        for channels in self._groups.values():
            for channel in channels.values():
                channel.last_update_ms = now_ms

    def expire(self, now_ms: int) -> list[Peer]:
        """Remove channels without a heartbeat for 120 s; returns their peers."""
        gone = [
            (group, channel)
            for group, channels in self._groups.items()
            for channel in channels.values()
            if now_ms - channel.last_update_ms > CHANNEL_EXPIRED_MS
        ]
        for group, channel in gone:
            self._drop(group, channel.peer.id)
        return [channel.peer for _, channel in gone]

    def channels(self, group: str) -> list[ClientChannel]:
        """Connections of a group, oldest first; empty when it is not online."""
        return list(self._groups.get(group, {}).values())

    def choose(
        self, group: str, may: Callable[[ClientChannel], bool] = lambda channel: True
    ) -> ClientChannel | None:
        """A connection of a group that takes requests now, each in its turn (getAvailableChannel); `may` says whether
        it may be told at all."""
        channels = [channel for channel in self.channels(group) if may(channel)]
        self._turn += 1
        for step in range(len(channels)):
            channel = channels[(self._turn + step) % len(channels)]
            if not channel.peer.closed and not channel.peer.paused:
                return channel
        return None

    def find_client(self, client_id: str) -> ClientChannel | None:
        """The newest connection on which a client has registered (findChannel)."""
        channels = self._clients.get(client_id)
        return None if not channels else next(reversed(channels.values()))

    def groups(self) -> list[str]:
        """Names of the groups online, sorted."""
        return sorted(self._groups)

    def _drop(self, group: str, number: int) -> None:
        channels = self._groups[group]
        channel = channels.pop(number)
        self._count -= 1
        if not channels:
            del self._groups[group]
        names = self._groups_of_peer[number]
        del names[group]
        if not names:
            del self._groups_of_peer[number]
        of_client = self._clients.get(channel.client_id, {})
        if of_client.get(group) is channel:
            del of_client[group]
            if not of_client:
                del self._clients[channel.client_id]
