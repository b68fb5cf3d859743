"""asyncio.Protocol <-> wire.Connection: a thin shell with flow control. HOT."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, cast

from roquette.base.logs import RateLimited
from roquette.errors import ConnectError, RemoteProtocolError
from roquette.remoting.account import PeerLimits, UnfinishedTable, cut
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.request import ANSWERS, Peer
from roquette.remoting.tls import TlsRefused
from roquette.wire.connection import Wire, WireConnection

log = logging.getLogger("roquette.remoting")

SMALL_FRAME: Final = 16_384  # bytes: unfinished frames up to here are never refused
HANG_UP_S: Final = 3.0  # to take what was written before the connection was closed


def host_of(ip: str, port: int) -> bytes:
    """ip and port as records store them: 4 or 16 bytes, then the port as int32."""
    if ip.startswith("::ffff:") and "." in ip:
        ip = ip[7:]
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return socket.inet_pton(family, ip.split("%")[0]) + port.to_bytes(4, "big")


def _loss_text(peer: Peer, error: Exception | None) -> str:
    """Say why the connection was lost, to those who wait for answers, or ask again."""
    why = ""
    if isinstance(error, TlsRefused):
        why = f": {error}"
    elif not peer.pending.answered and peer.transport.get_extra_info("ssl_object") is None:
        why = " without an answer: perhaps it takes TLS only"
    return f"connection to {peer.remote} was lost{why}"


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
        self._wire: WireConnection = WireConnection()
        self._served: bool = False  # whether it ever sent a whole frame

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        there = transport.get_extra_info("peername") or ("0.0.0.0", 0)
        stream = cast(asyncio.Transport, transport)
        peer = Peer(
            self._dispatcher,
            stream,
            self._number,
            host_of(there[0], there[1]),
            f"{there[0]}:{there[1]}",
            self._wire,
        )
        here = transport.get_extra_info("sockname") or ("0.0.0.0", 0)
        peer.local = f"{here[0]}:{here[1]}"
        peer.last_active = self._dispatcher.loop.time()
        peer.reads_less = not self._reads_always
        stream.set_write_buffer_limits(high=1 << 20)
        self._peer = peer
        self._on_made(peer)

    def data_received(self, data: bytes) -> None:
        peer = self._peer
        if peer is None or peer.closed or peer.ending:
            return
        wire = self._wire
        broken: RemoteProtocolError | None = None
        try:
            try:
                commands = wire.receive_data(data)
                broken = wire.broken
            except RemoteProtocolError as error:
                commands = []
                broken = error
            if commands:
                self._served = True
                self._dispatcher.receive(peer, commands)
            else:
                peer.last_active = self._dispatcher.loop.time()
            if wire.refused:
                self._out_of_memory(peer)
            if wire.held or peer.half is not None:
                self._keep_half(peer, bool(commands))
        except MemoryError:
            self._out_of_memory(peer)
            peer.closed = True
            peer.transport.abort()
        if broken is not None:
            self._end(peer, broken, data)

    def _end(self, peer: Peer, error: RemoteProtocolError, data: bytes) -> None:
        """The peer broke the protocol: what came before is answered, then the connection ends."""
        hint = ""
        if data[:1] == b"\x16":
            hint = " (a TLS handshake: TLS is not enabled on this port)"
        elif data[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"PRI "):
            hint = " (an HTTP request: this port speaks RocketMQ's remoting protocol)"
        self._dispatcher.limits.met_stranger(peer.remote)
        self._noise.warning(
            "protocol", "connection closed peer=%s error=%s", peer.remote, f"{error}{hint}"
        )
        if self._served and not self._reads_always:
            self._dispatcher.finish(peer)
        else:
            peer.closed = True
            peer.transport.abort()

    def _out_of_memory(self, peer: Peer) -> None:
        self._noise.warning("memory", "memory is short, a request is refused peer=%s", peer.remote)
        self._refuse(peer)
        frames = self._dispatcher.limits.frames
        self._make_room(frames, frames.total // 2)

    def _refuse(self, peer: Peer) -> None:
        """Refuse a dropped frame in an answer; a server that sent us one expects none, so its connection ends."""
        if self._reads_always:
            peer.closed = True
            peer.transport.abort()
        else:
            wire = peer.wire
            assert isinstance(wire, WireConnection)
            given_up = wire.refused
            wire.refused = []
            self._dispatcher.refuse(peer, given_up)

    def _keep_half(self, peer: Peer, fresh: bool) -> None:
        """Watch an unfinished frame; `fresh`: it is not that of the last read."""
        table = self._dispatcher.limits.frames
        held: int = self._wire.held
        if not held:
            table.end(peer)
            peer.half = None
            return
        entry = peer.half
        if entry is None or fresh:
            entry = peer.half = table.begin(peer, peer.last_active)
        entry.moved = held
        if self._wire.needs > SMALL_FRAME and table.resize(entry, held):
            self._make_room(table, table.goal())

    def _make_room(self, table: UnfinishedTable, goal: int) -> None:
        """Unfinished frames hold too much: those that began first are given up."""
        for entry in table.entries():
            if table.total <= goal:
                return
            peer = entry.peer
            if not entry.size or peer.closed:
                continue
            self._noise.warning(
                "half",
                "unfinished frame given up peer=%s bytes=%d all_bytes=%d",
                peer.remote,
                entry.size,
                table.total,
            )
            table.end(peer)
            peer.half = None
            wire = peer.wire
            if isinstance(wire, WireConnection) and wire.drop():  # else a message of gRPC's
                self._refuse(peer)
            else:
                peer.closed = True
                peer.transport.abort()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        peer = self._peer
        if peer is not None and not self._reads_always and not peer.transport.is_closing():
            peer.stop_reading(ANSWERS)
            self._dispatcher.pause(peer)

    def resume_writing(self) -> None:
        peer = self._peer
        if peer is not None and not self._reads_always and not peer.transport.is_closing():
            peer.read_on(ANSWERS)
            self._dispatcher.resume(peer)

    def connection_lost(self, error: Exception | None) -> None:
        peer = self._peer
        if peer is not None:
            peer.closed = True
            self._dispatcher.drop_parked(peer)
            peer.lost = _loss_text(peer, error)
            if len(peer.pending):
                peer.pending.fail_all(ConnectError(peer.lost), peer.remote)
            self._dispatcher.limits.frames.end(peer)
            self._dispatcher.limits.unsent.end(peer)
            self._on_lost(peer, error)


def hang_up(peer: Peer) -> None:
    """Close a connection; a peer that does not take what was written loses it after `HANG_UP_S`."""
    transport = peer.transport
    if not transport.is_closing():
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(HANG_UP_S, transport.abort)


def cut_stalled(limits: PeerLimits, now_s: float, noise: RateLimited) -> None:
    """End the connections of peers that do not go on: neither with their frames, nor with our answers."""
    for entry in limits.frames.entries():
        peer = entry.peer
        if peer.paused or peer.unread:  # it is we who do not read
            entry.looked_s = now_s
            entry.moved_then = entry.moved
        elif limits.frames.is_late(entry, now_s):
            cut(peer, "its frame does not come", noise)
    for entry in limits.unsent.entries():
        peer = entry.peer
        waiting: int = peer.transport.get_write_buffer_size()
        moved: int = entry.written - waiting
        if moved > entry.moved:
            entry.moved = moved
            peer.last_active = now_s  # it takes its answers: that is not idle
        if not waiting:
            limits.unsent.end(peer)
            peer.behind = None
        elif limits.unsent.is_late(entry, now_s):
            cut(peer, "it does not read its answers", noise)


# The wire of a peer that speaks another protocol than remoting: what is said to it goes to callables. HOT.


Answered = Callable[[int, int, str | None, bytes, bytes], None]
"""Takes opaque, code, remark, ext (JSON), body of an answer."""
Asked = Callable[[int, int, bytes, bytes, bool], None]
"""Takes opaque, code, ext (JSON), body of a request to the peer, and whether it wants no answer."""


class InnerWire(Wire):
    """Passes answers and requests on.

    Args:
        answered, asked: get them. drain: the bytes to write, at the end of the turn.
    """

    __slots__ = ("_answered", "_asked", "_drain", "_next")

    def __init__(self, answered: Answered, asked: Asked, drain: Callable[[], list[bytes]]) -> None:
        self._answered: Answered = answered
        self._asked: Asked = asked
        self._drain: Callable[[], list[bytes]] = drain
        self._next: int = 0

    def send_request(self, code: int, ext: bytes, body: bytes = b"", oneway: bool = False) -> int:
        """Pass a request on; the answer comes back by `Peer.pending`."""
        opaque = self._next
        self._next = (opaque + 1) & 0x7FFFFFFF
        self._asked(opaque, code, ext, body, oneway)
        return opaque

    def send_reply(
        self, opaque: int, code: int, remark: str | None, ext: bytes, body: bytes
    ) -> None:
        """Pass an answer on."""
        self._answered(opaque, code, remark, ext, body)

    def data_to_send(self) -> list[bytes]:
        """Return what the protocol has to write."""
        return self._drain()
