"""Blocking reads of queues over plain sockets: for processes without an event loop, such as Spark's workers.

Not a consumer: no heartbeat, no group membership. One thread uses one reader.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from roquette.base.clock import Clock, SystemClock
from roquette.base.executor import pause
from roquette.client import calls
from roquette.client.calls import EVERYTHING, Answer, Ask, Call, Pulled, PullFilter
from roquette.client.config import security_of
from roquette.client.core.process_queue import two_waves
from roquette.client.core.route_cache import BROKERS, TOPICS, keep
from roquette.errors import BrokerError, ClientError, ConnectError, RequestTimeout, RouteNotFound
from roquette.message.message import MessageQueue
from roquette.message.names import PERM_READ, PERM_WRITE
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.bodies import QueueData, TopicRouteData
from roquette.wire.codes import ResponseCode
from roquette.wire.signature import Credentials
from roquette_spark.workers.connection import BlockingConnections

T = TypeVar("T")

_AVOID_MS: Final = 5_000  # an address that failed comes after its replicas for so long


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderConfig:
    """Settings of a reader.

    Attributes:
        namesrv_addr: "host:port;host:port".
        group: the consumer group that requests name; brokers check that it may read.
        timeout_ms: of each answer.
        connect_timeout_ms: of connecting; as `timeout_ms` if None.
        pull_batch_size: messages asked for at once; brokers have limits of their own (Apache's: 32).
        pulls_in_flight: pulls of one scan that are sent before the first of them is answered.
        retries: how often a request is made again after the first time, over the replicas of its broker.
        retry_interval_ms: how long to wait before each of these.
        tls, credentials: as `ClientConfig` has them.
    """

    namesrv_addr: str
    group: str
    timeout_ms: int = 30_000
    connect_timeout_ms: int | None = None
    pull_batch_size: int = 1024
    pulls_in_flight: int = 8
    retries: int = 3
    retry_interval_ms: int = 10
    tls: TlsOptions | None = None
    credentials: Credentials | None = None


class BlockingReader:
    """Queues of a cluster, their bounds and their records."""

    def __init__(self, config: ReaderConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._group = config.group
        self._clock = clock or SystemClock()
        self._connections = BlockingConnections(
            config.namesrv_addr,
            timeout_ms=config.timeout_ms,
            connect_timeout_ms=config.connect_timeout_ms,
            security=security_of(config.tls, config.credentials),
        )
        self._routes: dict[str, TopicRouteData] = {}
        self._avoided_until_ms: dict[str, int] = {}
        self._replica_brokers: set[str] = set()

    def close(self) -> None:
        """Close all connections. The reader can be used again."""
        self._connections.close()
        self._routes.clear()

    # topics and queues

    def topics(self) -> list[str]:
        """All topics a name server knows, sorted; those of the system and of retries among them."""
        return self._connections.ask_name_servers(calls.topic_names())

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted, freshly asked of a name server.

        Raises:
            RouteNotFound: no name server knows the topic.
        """
        return sorted(queue for queue, _ in _readable(topic, self._learn(topic)))

    def closed_queues(self, topics: Iterable[str]) -> set[MessageQueue]:
        """Of the queues that `queues` gave last of these topics, those that producers are told not to send to."""
        return {
            queue
            for topic in topics
            if topic in self._routes
            for queue, data in _readable(topic, self._routes[topic])
            if not data.perm & PERM_WRITE or queue.queue_id >= data.write_queue_nums
        }

    # offsets

    def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset the broker has."""
        return self._ask(queue, calls.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return self._ask(queue, calls.max_offset(queue))

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """`min_offset` of many queues, asked side by side."""
        return self._bounds(queues, calls.min_offset)

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """`max_offset` of many queues, asked side by side."""
        return self._bounds(queues, calls.max_offset)

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at that time or later; the maximum if there is none."""
        return self._ask(queue, calls.offset_by_time(queue, timestamp_ms))

    def committed_offset(self, queue: MessageQueue) -> int | None:
        """Return the offset at which the group goes on; None when it has committed nothing there."""
        return self._ask(queue, calls.committed_offset(self._group, queue, zero_if_new=False))

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store where the group goes on: the offset of the next message to read, in each queue that is there."""

        def commit(queue: MessageQueue) -> Call[None]:
            return calls.commit(self._group, queue, offsets[queue])

        for wave in two_waves(offsets):
            answers = self._ask_side_by_side(wave, commit)
            for queue in [queue for queue in wave if queue not in answers]:
                try:
                    self._ask(queue, commit(queue))
                except RouteNotFound:
                    continue  # the queue is gone: nobody asks how far it was read
                except BrokerError as error:
                    if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                        raise
                    self.pull(queue, offsets[queue], 1)  # so a broker learns of a group
                    self._ask(queue, commit(queue))

    def from_replica(self, queue: MessageQueue) -> bool:
        """Return True if the queue's last answer came from a replica: it may be behind its master."""
        return queue.broker_name in self._replica_brokers

    def _bounds(
        self, queues: Iterable[MessageQueue], call: Callable[[MessageQueue], Call[int]]
    ) -> dict[MessageQueue, int]:
        """Ask side by side; a queue without an answer is asked again, alone."""
        wanted = list(queues)
        found = self._ask_side_by_side(wanted, call)
        return {
            queue: found[queue] if queue in found else self._ask(queue, call(queue))
            for queue in wanted
        }

    def _ask_side_by_side(
        self, queues: Sequence[MessageQueue], call: Callable[[MessageQueue], Call[T]]
    ) -> dict[MessageQueue, T]:
        """Return the masters' answers; without those that fail or refuse."""
        asks: list[Ask] = []
        asked: list[MessageQueue] = []
        for queue in queues:
            try:
                broker_id, address = self._addresses(queue)[0]
            except ClientError:
                continue
            if broker_id == 0:
                asks.append(Ask(address, call(queue)))
                asked.append(queue)
        found: dict[MessageQueue, T] = {}
        answers: list[Answer[T]] = self._connections.exchange(asks)
        for queue, answer in zip(asked, answers, strict=True):
            if answer.error is None:
                self._replica_brokers.discard(queue.broker_name)
                found[queue] = answer.get()
        return found

    # messages

    def pull(
        self, queue: MessageQueue, offset: int, max_count: int, wanted: PullFilter = EVERYTHING
    ) -> Pulled:
        """One pull that does not wait for messages to come. Raises BrokerError."""
        return self._ask(queue, calls.pull(self._group, queue, offset, max_count, wanted))

    def messages_at(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, bytes]:
        """The record at one offset of each queue, asked of masters side by side; queues without an answer are left out."""

        def pull(queue: MessageQueue) -> Call[Pulled]:
            return calls.pull(self._group, queue, places[queue], 1)

        found = self._ask_side_by_side(list(places), pull)
        return {queue: pulled.records for queue, pulled in found.items() if pulled.records}

    def scan(
        self, queue: MessageQueue, start: int, end: int, wanted: PullFilter = EVERYTHING
    ) -> Iterator[Pulled]:
        """Pull from `start` until `end` is reached or a pull brings no progress.

        Pulls of all messages are sent ahead: how far one pull reaches is learnt from the first. A wrong
        guess costs only the answers that were on their way. Filtered pulls reach unknown distances:
        they go one by one.
        """
        offset, step = start, 1
        reaching = False  # nothing is sent ahead before one pull has shown how far it reaches
        while step > 0 and offset < end:
            before = offset
            if reaching and wanted.takes_all:
                for pulled in self._scan_ahead(queue, offset, end, step):
                    step = pulled.next_offset - offset
                    offset = pulled.next_offset
                    yield pulled
            if offset == before:
                count = min(self._config.pull_batch_size, end - offset)
                pulled = self.pull(queue, offset, count, wanted)
                step = pulled.next_offset - offset
                offset = pulled.next_offset
                reaching = True
                yield pulled

    def _scan_ahead(self, queue: MessageQueue, start: int, end: int, step: int) -> Iterator[Pulled]:
        """Pulls of `step` messages, several in flight; ends at the first one that reached elsewhere."""
        address = self._addresses(queue)[0][1]
        most = self._config.pulls_in_flight
        flying: deque[tuple[int, Call[Pulled], int]] = (
            deque()
        )  # opaque, the pull, where it should end
        ahead = start
        try:
            connection = self._connections.connect(address)
            while True:
                if len(flying) <= most // 2:  # half a window leaves in one write
                    while ahead < end and len(flying) < most:
                        count = min(step, end - ahead)
                        call = calls.pull(self._group, queue, ahead, count)
                        ahead += count
                        flying.append((connection.post(call), call, ahead))
                    connection.flush()
                if not flying:
                    return
                opaque, call, goal = flying.popleft()
                pulled = call.result(connection.receive(opaque), address)
                yield pulled
                if pulled.next_offset != goal:
                    return
        except BrokerError:
            return  # the next pull, sent alone, raises or tries again
        except (ConnectError, RequestTimeout):
            self._connections.drop(address)  # the next pull, sent alone, finds out
            flying.clear()
        finally:  # also when the caller stops early: later requests must not meet old answers
            if flying:
                self._connections.drop(address)

    # requests

    def _ask(self, queue: MessageQueue, call: Call[T]) -> T:
        """One request to the queue's broker: the master, then its replicas, then after a pause by a new route.

        Raises:
            BrokerError: the broker refused, and would again.
            ConnectError, RequestTimeout: no member of the broker answers.
            RouteNotFound: the name servers know no such broker for the topic (any more).
        """
        failure: ClientError | None = None
        for attempt in range(self._config.retries + 1):
            if attempt:
                pause(self._config.retry_interval_ms)
                self._renew_route(queue.topic)
            try:
                addresses = self._addresses(queue)
            except ClientError as error:
                failure = error
                continue
            for broker_id, address in addresses:
                try:
                    found = self._connections.call(address, call)
                except (ConnectError, RequestTimeout) as error:
                    until_ms = self._clock.steady_ms() + _AVOID_MS
                    keep(self._avoided_until_ms, address, until_ms, BROKERS)
                    failure = error
                except BrokerError as error:
                    if not error.retriable:
                        raise
                    failure = error
                else:
                    self._note_replica(queue, broker_id)
                    return found
        assert failure is not None
        raise failure

    def _note_replica(self, queue: MessageQueue, broker_id: int) -> None:
        if broker_id:
            self._replica_brokers.add(queue.broker_name)
        else:
            self._replica_brokers.discard(queue.broker_name)

    def _addresses(self, queue: MessageQueue) -> list[tuple[int, str]]:
        """(broker id, address) of the queue's broker: the master first, but addresses that failed recently last."""
        route = self._routes.get(queue.topic)
        if route is None:
            route = self._learn(queue.topic)
        for data in route.broker_datas:
            if data.broker_name == queue.broker_name and data.broker_addrs:
                found = sorted(data.broker_addrs.items())
                if len(found) > 1 and self._avoided_until_ms:
                    now_ms = self._clock.steady_ms()
                    found.sort(key=lambda one: self._avoided_until_ms.get(one[1], 0) > now_ms)
                return found
        raise RouteNotFound(
            queue.topic, f"no broker {queue.broker_name} in the route of {queue.topic}"
        )

    def _renew_route(self, topic: str) -> None:
        """Ask again; the known route stays while no name server answers."""
        known = self._routes.pop(topic, None)
        try:
            self._learn(topic)
        except RouteNotFound:
            return
        except ClientError:
            if known is not None:
                self._routes[topic] = known

    def _learn(self, topic: str) -> TopicRouteData:
        route = self._connections.route(topic)
        keep(self._routes, topic, route, TOPICS)
        return route


def _readable(topic: str, route: TopicRouteData) -> Iterator[tuple[MessageQueue, QueueData]]:
    for data in route.queue_datas:
        for queue_id in range(data.read_queue_nums) if data.perm & PERM_READ else ():
            yield MessageQueue(topic, data.broker_name, queue_id), data
