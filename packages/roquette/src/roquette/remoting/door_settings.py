"""Settings of the doors of a server's ports."""

import ipaddress
from dataclasses import dataclass

from roquette.base.options import OptionKind, option
from roquette.remoting.door import Network, Speaks
from roquette.remoting.http_pages import HttpPages


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())


def _checked(text: str) -> str:
    _networks(text)
    return text


NETWORKS = OptionKind(
    wanted="addresses or networks as 10.0.0.0/8, separated by commas", parse=_checked
)


@dataclass(slots=True, frozen=True, kw_only=True)
class DoorSettings:
    """Settings of what listening ports take beside RocketMQ's protocols. No request changes one."""

    http_access: str = option(
        "loopback",
        "Who gets an answer over HTTP (/, /healthz, /readyz): loopback, or all. With authentication on: all.",
        choices=("loopback", "all"),
    )
    proxy_protocol_trusted: str = option(
        "",
        "Load balancers whose PROXY headers (v1, v2) say who the client is: addresses or networks, separated by commas. Of others a connection that begins with such a header is closed.",
        kind=NETWORKS,
    )

    def speaks(self, about: str, guarded: bool) -> Speaks:
        """Return the protocols that a port speaks beside remoting.

        Args:
            about: what it is, and how clients are pointed at it.
            guarded: callers are asked who they are.
        """
        pages = HttpPages(about=about, anyone=guarded or self.http_access == "all")
        return Speaks(pages=pages, trusted=_networks(self.proxy_protocol_trusted))
