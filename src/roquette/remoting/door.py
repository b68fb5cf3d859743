"""The door of a listening port: looks at the first bytes of each connection, and lets it in as what it is."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.errors import RoquetteError
from roquette.remoting.request import Peer
from roquette.remoting.tls import ServerTls, TlsMode, TlsStream

HELLO: Final = 0x16  # the first byte of TLS: a handshake record (RFC 8446, section 5.1)
HTTP2: Final = b"PRI"  # how its preface begins (RFC 9113, section 3.4)
HANDSHAKE_S: Final = 10.0
AT_ONCE: Final = 8  # handshakes in one turn of the loop; each takes about a millisecond


class Lobby:
    """The connections of a port that have not said what they are, or are in the handshake.

    Args:
        admit: whether a connection (host:port) may come in, which counts it; says why not.
        release: one that was counted has gone, or is counted elsewhere from now on.
        silent_s: how long one may say nothing at all.
    """

    def __init__(
        self,
        admit: Callable[[str], bool],
        release: Callable[[], None],
        noise: RateLimited,
        silent_s: float,
    ) -> None:
        self.admit = admit
        self.noise = noise
        self.tasks = Tasks()
        self._release = release
        self._silent_s = silent_s
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
        """End all."""
        for door in list(self._doors):
            door.abort()
        await self.tasks.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaks:
    """What a port speaks beside the remoting protocol.

    Attributes:
        http2: makes the protocol of an HTTP/2 connection; takes what `PeerProtocol` takes: a number, and what to call
            when its peer is made, and lost.
    """

    http2: (
        Callable[
            [int, Callable[[Peer], None], Callable[[Peer, Exception | None], None]],
            asyncio.Protocol,
        ]
        | None
    ) = None


class Door(asyncio.Protocol):
    """Looks at the first bytes of a connection: TLS, behind which it looks again, or what `inner` makes of them.

    Args:
        tls: None: there is none, or we are behind it.
        inner: makes the protocol of the connection that begins with these bytes.
    """

    def __init__(
        self, tls: ServerTls | None, inner: Callable[[bytes], asyncio.Protocol], lobby: Lobby
    ) -> None:
        self._tls = tls
        self._inner = inner
        self._lobby = lobby
        self._raw: asyncio.Transport
        self._remote = ""
        self._first = b""
        self._shaking = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        there = transport.get_extra_info("peername") or ("", 0)
        self._remote = f"{there[0]}:{there[1]}"
        if self._lobby.admit(self._remote):
            self._lobby.enter(self)
        else:
            self._raw.abort()

    def data_received(self, data: bytes) -> None:
        raw = self._raw
        self._first += data
        if raw.is_closing() or self._shaking:
            return
        first, tls = self._first, self._tls
        if tls is not None and first[0] == HELLO:
            self._shaking = True
            raw.pause_reading()  # until there is a context
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(HANDSHAKE_S, self._too_late)
            self._lobby.tasks.start("tls-context", self._begin(tls))
        elif tls is not None and tls.mode is TlsMode.ENFORCING:
            self._lobby.noise.warning(
                "plain",
                "connection closed peer=%s: it does not begin with TLS (tls.server.mode=enforcing)",
                self._remote,
            )
            raw.abort()
        elif len(first) >= len(HTTP2) or not HTTP2.startswith(first):
            self._lobby.leave(self)
            inner = self._inner(first)
            raw.set_protocol(inner)
            inner.connection_made(raw)
            inner.data_received(first)

    def _behind(self) -> asyncio.Protocol:
        self._lobby.leave(self)
        return Door(None, self._inner, self._lobby)

    async def _begin(self, tls: ServerTls) -> None:
        """Begin the handshake, with a context that may have to be made first."""
        raw = self._raw
        try:
            context = await tls.context()
            await self._lobby.turn()
            stream = TlsStream(context, self._behind, None, self._lobby.noise, self._shaken)
        except (RoquetteError, OSError, ValueError) as error:
            self._lobby.noise.warning(
                "context", "no TLS for peer=%s: there is no certificate: %s", self._remote, error
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
        if self._timer is not None:
            self._timer.cancel()
        self._lobby.leave(self)

    def _too_late(self) -> None:
        self._lobby.noise.warning(
            "late",
            "connection cut peer=%s: its TLS handshake is not over after %d s",
            self._remote,
            HANDSHAKE_S,
        )
        self.abort()

    def abort(self) -> None:
        """End the connection."""
        self._raw.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._shaken(error)
