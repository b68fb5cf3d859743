"""A port that serves HTTP pages and nothing else: metrics and health for those who watch servers."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from roquette.base.descriptors import words_of
from roquette.errors import ConfigError
from roquette.remoting.http1 import HttpSession
from roquette.remoting.http_pages import HttpPages

MOST: Final = 32  # connections; of more the one that has asked nothing for longest is closed


class HttpListener:
    """A port over `pages`, for every peer that can reach it.

    Attributes:
        port: the one it listens on; 0 before `start`.
    """

    def __init__(self, pages: HttpPages) -> None:
        self.port = 0
        self._pages = pages
        self._server: asyncio.AbstractServer | None = None
        self._open: dict[
            _Session, None
        ] = {}  # those that wait for a request: in the order of waiting

    async def start(self, address: str, context: ssl.SSLContext | None = None) -> None:
        """Listen on host:port, over TLS with a context; port 0 takes a free one. Raises ConfigError when it cannot."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._session, host.strip("[]"), int(port), ssl=context
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {address}: {words_of(error)}; set another port, or none"
            ) from None
        self.port = int(port)
        for bound in getattr(self._server, "sockets", None) or ():
            self.port = int(bound.getsockname()[1])

    def _session(self) -> asyncio.Protocol:
        session = _Session(self._pages, self._open)
        self._open[session] = None
        return session

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for session in list(self._open):
            session.abort()


@asynccontextmanager
async def served_health(address: str, about: str, ready: Callable[[], str]) -> AsyncIterator[None]:
    """/healthz and /readyz meanwhile, for everybody who reaches host:port; "": nowhere. Raises what `HttpListener.start` does.

    Args:
        ready: why it is not; "": it is.
    """
    if not address:
        yield
        return
    listener = HttpListener(HttpPages(about=about, anyone=True, ready=ready))
    await listener.start(address)
    try:
        yield
    finally:
        await listener.close()


class _Session(HttpSession):
    def __init__(self, pages: HttpPages, others: "dict[_Session, None]") -> None:
        super().__init__(pages, True, lambda: others.pop(self, None))
        self._others = others

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._others) > MOST:
            next((one for one in self._others if one.waits), self).abort()

    def _wait(self) -> None:
        super()._wait()
        if self in self._others:
            del self._others[self]
            self._others[self] = None

    def abort(self) -> None:
        """End the connection."""
        self._transport.abort()
