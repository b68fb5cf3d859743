"""State of POP in a broker, behind one door: the waiting requests, the orderly pops, the revive log."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from roquette.broker.floor.core import BrokerCore
from roquette.broker.pop.checkpoint import OrderEntry
from roquette.broker.pop.order import OrderTable
from roquette.broker.pop.revive import ReviveLog, Reviver
from roquette.remoting.request import RequestContext
from roquette.store.format.results import Arrival
from roquette.store.queue_read import RecordFilter

# Pops and notifications that wait for messages. Pure: arrivals and time come in, due ones go out.
# Apache: PopLongPollingService. A request waits under its topic, group and queue (-1: any queue); each message wakes at most one request of a group under either key.


ANY_QUEUE: Final = -1
_SLACK: Final = 1_000


class PollHold:
    """One waiting request: `job` is run again when a message wakes it or at its deadline."""

    __slots__ = (
        "chosen", "deadline_ms", "done", "entry", "group", "job", "notice", "queue_id", "table", "topic",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        group: str,
        queue_id: int,
        chosen: RecordFilter,
        deadline_ms: int,
        *,
        notice: bool = False,
    ) -> None:
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.chosen = chosen  # which messages are wanted
        self.deadline_ms = deadline_ms
        self.notice = notice  # a notification, not a pop
        self.job: RequestContext | None = None
        self.done = False
        self.table: PollTable | None = None
        self.entry: tuple[int, int, PollHold] | None = None

    def drop(self) -> None:
        """Nobody wants its answer any more: it leaves its table, and no message wakes it."""
        if not self.done and self.table is not None:
            self.table.drop(self)


class PollTable:
    """Waiting requests, at most `capacity` of them and about `per_key` under one key.

    Args:
        last_first: of several under one key, wake the one that may wait longest.
        properties_at: property bytes of the record at a physical offset, of a size.

    Attributes:
        size: how many wait.
    """

    def __init__(
        self,
        capacity: int,
        per_key: int,
        properties_at: Callable[[int, int], bytes],
        *,
        last_first: bool = False,
    ) -> None:
        self._properties_at = properties_at
        self._capacity = capacity
        self._per_key = per_key
        self._last_first = last_first
        self.size = 0
        self._sequence = 0
        # (topic, group) -> queue id -> [(deadline, number, hold)], by deadline
        self._waiting: dict[tuple[str, str], dict[int, list[tuple[int, int, PollHold]]]] = {}
        self._watched: dict[str, dict[str, str]] = {}  # a topic's name -> group -> topic held under
        self._names: dict[tuple[str, str], tuple[str, ...]] = {}  # of a key, those watched
        self._deadlines: list[tuple[int, int, PollHold]] = []

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Return how many wait under one key."""
        return len(self._waiting.get((topic, group), {}).get(queue_id, ()))

    def hold(self, hold: PollHold, retry_topics: tuple[str, ...]) -> bool:
        """Keep a request; False when there are too many (POLLING_FULL).

        Args:
            retry_topics: the group's retry topics, whose messages wake it too.
        """
        if self.size >= self._capacity:
            return False
        if self.count(hold.topic, hold.group, hold.queue_id) > self._per_key:
            return False
        key = (hold.topic, hold.group)
        queues = self._waiting.get(key)
        if queues is None:
            queues = self._waiting[key] = {}
            self._names[key] = (hold.topic, *retry_topics)
            for name in self._names[key]:
                self._watched.setdefault(name, {})[hold.group] = hold.topic
        waiting = queues.setdefault(hold.queue_id, [])
        self._sequence += 1
        entry = (hold.deadline_ms, self._sequence, hold)
        insort(waiting, entry)
        hold.table, hold.entry = self, entry
        heapq.heappush(self._deadlines, entry)
        self.size += 1
        if len(self._deadlines) > 2 * self.size + _SLACK:
            self._deadlines = [old for old in self._deadlines if not old[2].done]
            heapq.heapify(self._deadlines)
        return True

    def on_arrival(self, arrival: Arrival) -> list[PollHold]:
        """A message is in a queue: the requests it wakes."""
        topic = arrival.topic
        groups = self._watched.get(topic)
        if groups is None:
            return []
        due: list[PollHold] = []
        for group, held_under in list(groups.items()):
            if held_under == topic:
                keys = {ANY_QUEUE, arrival.queue_id}
                message: Arrival | None = arrival
            else:  # a retry topic: whichever queue is asked for, its messages are handed out too
                keys, message = set(self._waiting.get((held_under, group), ())), None
            for key in sorted(keys):
                hold = self._wake(held_under, group, key, message)
                if hold is not None:
                    due.append(hold)
        return due

    def wake(self, topic: str, group: str, queue_id: int) -> PollHold | None:
        """One request under a key, whatever it filters by."""
        return self._wake(topic, group, queue_id, None)

    def expire(self, now_ms: int) -> list[PollHold]:
        """The requests whose time is over, oldest deadline first."""
        due: list[PollHold] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            hold = heapq.heappop(self._deadlines)[2]
            if not hold.done:
                self.drop(hold)
                due.append(hold)
        return due

    def drain(self) -> list[PollHold]:
        """Every request: the broker stops."""
        due = [entry[2] for entry in sorted(self._deadlines) if not entry[2].done]
        for hold in due:
            hold.done = True
        self._waiting, self._watched, self._names, self._deadlines = {}, {}, {}, []
        self.size = 0
        return due

    def _wake(
        self, topic: str, group: str, queue_id: int, message: Arrival | None
    ) -> PollHold | None:
        waiting = self._waiting.get((topic, group), {}).get(queue_id)
        if not waiting:
            return None
        hold = waiting[-1 if self._last_first else 0][2]
        if message is not None and not self._wanted(hold.chosen, message):
            return None
        self.drop(hold)
        return hold

    def _wanted(self, chosen: RecordFilter, message: Arrival) -> bool:
        if chosen.predicate is not None:
            where = (message.physical_offset, message.size)
            return chosen.predicate.matches(self._properties_at(*where))
        return chosen.codes is None or int(message.tags_code) in chosen.codes

    def drop(self, hold: PollHold) -> None:
        """A request leaves; what stands in the order of deadlines goes with time."""
        entry = hold.entry
        assert entry is not None, "it does not wait here"
        hold.done = True
        hold.table = hold.entry = None
        self.size -= 1
        key = (hold.topic, hold.group)
        queues = self._waiting[key]
        waiting = queues[hold.queue_id]
        del waiting[bisect_left(waiting, entry)]
        if not queues[hold.queue_id]:
            del queues[hold.queue_id]
        if not queues:
            del self._waiting[key]
            for name in self._names.pop(key):
                groups = self._watched[name]
                del groups[hold.group]
                if not groups:
                    del self._watched[name]


