"""Pipelined sends over plain sockets: for processes without an event loop, such as Spark's workers.

Not a producer of a group: no heartbeat, no transactions. What leaves when is `core.send_window`'s business, this
is the driver: routes, connections, answers, the clock. One thread uses one sender.
"""

import logging
import selectors
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from roquette.base.clock import Clock, SystemClock
from roquette.base.entropy import Entropy
from roquette.client import calls
from roquette.client.config import security_of
from roquette.client.core.route_cache import (
    TOPICS,
    RoundRobin,
    TopicRoute,
    broker_error,
    keep,
    route_from_template,
)
from roquette.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    RemoteProtocolError,
    RequestTimeout,
    RouteNotFound,
)
from roquette.message.message import MessageQueue
from roquette.message.names import TBW102
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.codes import STORED_CODES, ResponseCode
from roquette.wire.command import Command
from roquette.wire.headers import SendMessageRequestHeaderV2
from roquette.wire.signature import Credentials
from roquette_spark.workers.connection import BlockingConnection, BlockingConnections
from roquette_spark.workers.send_window import Chunk, SendWindow, WindowLimits, is_flow_control

log = logging.getLogger("roquette.client")

_ROUTE_AGE_MS: Final = 30_000
_ROUTE_PAUSE_MS: Final = 500  # between two questions for a route that seems wrong
_IDLE_MS: Final = 60_000  # brokers close connections that were silent for 120 s


