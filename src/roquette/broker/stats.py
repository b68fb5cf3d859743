"""Counters of a broker and their rates over 10 s, 1 min and 10 min. The hot path only adds to ints.

Apache: StoreStatsService, whose texts GET_BROKER_RUNTIME_INFO shows.
"""

from collections import deque

_WINDOWS_S = (10, 60, 600)
_DAY_MS = 86_400_000


class Counter:
    """A total that only grows, with samples once a second."""

    __slots__ = ("_samples", "today_start", "total", "yesterday_start")

    def __init__(self) -> None:
        self.total: int = 0
        self.yesterday_start: int = 0  # the total at yesterday's midnight
        self.today_start: int = 0
        self._samples: deque[tuple[int, int]] = deque(maxlen=_WINDOWS_S[-1] + 1)

    def sample(self, now_ms: int) -> None:
        """Remember the total of this second."""
        self._samples.append((now_ms, self.total))

    def rate(self, seconds: int) -> float:
        """Events per second over the last `seconds`, or over what is known when that is less."""
        if len(self._samples) < 2:
            return 0.0
        newest = self._samples[-1]
        oldest = self._samples[max(0, len(self._samples) - 1 - seconds)]
        elapsed = newest[0] - oldest[0]
        return (newest[1] - oldest[1]) * 1000 / elapsed if elapsed > 0 else 0.0

    def rates_text(self) -> str:
        """The three rates, separated by blanks, as Java prints doubles."""
        return " ".join(repr(round(self.rate(seconds), 10)) for seconds in _WINDOWS_S)


class BrokerStats:
    """What a broker counts. `put` and `get` are called once per request, with counts."""

    __slots__ = (
        "_day",
        "boot_ms",
        "get_found",
        "get_messages",
        "get_miss",
        "put_bytes",
        "put_failed",
        "put_max_ms",
        "put_messages",
        "put_times",
        "send_back",
        "transferred",
    )

    def __init__(self, boot_ms: int) -> None:
        self.boot_ms = boot_ms
        self.put_times = Counter()
        self.put_messages = Counter()
        self.put_bytes = Counter()
        self.put_failed = Counter()
        self.get_found = Counter()
        self.get_miss = Counter()
        self.get_messages = Counter()
        self.transferred = Counter()
        self.send_back = Counter()
        self.put_max_ms = 0
        self._day = boot_ms // _DAY_MS

    def put(self, count: int, size: int) -> None:
        """One accepted send of `count` messages, `size` bytes of the log (Apache's wroteBytes)."""
        self.put_times.total += 1
        self.put_messages.total += count
        self.put_bytes.total += size

    def get(self, count: int) -> None:
        """One pull that found `count` messages (0: none)."""
        if count:
            self.get_found.total += 1
            self.get_messages.total += count
            self.transferred.total += count
        else:
            self.get_miss.total += 1

    def _counters(self) -> tuple[Counter, ...]:
        return (
            self.put_times,
            self.put_messages,
            self.put_bytes,
            self.put_failed,
            self.get_found,
            self.get_miss,
            self.get_messages,
            self.transferred,
            self.send_back,
        )

    def sample(self, now_ms: int) -> None:
        """Once a second: remember totals; at midnight, turn the day."""
        day = now_ms // _DAY_MS
        for counter in self._counters():
            counter.sample(now_ms)
            if day != self._day:
                counter.yesterday_start = counter.today_start
                counter.today_start = counter.total
        self._day = day
