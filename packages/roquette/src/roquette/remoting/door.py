"""The door of a listening port: looks at the first bytes of each connection, and lets it in as what it is."""

import asyncio
import enum
import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, cast

from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.errors import RemoteProtocolError, RoquetteError
from roquette.remoting.http_pages import HttpPages
from roquette.remoting.request import Peer
from roquette.remoting.tls import ServerTls, TlsMode, TlsStream

# The PROXY protocol, versions 1 and 2: a load balancer says on whose behalf it connects. Pure.
# Source: HAProxy's proxy-protocol.txt, sections 2.1 and 2.2.


TEXT: Final = b"PROXY "
BINARY: Final = b"\r\n\r\n\x00\r\nQUIT\n"
MOST_TEXT: Final = 107  # bytes of a header of version 1, its end included
MOST_BINARY: Final = 4_096  # bytes behind the 16 of version 2: addresses, and TLVs that are skipped

_SIZES: Final = {0x11: 4, 0x21: 16}  # TCP over IPv4 and IPv6 -> bytes of an address


class Header(NamedTuple):
    """Contents of a header.

    Attributes:
        source: the client's address and port; None: the connection speaks for itself.
        size: bytes of the header.
    """

    source: tuple[str, int] | None
    size: int


def read_header(data: bytes) -> Header | None:
    """The header that `data` begins with, which is known to begin as one; None: it is not whole.

    Raises:
        RemoteProtocolError: it is none, in words.
    """
    return _read_text(data) if data[:1] == TEXT[:1] else _read_binary(data)


def _read_text(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, MOST_TEXT)
    if end < 0:
        if len(data) >= MOST_TEXT:
            raise RemoteProtocolError(f"a PROXY line does not end after {MOST_TEXT} bytes")
        return None
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return Header(None, end + 2)
    family = {b"TCP4": 4, b"TCP6": 6}.get(words[1])
    try:
        if family is None or len(words) != 6:
            raise ValueError
        host, _ = (ipaddress.ip_address(word.decode("ascii")) for word in words[2:4])
        port, _ = (_port(word) for word in words[4:6])
        if host.version != family:
            raise ValueError
    except ValueError:
        raise RemoteProtocolError("a PROXY line is not of the form of version 1") from None
    return Header((str(host), port), end + 2)


def _port(word: bytes) -> int:
    if not word.isdigit() or len(word) > 5 or int(word) > 65_535:
        raise ValueError
    return int(word)


def _read_binary(data: bytes) -> Header | None:
    if len(data) < 16:
        return None
    version, kind = data[12], data[13]
    size = int.from_bytes(data[14:16], "big")
    if version not in (0x20, 0x21):
        raise RemoteProtocolError(f"a PROXY header of version and command {version:#x}")
    if size > MOST_BINARY:
        raise RemoteProtocolError(f"a PROXY header of {size} bytes, more than {MOST_BINARY}")
    if len(data) < 16 + size:
        return None
    width = _SIZES.get(kind)
    if version == 0x20 or width is None:  # LOCAL, or no TCP
        return Header(None, 16 + size)
    if size < 2 * width + 4:
        raise RemoteProtocolError("a PROXY header is too short for its addresses")
    host = ipaddress.ip_address(data[16 : 16 + width])
    at = 16 + 2 * width
    return Header((str(host), int.from_bytes(data[at : at + 2], "big")), 16 + size)


HELLO: Final = 0x16  # the first byte of TLS: a handshake record (RFC 8446, section 5.1)
HANDSHAKE_S: Final = 10.0
FIRST_BYTES_S: Final = 10.0  # from the first byte until they say what is spoken
MADE_TURNS: Final = 3  # of the loop, from the accepting of a connection until it is made
AT_ONCE: Final = 8  # handshakes in one turn of the loop; each takes about a millisecond

UNKNOWN: Final = (
    b"This port speaks RocketMQ's remoting protocol, its v5 gRPC protocol, and HTTP for a look at its health; "
    b"what came is none of them.\n"
)
TLS_ONLY: Final = b"This port speaks TLS only.\n"
NO_TLS: Final = b"TLS is disabled on this port (tls.server.mode).\n"
NO_HTTP2: Final = b"this port serves no gRPC: point the client at a broker's port, or at a proxy's (roquette proxy)"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ConnectionKind(enum.Enum):
    """Protocol that a connection may begin with."""

    REMOTING = "remoting"
    TLS = "TLS"
    HTTP2 = "HTTP/2"
    HTTP1 = "HTTP/1"
    PROXY = "PROXY"
    OTHER = "other"


