"""Settings of a server's metrics: under Apache's keys where it has them."""

import dataclasses
from typing import Final

from roquette.base.options import OptionKind, live, matching, option

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
