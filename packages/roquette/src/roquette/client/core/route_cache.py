"""From a topic's route to queues: which may be written, which read, and where their brokers are. Pure. HOT."""

from collections.abc import Container, Iterable, Sequence
from typing import Final, TypeVar

from roquette.base.javatypes import java_hash
from roquette.errors import BrokerError, ClientClosed, ClientError, RemoteProtocolError, Unreachable
from roquette.message.message import MessageQueue
from roquette.message.names import PERM_READ, PERM_WRITE
from roquette.wire.bodies import MASTER_ID, TopicRouteData, canonical
from roquette.wire.codes import ResponseCode

# Every table of the client whose keys applications or servers choose has its bound here. All are caches: the entry that came first goes, and is asked for again when it is wanted.


TOPICS: Final = 10_000  # topics whose route is kept, and the turn of their queues; queues whose headers are half encoded
BROKERS = 10_000  # brokers that are avoided for a while
QUEUES: Final = 1_000_000  # of one topic, on all brokers: a list of them is 120 MB

K = TypeVar("K")
V = TypeVar("V")


def keep(table: dict[K, V], key: K, value: V, most: int, stays: Container[K] = ()) -> None:
    """Set an entry of a table that has `most` at most: the oldest goes that is not in `stays`."""
    if key not in table:
        for _ in range(len(table)):
            if len(table) < most:
                break
            oldest = next(iter(table))
            old = table.pop(oldest)
            if oldest in stays:
                table[oldest] = old  # now the youngest
    table[key] = value


def check_queues(topic: str, counts: Iterable[int]) -> None:
    """Raise RemoteProtocolError when a route names more queues than any topic has."""
    total = sum(max(0, count) for count in counts)
    if total > QUEUES:
        raise RemoteProtocolError(
            f"the route of topic {topic} names {total} queues, more than {QUEUES}: look at what the name servers "
            "hold of it (topicRoute, and its order configuration)"
        )


