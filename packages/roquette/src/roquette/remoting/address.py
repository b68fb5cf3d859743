"""Address of this machine that others see. Nothing is sent to find it out."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final


def local_address() -> str:
    """This machine's first address; loopback when it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address: asks for the route only
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


async def addresses_of(name: str, port: int) -> list[str]:
    """Each address of a name, as "host:port"; raises OSError when it has none."""
    loop = asyncio.get_running_loop()
    answers = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    hosts = dict.fromkeys(str(answer[4][0]) for answer in answers)
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts]


async def first_address(name: str) -> str:
    """The first address of a name, IPv4 before IPv6, without a port; raises OSError when it has none."""
    found = await addresses_of(name.strip("[]"), 0)
    hosts = [address.rpartition(":")[0].strip("[]") for address in found]
    return min(hosts, key=lambda host: ":" in host)


def host_name() -> str:
    """The machine's name: the default broker name, as in Apache."""
    return socket.gethostname() or "DEFAULT_BROKER"


# Hosts of this process alone: who connects to one of them needs no socket.


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


Listener = socket.socket
"""A socket that listens."""


def listening_socket(host: str, port: int) -> Listener:
    """A socket that listens, for a server of another library; port 0 takes a free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)
