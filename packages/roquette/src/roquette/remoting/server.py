"""Listen, accept, close what is idle, and know who is connected."""

import asyncio
import logging
from collections.abc import Callable

from roquette.base.clock import Clock
from roquette.base.descriptors import connection_limit
from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.remoting.account import PeerLimits
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.door import ConnectionKind, Door, Lobby, PortProtocols, stop_listening
from roquette.remoting.http_pages import HttpPages
from roquette.remoting.request import BYTES, Peer
from roquette.remoting.tls import ServerTls, TlsMode
from roquette.remoting.transport import PeerProtocol, cut_stalled, hang_up

log = logging.getLogger("roquette.remoting")


def _ignore(peer: Peer) -> None:
    return None


class ConnectionBound:
    """Bound of the connections that the ports of a server may have together.

    Args:
        wanted: what is configured; fewer when the process may not have as many descriptors (`connection_limit`).
    """

    def __init__(self, wanted: int) -> None:
        self.most = min(wanted, connection_limit())
        self.open = 0
        self.refused = 0
        self.met = 0  # connections ever; their numbers are unique among those ports
        self.refusal = (
            "maxConnections"
            if self.most == wanted
            else "what the limit of open files leaves beside the store's; raise it (ulimit -n, LimitNOFILE= of systemd)"
        )

    def release(self) -> None:
        """One of them is gone."""
        self.open -= 1


class Server:
    """One listening port in front of a dispatcher.

    Args:
        on_lost: called with every connection that ended.
        idle_s: a connection without traffic for so long is closed (Apache: serverChannelMaxIdleTimeSeconds).
        bound: connections beyond it are closed at once; several ports may share it.
        limits: what peers may leave unfinished; ports of one server share them.

    Attributes:
        protocols: those beside the remoting protocol; another one holds for the next connection.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Clock,
        *,
        on_lost: Callable[[Peer], None] = _ignore,
        idle_s: float = 120.0,
        bound: ConnectionBound | None = None,
        limits: PeerLimits | None = None,
    ) -> None:
        self.peers: dict[int, Peer] = {}
        self._limits = PeerLimits(unsent_timeout_s=idle_s) if limits is None else limits
        dispatcher.limits = self._limits
        self._dispatcher = dispatcher
        self.protocols: PortProtocols | None = None
        self._on_lost = on_lost
        self._idle_s = idle_s
        self._bound = bound or ConnectionBound(20_000)
        self._noise = RateLimited(log, clock)
        self._tasks = Tasks()
        self._tls: ServerTls | None = None
        self._listeners: list[asyncio.AbstractServer] = []
        # Connections that have not said anything yet; without TLS there is none.
        met = self._limits.met_stranger
        self._lobby = Lobby(self._admit, self._bound.release, self._noise, idle_s, met)

    async def start(
        self,
        host: str,
        port: int,
        tls: ServerTls | None = None,
        protocols: PortProtocols | None = None,
    ) -> int:
        """Start accepting, with TLS as `tls` says, and other protocols beside; returns the port (a free one for 0).

        Called again, it opens a further port, for which the last `tls` and `protocols` hold as for all.
        """
        self.protocols = protocols
        if tls is not None and tls.mode is TlsMode.DISABLED:
            tls = None
        self._tls = tls
        loop = asyncio.get_running_loop()
        accept = self._new_protocol if tls is None and protocols is None else self._door
        listener = await loop.create_server(accept, host, port, backlog=1024)
        self._listeners.append(listener)
        if len(self._listeners) == 1:
            self._tasks.every("idle-connections", 10.0, self._close_idle)
            self._tasks.every("stalled-peers", 5.0, self._cut_stalled)
        for bound in getattr(listener, "sockets", None) or ():
            return int(bound.getsockname()[1])
        return port

    def http2(self, pages: HttpPages | None) -> asyncio.Protocol:
        """The protocol of an HTTP/2 connection that came in at another server's port, whose pages these are; it is counted
        and closed here."""
        assert self.protocols is not None
        assert self.protocols.http2 is not None
        self._bound.met += 1
        return self.protocols.http2(self._bound.met, self._made, self._lost, pages)

    def _door(self) -> asyncio.Protocol:
        return Door(self._tls, self._new_protocol, self._lobby, self.protocols)

    def _new_protocol(self, kind: ConnectionKind = ConnectionKind.REMOTING) -> asyncio.Protocol:
        """The protocol of a connection of this kind."""
        if kind is ConnectionKind.HTTP2:
            return self.http2(None if self.protocols is None else self.protocols.pages)
        bound = self._bound
        bound.met += 1
        return PeerProtocol(self._dispatcher, bound.met, self._noise, self._made, self._lost)

    def _admit(self, remote: str) -> bool:
        bound = self._bound
        if bound.open >= bound.most:
            bound.refused += 1
            most, silent = bound.open, self._lobby.drop_oldest()
            self._noise.warning(
                "full",
                "connection refused peer=%s: %d are open, the most there may be: %s",
                silent or remote,
                most,
                bound.refusal,
            )
            if not silent:
                return False
        bound.open += 1
        return True

    def _made(self, peer: Peer) -> None:
        if self._admit(peer.remote):
            self.peers[peer.id] = peer
        else:
            peer.closed = True
            peer.transport.abort()

    def _lost(self, peer: Peer, error: Exception | None) -> None:
        if self.peers.pop(peer.id, None) is not None:
            self._bound.release()
            self._on_lost(peer)

    def _close_idle(self) -> None:
        now = self._dispatcher.loop.time()
        self._lobby.look()
        for peer in list(self.peers.values()):
            peer.pending.expire(now, peer.remote)
            if now - peer.last_active > self._idle_s and not peer.transport.is_closing():
                log.info("idle connection closed peer=%s", peer.remote)
                hang_up(peer)

    def _cut_stalled(self) -> None:
        cut_stalled(self._limits, self._dispatcher.loop.time(), self._noise)
        for peer in self.peers.values():
            if peer.unread & BYTES:  # its share may be larger now
                self._limits.account.look(peer)

    def refusals(self) -> dict[str, int]:
        """Return what was refused since the start, by why: of this port and, in the last two, of those that share its bounds."""
        dispatcher = self._dispatcher
        return {
            "busy": dispatcher.refused,
            "unsupported": dispatcher.unsupported,
            "tls": self._lobby.unshaken,
            "connections": self._bound.refused,
            "protocol": self._limits.strangers,
        }

    def expire_requests(self) -> None:
        """Fail our own requests to peers that were not answered in time (called by the broker's beat)."""
        now = self._dispatcher.loop.time()
        for peer in self.peers.values():
            if len(peer.pending):
                peer.pending.expire(now, peer.remote)

    async def stop(self) -> None:
        """Stop accepting, then close every connection."""
        await self._tasks.stop()
        await stop_listening(self._listeners)
        await self._lobby.close()
        await asyncio.sleep(0)  # the answers of this turn leave
        for peer in list(self.peers.values()):
            hang_up(peer)
        await asyncio.sleep(0)
