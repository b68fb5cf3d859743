"""Latency fault tolerance: brokers that were slow or failed are left alone for a while. Pure, off by default."""

from collections.abc import Sequence
from typing import Final

from roquette.client.core.bounds import BROKERS, keep

LATENCY_MS: Final = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_MS: Final = (0, 0, 2000, 5000, 6000, 10000, 30000)
ISOLATED_MS: Final = 10_000  # the latency a failed call counts as


class LatencyTable:
    """Broker name -> until when it is avoided (MQFaultStrategy, LatencyFaultToleranceImpl).

    Args:
        isolates: a broker that did not answer is avoided until it is `reached`, too.
    """

    def __init__(self, *, isolates: bool = False) -> None:
        self._until: dict[str, int] = {}
        self._isolates = isolates
        self._isolated: dict[str, None] = {}

    def record(
        self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool = False
    ) -> None:
        """Take in how long a send took."""
        if not failed:
            self._isolated.pop(broker_name, None)
        elif self._isolates:
            keep(self._isolated, broker_name, None, BROKERS)
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
        """Those not avoided now; else those that are slow, but not isolated; all of them when none is left."""
        reachable = [name for name in broker_names if name not in self._isolated]
        found = [name for name in reachable if self._until.get(name, 0) <= now_ms]
        return found or reachable or list(broker_names)

    def isolated(self) -> list[str]:
        """Brokers that did not answer, and were not reached since."""
        return list(self._isolated)

    def reached(self, broker_name: str) -> None:
        """It answers again."""
        self._isolated.pop(broker_name, None)
