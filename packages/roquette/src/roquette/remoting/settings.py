"""Settings of a server's ports: its doors, and its metrics under Apache's keys where it has them."""

import dataclasses
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from roquette.base.options import OptionKind, live, matching, option
from roquette.remoting.door import Network, PortProtocols
from roquette.remoting.http_pages import HttpPages
from roquette.remoting.pem import CertificateEnds
from roquette.remoting.request import RequestContext
from roquette.remoting.security import OPEN, Security
from roquette.remoting.tls import ServerTls

# Settings of the doors of a server's ports.


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

    def protocols(self, about: str, guarded: bool) -> PortProtocols:
        """Return the protocols that a port speaks beside remoting.

        Args:
            about: what it is, and how clients are pointed at it.
            guarded: callers are asked who they are.
        """
        pages = HttpPages(about=about, anyone=guarded or self.http_access == "all")
        return PortProtocols(pages=pages, trusted=_networks(self.proxy_protocol_trusted))


# Settings of a server's metrics: under Apache's keys where it has them.


LISTEN: Final = matching(r"([\w.\-]+|\[[0-9a-fA-F:]+\]):\d{1,5}", "HOST:PORT")
PROM: Final = ("PROM", "2")  # MetricsExporterType, by name and by number


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """Settings of /metrics: its address, and how much of it there is at most."""

    metrics_listen: str = option(
        "",
        "HOST:PORT of a port of its own for /metrics, /healthz and /readyz, which answers everybody who reaches it. "
        "Without, every port of the server answers them to this machine.",
        kind=LISTEN,
    )
    metrics_exporter_type: str = option(
        "DISABLE", "PROM, or 2: as metricsListen=metricsPromExporterHost:metricsPromExporterPort."
    )
    metrics_prom_exporter_host: str = option(
        "", "The address of that port; empty: all of the machine's."
    )
    metrics_prom_exporter_port: int = option(5557, "The port.", least=0, most=65_535)
    metrics_per_queue: bool = live(
        False, "Offsets and lags of each queue besides those of each topic."
    )
    metrics_max_series: int = live(
        10_000,
        "Series of one metric from which on others are left out; rocketmq_metrics_series_dropped tells how many.",
        kind=OptionKind(least=1, most=1_000_000),
    )
    metrics_max_samples: int = live(
        30_000,
        "Samples of one scrape; where there are more, metrics of topics and groups are left out, those first that say the "
        "same by another name; rocketmq_metrics_series_dropped tells which.",
        kind=OptionKind(least=1_000, most=10_000_000),
    )

    def metrics_address(self) -> str:
        """HOST:PORT to listen on; "": none."""
        if self.metrics_listen:
            return self.metrics_listen
        if self.metrics_exporter_type.upper() in PROM:
            host = self.metrics_prom_exporter_host or "0.0.0.0"
            return f"{host}:{self.metrics_prom_exporter_port}"
        return ""


# Protection of servers: what they ask of those who call them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Of a server: what its ports ask of callers, and what it says where it calls others itself.

    Attributes:
        tls: of the ports; None: all is plain.
        guard: asked with each request (`Hooks.guard`); None: everybody may do everything.
        calls: of our own calls to other servers.
        door: what the ports take beside RocketMQ's protocols; None: nothing.
        ends: of the certificates that are used.
        ports: further ports of a broker, that serve what its main one does.
        shown: the settings this was made from, under their keys, for operators.
    """

    tls: ServerTls | None = None
    guard: Callable[[RequestContext, Any], None] | None = None
    calls: Security = OPEN
    door: DoorSettings | None = None
    ends: CertificateEnds = field(default_factory=lambda: CertificateEnds({}))
    ports: tuple[int, ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict)


UNPROTECTED: Final = Protection()