class TopicRoute:
    """One topic's route, worked out once per change (MQClientInstance.topicRouteData2Topic*Info).

    Raises:
        RemoteProtocolError: it names more queues than any topic has.

    Attributes:
        publish: queues that take messages: their broker has a master and write permission.
        subscribe: queues that can be read, sorted.
        addresses: broker name -> broker id -> address.
    """

    __slots__ = ("addresses", "data", "ordered", "publish", "subscribe", "topic")

    def __init__(self, topic: str, data: TopicRouteData) -> None:
        self.topic = topic
        self.data = data
        self.addresses = {
            broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas
        }
        self.ordered = bool(data.order_topic_conf)
        check_queues(topic, (queue.write_queue_nums for queue in data.queue_datas))
        check_queues(topic, (queue.read_queue_nums for queue in data.queue_datas))
        self.publish = self._ordered_queues() if data.order_topic_conf else self._writable()
        self.subscribe = sorted(
            MessageQueue(topic, queue.broker_name, number)
            for queue in data.queue_datas
            if queue.perm & PERM_READ
            for number in range(queue.read_queue_nums)
        )

    def _writable(self) -> list[MessageQueue]:
        return [
            MessageQueue(self.topic, queue.broker_name, number)
            for queue in sorted(self.data.queue_datas, key=lambda q: q.broker_name)
            if queue.perm & PERM_WRITE and MASTER_ID in self.addresses.get(queue.broker_name, {})
            for number in range(queue.write_queue_nums)
        ]

    def _ordered_queues(self) -> list[MessageQueue]:
        """orderTopicConf `broker:count;broker:count` replaces the queues of the route."""
        counts: list[tuple[str, int]] = []
        for word in (self.data.order_topic_conf or "").split(";"):
            name, _, count = word.partition(":")
            if name and count.isdecimal():
                counts.append((name, int(count[:19])))
        check_queues(self.topic, (count for _, count in counts))
        return ordered_queues(self.topic, counts)

    def master_of(self, broker_name: str) -> str | None:
        """Address of a broker name's master, if it has one."""
        return self.addresses.get(broker_name, {}).get(MASTER_ID)

    def address_for_read(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """Address of the wanted member, else of any other."""
        members = self.addresses.get(broker_name)
        if not members:
            return None
        return members.get(broker_id) or members[min(members)]

    def has_replicas(self, broker_name: str) -> bool:
        """Return True when another member of a broker name may become, or becomes now, its master."""
        members = self.addresses.get(broker_name, {})
        return len(members) > 1 or (bool(members) and MASTER_ID not in members)

    def replica_of(self, broker_name: str) -> int:
        """The smallest id of a member that is not the master; the master's when there is none."""
        return min((i for i in self.addresses.get(broker_name, {}) if i), default=MASTER_ID)

    def names_other_master(self, known: "TopicRoute | None") -> bool:
        """Return True when the route names a master that `known` does not."""
        return known is None or any(
            master is not None and master != known.master_of(name)
            for name, master in ((name, self.master_of(name)) for name in self.addresses)
        )

    def same_as(self, other: "TopicRoute") -> bool:
        """True when both say the same, whatever the order of their parts."""
        return canonical(self.data) == canonical(other.data)


def ordered_queues(topic: str, counts: Sequence[tuple[str, int]]) -> list[MessageQueue]:
    """Queues 0 .. count-1 of each broker, in the given order: a list that no change of the route changes."""
    return [MessageQueue(topic, name, number) for name, count in counts for number in range(count)]


def route_from_template(topic: str, template: TopicRouteData, default_queues: int) -> TopicRoute:
    """The route of a topic that does not exist yet: TBW102's, with at most `default_queues` queues (document A)."""
    queues = [
        type(queue)(
            broker_name=queue.broker_name,
            read_queue_nums=min(default_queues, queue.read_queue_nums),
            write_queue_nums=min(default_queues, queue.write_queue_nums),
            perm=queue.perm,
            topic_sys_flag=queue.topic_sys_flag,
        )
        for queue in template.queue_datas
    ]
    return TopicRoute(topic, TopicRouteData(queue_datas=queues, broker_datas=template.broker_datas))


# Choice of the queue that the next message goes to. Pure.


class RoundRobin:
    """One after the other; on a retry, another broker than the one that failed (TopicPublishInfo)."""

    __slots__ = ("_next",)

    def __init__(self, start: int = 0) -> None:
        self._next: int = start

    def pick(self, queues: Sequence[MessageQueue], avoid_broker: str | None = None) -> MessageQueue:
        """The next queue; `queues` is not empty."""
        count = len(queues)
        if avoid_broker is None:
            self._next += 1
            return queues[self._next % count]
        for _ in range(count):
            self._next += 1
            queue = queues[self._next % count]
            if queue.broker_name != avoid_broker:
                return queue
        return self.pick(queues)


def by_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Messages of one key share a queue (SelectMessageQueueByHash)."""
    return queues[abs(java_hash(key)) % len(queues)]


class KeysPart(Exception):
    """Keys that were to share a queue do not share one of `queues`; nothing was sent to them."""

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        super().__init__(queues)
        self.queues = queues


def shares(
    queues: Sequence[MessageQueue], keys: Sequence[str], places: Iterable[int]
) -> list[list[int]]:
    """The places of keys, those of each queue together and in order; those without a key, "", are a share of their own."""
    found: dict[MessageQueue | None, list[int]] = {}
    for place in places:
        key = keys[place]
        found.setdefault(by_key(queues, key) if key else None, []).append(place)
    return list(found.values())


def by_keys(queues: Sequence[MessageQueue], keys: Iterable[str]) -> MessageQueue:
    """The one queue of all these keys; raises KeysPart."""
    named = list(keys)
    if len(shares(queues, named, range(len(named)))) > 1:
        raise KeysPart(queues)
    return by_key(queues, named[0])


# Latency fault tolerance: brokers that were slow or failed are left alone for a while. Pure, off by default.


LATENCY_MS: Final = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_MS: Final = (0, 0, 2000, 5000, 6000, 10000, 30000)
ISOLATED_MS: Final = 10_000  # the latency a failed call counts as


class LatencyTable:
    """Broker name -> until when it is avoided (MQFaultStrategy, LatencyFaultToleranceImpl).

    Args:
        isolates: a broker that did not answer is avoided until it is `reached`, too.
    """

    def __init__(self, *, isolates: bool = False) -> None:
        self._until: dict[str, int] = {}
        self._isolates = isolates
        self._isolated: dict[str, None] = {}

    def record(
        self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool = False
    ) -> None:
        """Take in how long a send took."""
        if not failed:
            self._isolated.pop(broker_name, None)
        elif self._isolates:
            keep(self._isolated, broker_name, None, BROKERS)
        took = ISOLATED_MS if failed else latency_ms
        pause = 0
        for limit, wait in zip(LATENCY_MS, NOT_AVAILABLE_MS, strict=True):
            if took >= limit:
                pause = wait
        if pause:
            keep(self._until, broker_name, now_ms + pause, BROKERS)
        else:
            self._until.pop(broker_name, None)

    def available(self, broker_names: Sequence[str], now_ms: int) -> list[str]:
        """Those not avoided now; else those that are slow, but not isolated; all of them when none is left."""
        reachable = [name for name in broker_names if name not in self._isolated]
        found = [name for name in reachable if self._until.get(name, 0) <= now_ms]
        return found or reachable or list(broker_names)

    def isolated(self) -> list[str]:
        """Brokers that did not answer, and were not reached since."""
        return list(self._isolated)

    def reached(self, broker_name: str) -> None:
        """It answers again."""
        self._isolated.pop(broker_name, None)


# Policy after a failed send: another broker, a fresh route, or an end. Pure.


RETRY_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Answers after which Java's producer tries another broker (DefaultMQProducer.retryResponseCodes)."""

STALE_ROUTE_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.GO_AWAY,
    }
)

