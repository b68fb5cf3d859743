"""The door of a listening port: looks at the first byte of each connection, and lets it in as what it is."""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.errors import RoquetteError
from roquette.remoting.tls import ServerTls, TlsMode, TlsStream

HELLO: Final = 0x16  # the first byte of TLS: a handshake record (RFC 8446, section 5.1)
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
        self._doors: dict[TlsDoor, float] = {}  # since when, loop seconds

    def __len__(self) -> int:
        return len(self._doors)

    def enter(self, door: "TlsDoor") -> None:
        """`door` was admitted."""
        self._doors[door] = asyncio.get_running_loop().time()

    def leave(self, door: "TlsDoor") -> None:
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


class TlsDoor(asyncio.Protocol):
    """Looks at the first byte of a connection: TLS, or, if the mode lets it, what `inner` speaks.

    Args:
        inner: makes the protocol of the connection, or of what is inside TLS.
    """

    def __init__(self, tls: ServerTls, inner: Callable[[], asyncio.Protocol], lobby: Lobby) -> None:
        self._tls = tls
        self._inner = inner
        self._lobby = lobby
        self._raw: asyncio.Transport
        self._remote = ""
        self._first = b""
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
        if raw.is_closing() or self._first:
            self._first += data
        elif data[0] == HELLO:
            self._first = data
            raw.pause_reading()  # until there is a context
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(HANDSHAKE_S, self._too_late)
            self._lobby.tasks.start("tls-context", self._begin())
        elif self._tls.mode is TlsMode.ENFORCING:
            self._lobby.noise.warning(
                "plain",
                "connection closed peer=%s: it does not begin with TLS (tls.server.mode=enforcing)",
                self._remote,
            )
            raw.abort()
        else:
            inner = self._enter()
            raw.set_protocol(inner)
            inner.connection_made(raw)
            inner.data_received(data)

    def _enter(self) -> asyncio.Protocol:
        self._lobby.leave(self)
        return self._inner()

    async def _begin(self) -> None:
        """Begin the handshake, with a context that may have to be made first."""
        raw = self._raw
        try:
            context = await self._tls.context()
            await self._lobby.turn()
            stream = TlsStream(context, self._enter, None, self._lobby.noise, self._shaken)
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