class NotStored(ClientError):
    """Messages were not acknowledged within the deadline, or the broker refused them for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderConfig:
    """Settings of a sender.

    Attributes:
        send_timeout_ms: of one attempt.
        require_send_ok: answers that say "stored, but not flushed or replicated in time" are failures, too.
        default_queues: of a topic that its first message creates, if `auto_create_topics`.
        tls, credentials: as `ClientConfig` has them.
    """

    namesrv_addr: str
    producer_group: str = "spark-rocketmq-sink"
    send_timeout_ms: int = 10_000
    connect_timeout_ms: int = 3_000
    require_send_ok: bool = False
    auto_create_topics: bool = False
    default_queues: int = 4
    limits: WindowLimits = field(default_factory=WindowLimits)
    tls: TlsOptions | None = None
    credentials: Credentials | None = None


@dataclass(slots=True)
class SenderCounts:
    """Counts of a sender's work since `begin`.

    Attributes:
        rows: messages acknowledged. `requests`: attempts. `busy`: answers that asked for patience.
        failures: attempts that failed otherwise. `weak`: messages stored, but not flushed or replicated in time.
    """

    rows: int = 0
    requests: int = 0
    busy: int = 0
    failures: int = 0
    weak: int = 0


class _Flight(NamedTuple):
    chunk: Chunk
    queue: MessageQueue
    expires_ms: int


class BlockingSender:
    """Sends chunks and waits for their acknowledgement.

        sender.begin()
        sender.offer(chunk) ...
        sender.finish()

    Raises:
        NotStored: from `offer` and `finish`. What was offered since `begin` is then partly stored.
    """

    def __init__(
        self, config: SenderConfig, clock: Clock | None = None, entropy: Entropy | None = None
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or Entropy()
        self._security = security_of(config.tls, config.credentials)
        self._names = BlockingConnections(
            config.namesrv_addr, timeout_ms=config.connect_timeout_ms, security=self._security
        )
        self._routes: dict[str, tuple[TopicRoute, int]] = {}
        self._turns: dict[str, RoundRobin] = {}
        self._connections: dict[str, BlockingConnection] = {}
        self._last_heard_ms: dict[str, int] = {}
        self._selector = selectors.DefaultSelector()
        self._flights: dict[tuple[str, int], _Flight] = {}
        self._window = SendWindow(config.limits)
        self.counts = SenderCounts()

    def begin(self) -> None:
        """Start again: what an earlier caller left unfinished is forgotten, good connections are kept."""
        self._window = SendWindow(self._config.limits)
        self._flights.clear()
        self.counts = SenderCounts()
        now_ms = self._clock.steady_ms()
        for address in list(self._connections):
            if now_ms - self._last_heard_ms.get(address, 0) > _IDLE_MS:
                self._close(address)

    def close(self) -> None:
        """Close all connections. The sender can be used again."""
        for address in list(self._connections):
            self._close(address)
        self._names.close()
        self._routes.clear()
        self._flights.clear()
        self._window = SendWindow(self._config.limits)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that take messages, in the order keys are hashed over.

        Raises:
            RouteNotFound: no name server knows the topic, or no master takes messages for it.
        """
        queues = self._route(topic).publish
        if not queues:
            raise RouteNotFound(topic, f"topic {topic} has no writable queue on any master")
        return queues

    def local_host(self, topic: str) -> str:
        """The address this process calls a broker of the topic from; 127.0.0.1 when none can be reached."""
        try:
            queue = self.queues(topic)[0]
            return self._connect(self._master(topic, queue)).local_host
        except ClientError:
            return "127.0.0.1"

    def offer(self, chunk: Chunk) -> None:
        """Take a chunk; waits while the window is full. Raises NotStored."""
        self._window.offer(chunk)
        self._step(wait=False)
        while self._window.full:
            self._step(wait=True)

    def finish(self) -> SenderCounts:
        """Wait until everything offered is acknowledged. Raises NotStored."""
        while not self._window.idle:
            self._step(wait=True)
        return self.counts

    # one turn: send what may go, take in what came, count what is overdue

    def _step(self, *, wait: bool) -> None:
        while (chunk := self._window.take(self._clock.steady_ms())) is not None:
            self._start(chunk)
        now_ms = self._clock.steady_ms()
        timeout_ms = self._wait_ms(now_ms) if wait else 0
        if self._connections or timeout_ms:
            for key, _ in self._selector.select(timeout_ms / 1000):
                self._take_answers(key.data)
        self._expire(self._clock.steady_ms())

    def _wait_ms(self, now_ms: int) -> int:
        """Until the next thing to do without an answer: a pause ends, or an answer is overdue."""
        ends = [flight.expires_ms for flight in self._flights.values()]
        wake_ms = self._window.wake_ms(now_ms)
        if wake_ms is not None:
            ends.append(wake_ms)
        return max(0, min(ends) - now_ms) if ends else 0

    def _start(self, chunk: Chunk) -> None:
        address = None
        queue = chunk.queue
        try:
            if queue is None:
                queue = self._any_queue(chunk)
            address = self._master(chunk.topic, queue)
            connection = self._connect(address)
            call = calls.send(self._header(chunk, queue), chunk.body)
            self.counts.requests += 1
            opaque = connection.send(call)
        except ClientError as error:
            if address is not None:
                self._connection_lost(address, error)
            self._failed(chunk, queue, error)
            return
        expires_ms = self._clock.steady_ms() + self._config.send_timeout_ms
        self._flights[address, opaque] = _Flight(chunk, queue, expires_ms)

    def _header(self, chunk: Chunk, queue: MessageQueue) -> SendMessageRequestHeaderV2:
        return SendMessageRequestHeaderV2(
            producer_group=self._config.producer_group,
            topic=chunk.topic,
            default_topic=TBW102,
            default_topic_queue_nums=self._config.default_queues,
            queue_id=queue.queue_id,
            sys_flag=chunk.sys_flag,
            born_timestamp=self._clock.now_ms(),
            flag=chunk.flag,
            properties=chunk.properties,
            batch=chunk.batch,
            bname=queue.broker_name,
        )

    def _take_answers(self, address: str) -> None:
        connection = self._connections.get(address)
        if connection is None:
            return
        try:
            answers = connection.arrived()
        except ClientError as error:
            self._connection_lost(address, error)
            return
        self._last_heard_ms[address] = self._clock.steady_ms()
        gone = False
        for answer in answers:
            flight = self._flights.pop((address, answer.opaque), None)
            if flight is not None:
                self._answered(flight, answer, address)
                gone = gone or answer.code == ResponseCode.GO_AWAY
        if gone:
            self._connection_lost(address, ConnectError(f"{address} is going away"))

    def _answered(self, flight: _Flight, answer: Command, address: str) -> None:
        stored = answer.code in STORED_CODES
        if stored and answer.code != ResponseCode.SUCCESS:
            self.counts.weak += flight.chunk.rows
            stored = not self._config.require_send_ok
        if stored:
            self.counts.rows += flight.chunk.rows
            self._window.stored(flight.chunk)
            return
        error = broker_error(answer.code, answer.remark, address)
        if answer.code in STORED_CODES:
            error.retriable = True
        self._failed(flight.chunk, flight.queue, error)

    def _expire(self, now_ms: int) -> None:
        late = [key for key, flight in self._flights.items() if flight.expires_ms <= now_ms]
        for key in late:
            flight = self._flights.pop(key, None)
            if flight is None:
                continue  # its connection was closed for another one's sake
            address = key[0]
            error = RequestTimeout(
                f"{address} did not answer within {self._config.send_timeout_ms} ms"
            )
            if now_ms - self._last_heard_ms.get(address, 0) >= self._config.send_timeout_ms:
                self._connection_lost(address, error)  # silent altogether, perhaps half open
            self._failed(flight.chunk, flight.queue, error)

    def _connection_lost(self, address: str, error: ClientError | RemoteProtocolError) -> None:
        """A connection has ended; whether its requests were stored is unknown."""
        self._close(address)
        failure = error if isinstance(error, ClientError) else ConnectError(f"{address}: {error}")
        for key in [key for key in self._flights if key[0] == address]:
            flight = self._flights.pop(key)
            self._failed(flight.chunk, flight.queue, failure)

    def _failed(self, chunk: Chunk, queue: MessageQueue | None, error: ClientError) -> None:
        """Plan another attempt, or raise NotStored."""
        busy = isinstance(error, BrokerError) and is_flow_control(error.code, error.args[0])
        if busy:
            self.counts.busy += 1
        else:
            self.counts.failures += 1
        if queue is not None and chunk.queue is None:
            chunk.avoid = queue.broker_name
        if error.stale_route:
            self._ask_again(chunk.topic)
        gone = (
            isinstance(error, RouteNotFound) and chunk.topic in self._routes
        )  # it was there before
        # A topic that has been there may be back soon, so its absence is tried again.
        lasting = not (busy or error.retriable or gone)
        refused = isinstance(error, BrokerError) and not busy
        now_ms = self._clock.steady_ms()
        jitter = self._entropy.below(1000) / 1000
        if not lasting and self._window.failed(
            chunk, now_ms, busy=busy, refused=refused, jitter=jitter
        ):
            log.info(
                "send is tried again topic=%s attempt=%d error=%s",
                chunk.topic,
                chunk.attempts,
                error,
            )
            return
        what = f"{chunk.rows} messages to {chunk.topic}, the first from row {chunk.first_row},"
        raise NotStored(f"rocketmq: {what} not stored after {chunk.attempts} attempts: {error}")

    # routes and connections

    def _any_queue(self, chunk: Chunk) -> MessageQueue:
        queues = self.queues(chunk.topic)
        turn = self._turns.get(chunk.topic)
        if turn is None:
            turn = RoundRobin(self._entropy.below(1 << 16))
            keep(self._turns, chunk.topic, turn, TOPICS)
        return turn.pick(queues, chunk.avoid)

    def _master(self, topic: str, queue: MessageQueue) -> str:
        address = self._route(topic).master_of(queue.broker_name)
        if address is None:
            self._ask_again(topic)
            raise RouteNotFound(
                topic, f"broker {queue.broker_name} has no master in the route of {topic}"
            )
        return address

    def _route(self, topic: str) -> TopicRoute:
        now_ms = self._clock.steady_ms()
        known = self._routes.get(topic)
        if known is not None and now_ms - known[1] < _ROUTE_AGE_MS:
            return known[0]
        try:
            route = self._find_route(topic)
        except ClientError as error:
            if known is None:
                raise
            log.info("route refresh failed topic=%s error=%s", topic, error)
            route = known[0]
        keep(self._routes, topic, (route, now_ms), TOPICS)
        return route

    def _find_route(self, topic: str) -> TopicRoute:
        try:
            return TopicRoute(topic, self._names.route(topic))
        except RouteNotFound:
            if not self._config.auto_create_topics:
                raise
        template = self._names.route(TBW102)
        return route_from_template(topic, template, self._config.default_queues)

    def _ask_again(self, topic: str) -> None:
        """Let the next use of a route ask the name server, but not more often than every half second."""
        known = self._routes.get(topic)
        if known is not None:
            due_ms = self._clock.steady_ms() - _ROUTE_AGE_MS + _ROUTE_PAUSE_MS
            self._routes[topic] = (known[0], min(known[1], due_ms))

    def _connect(self, address: str) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = BlockingConnection(
                address,
                timeout_ms=self._config.send_timeout_ms,
                connect_timeout_ms=self._config.connect_timeout_ms,
                security=self._security,
            )
            self._connections[address] = connection
            self._selector.register(connection.fileno(), selectors.EVENT_READ, address)
            self._last_heard_ms[address] = self._clock.steady_ms()
        return connection

    def _close(self, address: str) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            self._selector.unregister(connection.fileno())
            connection.close()
            self._last_heard_ms.pop(address, None)
