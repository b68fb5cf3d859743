"""Blocking reads of queues over plain sockets: for processes without an event loop, such as Spark's workers.

Not a consumer: no heartbeat, no group membership. One thread uses one reader.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from roquette.base.clock import Clock, SystemClock
from roquette.base.executor import pause
from roquette.client.blocking_connection import BlockingConnection
from roquette.client.core.bounds import BROKERS, TOPICS, check_queues, keep
from roquette.client.core.offsets import two_waves
from roquette.client.core.retry_policy import broker_error
from roquette.client.queue_requests import (
    EVERYTHING,
    Pulled,
    PullFilter,
    max_header,
    min_header,
    pull_header,
    pulled_of,
    read_max,
    read_min,
)
from roquette.errors import BrokerError, ClientError, ConnectError, RequestTimeout, RouteNotFound
from roquette.message.message import MessageQueue
from roquette.message.names import PERM_READ
from roquette.wire.bodies import TopicList, TopicRouteData
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext
from roquette.wire.headers import (
    GetRouteInfoRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from roquette.wire.json_body import decode_body

__all__ = ["EVERYTHING", "BlockingConnection", "BlockingReader", "PullFilter", "Pulled"]

_POST_AHEAD: Final = 64  # small requests in flight at once on one connection
_AVOID_MS: Final = 5_000  # an address that failed comes after its replicas for so long
_EMPTY_PULLS: Final = frozenset(
    (
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
)


class BlockingReader:
    """Queues of a cluster, their bounds and their records.

    Args:
        namesrv_addr: "host:port;host:port".
        group: the consumer group that requests name; brokers check that it may read.
        timeout_ms: of each answer.
        connect_timeout_ms: of connecting; as `timeout_ms` if None.
        pull_batch_size: messages asked for at once; brokers have limits of their own (Apache's: 32).
        pulls_in_flight: pulls of one scan that are sent before the first of them is answered.
        retries: how often a request is made again after the first time, over the replicas of its broker.
        retry_interval_ms: how long to wait before each of these.
    """

    def __init__(
        self,
        namesrv_addr: str,
        *,
        group: str,
        timeout_ms: int = 30_000,
        connect_timeout_ms: int | None = None,
        pull_batch_size: int = 1024,
        pulls_in_flight: int = 8,
        retries: int = 3,
        retry_interval_ms: int = 10,
        clock: Clock | None = None,
    ) -> None:
        self._namesrvs = [a.strip() for a in namesrv_addr.replace(",", ";").split(";") if a.strip()]
        self._group = group
        self._timeout_ms = timeout_ms
        self._connect_timeout_ms = connect_timeout_ms
        self._pull_batch_size = pull_batch_size
        self._pulls_in_flight = pulls_in_flight
        self._retries = retries
        self._retry_interval_ms = retry_interval_ms
        self._clock = clock or SystemClock()
        self._connections: dict[str, BlockingConnection] = {}
        self._routes: dict[str, TopicRouteData] = {}
        self._avoided_until_ms: dict[str, int] = {}
        self._replica_brokers: set[str] = set()

    def close(self) -> None:
        """Close all connections. The reader can be used again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._routes.clear()

    # topics and queues

    def topics(self) -> list[str]:
        """All topics a name server knows, sorted; those of the system and of retries among them."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        answer = self._ask_namesrv(code, GetRouteInfoRequestHeader(topic=""), "")
        return sorted(decode_body(TopicList, answer.body).topic_list)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted, freshly asked of a name server.

        Raises:
            RouteNotFound: no name server knows the topic.
        """
        route = self._learn(topic)
        return sorted(
            MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=queue_id)
            for data in route.queue_datas
            if data.perm & PERM_READ
            for queue_id in range(data.read_queue_nums)
        )

    # offsets

    def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset the broker has."""
        return read_min(self._ask(queue, RequestCode.GET_MIN_OFFSET, min_header(queue)))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return read_max(self._ask(queue, RequestCode.GET_MAX_OFFSET, max_header(queue)))

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """`min_offset` of many queues, asked side by side."""
        return self._bounds(queues, RequestCode.GET_MIN_OFFSET, min_header, read_min)

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """`max_offset` of many queues, asked side by side."""
        return self._bounds(queues, RequestCode.GET_MAX_OFFSET, max_header, read_max)

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at that time or later; the maximum if there is none."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        answer = self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return max(0, decode_ext(SearchOffsetResponseHeader, answer.ext).offset)

    def committed_offset(self, queue: MessageQueue) -> int | None:
        """Where the group goes on; None when it has committed nothing there."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        answer = self._ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, header, also={_NO_OFFSET})
        if answer.code == _NO_OFFSET:
            return None
        offset = decode_ext(QueryConsumerOffsetResponseHeader, answer.ext).offset
        return None if offset < 0 else offset

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store where the group goes on: the offset of the next message to read, in each queue."""
        code = RequestCode.UPDATE_CONSUMER_OFFSET

        def header(queue: MessageQueue) -> UpdateConsumerOffsetRequestHeader:
            return UpdateConsumerOffsetRequestHeader(
                consumer_group=self._group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=offsets[queue],
            )

        for wave in two_waves(offsets):
            stored = self._ask_side_by_side(wave, code, header)
            for queue in wave:
                if queue in stored:
                    continue
                try:
                    self._ask(queue, code, header(queue))
                except BrokerError as error:
                    if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                        raise
                    self.pull(queue, offsets[queue], 1)  # so a broker learns of a group
                    self._ask(queue, code, header(queue))

    def from_replica(self, queue: MessageQueue) -> bool:
        """Whether the queue's last answer came from a replica: it may be behind its master."""
        return queue.broker_name in self._replica_brokers

    def _bounds(
        self,
        queues: Iterable[MessageQueue],
        code: RequestCode,
        header: Callable[[MessageQueue], msgspec.Struct],
        read: Callable[[Command], int],
    ) -> dict[MessageQueue, int]:
        """Ask side by side; what fails is asked once more by itself."""
        wanted = list(queues)
        found = self._ask_side_by_side(wanted, code, header)
        return {
            queue: read(found.get(queue) or self._ask(queue, code, header(queue)))
            for queue in wanted
        }

    def _ask_side_by_side(
        self,
        queues: Sequence[MessageQueue],
        code: RequestCode,
        header: Callable[[MessageQueue], msgspec.Struct],
    ) -> dict[MessageQueue, Command]:
        """What the masters answer, in blocks; without those that fail or refuse."""
        found: dict[MessageQueue, Command] = {}
        for start in range(0, len(queues), _POST_AHEAD):
            found |= self._ask_block(queues[start : start + _POST_AHEAD], code, header)
        return found

    def _ask_block(
        self,
        queues: Sequence[MessageQueue],
        code: RequestCode,
        header: Callable[[MessageQueue], msgspec.Struct],
    ) -> dict[MessageQueue, Command]:
        posted: dict[str, list[tuple[int, MessageQueue]]] = {}
        for queue in queues:
            try:
                broker_id, address = self._addresses(queue)[0]
                if broker_id == 0:
                    opaque = self._connect(address).post(code, header(queue))
                    posted.setdefault(address, []).append((opaque, queue))
            except ClientError:
                continue
        # All brokers have their questions before the first answer is read.
        for address in list(posted):
            try:
                self._connect(address).flush()
            except (ConnectError, RequestTimeout):
                self._drop(address, avoid=False)
                del posted[address]
        found: dict[MessageQueue, Command] = {}
        for address, requests in posted.items():
            try:
                connection = self._connect(address)
                for opaque, queue in requests:
                    answer = connection.receive(opaque)
                    if answer.code == ResponseCode.SUCCESS:
                        self._replica_brokers.discard(queue.broker_name)
                        found[queue] = answer
            except (ConnectError, RequestTimeout):
                self._drop(address, avoid=False)
        return found

    # messages

    def pull(
        self, queue: MessageQueue, offset: int, max_count: int, wanted: PullFilter = EVERYTHING
    ) -> Pulled:
        """One pull that does not wait for messages to come. Raises BrokerError."""
        header = pull_header(self._group, queue, offset, max_count, wanted)
        return pulled_of(self._ask(queue, RequestCode.PULL_MESSAGE, header, also=_EMPTY_PULLS))

    def messages_at(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, bytes]:
        """The record at one offset of each queue, asked of masters side by side; without what nobody answers."""

        def header(queue: MessageQueue) -> msgspec.Struct:
            return pull_header(self._group, queue, places[queue], 1, EVERYTHING)

        found = self._ask_side_by_side(list(places), RequestCode.PULL_MESSAGE, header)
        return {queue: answer.body for queue, answer in found.items()}

    def scan(
        self, queue: MessageQueue, start: int, end: int, wanted: PullFilter = EVERYTHING
    ) -> Iterator[Pulled]:
        """Pull from `start` until `end` is reached or a pull brings no progress.

        Pulls of all messages are sent ahead: how far one pull reaches is learnt from the first. A wrong
        guess costs only the answers that were on their way. Filtered pulls reach unknown distances:
        they go one by one.
        """
        offset, step = start, 1
        reaching = False  # nothing is sent ahead before one pull has told how far it reaches
        while step > 0 and offset < end:
            before = offset
            if reaching and wanted.takes_all:
                for pulled in self._scan_ahead(queue, offset, end, step):
                    step = pulled.next_offset - offset
                    offset = pulled.next_offset
                    yield pulled
            if offset == before:
                count = min(self._pull_batch_size, end - offset)
                pulled = self.pull(queue, offset, count, wanted)
                step = pulled.next_offset - offset
                offset = pulled.next_offset
                reaching = True
                yield pulled

    def _scan_ahead(self, queue: MessageQueue, start: int, end: int, step: int) -> Iterator[Pulled]:
        """Pulls of `step` messages, several in flight; ends at the first one that reached elsewhere."""
        address = self._addresses(queue)[0][1]
        flying: deque[tuple[int, int, int]] = deque()
        ahead = start
        try:
            connection = self._connect(address)
            while True:
                if len(flying) <= self._pulls_in_flight // 2:  # half a window leaves in one write
                    while ahead < end and len(flying) < self._pulls_in_flight:
                        count = min(step, end - ahead)
                        header = pull_header(self._group, queue, ahead, count, EVERYTHING)
                        opaque = connection.post(RequestCode.PULL_MESSAGE, header)
                        flying.append((opaque, ahead, count))
                        ahead += count
                    connection.flush()
                if not flying:
                    return
                opaque, offset, count = flying.popleft()
                answer = connection.receive(opaque)
                if answer.code != ResponseCode.SUCCESS and answer.code not in _EMPTY_PULLS:
                    return  # the next pull, made by itself, tells or tries again
                pulled = pulled_of(answer)
                yield pulled
                if pulled.next_offset != offset + count:
                    return
        except (ConnectError, RequestTimeout):
            self._drop(address, avoid=False)  # the next pull, made by itself, finds out
            flying.clear()
        finally:  # also when the caller stops early: later requests must not meet old answers
            if flying:
                self._drop(address, avoid=False)

    # requests

    def _ask(
        self,
        queue: MessageQueue,
        code: RequestCode,
        header: msgspec.Struct,
        also: Iterable[int] = (),
    ) -> Command:
        """One request to the queue's broker: the master, then its replicas, then after a pause by a new route.

        Args:
            also: codes besides success that are an answer.

        Raises:
            BrokerError: the broker refused, and would again.
            ConnectError: nobody answers (also RequestTimeout).
            RouteNotFound: the name servers know no such broker for the topic (any more).
        """
        failure: ClientError | None = None
        for attempt in range(self._retries + 1):
            if attempt:
                pause(self._retry_interval_ms)
                self._renew_route(queue.topic)
            try:
                addresses = self._addresses(queue)
            except ClientError as error:
                failure = error
                continue
            for broker_id, address in addresses:
                try:
                    answer = self._exchange(address, code, header)
                except (ConnectError, RequestTimeout) as error:
                    failure = error
                    continue
                if answer.code == ResponseCode.SUCCESS or answer.code in also:
                    self._note_replica(queue, broker_id)
                    return answer
                refused = broker_error(answer.code, answer.remark, address)
                if not refused.retriable:
                    raise refused
                failure = refused
        assert failure is not None
        raise failure

    def _note_replica(self, queue: MessageQueue, broker_id: int) -> None:
        if broker_id:
            self._replica_brokers.add(queue.broker_name)
        else:
            self._replica_brokers.discard(queue.broker_name)

    def _addresses(self, queue: MessageQueue) -> list[tuple[int, str]]:
        """(broker id, address) of the queue's broker: the master first, but last what failed lately."""
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
        """Ask anew; what is known stays while no name server has an answer."""
        known = self._routes.pop(topic, None)
        try:
            self._learn(topic)
        except RouteNotFound:
            return
        except ClientError:
            if known is not None:
                self._routes[topic] = known

    def _learn(self, topic: str) -> TopicRouteData:
        route = self.route(topic)
        keep(self._routes, topic, route, TOPICS)
        return route

    def route(self, topic: str) -> TopicRouteData:
        """A topic's route, freshly asked of a name server. Raises RouteNotFound."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = self._ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, topic)
        found = decode_body(TopicRouteData, answer.body)
        check_queues(topic, (data.read_queue_nums for data in found.queue_datas))
        return found

    def _ask_namesrv(self, code: RequestCode, header: msgspec.Struct, topic: str) -> Command:
        """The first name server that has an answer."""
        failure: ClientError | None = None
        for address in self._namesrvs:
            try:
                answer = self._exchange(address, code, header)
            except (ConnectError, RequestTimeout) as error:
                failure = error
                continue
            if answer.code == ResponseCode.SUCCESS:
                return answer
            failure = BrokerError(answer.code, answer.remark or "", address=address)
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                failure = RouteNotFound(topic)
        raise failure or RouteNotFound(topic, "no name server address is given")

    def _exchange(self, address: str, code: RequestCode, header: msgspec.Struct) -> Command:
        """A request and its answer. A kept connection, which may have been closed meanwhile, fails once for free."""
        kept = address in self._connections
        try:
            connection = self._connect(address)
            return connection.receive(connection.send(code, header))
        except ConnectError:
            self._drop(address, avoid=not kept)
            if not kept:
                raise
        except RequestTimeout:
            self._drop(address)
            raise
        return self._exchange(address, code, header)

    def _connect(self, address: str) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = BlockingConnection(
                address, timeout_ms=self._timeout_ms, connect_timeout_ms=self._connect_timeout_ms
            )
            self._connections[address] = connection
        return connection

    def _drop(self, address: str, *, avoid: bool = True) -> None:
        if avoid:
            keep(self._avoided_until_ms, address, self._clock.steady_ms() + _AVOID_MS, BROKERS)
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


_NO_OFFSET: Final = int(ResponseCode.QUERY_NOT_FOUND)