_NO_MASTER_CODES: Final = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
    }
)
_PAUSE_MS: Final = 50
_PAUSE_MAX_MS: Final = 400  # a broker that is back is found so soon
PAUSE_LEAST_MS: Final = 20
_NO_MASTER_WORDS: Final = ("slave", "the master is ", "no master is known", "not the master")


def broker_error(code: int, remark: str | None, address: str) -> BrokerError:
    """The error an answer means, with its two flags."""
    return BrokerError(
        code,
        remark or "",
        address=address,
        retriable=code in RETRY_CODES,
        stale_route=code in STALE_ROUTE_CODES or _says_no_master(code, remark),
    )


def _says_no_master(code: int, remark: str | None) -> bool:
    text = (remark or "").lower()
    return code in _NO_MASTER_CODES and any(words in text for words in _NO_MASTER_WORDS)


def was_not_taken(error: ClientError) -> bool:
    """Return True when the broker was not there, or is no master: nothing was stored, and it is no attempt."""
    return isinstance(error, Unreachable) or (
        isinstance(error, BrokerError) and _says_no_master(error.code, str(error))
    )


def pause_ms(failures: int, left_ms: int, jitter: float) -> int:
    """Before a broker that has failed is tried again: longer after each failure, less near the end of the time.

    Args:
        jitter: 0..1, so that senders do not come back together.
    """
    pause = min(_PAUSE_MAX_MS, _PAUSE_MS << min(failures - 1, 10)) * (0.5 + jitter / 2)
    return max(PAUSE_LEAST_MS, min(int(pause), left_ms // 2))


def may_retry(error: ClientError, attempt: int, attempts: int, left_ms: int) -> bool:
    """Return True when attempt number `attempt` (1 is the first) of `attempts` may be followed by another."""
    return (
        error.retriable
        and not isinstance(error, ClientClosed)
        and attempt < attempts
        and left_ms > 0
    )
