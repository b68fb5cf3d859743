"""Counters of a broker and their rates over 10 s, 1 min and 10 min. The hot path only adds to ints.

Apache: StoreStatsService, whose texts GET_BROKER_RUNTIME_INFO shows.
"""

from collections import deque

from roquette.base.bounds import Bound, unbounded

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

    def sample(self, steady_ms: int) -> None:
        """Remember the total of this second."""
        self._samples.append((steady_ms, self.total))

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


class Gets:
    """Counts of what pulls found for one group on one topic: messages, bytes, and how often."""

    __slots__ = ("count", "size", "times")

    def __init__(self) -> None:
        self.count: int = 0
        self.size: int = 0
        self.times: int = 0


# Upper bounds in ms of the classes Apache shows (StoreStatsService.PUT_MESSAGE_ENTIRE_TIME_MAX_DESC).
_CLASSES = (
    (0, "<=0ms"), (10, "0~10ms"), (50, "10~50ms"), (100, "50~100ms"), (200, "100~200ms"),
    (500, "200~500ms"), (1000, "500ms~1s"), (2000, "1~2s"), (3000, "2~3s"), (4000, "3~4s"),
    (5000, "4~5s"), (10_000, "5~10s"), (1 << 62, "10s~"),
)  # fmt: skip


class Durations:
    """Times that something took, in whole milliseconds, weighted. The largest stays; the rest is reset
    every minute, and what is shown is the last full minute, or the first while it lasts."""

    __slots__ = ("_current", "_shown", "max_ms")

    def __init__(self) -> None:
        self.max_ms: int = 0
        self._current: dict[int, int] = {}
        self._shown: dict[int, int] | None = None

    def add(self, took_ms: int, count: int) -> None:
        """`count` events took `took_ms` each."""
        self._current[took_ms] = self._current.get(took_ms, 0) + count
        self.max_ms = max(self.max_ms, took_ms)

    def turn(self) -> None:
        """Once a minute."""
        self._shown, self._current = self._current, {}

    def percentile(self, share: float) -> float:
        """The duration that `share` of the events did not exceed; 0 when there were none."""
        shown = self._current if self._shown is None else self._shown
        left = share * sum(shown.values())
        for took_ms in sorted(shown):
            left -= shown[took_ms]
            if left <= 0:
                return float(took_ms)
        return 0.0

    def distribution(self) -> str:
        """Counts by class, as Apache writes them: `[<=0ms]:12 [0~10ms]:3 ...`."""
        shown = self._current if self._shown is None else self._shown
        counts = [0] * len(_CLASSES)
        for took_ms, count in shown.items():
            index = next(i for i, (bound, _) in enumerate(_CLASSES) if took_ms <= bound)
            counts[index] += count
        return " ".join(f"[{name}]:{n}" for (_, name), n in zip(_CLASSES, counts, strict=True))


