"""Latency fault tolerance: brokers that were slow or failed are left alone for a while. Pure, off by default."""

from collections.abc import Sequence
from typing import Final

from roquette.client.core.bounds import BROKERS, keep

LATENCY_MS: Final = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_MS: Final = (0, 0, 2000, 5000, 6000, 10000, 30000)
ISOLATED_MS: Final = 10_000  # the latency a failed call counts as


class LatencyTable:
    """Broker name -> until when it is avoided (MQFaultStrategy, LatencyFaultToleranceImpl)."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}

    def record(
        self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool = False
    ) -> None:
        """Take in how long a send took."""
        took = ISOLATED_MS if failed else latency_ms
        pause = 0
        for limit, wait in zip(LATENCY_MS, NOT_AVAILABLE_MS, strict=True):
            if took >= limit:
                pause = wait
        if pause:
            keep(self._until, broker_name, now_ms + pause, BROKERS)
        else:
            self._until.pop(broker_name, None)

    def available(self, broker_names: Sequence[str], now_ms: int) -> list[str]:
        """Those not avoided now; all of them when none is left."""
        found = [name for name in broker_names if self._until.get(name, 0) <= now_ms]
        return found or list(broker_names)
