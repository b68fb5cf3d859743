"""Connections we open: one per address, shared, reconnected on demand; every call has a deadline."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from roquette.base.clock import Clock
from roquette.base.javatypes import whole_number
from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.errors import ClientClosed, ConnectError, RequestTimeout, Unreachable
from roquette.remoting.dispatcher import Dispatcher, LaneLimits
from roquette.remoting.request import Peer, Row
from roquette.remoting.security import OPEN, Security
from roquette.remoting.tls import TlsRefused, connect
from roquette.remoting.transport import HANG_UP_S, PeerProtocol, cut_stalled, hang_up
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection
from roquette.wire.signature import Signer

log = logging.getLogger("roquette.remoting")

IDLE_S = 120.0  # without traffic for so long a connection is closed


def split_address(address: str) -> tuple[str, int]:
    """ "host:port" -> parts; raises ConnectError when it is not one."""
    host, _, port = address.rpartition(":")
    if not host or whole_number(port, 65_535) < 1:
        raise ConnectError(f"{address!r} is not an address of the form host:port")
    return host.strip("[]"), int(port)


class RemotingClient:
    """Calls to servers by address.

    Args:
        rows: requests that servers may send to us; lane 0 serves them all.
        on_lost: called with the address of every connection that ended.
        local_host: the address we call from (the simulation's host name), or None.
        security: what we say of ourselves on every connection.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        rows: list[Row] | None = None,
        on_lost: Callable[[str], None] | None = None,
        connect_timeout_s: float = 3.0,
        local_host: str | None = None,
        security: Security = OPEN,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._dispatcher = Dispatcher(
            rows or [], [LaneLimits("requests", 10_000)], clock, self._loop, self._tasks
        )
        self._noise = RateLimited(log, clock)
        self._on_lost = on_lost
        self.made: Callable[[str], object] = bool  # called with the address of each new connection
        self._connect_timeout_s = connect_timeout_s
        self._local_host = local_host
        self._tls = security.tls
        self._security = security
        self._peers: dict[str, Peer] = {}
        self._connecting: dict[str, asyncio.Future[Peer]] = {}
        self._next_id = 0
        self._closed = False

    def peer(self, address: str) -> Peer | None:
        """The live connection to `address`, if there is one."""
        peer = self._peers.get(address)
        if peer is None or peer.closed or peer.transport.is_closing():
            return None
        return peer

    async def connect(self, address: str) -> Peer:
        """The connection to `address`, opened if needed; concurrent callers share one attempt.

        Raises:
            ConnectError: the address does not answer, or there is no TLS with who answers.
        """
        peer = self.peer(address)
        if peer is not None:
            return peer
        if self._closed:
            raise ClientClosed("the client is closed")
        attempt = self._connecting.get(address)
        if attempt is None:
            if not len(self._tasks):  # the first one: who never calls has nothing to close
                self._begin()
            attempt = self._loop.create_future()
            self._connecting[address] = attempt
            self._tasks.start(f"connect-{address}", self._open(address, attempt))
        return await asyncio.shield(attempt)

    def _begin(self) -> None:
        self._tasks.every("expire-requests", 0.1, self._expire)
        self._tasks.every("idle-connections", 10.0, self._close_idle)
        self._tasks.every("stalled-servers", 5.0, self._cut_stalled)

    async def _open(self, address: str, attempt: "asyncio.Future[Peer]") -> None:
        try:
            host, port = split_address(address)
            made: list[Peer] = []
            why: list[Exception] = []
            self._next_id += 1

            def lost(peer: Peer, error: Exception | None) -> None:
                if isinstance(error, TlsRefused):
                    why.append(error)
                if self._peers.get(address) is peer:
                    del self._peers[address]
                    if self._on_lost is not None and not self._closed:
                        self._on_lost(address)

            options: dict[str, Any] = (
                {"local_addr": (self._local_host, 0)} if self._local_host else {}
            )
            async with asyncio.timeout(self._connect_timeout_s):
                await connect(
                    lambda: PeerProtocol(
                        self._dispatcher,
                        self._next_id,
                        self._noise,
                        made.append,
                        lost,
                        reads_always=True,
                    ),
                    host,
                    port,
                    self._tls,
                    self._noise,
                    **options,
                )
                while (
                    not made
                ):  # connection_made may be scheduled, not called, when create_connection returns
                    await asyncio.sleep(0)
            if made[0].closed:
                raise why[0] if why else ConnectError("the connection was closed at once")
            wire = made[0].wire
            assert isinstance(wire, WireConnection)
            wire.signer = self._signer(address)
            self._peers[address] = made[0]
            self.made(address)
            if not attempt.done():
                attempt.set_result(made[0])
        except (OSError, TimeoutError, ConnectError) as error:
            if not attempt.done():
                attempt.set_exception(
                    Unreachable(f"connect to {address} failed: {error or type(error).__name__}")
                )
        except asyncio.CancelledError:
            if not attempt.done():
                attempt.set_exception(ClientClosed("the client was closed"))
            raise
        finally:
            if not attempt.done():  # an unexpected error is logged; callers wait for an answer
                attempt.set_exception(Unreachable(f"connect to {address} failed"))
            attempt.exception()  # seen, even when every caller has gone
            self._connecting.pop(address, None)

    def _signer(self, address: str) -> Signer | None:
        """Return the signer of requests to an address."""
        security = self._security
        if security.credentials is None and not security.namespace:
            return None
        prove = partial(security.prover.prove, address) if security.prover else None
        return Signer(security.credentials, security.namespace, prove)

    async def invoke(
        self,
        address: str,
        code: int,
        ext: bytes = b"",
        body: bytes = b"",
        *,
        timeout_ms: int = 3000,
    ) -> Command:
        """Send a request and wait for its answer, whatever its code.

        Raises:
            ConnectError, RequestTimeout, TooManyRequests, ClientClosed
        """
        peer = self.peer(address)
        if peer is None:
            started = self._loop.time()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    peer = await self.connect(address)
            except TimeoutError:
                raise RequestTimeout(f"no connection to {address} within {timeout_ms} ms") from None
            timeout_ms = max(1, timeout_ms - int((self._loop.time() - started) * 1000))
        return await peer.invoke(code, ext, body, timeout_ms)

    async def oneway(self, address: str, code: int, ext: bytes = b"", body: bytes = b"") -> None:
        """Send a request that is not answered; raises ConnectError when there is no connection."""
        peer = self.peer(address) or await self.connect(address)
        peer.notify(code, ext, body)

    def _expire(self) -> None:
        now = self._loop.time()
        for address, peer in self._peers.items():
            if len(peer.pending):
                peer.pending.expire(now, address)

    def _close_idle(self) -> None:
        now = self._loop.time()
        for peer in list(self._peers.values()):
            if now - peer.last_active > IDLE_S and not len(peer.pending):
                hang_up(peer)

    def _cut_stalled(self) -> None:
        cut_stalled(self._dispatcher.limits, self._loop.time(), self._noise)

    def addresses(self) -> list[str]:
        """Return the addresses with an open connection, in the order they were made."""
        return list(self._peers)

    def drop(self, address: str) -> None:
        """Close the connection to `address`, if any (an offline broker)."""
        peer = self._peers.get(address)
        if peer is not None:
            hang_up(peer)

    async def close(self) -> None:
        """Close every connection, when what was written has left; what is in flight fails with ConnectError."""
        self._closed = True
        await asyncio.sleep(0)  # let what was queued in this turn leave
        await self._tasks.stop()
        end_s = self._loop.time() + HANG_UP_S
        while any(map(_writes, self._peers.values())) and self._loop.time() < end_s:
            await asyncio.sleep(0.01)  # the caller's loop may end with us
        for peer in list(self._peers.values()):
            hang_up(peer)
        self._peers.clear()
        await asyncio.sleep(0)


def _writes(peer: Peer) -> bool:
    transport = peer.transport
    return not transport.is_closing() and transport.get_write_buffer_size() > 0
