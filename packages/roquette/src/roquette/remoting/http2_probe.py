"""Probe of another server's port for HTTP/2: ours speak it, the brokers' of Apache close such a connection without a word."""

import asyncio
from typing import Final, cast

from roquette.base.logs import RateLimited
from roquette.errors import Unreachable
from roquette.remoting.client import split_address
from roquette.remoting.door import NO_HTTP2
from roquette.remoting.security import Security
from roquette.remoting.tls import connect

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty SETTINGS
PROBE_S: Final = 1.0


class _Probe(asyncio.Protocol):
    """Says how HTTP/2 begins. Any answer will do: one of our ports without the TLS that it wants says so."""

    transport: asyncio.Transport | None = None

    def __init__(self, answer: "asyncio.Future[bool]") -> None:
        self.answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(PREFACE)

    def data_received(self, data: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result(NO_HTTP2 not in data)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_result(False)


async def speaks_http2(security: Security, noise: RateLimited, address: str) -> bool:
    """Ask the port at an address. Raises ConnectError: nobody answers there."""
    probe = _Probe(asyncio.get_running_loop().create_future())
    try:
        async with asyncio.timeout(PROBE_S):
            await connect(lambda: probe, *split_address(address), security.tls, noise)
            return await probe.answer
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"{address} is not asked for its protocols: {error}") from None
    finally:
        if probe.transport is not None:
            probe.transport.abort()
