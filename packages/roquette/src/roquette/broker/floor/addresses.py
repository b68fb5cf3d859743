"""A broker's addresses: the address it advertises, and free ports to listen on."""

import asyncio

from roquette.broker.floor.config import BrokerConfig
from roquette.errors import ConfigError
from roquette.message.message_id import host_bytes
from roquette.remoting.address import first_address

PORT_TRIES = 20


def advertised_host(config: BrokerConfig) -> str:
    """The IP address, or the name, that clients get; raises ConfigError."""
    host = config.broker_ip1 or config.bind_address
    if host in {"", "0.0.0.0", "::"}:
        raise ConfigError("brokerIP1 is not set and the bind address is not a specific one")
    return host


async def store_host(host: str, port: int) -> bytes:
    """What records and message ids carry for what is advertised: an IP address, of a name the one it has now.

    Raises:
        ConfigError: it has none.
    """
    try:
        return host_bytes(await first_address(host), port)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"brokerIP1={host!r} is no IP address, and has none, which records and message ids carry: {error}"
        ) from None


async def free_ports(bind: str) -> tuple[int, int]:
    """A free main port and the fast port, two below it; the one above it, for replicas, is free as well."""
    loop = asyncio.get_running_loop()
    for _ in range(PORT_TRIES):
        probes = [await loop.create_server(asyncio.Protocol, bind, 0)]
        port = int(probes[0].sockets[0].getsockname()[1])
        try:
            for other in (port - 2, port + 1):
                probes.append(await loop.create_server(asyncio.Protocol, bind, other))
        except (OSError, OverflowError):
            continue
        finally:
            for probe in probes:
                probe.close()
        return port, port - 2
    raise OSError(f"no free ports with their neighbours on {bind} in {PORT_TRIES} tries")
