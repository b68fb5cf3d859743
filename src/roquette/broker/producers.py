"""Who produces: groups and their connections, as heartbeats told. Pure (Apache's ProducerManager)."""

from roquette.broker.consumers import CHANNEL_EXPIRED_MS, ClientChannel
from roquette.remoting.dispatcher import Peer


class ProducerTable:
    """Producer group -> channels by peer id."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, ClientChannel]] = {}
        self._clients: dict[str, dict[str, ClientChannel]] = {}  # client id -> group -> channel
        self._turn = 0

    def register(
        self, group: str, peer: Peer, *, client_id: str, language: str, version: int, now_ms: int
    ) -> None:
        """Take in one group of a heartbeat; `now_ms` is steady time."""
        channels = self._groups.setdefault(group, {})
        channel = channels.get(peer.id)
        if channel is None or channel.client_id != client_id:
            if channel is not None:
                self._forget(group, channel)
            channel = ClientChannel(peer, client_id, language, version, now_ms)
            channels[peer.id] = channel
            self._clients.setdefault(client_id, {})[group] = channel
        else:
            channel.last_update_ms = now_ms

    def unregister(self, group: str, peer: Peer) -> None:
        """A client leaves a group on its own connection."""
        if peer.id in self._groups.get(group, {}):
            self._drop(group, peer.id)

    def remove_peer(self, peer: Peer) -> None:
        """A connection ended."""
        for group in [name for name, channels in self._groups.items() if peer.id in channels]:
            self._drop(group, peer.id)

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

    def choose(self, group: str) -> ClientChannel | None:
        """A connection of a group that takes requests now, each in its turn (getAvailableChannel)."""
        channels = self.channels(group)
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
        channel = channels.pop(number, None)
        if channel is not None:
            self._forget(group, channel)
        if not channels:
            del self._groups[group]

    def _forget(self, group: str, channel: ClientChannel) -> None:
        groups = self._clients.get(channel.client_id, {})
        if groups.get(group) is channel:
            del groups[group]
            if not groups:
                del self._clients[channel.client_id]