_METHODS: Final = (
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT",
)  # fmt: skip
_BEGINNINGS: Final = (
    (b"PRI", ConnectionKind.HTTP2),  # of its preface (RFC 9113, section 3.4)
    (TEXT, ConnectionKind.PROXY),
    (BINARY, ConnectionKind.PROXY),
    *((method + b" ", ConnectionKind.HTTP1) for method in _METHODS),
)


def kind_of(first: bytes) -> ConnectionKind | None:
    """Return the kind that begins with these bytes, of which there is one at least; None: more of them must tell."""
    if first[0] <= 1:  # the high byte of a frame's length, at most 16 MiB
        return ConnectionKind.REMOTING
    if first[0] == HELLO:
        return ConnectionKind.TLS
    for beginning, kind in _BEGINNINGS:
        if first.startswith(beginning):
            return kind
        if beginning.startswith(first):
            return None
    return ConnectionKind.OTHER


class Lobby:
    """The connections of a port that have not said what they are, or are in the handshake.

    Args:
        admit: whether a connection (host:port) may come in, which counts it; says why not.
        release: one that was counted has gone, or is counted elsewhere from now on.
        silent_s: how long one may say nothing at all.
        stranger: told of each (host:port) that spoke nothing this port does.

    Attributes:
        unshaken: handshakes that have failed.
    """

    def __init__(
        self,
        admit: Callable[[str], bool],
        release: Callable[[], None],
        noise: RateLimited,
        silent_s: float,
        stranger: Callable[[str], None] = lambda remote: None,
    ) -> None:
        self.admit = admit
        self.stranger = stranger
        self.noise = noise
        self.tasks = Tasks()
        self._release = release
        self._silent_s = silent_s
        self.closed = False
        self.unshaken = 0
        self._begun = 0  # handshakes, in this turn of the loop
        self._doors: dict[Door, float] = {}  # since when, loop seconds

    def __len__(self) -> int:
        return len(self._doors)

    def enter(self, door: "Door") -> None:
        """`door` was admitted."""
        self._doors[door] = asyncio.get_running_loop().time()

    def leave(self, door: "Door") -> None:
        """`door` has opened, or is gone."""
        if self._doors.pop(door, None) is not None:
            self._release()

    def drop_oldest(self) -> str:
        """End the connection that has been here longest: there are too many. Returns whose; "": nobody is here."""
        for door in self._doors:
            door.abort()
            self.leave(door)
            return door.remote
        return ""

    def look(self) -> None:
        """The beat: end what has been here for too long. Who has begun a handshake is ended before."""
        before = asyncio.get_running_loop().time() - self._silent_s
        for door, since in list(self._doors.items()):
            if since < before:
                door.abort()

    async def turn(self) -> None:
        """Wait until a handshake may begin: when everybody comes at once, others are served in between."""
        while self._begun >= AT_ONCE:
            await asyncio.sleep(0)
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._begun += 1

    def _next_turn(self) -> None:
        self._begun = 0

    async def close(self) -> None:
        """End all, and each that comes late: what was accepted before the port was closed is made some turns later, and
        nobody would ever answer it."""
        self.closed = True
        for door in list(self._doors):
            door.abort()
        await self.tasks.stop()


async def stop_listening(listeners: Iterable[asyncio.AbstractServer]) -> None:
    """Close ports. What the system has accepted is made first: asyncio forgets a connection that it makes for a closed port,
    with the socket open until the garbage collector comes by, and who is at its other end waits for ever."""
    loop, listeners = asyncio.get_running_loop(), list(listeners)
    if isinstance(loop, asyncio.SelectorEventLoop):
        real = [listener for listener in listeners if isinstance(listener, asyncio.Server)]
        for socket in (socket for listener in real for socket in listener.sockets):
            loop.remove_reader(socket.fileno())
        for _ in range(MADE_TURNS):
            await asyncio.sleep(0)
    for listener in listeners:
        listener.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class PortProtocols:
    """Protocols that a port speaks beside remoting.

    Attributes:
        http2: makes the protocol of an HTTP/2 connection; takes what `PeerProtocol` takes, a number, and what to call
            when its peer is made, and lost, and `pages`. None: who comes with HTTP/2 is told where to go.
        load: what to wait for before `http2` is called; None: nothing.
        pages: what is answered over HTTP/1.1, and over HTTP/2 where that is spoken; None: nothing.
        trusted: whose PROXY headers are believed.
    """

    http2: (
        Callable[
            [
                int,
                Callable[[Peer], None],
                Callable[[Peer, Exception | None], None],
                HttpPages | None,
            ],
            asyncio.Protocol,
        ]
        | None
    ) = None
    load: Callable[[], Awaitable[object] | None] = lambda: None
    pages: HttpPages | None = None
    trusted: tuple[Network, ...] = ()


