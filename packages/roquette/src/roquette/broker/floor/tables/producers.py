"""Producer groups and their connections, from heartbeats. Pure (Apache's ProducerManager)."""

from collections.abc import Callable

from roquette.base.bounds import Bound, unbounded
from roquette.broker.floor.tables.bounds import CHANNELS_OF_PEER, NAME
from roquette.broker.floor.tables.consumers import CHANNEL_EXPIRED_MS, ClientChannel
from roquette.remoting.request import Peer


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
        known = self.find_client(client_id)
        if known is not None and known.account != account:
            return False
        channel = self._groups.get(group, {}).get(peer.id)
        if channel is not None and channel.client_id == client_id:
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
