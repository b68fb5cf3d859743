"""Log set-up for our processes, and a brake for lines that repeat."""

import logging
import sys
from typing import TextIO

from roquette.base.clock import Clock


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send everything under `roquette` to `stream` (stderr): time, level, logger, key=value text."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger("roquette")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


class RateLimited:
    """Lets one line per key pass in each interval and counts the rest; keys are bounded."""

    def __init__(
        self, logger: logging.Logger, clock: Clock, interval_ms: int = 10_000, keys: int = 1_000
    ) -> None:
        self._log = logger
        self._clock = clock
        self._interval_ms = interval_ms
        self._keys = keys
        self._seen: dict[str, list[int]] = {}  # key -> [last shown ms, suppressed since]

    def warning(self, key: str, message: str, *args: object) -> None:
        """Log `message` unless a line of the same `key` passed within the interval."""
        now = self._clock.steady_ms()
        entry = self._seen.get(key)
        if entry is not None and now - entry[0] < self._interval_ms:
            entry[1] += 1
            return
        if entry is None and len(self._seen) >= self._keys:
            self._seen.clear()
        suppressed = entry[1] if entry else 0
        self._seen[key] = [now, 0]
        if suppressed:
            message += " (and %d more like it)"
            args = (*args, suppressed)
        self._log.warning(message, *args)
