"""Replication connections: the door of a master, the call of a replica. What is said on them is `wire/ha.py`'s.

Either end closes a connection on which nothing has arrived for so long (haHousekeepingInterval), so either end says
something before (haSendHeartbeatInterval). Nobody logs in: the door listens where the broker does, and nowhere else.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from roquette.base.clock import Clock
from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.errors import ConnectError, RemoteProtocolError
from roquette.remoting.client import split_address
from roquette.remoting.door import Door, Lobby, stop_listening
from roquette.remoting.tls import ClientTls, ServerTls, TlsMode, connect

log = logging.getLogger("roquette.remoting")

MOST_UNSENT: Final = 4 << 20
"""Bytes that wait for one slave; with more, nothing is added (`HaSide.room` says when there is room again)."""

CONNECT_S: Final = 3.0
LEAVE_S: Final = 1.0


class Silence:
    """Limits of silence on a connection, s: after `sign_s` of our own we say something, after `longest_s` of theirs it ends."""

    def __init__(self, heartbeat_ms: int, longest_ms: int) -> None:
        self.sign_s = heartbeat_ms * 0.8 / 1000  # Apache's end looks after 5 s of its own
        self.longest_s = longest_ms / 1000
        self.beat_s = min(1.0, self.sign_s / 4)


class HaSide(Protocol):
    """Broker's end of one replication connection."""

    def received(self, data: bytes) -> None:
        """Bytes have arrived. Raises RemoteProtocolError: they are wrong, the connection is closed with these words."""

    def room(self) -> None:
        """Hear that what waited has been taken: more may be sent."""

    def sign(self) -> None:
        """We have been silent for long: say something."""

    def lost(self) -> None:
        """The connection has ended."""


class HaConnection(asyncio.Protocol):
    """One replication connection.

    Attributes:
        number: of all connections of its door or caller, from 1.
        remote: the other end, host:port. full: too much waits for it.
        taken: bytes that have arrived; sent: bytes that were written.
    """

    def __init__(
        self,
        number: int,
        side: Callable[["HaConnection"], HaSide | None],
        noise: RateLimited,
        ended: Callable[["HaConnection"], None] | None = None,
    ) -> None:
        self.number = number
        self.remote = ""
        self.full = False
        self.taken = self.sent = 0
        self._make_side: Callable[[HaConnection], HaSide | None] = side
        self._side: HaSide | None = None
        self._ended = ended
        self._noise = noise
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._wrote_s = self._loop.time()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        there = transport.get_extra_info("peername") or ("", 0)
        self.remote = f"{there[0]}:{there[1]}"
        self._transport.set_write_buffer_limits(high=MOST_UNSENT)
        self._side = self._make_side(self)
        if self._side is None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._side is None or self._transport.is_closing():
            return
        self._heard_s = self._loop.time()
        self.taken += len(data)
        try:
            self._side.received(data)
        except RemoteProtocolError as error:
            self.close(str(error))

    def send(self, parts: list[bytes]) -> None:
        """Write these parts, in one call."""
        if not self._transport.is_closing():
            self._wrote_s = self._loop.time()
            self.sent += sum(map(len, parts))
            self._transport.writelines(parts)

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if self._side is not None:
            self._side.room()

    def connection_lost(self, error: Exception | None) -> None:
        side, self._side = self._side, None
        if self._ended is not None:
            self._ended(self)
        if side is not None:
            side.lost()

    @property
    def silent_ms(self) -> int:
        """Milliseconds since anything was heard."""
        return int((self._loop.time() - self._heard_s) * 1000)

    @property
    def mute_ms(self) -> int:
        """Milliseconds since anything was said."""
        return int((self._loop.time() - self._wrote_s) * 1000)

    @property
    def closing(self) -> bool:
        """True if it has ended, or is about to."""
        return self._transport.is_closing()

    def close(self, why: str) -> None:
        """End it at once, with one line that says why."""
        if not self._transport.is_closing():
            self._noise.warning(
                "ha", "replication connection closed peer=%s reason=%s", self.remote, why
            )
            self._transport.abort()

    def leave(self) -> None:
        """End it in order: what was sent still goes, if the other end takes it."""
        if not self._transport.is_closing():
            self._transport.close()
            if self._transport.get_write_buffer_size():
                self._loop.call_later(LEAVE_S, self._transport.abort)

    def look(self, silence: Silence) -> None:
        """The beat: end it when the other end is silent, say something when we are."""
        if self._side is None or self._transport.is_closing():
            return
        now_s = self._loop.time()
        if now_s - self._heard_s > silence.longest_s:
            self.close(f"nothing heard for {now_s - self._heard_s:.1f} s")
        elif now_s - self._wrote_s >= silence.sign_s and not self.full:
            self._side.sign()


