"""Whether the port of another server speaks HTTP/2: ours do, the brokers' of Apache close such a connection without a word."""

import asyncio
import logging
from typing import Final, cast

from roquette.base.clock import Clock
from roquette.base.logs import RateLimited
from roquette.errors import RoquetteError
from roquette.remoting.client import split_address
from roquette.remoting.door import NO_HTTP2
from roquette.remoting.security import Security
from roquette.remoting.tls import connect

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty SETTINGS
PROBE_S: Final = 1.0

log = logging.getLogger("roquette.remoting")


class _Probe(asyncio.Protocol):
    """Says how HTTP/2 begins, and waits for any answer: one without TLS that is wanted is told so by ours."""

    def __init__(self, said: "asyncio.Future[bool]") -> None:
        self._said = said

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(PREFACE)

    def data_received(self, data: bytes) -> None:
        self._settle(NO_HTTP2 not in data)
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._settle(False)

    def _settle(self, speaks: bool) -> None:
        if not self._said.done():
            self._said.set_result(speaks)


async def speaks_http2(security: Security, clock: Clock, address: str) -> bool:
    """Ask the port at an address; False also where nobody answers."""
    said: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    probe = _Probe(said)
    try:
        async with asyncio.timeout(PROBE_S):
            noise = RateLimited(log, clock)
            await connect(lambda: probe, split_address(address), security.tls, noise)
            return await said
    except (OSError, TimeoutError, RoquetteError):
        return False
    finally:
        if hasattr(probe, "transport"):
            probe.transport.abort()
