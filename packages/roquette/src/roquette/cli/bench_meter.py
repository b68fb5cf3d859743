"""What a benchmark counts: messages, bytes, latencies, CPU; and when it has had enough."""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from roquette.base.quantities import counted

_STEPS: Final = 50.0  # buckets of 2 %: a percentile is at most so much too high
_UNKNOWN: Final = -1


class BenchRow(msgspec.Struct, frozen=True):
    """What a benchmark found. Latencies are microseconds; -1: none was measured.

    Attributes:
        action: pub or sub. `bytes`: of bodies. `mb_per_s`: 1,000,000 bytes of bodies a second.
        cpu_s_per_100k: CPU seconds of this process for 100,000 messages.
        error: why it ended early.
    """

    action: str
    topic: str
    clients: int
    messages: int
    bytes: int
    seconds: float
    rate: float
    mb_per_s: float
    latency_p50_us: int
    latency_p99_us: int
    latency_max_us: int
    cpu_s_per_100k: float
    error: str = ""


class FigureRow(msgspec.Struct, frozen=True):
    """One figure of a BenchRow, for people."""

    figure: str
    value: str


class Latencies:
    """Many latencies in bounded memory: percentiles are exact to 2 %."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._count = 0
        self._max_us = _UNKNOWN

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a latency, `times` times."""
        us = max(1, int(seconds * 1e6))
        bucket = int(math.log(us) * _STEPS)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self._count += times
        self._max_us = max(self._max_us, us)

    def percentile(self, share: float) -> int:
        """Microseconds that `share` (0 to 1) of the latencies do not exceed; -1 without any; `percentile(1)` is the highest."""
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= share * self._count and seen < self._count:
                return min(self._max_us, math.ceil(math.exp((bucket + 1) / _STEPS)))
        return self._max_us


class Meter:
    """Counts what a benchmark does until it has done enough.

    Args:
        count: how many messages; 0: no limit.
        duration_s: for how long; 0: no limit.
        rate: how many messages to begin in a second, at most; 0: no limit.
        now: steady time in seconds. `cpu`: CPU seconds of this process.
    """

    def __init__(
        self,
        count: int,
        duration_s: float,
        rate: float,
        now: Callable[[], float],
        cpu: Callable[[], float],
    ) -> None:
        self.now = now
        self.latencies = Latencies()
        self.messages = self.bytes = 0
        self.error: BaseException | None = None
        self._left: float = count or math.inf
        self._begun = self._last = now()
        self._end = self._begun + duration_s if duration_s else math.inf
        self._rate = rate
        self._taken = 0
        self._cpu = cpu
        self._cpu_before = cpu()

    def left_s(self) -> float:
        """How long it may go on; 0: it has had enough."""
        return max(0.0, self._end - self.now()) if self._left else 0.0

    def take(self, most: int = 1) -> int:
        """How many messages may be begun now, of `most`; 0: it has had enough."""
        if not self._left or self.now() >= self._end:
            return 0
        taken = int(min(most, self._left))
        self._left -= taken
        self._taken += taken
        return taken

    def pause_s(self) -> float:
        """How long to wait before what was taken is begun, for the rate's sake."""
        if not self._rate:
            return 0.0
        return min(self._begun + self._taken / self._rate, self._end) - self.now()

    def done(self, messages: int, size: int) -> None:
        """Count messages with `size` bytes of bodies altogether."""
        self.messages += messages
        self.bytes += size
        self._last = self.now()

    def stop(self, error: BaseException | None = None) -> None:
        """Begin nothing more; the first error is kept."""
        self._left = 0
        self.error = self.error or error

    def progress(self) -> str:
        """A line about what was done so far."""
        seconds = max(1e-9, self.now() - self._begun)
        return (
            f"{counted(self.messages, 'message')} in {seconds:.0f} s: "
            f"{self.messages / seconds:.0f}/s, {self.bytes / seconds / 1e6:.2f} MB/s"
        )

    def result(self, action: str, topic: str, clients: int) -> BenchRow:
        """What was found; its time ends with the last message."""
        seconds = max(1e-9, self._last - self._begun)
        cpu = self._cpu() - self._cpu_before
        return BenchRow(
            action,
            topic,
            clients,
            self.messages,
            self.bytes,
            round(seconds, 3),
            round(self.messages / seconds, 1),
            round(self.bytes / seconds / 1e6, 3),
            self.latencies.percentile(0.5),
            self.latencies.percentile(0.99),
            self.latencies.percentile(1),
            round(cpu * 100_000 / self.messages, 2) if self.messages else -1.0,
            str(self.error) if self.error is not None else "",
        )


def figures(row: BenchRow) -> list[FigureRow]:
    """A result one figure a line."""

    def millis(us: int) -> str:
        return "-" if us < 0 else f"{us / 1000:.2f} ms"

    found = [
        FigureRow("messages", f"{row.messages}"),
        FigureRow("time", f"{row.seconds:.2f} s"),
        FigureRow("rate", f"{row.rate:.0f}/s"),
        FigureRow("bodies", f"{row.mb_per_s:.2f} MB/s"),
        FigureRow("latency p50", millis(row.latency_p50_us)),
        FigureRow("latency p99", millis(row.latency_p99_us)),
        FigureRow("latency max", millis(row.latency_max_us)),
    ]
    if row.cpu_s_per_100k >= 0:
        found.append(FigureRow("CPU here per 100,000", f"{row.cpu_s_per_100k:.2f} s"))
    if row.error:
        found.append(FigureRow("ended early", row.error))
    return found
