"""State that all gRPC connections of one server share."""

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from roquette.base.clock import Clock
from roquette.base.logs import RateLimited
from roquette.proxy.service import Caller, Proxy, Rpc, RpcCall
from roquette.proxy.settings import ProxySettings
from roquette.remoting.account import cut
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.request import Peer
from roquette.remoting.transport import SMALL_FRAME
from roquette.wire.grpc import Metadata
from roquette.wire.http2 import Http2, Http2Limits

log = logging.getLogger("roquette.proxy")

BEYOND: Final = 1 << 20  # bytes that a message may be larger than its body may

ProveCaller = Callable[[Caller, Metadata], None]
"""Sets `Caller.account` from what a call says of itself, or raises Refused or RpcError."""


def make_connection(limits: Http2Limits) -> Http2:
    """A server's end of a new connection, its settings queued; not where it is missing (`settings.has_http2`)."""
    from roquette.wire.http2_ngh2 import NgConnection

    return NgConnection(limits)


class ServedConnection(Protocol):
    """A connection, as its server sees it.

    Attributes:
        gone_away: no further calls are taken.
    """

    calls: dict[int, RpcCall]
    gone_away: bool

    def look(self, now_s: float, steady_ms: int) -> None:
        """The beat."""

    def leave(self, now_s: float) -> None:
        """Tell the peer that this connection ends."""

    def hang_up(self) -> None:
        """Close it."""


class Serving:
    """Server of gRPC, as its connections need it; `proxy/sessions.py` has all of it.

    Args:
        prove: proves who calls; None: nobody asks.
        max_body: bytes of a message's body; a request may be 1 MiB larger.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        proxy: Proxy,
        settings: ProxySettings,
        clock: Clock,
        prove: ProveCaller | None = None,
        *,
        max_body: int = 4 << 20,
    ) -> None:
        self.dispatcher = dispatcher
        self.proxy = proxy
        self.settings = settings
        self.clock = clock
        self.prove = prove
        self.max_message = max_body + BEYOND
        self.limits = Http2Limits(streams=settings.grpc_max_streams)
        self.connect: Callable[[Http2Limits], Http2] = make_connection
        self.noise = RateLimited(log, clock)
        self.rpcs: dict[bytes, Rpc[Any]] = {path.encode(): rpc for path, rpc in proxy.rpcs.items()}
        self.open_now: dict[
            int, ServedConnection
        ] = {}  # by identity: numbers are a port's, and ports share this
        self.closing = False
        self.floods = 0  # connections that went beyond a limit


def keep_half(
    dispatcher: Dispatcher, peer: Peer, held: int, moved: int, noise: RateLimited
) -> None:
    """Watch what a peer's messages hold that have not come whole; `moved` bytes have just come.

    It shares its bounds with unfinished frames of remoting: who is too slow is cut by the server's beat
    (`cut_stalled`), and when all hold too much, those that began first lose their connections.
    """
    table = dispatcher.limits.frames
    if not held:
        table.end(peer)
        peer.half = None
        return
    entry = peer.half
    if entry is None:
        entry = peer.half = table.begin(peer, peer.last_active)
    entry.moved += moved
    if table.resize(entry, held if held > SMALL_FRAME else 0):
        for other in table.entries():
            if table.total <= table.goal():
                return
            if other.size:
                table.end(other.peer)
                other.peer.half = None
                cut(other.peer, "its message is unfinished, and all that are hold too much", noise)
