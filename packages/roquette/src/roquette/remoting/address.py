"""Address of this machine that others see. Nothing is sent to find it out."""

import asyncio
import socket


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