class HaDoor:
    """Door by which slaves come in.

    Args:
        side: what is done with a connection; called when it is made.
        most: connections beyond it are closed at once.
        tls: how the door takes TLS; None: not at all.
    """

    def __init__(
        self,
        side: Callable[[HaConnection], HaSide],
        silence: Silence,
        clock: Clock,
        *,
        most: int = 64,
        tls: ServerTls | None = None,
    ) -> None:
        self._side = side
        self._silence = silence
        self._most = most
        self._noise = RateLimited(log, clock)
        self._connections: dict[int, HaConnection] = {}
        self._made = 0
        self._tasks = Tasks()
        self._listener: asyncio.AbstractServer | None = None
        self._tls = None if tls is not None and tls.mode is TlsMode.DISABLED else tls
        self._lobby = Lobby(self._has_place, lambda: None, self._noise, silence.longest_s)

    async def open(self, host: str, port: int) -> None:
        """Accept slaves. Raises OSError: the port is taken."""
        loop = asyncio.get_running_loop()
        accept: Callable[[], asyncio.Protocol] = self._accept
        if self._tls is not None:
            accept = partial(Door, self._tls, lambda kind: self._accept(), self._lobby)
        self._listener = await loop.create_server(accept, host, port)
        self._tasks.every("replication-silence", self._silence.beat_s, self._look)

    def _accept(self) -> HaConnection:
        self._made += 1
        return HaConnection(self._made, self._admit, self._noise, self._forget)

    def _has_place(self, remote: str) -> bool:
        if len(self._connections) + len(self._lobby) < self._most:
            return True
        self._noise.warning(
            "full",
            "replication connection refused peer=%s: %d are open, the most there may be",
            remote,
            self._most,
        )
        return False

    def _admit(self, connection: HaConnection) -> HaSide | None:
        if not self._has_place(connection.remote):
            return None
        self._connections[connection.number] = connection
        return self._side(connection)

    def _forget(self, connection: HaConnection) -> None:
        self._connections.pop(connection.number, None)

    def _look(self) -> None:
        self._lobby.look()
        for connection in list(self._connections.values()):
            connection.look(self._silence)

    async def close(self) -> None:
        """Accept nobody any more, end all connections."""
        if self._listener is not None:
            await stop_listening([self._listener])
        for connection in list(self._connections.values()):
            connection.leave()
        await self._lobby.close()
        await self._tasks.stop()


async def call_master(
    address: str,
    side: Callable[[HaConnection], HaSide],
    clock: Clock,
    *,
    number: int = 1,
    tls: ClientTls | None = None,
) -> HaConnection:
    """A connection to a master's door; the caller looks after its silence (`HaConnection.look`).

    Raises:
        ConnectError: nobody answers there, or there is no TLS with who answers.
    """
    noise = RateLimited(log, clock)
    made = HaConnection(number, side, noise)
    try:
        async with asyncio.timeout(CONNECT_S):
            await connect(lambda: made, *split_address(address), tls, noise)
    except (OSError, TimeoutError) as error:
        raise ConnectError(f"connect to {address} failed: {error or 'no answer'}") from None
    return made
