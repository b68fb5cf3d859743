"""What a scrape is made of: one row a topic, and one a group of a topic. Collected in slices."""

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple

from roquette.base.metric_families import escaped
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.tables.topics import Topic
from roquette.message.message import unread
from roquette.message.names import DLQ_PREFIX, RETRY_PREFIX, TOOLS_CONSUMER_GROUP
from roquette.store.message_store import MessageStore

# How old what a group takes is, without a look at the log: from the ends that topics had at earlier times. Pure.


KEPT: Final = 32  # times of a topic; when there are more, every second one goes, and later ones are further apart
TOPICS: Final = 10_000  # that are watched


class LagTimes:
    """Ends of topics (all queues added up) at times of the past, steady ms."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[list[int], list[int]]] = {}  # topic -> ends, times; both grow

    def __len__(self) -> int:
        return len(self._ends)

    def note(self, topic: str, end: int, now_ms: int) -> None:
        """A topic ends here now."""
        known = self._ends.get(topic)
        if known is None:
            if len(self._ends) < TOPICS:
                self._ends[topic] = ([end], [now_ms])
            return
        ends, times = known
        if end < ends[-1]:  # its queues were made again
            self._ends[topic] = ([end], [now_ms])
        if end <= ends[-1]:
            return
        ends.append(end)
        times.append(now_ms)
        if len(ends) > KEPT:
            del ends[1:-1:2]
            del times[1:-1:2]

    def behind_ms(self, topic: str, consumed: int, end: int, now_ms: int) -> int | None:
        """For how long, about, what follows the first `consumed` messages has been there; 0 when there is none.

        Less than it really is by at most the distance of two looks that are kept. None: nothing is known of the topic.
        """
        if consumed >= end:
            return 0
        known = self._ends.get(topic)
        if known is None:
            return None
        ends, times = known
        at = bisect_right(ends, consumed)  # the first look that saw it
        return 0 if at == len(ends) else max(0, now_ms - times[at])

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        self._ends.pop(topic, None)


AT_ONCE: Final = 500  # queues of one slice


Popped = Callable[[int, int], Iterator[tuple[str, int, bool]]]


def queues_of(store: MessageStore, topic: Topic) -> list[int]:
    """Ids of a topic's queues, those among them that it had once: their sums only grow."""
    return sorted({*range(topic.queue_limit), *store.queues_of(topic.name)})


class TopicSample(NamedTuple):
    """A topic. `text` is its name as a label has it; `ends` where its queues end, `end` all of them added up."""

    topic: Topic
    text: str
    system: str
    end: int
    ends: list[tuple[int, int]]


class GroupSample(NamedTuple):
    """A group of a topic: offsets and lags of all queues added up.

    Attributes:
        inflight: messages that members have, pulled or popped. passed: those of them that are behind the offset, popped.
        latency_ms: None: nothing is known.
        queues: queue id, committed offset, lag; empty unless asked for.
    """

    topic: str
    group: str
    topic_text: str
    group_text: str
    retry: str
    system: str
    committed: int
    lag: int
    inflight: int
    passed: int
    latency_ms: int | None
    queues: list[tuple[int, int, int]]


class ScrapeRows:
    """The rows of one scrape; what comes while they are collected may be missed.

    Args:
        most: topics, and pairs of topic and group, that get a row; `dropped` counts the others.
        popped: what POP has handed out, see `PopState.held`.
    """

    def __init__(
        self,
        core: BrokerCore,
        is_system: Callable[[str], bool],
        times: LagTimes,
        most: int,
        popped: Popped,
    ) -> None:
        self._core = core
        self._is_system = is_system
        self._times = times
        self._most = most
        self._popped = popped
        # topic@group -> popped messages, and those behind the offset
        self._out: dict[str, tuple[int, int]] = {}
        self._each = core.live.current.metrics_per_queue
        self.topics: list[TopicSample] = []
        self.groups: list[GroupSample] = []
        self.dropped_topics = 0
        self._ends: dict[str, int] = {}  # of topics that have a row
        self._looked = 0  # queues, in this slice
        self.dropped_groups = 0

    def collect(self) -> Iterator[None]:
        """Each step is a slice."""
        for part in (self._collect_topics(), self._collect_popped(), self._collect_groups()):
            yield from part
            self._looked = 0
            yield

    def _collect_topics(self) -> Iterator[None]:
        store = self._core.store
        for topic in self._core.tables.topics.all():
            if len(self.topics) >= self._most:
                self.dropped_topics += 1
                continue
            end, ends, name = 0, [], topic.name
            for queue in queues_of(store, topic):
                last = store.max_offset(name, queue)
                end += last
                if self._each:
                    ends.append((queue, last))
                self._looked += 1
                if self._looked >= AT_ONCE:
                    self._looked = 0
                    yield
            system = "true" if self._is_system(name) else "false"
            self.topics.append(TopicSample(topic, escaped(name), system, end, ends))
            self._ends[name] = end

    def _collect_popped(self) -> Iterator[None]:
        clock = self._core.clock
        held = self._popped(clock.now_ms(), clock.steady_ms())
        for number, (key, count, passed) in enumerate(held, 1):
            known, behind = self._out.get(key, (0, 0))
            self._out[key] = known + count, behind + (count if passed else 0)
            if number % AT_ONCE == 0:
                yield

    def _collect_groups(self) -> Iterator[None]:
        keys = self._core.tables.offsets.keys()
        for key in keys:
            if len(self.groups) >= self._most:
                self.dropped_groups += 1
                continue
            topic, _, group = key.partition("@")
            if group == TOOLS_CONSUMER_GROUP:  # what tools note is nobody's progress
                continue
            if (found := self._core.tables.topics.find(topic)) is not None:
                self.groups.append((yield from self._group(found, group)))
            self._looked += 1

    def _group(self, topic: Topic, group: str) -> Generator[None, None, GroupSample]:
        store, offsets, name = self._core.store, self._core.tables.offsets, topic.name
        committed = lag = inflight = 0
        queues: list[tuple[int, int, int]] = []
        places = offsets.of_topic(group, name)
        for queue in queues_of(store, topic):
            place, last = places.get(queue), store.max_offset(name, queue)
            behind = unread(place, store.min_offset(name, queue), last)
            offset = place or 0
            pulled = min(last, offsets.query_pull(group, name, queue))
            committed += offset
            lag += behind
            inflight += 0 if place is None else max(0, pulled - place)
            if self._each:
                queues.append((queue, offset, behind))
            self._looked += 1
            if self._looked >= AT_ONCE:
                self._looked = 0
                yield
        popped, passed = self._out.get(f"{name}@{group}", (0, 0))
        end = self._ends.get(name, committed + lag)
        now_ms = self._core.clock.steady_ms()
        return GroupSample(
            topic=name,
            group=group,
            topic_text=escaped(name),
            group_text=escaped(group),
            retry="true" if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) else "false",
            system="true" if self._is_system(name) else "false",
            committed=committed,
            lag=lag,
            inflight=inflight + popped,
            passed=passed,
            latency_ms=self._times.behind_ms(name, end - lag, end, now_ms),
            queues=queues,
        )