class BrokerStats:
    """Counters of a broker. `put` and `get` are called once per request, with counts.

    Attributes:
        bound: of the pairs of topic and group in each table; further ones count in the totals alone.
    """

    __slots__ = (
        "_day",
        "_put_times_seen",
        "acks",
        "boot_ms",
        "bound",
        "check_points",
        "deleted_unread",
        "get_durations",
        "get_found",
        "get_messages",
        "get_miss",
        "group_gets",
        "put_bytes",
        "put_durations",
        "put_failed",
        "put_messages",
        "put_times",
        "send_back",
        "send_backs",
        "transferred",
    )

    def __init__(self, boot_ms: int, bound: Bound | None = None) -> None:
        self.boot_ms = boot_ms
        self.bound: Bound = bound or unbounded()
        self.put_times = Counter()
        self.put_messages = Counter()
        self.put_bytes = Counter()
        self.put_failed = Counter()
        self.get_found = Counter()
        self.get_miss = Counter()
        self.get_messages = Counter()
        self.transferred = Counter()
        self.send_back = Counter()
        self.send_backs: dict[tuple[str, str], int] = {}  # by (topic, group)
        self.put_durations = Durations()
        self.get_durations = Durations()
        self.group_gets: dict[tuple[str, str], Gets] = {}  # by (topic, group)
        self.acks: dict[tuple[str, str], int] = {}  # of POP, by (topic, group)
        self.check_points: dict[tuple[str, str], int] = {}
        self.deleted_unread: dict[tuple[str, str], int] = {}  # by (topic, group)
        self._put_times_seen = 0
        self._day = boot_ms // _DAY_MS

    def put(self, count: int, size: int) -> None:
        """One accepted send of `count` messages, `size` bytes of the log (Apache's wroteBytes)."""
        self.put_times.total += 1
        self.put_messages.total += count
        self.put_bytes.total += size

    def put_took(self, took_ms: int) -> None:
        """The sends since the last call were written together, in `took_ms`."""
        count = self.put_times.total - self._put_times_seen
        if count:
            self._put_times_seen = self.put_times.total
            self.put_durations.add(took_ms, count)

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

    def group_get(self, topic: str, group: str, count: int, size: int) -> None:
        """One pull of a group found `count` messages of a topic, `size` bytes."""
        gets = self.group_gets.get((topic, group))
        if gets is None:
            if not self.bound.room(len(self.group_gets)):
                return
            gets = self.group_gets[topic, group] = Gets()
        gets.count += count
        gets.size += size
        gets.times += 1

    def sent_back(self, topic: str, group: str) -> None:
        """A consumer of the group could not process a message of the topic."""
        self.send_back.total += 1
        self._add(self.send_backs, topic, group, 1)

    def _add(self, counts: dict[tuple[str, str], int], topic: str, group: str, count: int) -> None:
        key = (topic, group)
        known = counts.get(key)
        if known is not None or self.bound.room(len(counts)):
            counts[key] = (known or 0) + count

    def acked(self, topic: str, group: str, count: int) -> None:
        """A group acknowledged messages of POP."""
        self._add(self.acks, topic, group, count)

    def checked(self, topic: str, group: str) -> None:
        """A check-point was made for messages of POP."""
        self._add(self.check_points, topic, group, 1)

    def lost(self, topic: str, group: str, count: int) -> None:
        """Messages were deleted that a group had not read."""
        self._add(self.deleted_unread, topic, group, count)

    def forget_topic(self, topic: str) -> None:
        """A topic is deleted."""
        self.acks = {key: n for key, n in self.acks.items() if key[0] != topic}
        self.check_points = {key: n for key, n in self.check_points.items() if key[0] != topic}
        self.group_gets = {key: n for key, n in self.group_gets.items() if key[0] != topic}
        self.send_backs = {key: n for key, n in self.send_backs.items() if key[0] != topic}
        self.deleted_unread = {key: n for key, n in self.deleted_unread.items() if key[0] != topic}

    def forget_group(self, group: str) -> None:
        """A group is deleted."""
        self.acks = {key: n for key, n in self.acks.items() if key[1] != group}
        self.check_points = {key: n for key, n in self.check_points.items() if key[1] != group}
        self.group_gets = {key: n for key, n in self.group_gets.items() if key[1] != group}
        self.send_backs = {key: n for key, n in self.send_backs.items() if key[1] != group}
        self.deleted_unread = {key: n for key, n in self.deleted_unread.items() if key[1] != group}

    def turn_durations(self) -> None:
        """Every minute: what is shown of durations is the minute that ends now."""
        self.put_durations.turn()
        self.get_durations.turn()

    def sample(self, now_ms: int, steady_ms: int) -> None:
        """Once a second: remember totals; at midnight, turn the day."""
        day = now_ms // _DAY_MS
        for counter in self._counters():
            counter.sample(steady_ms)
            if day != self._day:
                counter.yesterday_start = counter.today_start
                counter.today_start = counter.total
        self._day = day
