"""Hosts of this process alone: who connects to one of them needs no socket."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any, Final

Connector = Callable[[Callable[[], asyncio.Protocol], int], Awaitable[asyncio.Transport]]
"""Takes what makes the caller's protocol, and a port; raises OSError when nobody listens there."""

HOSTS: Final[dict[str, Connector]] = {}
"""By address. Only the test kit enters any."""


async def open_connection(
    factory: Callable[[], asyncio.Protocol], host: str, port: int, **options: Any
) -> asyncio.Transport:
    """Connect to a host: one of this process, or with a socket. Raises OSError.

    Where nobody listens on a port of this machine the system may connect it with itself, when it draws that port for the
    caller's end: who tries a thousand times a second meets that. Such a connection answers nothing, for ever.
    """
    connector = HOSTS.get(host)
    if connector is not None:
        return await connector(factory, port)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(factory, host, port, **options)
    here = transport.get_extra_info("sockname")
    if here is not None and here == transport.get_extra_info("peername"):
        transport.abort()
        raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {host}:{port}")
    return transport
