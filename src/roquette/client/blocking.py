"""Blocking reads of queues over plain sockets: for processes without an event loop, such as Spark's workers.

Not a consumer: no heartbeat, no group membership, no offset is committed. One thread uses one reader.
"""

import socket
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from roquette.errors import BrokerError, ConnectError, RequestTimeout, RouteNotFound
from roquette.message.message import MessageQueue
from roquette.message.names import PERM_READ
from roquette.message.sysflag import PULL_SUBSCRIPTION
from roquette.wire.bodies import TopicRouteData
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.connection import Connection
from roquette.wire.header_codec import decode_ext, encode_ext
from roquette.wire.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    GetRouteInfoRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from roquette.wire.json_body import decode_body

_RECEIVE_SIZE: Final = 256 * 1024
_ATTEMPTS: Final = 4  # of one request, over the replicas of its broker
_READ_AHEAD: Final = 8  # pulls in flight of one scan
_EMPTY_PULLS: Final = frozenset(
    (
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
)


class Pulled(NamedTuple):
    """The answer to one pull: whole records (none is possible) and where to pull next."""

    records: bytes
    next_offset: int
    min_offset: int
    max_offset: int


class BlockingConnection:
    """One TCP connection. Requests may be sent ahead; each answer is taken by its opaque."""

    def __init__(self, address: str, *, timeout_ms: int) -> None:
        self.address = address
        self._answers: dict[
            int, Command
        ] = {}  # arrived before it was asked for: bounded by read-ahead
        self._waiting: set[int] = set()
        self._wire = Connection()
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection(
                (host.strip("[]"), int(port)), timeout_ms / 1000
            )
        except (OSError, ValueError) as error:
            raise ConnectError(f"connect to {address} failed: {error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, code: int, header: msgspec.Struct) -> int:
        """Send a request and return its opaque, to be given to `receive`."""
        opaque = self._wire.send_request(code, encode_ext(header))
        try:
            self._socket.sendall(b"".join(self._wire.data_to_send()))
        except OSError as error:
            raise self._broken(error) from None
        self._waiting.add(opaque)
        return opaque

    def receive(self, opaque: int) -> Command:
        """Wait for one answer. Requests that the broker sends to us are not for a reader: dropped."""
        while opaque not in self._answers:
            try:
                data = self._socket.recv(_RECEIVE_SIZE)
            except OSError as error:
                raise self._broken(error) from None
            if not data:
                raise ConnectError(f"{self.address} closed the connection")
            for command in self._wire.receive_data(data):
                if command.is_response and command.opaque in self._waiting:
                    self._answers[command.opaque] = command
        self._waiting.discard(opaque)
        return self._answers.pop(opaque)

    def _broken(self, error: OSError) -> ConnectError | RequestTimeout:
        if isinstance(error, TimeoutError):
            return RequestTimeout(
                f"{self.address} did not answer within {self._socket.gettimeout()} s"
            )
        return ConnectError(f"the connection to {self.address} broke: {error}")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class BlockingReader:
    """Queues of a cluster, their bounds and their records.

    Args:
        namesrv_addr: "host:port;host:port".
        group: the consumer group that requests name; brokers check that it may read.
        timeout_ms: of connecting and of each answer.
        pull_batch_size: messages asked for at once; brokers have limits of their own (Apache's: 32).
    """

    def __init__(
        self,
        namesrv_addr: str,
        *,
        group: str,
        timeout_ms: int = 30_000,
        pull_batch_size: int = 1024,
    ) -> None:
        self._namesrvs = [a.strip() for a in namesrv_addr.replace(",", ";").split(";") if a.strip()]
        self._group = group
        self._timeout_ms = timeout_ms
        self._pull_batch_size = pull_batch_size
        self._connections: dict[str, BlockingConnection] = {}
        self._routes: dict[str, TopicRouteData] = {}

    def close(self) -> None:
        """Close all connections. The reader can be used again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._routes.clear()

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted, freshly asked of a name server.

        Raises:
            RouteNotFound: no name server knows the topic.
        """
        route = self._routes[topic] = self._find_route(topic)
        return sorted(
            MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=queue_id)
            for data in route.queue_datas
            if data.perm & PERM_READ
            for queue_id in range(data.read_queue_nums)
        )

    def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset the broker has."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = self._ask(queue, RequestCode.GET_MIN_OFFSET, header)
        return decode_ext(GetMinOffsetResponseHeader, answer.ext).offset

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = self._ask(queue, RequestCode.GET_MAX_OFFSET, header)
        return decode_ext(GetMaxOffsetResponseHeader, answer.ext).offset

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at that time or later; the maximum if there is none."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        answer = self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return decode_ext(SearchOffsetResponseHeader, answer.ext).offset

    def pull(self, queue: MessageQueue, offset: int, max_count: int, tags: str) -> Pulled:
        """One pull that does not wait for messages to come. Raises BrokerError."""
        answer = self._ask(
            queue, RequestCode.PULL_MESSAGE, self._pull_header(queue, offset, max_count, tags)
        )
        return _pulled(answer, "")

    def scan(self, queue: MessageQueue, start: int, end: int, tags: str) -> Iterator[Pulled]:
        """Pull from `start` until `end` is reached or a pull brings no progress.

        Pulls of all messages are sent ahead: how far one pull reaches is learnt from the first. A wrong
        guess costs only the answers that were on their way. Filtered pulls reach unknown distances:
        they go one by one.
        """
        offset, step = start, 1
        reaching = False  # nothing is sent ahead before one pull has told how far it reaches
        while step > 0 and offset < end:
            before = offset
            if reaching and tags in {"", "*"}:
                for pulled in self._scan_ahead(queue, offset, end, step):
                    step = pulled.next_offset - offset
                    offset = pulled.next_offset
                    yield pulled
            if offset == before:
                pulled = self.pull(queue, offset, min(self._pull_batch_size, end - offset), tags)
                step = pulled.next_offset - offset
                offset = pulled.next_offset
                reaching = True
                yield pulled

    def _scan_ahead(self, queue: MessageQueue, start: int, end: int, step: int) -> Iterator[Pulled]:
        """Pulls of `step` messages, several in flight; ends at the first one that reached elsewhere."""
        address = self._addresses(queue)[0]
        flying: deque[tuple[int, int, int]] = deque()
        ahead = start
        try:
            connection = self._connect(address)
            while True:
                while ahead < end and len(flying) < _READ_AHEAD:
                    count = min(step, end - ahead)
                    header = self._pull_header(queue, ahead, count, "*")
                    opaque = connection.send(RequestCode.PULL_MESSAGE, header)
                    flying.append((opaque, ahead, count))
                    ahead += count
                if not flying:
                    return
                opaque, offset, count = flying.popleft()
                pulled = _pulled(connection.receive(opaque), address)
                yield pulled
                if pulled.next_offset != offset + count:
                    return
        except (ConnectError, RequestTimeout):
            self._drop(address)
            flying.clear()
        finally:  # also when the caller stops early: later requests must not meet old answers
            if flying:
                self._drop(address)

    def _pull_header(
        self, queue: MessageQueue, offset: int, count: int, tags: str
    ) -> PullMessageRequestHeader:
        return PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=tags or "*",
            sub_version=0,
            expression_type="TAG",
        )

    def _ask(self, queue: MessageQueue, code: int, header: msgspec.Struct) -> Command:
        """One request to the queue's broker: the master first, then its replicas, then a new route."""
        failure: ConnectError | RequestTimeout | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._routes.pop(queue.topic, None)
            addresses = self._addresses(queue)
            address = addresses[attempt % len(addresses)]
            try:
                connection = self._connect(address)
                answer = connection.receive(connection.send(code, header))
            except (ConnectError, RequestTimeout) as error:
                self._drop(address)
                failure = error
                continue
            if answer.code != ResponseCode.SUCCESS and answer.code not in _EMPTY_PULLS:
                raise BrokerError(answer.code, answer.remark or "", address=address)
            return answer
        assert failure is not None
        raise failure

    def _addresses(self, queue: MessageQueue) -> list[str]:
        route = self._routes.get(queue.topic)
        if route is None:
            route = self._routes[queue.topic] = self._find_route(queue.topic)
        for data in route.broker_datas:
            if data.broker_name == queue.broker_name and data.broker_addrs:
                return [data.broker_addrs[broker_id] for broker_id in sorted(data.broker_addrs)]
        raise RouteNotFound(
            queue.topic, f"no broker {queue.broker_name} in the route of {queue.topic}"
        )

    def _find_route(self, topic: str) -> TopicRouteData:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        failure: Exception | None = None
        for address in self._namesrvs:
            try:
                connection = self._connect(address)
                code = RequestCode.GET_ROUTEINFO_BY_TOPIC
                answer = connection.receive(connection.send(code, header))
            except (ConnectError, RequestTimeout) as error:
                self._drop(address)
                failure = error
                continue
            if answer.code == ResponseCode.SUCCESS:
                return decode_body(TopicRouteData, answer.body)
            failure = RouteNotFound(topic)
            if answer.code != ResponseCode.TOPIC_NOT_EXIST:
                failure = BrokerError(answer.code, answer.remark or "", address=address)
        raise failure or RouteNotFound(topic, "no name server address is given")

    def _connect(self, address: str) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = BlockingConnection(address, timeout_ms=self._timeout_ms)
            self._connections[address] = connection
        return connection

    def _drop(self, address: str) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


def _pulled(answer: Command, address: str) -> Pulled:
    if answer.code != ResponseCode.SUCCESS and answer.code not in _EMPTY_PULLS:
        raise BrokerError(answer.code, answer.remark or "", address=address)
    header = decode_ext(PullMessageResponseHeader, answer.ext)
    records = answer.body if answer.code == ResponseCode.SUCCESS else b""
    return Pulled(records, header.next_begin_offset, header.min_offset, header.max_offset)
