"""asyncio.Protocol <-> wire.Connection: a thin shell with flow control. HOT."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from roquette.base.logs import RateLimited
from roquette.errors import RemoteProtocolError
from roquette.remoting.dispatcher import Dispatcher, Peer

log = logging.getLogger("roquette.remoting")


def host_of(ip: str, port: int) -> bytes:
    """ip and port as records store them: 4 or 16 bytes, then the port as int32."""
    if ip.startswith("::ffff:") and "." in ip:
        ip = ip[7:]
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return socket.inet_pton(family, ip.split("%")[0]) + port.to_bytes(4, "big")


class PeerProtocol(asyncio.Protocol):
    """One connection, whichever side opened it.

    A server does not read from a peer that does not read its answers, so that their backlog stays bounded.
    A client reads always: if both ends stopped, neither would ever go on.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        number: int,
        noise: RateLimited,
        on_made: Callable[[Peer], None],
        on_lost: Callable[[Peer, Exception | None], None],
        *,
        reads_always: bool = False,
    ) -> None:
        self._dispatcher: Dispatcher = dispatcher
        self._number: int = number
        self._noise: RateLimited = noise
        self._on_made: Callable[[Peer], None] = on_made
        self._on_lost: Callable[[Peer, Exception | None], None] = on_lost
        self._reads_always: bool = reads_always
        self._peer: Peer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        there = transport.get_extra_info("peername") or ("0.0.0.0", 0)
        here = transport.get_extra_info("sockname") or ("0.0.0.0", 0)
        stream = cast(asyncio.Transport, transport)
        peer = Peer(
            self._dispatcher,
            stream,
            self._number,
            host_of(there[0], there[1]),
            f"{there[0]}:{there[1]}",
            f"{here[0]}:{here[1]}",
        )
        peer.last_active = self._dispatcher.loop.time()
        peer.reads_less = not self._reads_always
        stream.set_write_buffer_limits(high=1 << 20)
        self._peer = peer
        self._on_made(peer)

    def data_received(self, data: bytes) -> None:
        peer = self._peer
        if peer is None or peer.closed:
            return
        peer.last_active = self._dispatcher.loop.time()
        try:
            commands = peer.wire.receive_data(data)
        except RemoteProtocolError as error:
            hint = ""
            if data[:1] == b"\x16":
                hint = " (a TLS handshake: TLS is not enabled on this port)"
            elif data[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"PRI "):
                hint = " (an HTTP request: this port speaks RocketMQ's remoting protocol)"
            self._noise.warning(
                "protocol", "connection closed peer=%s error=%s%s", peer.remote, error, hint
            )
            peer.closed = True
            peer.transport.abort()
            return
        if commands:
            self._dispatcher.receive(peer, commands)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        peer = self._peer
        if peer is not None and not self._reads_always and not peer.transport.is_closing():
            peer.transport.pause_reading()
            self._dispatcher.pause(peer)

    def resume_writing(self) -> None:
        peer = self._peer
        if peer is not None and not self._reads_always and not peer.transport.is_closing():
            if not peer.crowded:
                peer.transport.resume_reading()
            self._dispatcher.resume(peer)

    def connection_lost(self, error: Exception | None) -> None:
        peer = self._peer
        if peer is not None:
            peer.closed = True
            peer.parked.clear()
            peer.pending.fail_all(None, peer.remote)
            self._on_lost(peer, error)
