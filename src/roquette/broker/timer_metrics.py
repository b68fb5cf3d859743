"""How many timer messages wait, by real topic (Apache: TimerMetrics, config/timermetrics)."""

from typing import Final

from roquette.wire.bodies import DataVersion, TimerMetric, TimerMetricsSerializeWrapper

FILE: Final = "timermetrics"
_TOPICS: Final = 10_000  # beyond so many, topics without messages are forgotten


class TimerMetrics:
    """Counts that may be off by what a crash took; the wheel itself never counts on them."""

    def __init__(self, now_ms: int) -> None:
        self._topics: dict[str, TimerMetric] = {}
        self._version = DataVersion(counter=0, state_version=0, timestamp=now_ms)
        self.dirty = False

    def add(self, topic: str, change: int, now_ms: int) -> None:
        """`change` more messages of a topic wait."""
        found = self._topics.get(topic)
        if found is None:
            if len(self._topics) >= _TOPICS:
                self._topics = {name: one for name, one in self._topics.items() if one.count > 0}
            found = self._topics[topic] = TimerMetric()
        found.count += change
        found.time_stamp = now_ms
        self.dirty = True

    def forget(self, topic: str) -> None:
        """A topic is deleted (removeTimingCount)."""
        if self._topics.pop(topic, None) is not None:
            self.dirty = True

    def load(self, wrapper: TimerMetricsSerializeWrapper) -> None:
        """Take over what the file held."""
        self._topics = dict(wrapper.timing_count)
        self._version = wrapper.data_version

    def to_wrapper(self, now_ms: int) -> TimerMetricsSerializeWrapper:
        """The shape of the file and of GET_TIMER_METRICS."""
        if self.dirty:
            self._version = self._version.next(now_ms)
        return TimerMetricsSerializeWrapper(timing_count=self._topics, data_version=self._version)
