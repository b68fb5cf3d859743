"""Counts of the timer messages that wait, by real topic (Apache: TimerMetrics, config/timermetrics)."""

from roquette.base.bounds import Bound, unbounded
from roquette.wire.bodies import DataVersion, TimerMetric, TimerMetricsSerializeWrapper


class TimerMetrics:
    """Counts that may be off by what a crash took; the wheel itself never counts on them.

    Attributes:
        bound: of the topics; when it is reached, those without messages go, and then none is added.
    """

    def __init__(self, now_ms: int) -> None:
        self.bound: Bound = unbounded()
        self._topics: dict[str, TimerMetric] = {}
        self._idle: dict[str, None] = {}  # topics without messages
        self._version = DataVersion(counter=0, state_version=0, timestamp=now_ms)
        self.dirty = False

    def add(self, topic: str, change: int, now_ms: int) -> None:
        """`change` more messages of a topic wait."""
        found = self._topics.get(topic)
        if found is None:
            if self._idle and len(self._topics) >= self.bound.most:
                self.forget(next(iter(self._idle)))
            if not self.bound.room(len(self._topics)):
                return
            found = self._topics[topic] = TimerMetric()
        found.count += change
        if found.count > 0:
            self._idle.pop(topic, None)
        else:
            self._idle[topic] = None
        found.time_stamp = now_ms
        self.dirty = True

    def forget(self, topic: str) -> None:
        """A topic is deleted (removeTimingCount)."""
        self._idle.pop(topic, None)
        if self._topics.pop(topic, None) is not None:
            self.dirty = True

    def waiting(self) -> list[tuple[str, int]]:
        """Topics that have messages that wait, and how many."""
        return [(topic, each.count) for topic, each in self._topics.items() if each.count > 0]

    def load(self, wrapper: TimerMetricsSerializeWrapper) -> None:
        """Take over what the file held."""
        self._topics = dict(wrapper.timing_count)
        self._idle = {name: None for name, one in self._topics.items() if one.count <= 0}
        self._version = wrapper.data_version

    def to_wrapper(self, now_ms: int) -> TimerMetricsSerializeWrapper:
        """The shape of the file and of GET_TIMER_METRICS."""
        if self.dirty:
            self._version = self._version.next(now_ms)
        return TimerMetricsSerializeWrapper(timing_count=self._topics, data_version=self._version)