class _Named(asyncio.Transport):
    """A connection whose peer is another one than the machine at its end."""

    def __init__(self, raw: asyncio.Transport, host: str, port: int) -> None:
        super().__init__()
        self._raw = raw
        self._peername = host, port
        for name in _METHODS_OF_TRANSPORTS:  # so that it costs nothing afterwards
            setattr(self, name, getattr(raw, name))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the connection says, but for who is there."""
        return self._peername if name == "peername" else self._raw.get_extra_info(name, default)


_METHODS_OF_TRANSPORTS: Final = (
    "write", "writelines", "write_eof", "can_write_eof", "close", "abort", "is_closing",
    "pause_reading", "resume_reading", "is_reading", "set_protocol", "get_protocol",
    "get_write_buffer_size", "get_write_buffer_limits", "set_write_buffer_limits",
)  # fmt: skip


class Door(asyncio.Protocol):
    """Looks at the first bytes of a connection, again behind a PROXY header and behind TLS.

    Args:
        tls: None: there is none, or we are behind it.
        inner: makes the protocol of a connection that speaks what the port is for, or HTTP/2.
        protocols: those of the port beside remoting; None: only TLS is told from the rest.

    Attributes:
        remote: host:port of the peer.
    """

    def __init__(
        self,
        tls: ServerTls | None,
        inner: Callable[[ConnectionKind], asyncio.Protocol],
        lobby: Lobby,
        protocols: PortProtocols | None = None,
        *,
        inside: bool = False,
    ) -> None:
        self._tls = tls
        self._inner = inner
        self._lobby = lobby
        self._protocols = protocols
        self._settled = inside  # who the peer is: no PROXY header may come any more
        self._inside = inside
        self._raw: asyncio.Transport
        self._host = self.remote = ""
        self._first = b""
        self._shaking = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._read_peer()
        if not self._lobby.closed and self._lobby.admit(self.remote):
            self._lobby.enter(self)
        else:
            self._raw.abort()

    def _read_peer(self) -> None:
        there = self._raw.get_extra_info("peername") or ("", 0)
        self._host, self.remote = there[0], f"{there[0]}:{there[1]}"

    def data_received(self, data: bytes) -> None:
        self._first += data
        while self._first and not (self._raw.is_closing() or self._shaking):
            kind = self._kind()
            if kind is None or (kind is ConnectionKind.PROXY and not self._read_proxy()):
                if self._timer is None:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(FIRST_BYTES_S, self._refuse, "are not whole")
                return
            self._stop_timer()
            if kind is not ConnectionKind.PROXY:
                self._decide(kind)
                return

    def _kind(self) -> ConnectionKind | None:
        if self._protocols is not None:
            kind = kind_of(self._first)
        else:
            kind = ConnectionKind.TLS if self._first[0] == HELLO else ConnectionKind.REMOTING
        if kind is ConnectionKind.TLS and self._tls is None:
            kind = ConnectionKind.REMOTING if self._protocols is None else ConnectionKind.OTHER
        if kind is ConnectionKind.PROXY and self._settled:
            kind = ConnectionKind.OTHER
        return kind

    def _decide(self, kind: ConnectionKind) -> None:
        tls, protocols = self._tls, self._protocols
        if kind is ConnectionKind.TLS:
            assert tls is not None
            self._shaking = True
            self._raw.pause_reading()  # until there is a context
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(HANDSHAKE_S, self._too_late)
            self._lobby.tasks.start("tls-context", self._begin(tls))
        elif tls is not None and tls.mode is TlsMode.ENFORCING:
            self._lobby.noise.warning(
                "plain",
                "connection closed peer=%s: it does not begin with TLS (tls.server.mode=enforcing)",
                self.remote,
            )
            if kind in (
                ConnectionKind.REMOTING,
                ConnectionKind.HTTP2,
            ):  # they would take a word for a broken frame
                self._lobby.stranger(self.remote)
                self._raw.abort()
            else:
                self._part(TLS_ONLY)
        elif kind is ConnectionKind.OTHER:
            self._refuse("are none that is spoken here")
        elif kind is ConnectionKind.HTTP1:
            self._open_http(protocols)
        elif kind is ConnectionKind.HTTP2 and (protocols is None or protocols.http2 is None):
            self._part(_go_away(NO_HTTP2))
        elif (
            kind is ConnectionKind.HTTP2
            and protocols is not None
            and (loading := protocols.load()) is not None
        ):
            self._shaking = True
            self._raw.pause_reading()  # until there is who reads it
            self._lobby.tasks.start("load-http2", self._open_later(loading))
        else:
            self._open(kind)

    def _open(self, kind: ConnectionKind) -> None:
        self._lobby.leave(self)
        self._hand_over(self._inner(kind))

    async def _open_later(self, loading: Awaitable[object]) -> None:
        await loading
        if not self._raw.is_closing():
            self._raw.resume_reading()
            self._open(ConnectionKind.HTTP2)

    def _hand_over(self, inner: asyncio.Protocol) -> None:
        raw, first, self._first = self._raw, self._first, b""
        raw.set_protocol(inner)
        inner.connection_made(raw)
        if not raw.is_closing():
            inner.data_received(first)

    def _open_http(self, protocols: PortProtocols | None) -> None:
        if protocols is None or protocols.pages is None:
            self._refuse("are HTTP/1, which this port does not serve")
        else:  # it stays in the lobby, which counts it and ends it in time
            gone = partial(self._lobby.leave, self)
            from roquette.remoting.http1 import HttpSession  # most ports never need it

            self._hand_over(HttpSession(protocols.pages, is_local(self._host), gone))

    def _read_proxy(self) -> bool:
        """Take a PROXY header; False: it is not whole."""
        assert self._protocols is not None
        try:
            if not any(_address(self._host) in network for network in self._protocols.trusted):
                raise RemoteProtocolError(
                    "a PROXY header from an address that is not in proxyProtocolTrusted"
                )
            header = read_header(self._first)
        except (RemoteProtocolError, ValueError) as error:
            self._lobby.noise.warning(
                "proxy", "connection closed peer=%s error=%s", self.remote, str(error)
            )
            self._part(f"{error}\n".encode())
            return True
        if header is None:
            return False
        self._settled = True
        self._first = self._first[header.size :]
        if header.source is not None:
            self._raw = _Named(self._raw, *header.source)
            self._read_peer()
        return True

    def _refuse(self, what: str) -> None:
        """The first bytes are nothing that is served: say so, and end."""
        first = self._first
        hello = first[0] == HELLO and not self._inside
        self._lobby.noise.warning(
            "first", "connection closed peer=%s: its first bytes %r %s%s",
            self.remote, first[:12], what, " (TLS, which is disabled)" if hello else "",
        )  # fmt: skip
        self._part(NO_TLS if hello else UNKNOWN)

    def _part(self, word: bytes) -> None:
        from roquette.remoting.http1 import part  # see `_open_http`

        self._lobby.stranger(self.remote)
        self._stop_timer()
        self._first = b""
        part(self._raw, word, partial(self._lobby.leave, self))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _behind(self) -> asyncio.Protocol:
        self._lobby.leave(self)
        return Door(None, self._inner, self._lobby, self._protocols, inside=True)

    async def _begin(self, tls: ServerTls) -> None:
        """Begin the handshake, with a context that may have to be made first."""
        raw = self._raw
        try:
            context = await tls.context()
            if (
                self._protocols is None or self._protocols.http2 is None
            ):  # who speaks both is answered
                context.set_alpn_protocols(["http/1.1", "h2"])
            await self._lobby.turn()
            stream = TlsStream(context, self._behind, None, self._lobby.noise, self._shaken)
        except (RoquetteError, OSError, ValueError) as error:
            self._lobby.noise.warning(
                "context", "no TLS for peer=%s: there is no certificate: %s", self.remote, error
            )
            raw.abort()
            return
        if not raw.is_closing():
            raw.set_protocol(stream)
            stream.connection_made(raw)
            first, self._first = self._first, b""
            raw.resume_reading()
            stream.data_received(first)

    def _shaken(self, error: Exception | None) -> None:
        """The handshake is over, well or not."""
        self._lobby.unshaken += error is not None
        self._stop_timer()
        self._lobby.leave(self)

    def _too_late(self) -> None:
        self._lobby.noise.warning(
            "late",
            "connection cut peer=%s: its TLS handshake is not over after %d s",
            self.remote,
            HANDSHAKE_S,
        )
        self.abort()

    def abort(self) -> None:
        """End the connection."""
        self._raw.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._shaken(None)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Raises ValueError: it is no address."""
    found = ipaddress.ip_address(host)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def is_local(host: str) -> bool:
    """Return True when `host` is an address of the loopback."""
    try:
        return _address(host).is_loopback
    except ValueError:
        return False


def _go_away(words: bytes) -> bytes:
    """The whole of an HTTP/2 connection: settings, and the words why there is no more (RFC 9113, section 6.8)."""
    goaway = (0).to_bytes(4, "big") + (0xD).to_bytes(4, "big") + words  # HTTP_1_1_REQUIRED
    return b"\0\0\0\x04\0\0\0\0\0" + len(goaway).to_bytes(3, "big") + b"\x07\0\0\0\0\0" + goaway
