"""What POP keeps of a broker, behind one door: the waiting requests, the orderly pops, the revive log."""

from collections.abc import Callable, Iterator

from roquette.broker.floor.core import BrokerCore
from roquette.broker.pop.checkpoint import OrderEntry
from roquette.broker.pop.order import OrderTable
from roquette.broker.pop.polling import PollHold, PollTable
from roquette.broker.pop.revive import ReviveLog, Reviver
from roquette.store.format.results import Arrival


class PopState:
    """The parts of POP.

    Attributes:
        polls, notices: pops and notifications that wait.
        locked: (topic, group, queue id) of pops whose records are being read beside the loop.
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
        self.locked: set[tuple[str, str, int]] = set()
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
        """How many requests wait: the test on the way of every message."""
        return len(self.polls) + len(self.notices)

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
        """What is held of a queue has changed: put that on record; returns the log's end after it.

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
