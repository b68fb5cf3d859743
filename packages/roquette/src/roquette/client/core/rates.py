"""Rates at which a consumer pulls and handles each topic, for operators. Pure.

Apache: ConsumerStatsManager, StatsItem: a sample every ten seconds and one every ten minutes, seven of each.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from roquette.wire.bodies import ConsumeStatus

SAMPLE_S: Final = 10.0
_KEPT: Final = 7  # a minute of samples; an hour of the rarer ones
_RARER: Final = 60  # every so many samples one is kept for an hour


class _Sample(NamedTuple):
    """Sums since the consumer began. Times are milliseconds."""

    at_ms: int
    pulls: int
    pull_ms: int
    pulled: int
    calls: int
    call_ms: int
    done: int
    failed: int


class _Topic:
    """The sums of one topic, and what they were."""

    def __init__(self) -> None:
        self.pulls = self.pull_ms = self.pulled = 0
        self.calls = self.call_ms = self.done = self.failed = 0
        self.minute: deque[_Sample] = deque(maxlen=_KEPT)
        self.hour: deque[_Sample] = deque(maxlen=_KEPT)

    def now(self, at_ms: int) -> _Sample:
        return _Sample(
            at_ms,
            self.pulls,
            self.pull_ms,
            self.pulled,
            self.calls,
            self.call_ms,
            self.done,
            self.failed,
        )


class ConsumeRates:
    """Counts per topic; `sample` is called every `SAMPLE_S`.

    Args:
        topics: those the consumer subscribes, that of its retries among them.
    """

    def __init__(self, topics: Iterable[str], now_ms: int) -> None:
        self._topics = {topic: _Topic() for topic in topics}
        self._samples = 0
        self.sample(now_ms)

    def pulled(self, topic: str, count: int, took_ms: int) -> None:
        """A pull brought `count` messages; `took_ms`: with the time the broker held it."""
        sums = self._topics[topic]
        sums.pulls += 1
        sums.pull_ms += took_ms
        sums.pulled += count

    def handled(self, topic: str, done: int, failed: int, took_ms: int) -> None:
        """A call of a handler ended: so many of its messages are done, and so many are not."""
        sums = self._topics[topic]
        sums.calls += 1
        sums.call_ms += took_ms
        sums.done += done
        sums.failed += failed

    def sample(self, now_ms: int) -> None:
        """Remember the sums of now; `now_ms` is of a clock that never goes back."""
        for sums in self._topics.values():
            sample = sums.now(now_ms)
            sums.minute.append(sample)
            if self._samples % _RARER == 0:
                sums.hour.append(sample)
        self._samples += 1

    def status(self, topic: str) -> ConsumeStatus:
        """Rates of the last minute, per second and in milliseconds a call; failures of the last hour, up to now.

        When nothing was handled within the minute, `consume_rt` is that of the hour, as Java's client tells it.
        """
        sums = self._topics[topic]
        first, last = sums.minute[0], sums.minute[-1]
        hour = sums.hour[0]
        seconds = (last.at_ms - first.at_ms) / 1_000
        consume_rt = _mean(last.call_ms - first.call_ms, last.calls - first.calls)
        return ConsumeStatus(
            pull_rt=_mean(last.pull_ms - first.pull_ms, last.pulls - first.pulls),
            pull_tps=_mean(last.pulled - first.pulled, seconds),
            consume_rt=consume_rt or _mean(sums.call_ms - hour.call_ms, sums.calls - hour.calls),
            consume_ok_tps=_mean(last.done - first.done, seconds),
            consume_failed_tps=_mean(last.failed - first.failed, seconds),
            consume_failed_msgs=sums.failed - hour.failed,
        )


def _mean(total: float, number: float) -> float:
    return total / number if number else 0.0