class QueueOfGroup(NamedTuple):
    """A queue as one group pops it."""

    topic: str
    group: str
    queue_id: int


class PopState:
    """The parts of POP.

    Attributes:
        polls, notices: pops and notifications that wait.
        locked: queues of which a pop reads records beside the loop.
        wake: runs one waiting request again, later in this turn of the loop or in the next.
    """

    def __init__(self, core: BrokerCore, wake: Callable[[PollHold], None]) -> None:
        config, bounds = core.live.current, core.live.bounds
        self._topics = core.tables.topics
        self._groups = core.tables.groups
        self.wake = wake
        total, per_key = config.max_pop_polling_size, config.pop_polling_size
        properties_at = core.store.properties_at
        self.polls = PollTable(total, per_key, properties_at)
        self.notices = PollTable(total, per_key, properties_at, last_first=True)
        self.orders = OrderTable(bounds.orderly)
        self.locked: set[QueueOfGroup] = set()
        self.log = ReviveLog(
            core.store,
            core.writer,
            config.broker_cluster_name,
            config.revive_queue_num,
            core.address.store_host,
        )
        self.reviver = Reviver(core, self.log, self.orders)

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return self.polls.size + self.notices.size

    def on_arrivals(self, arrivals: list[Arrival]) -> list[PollHold]:
        """Messages are in their queues: the requests they wake."""
        due: list[PollHold] = []
        for arrival in arrivals:
            due += self.polls.on_arrival(arrival)
            due += self.notices.on_arrival(arrival)
        return due

    def expire(self, now_ms: int) -> list[PollHold]:
        """Requests whose time is over."""
        return self.polls.expire(now_ms) + self.notices.expire(now_ms)

    def freed(self, now_ms: int) -> list[PollHold]:
        """Requests that wait for a queue whose orderly pop is over."""
        due: list[PollHold] = []
        for topic, group, queue_id in self.orders.freed(now_ms):
            due += self.free(topic, group, queue_id)
        return due

    def free(self, topic: str, group: str, queue_id: int) -> list[PollHold]:
        """Requests to run again since a queue may be popped again."""
        found: list[PollHold] = []
        for table in (self.polls, self.notices):
            for key in (-1, queue_id):
                hold = table.wake(topic, group, key)
                if hold is not None:
                    found.append(hold)
        return found

    def another(self, hold: PollHold) -> list[PollHold]:
        """The request that is woken in place of one whose client is gone, if there is one."""
        table = self.notices if hold.notice else self.polls
        found = table.wake(hold.topic, hold.group, hold.queue_id)
        return [] if found is None else [found]

    def log_order(self, topic: str, group: str, queue_id: int, now_ms: int) -> int:
        """Put on record that what is held of a queue has changed; returns the log's end after it.

        Raises:
            Refused: the store does not take messages.
        """
        info = self.orders.find(topic, group, queue_id)
        if info is None:
            return 0
        entry = OrderEntry(topic=topic, group=group, queue_id=queue_id, info=info)
        return self.log.append_order(entry, now_ms)

    def held(self, now_ms: int, steady_ms: int) -> Iterator[tuple[str, int, bool]]:
        """`topic@group`, how many messages are out and not acknowledged, and whether its offset has passed them: a piece
        for each check-point in memory and each queue with an orderly pop."""
        self.reviver.read_on(now_ms, steady_ms)
        for point in self.reviver.in_flight():
            yield f"{point.topic}@{point.group}", len(point.unacknowledged()), True
        for key, count in self.orders.held():
            yield key, count, False

    def drain(self) -> list[PollHold]:
        """Every waiting request: the broker stops."""
        return self.polls.drain() + self.notices.drain()

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted."""
        self.orders.clean(lambda name, group, queue_id: name != topic)

    def forget_group(self, group: str) -> None:
        """A group was deleted."""
        self.orders.clean(lambda topic, name, queue_id: name != group)

    def clean(self, now_ms: int) -> None:
        """Forget orderly pops of what is gone."""
        self.orders.clean(self._alive, now_ms)

    def _alive(self, topic: str, group: str, queue_id: int) -> bool:
        found = self._topics.find(topic)
        return (
            found is not None
            and self._groups.known(group) is not None
            and queue_id < found.read_queues
        )
