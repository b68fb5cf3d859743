"""What a cluster says of itself, asked over plain sockets: brokers, queues and their ends, groups and their places,
and the routes each single name server knows. For processes without an event loop; nothing is changed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from roquette.client.blocking import BlockingConnection
from roquette.errors import BrokerError, ConnectError, RemoteProtocolError, RequestTimeout
from roquette.message.message import MessageQueue
from roquette.wire.bodies import (
    ClusterInfo,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    SubscriptionGroupWrapper,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicRouteData,
    TopicStatsTable,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.headers import (
    GetAllTopicConfigRequestHeader,
    GetConsumeStatsRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from roquette.wire.json_body import decode_body

_AHEAD: Final = 32  # requests on their way on one connection
T = TypeVar("T")


class BrokerPlace(NamedTuple):
    """One broker name and the member that is asked: the master, or the replica with the lowest id."""

    cluster: str
    broker_name: str
    address: str


class QueueState(NamedTuple):
    """The ends of a queue. `last_store_ms`: when it was last written, 0 if never or if the broker does not tell."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_store_ms: int


class RouteAnswer(NamedTuple):
    """What one name server says of one topic; `route` is None when it knows none, `error` when it did not answer."""

    name_server: str
    topic: str
    route: TopicRouteData | None
    error: str = ""


class _Nothing(msgspec.Struct, gc=False):
    """The header of a request without fields."""


class Survey:
    """Questions to the name servers and brokers of a cluster.

    Args:
        namesrv_addr: "host:port;host:port".
        timeout_ms: of connecting and of each answer.
    """

    def __init__(self, namesrv_addr: str, *, timeout_ms: int = 30_000) -> None:
        addresses = namesrv_addr.replace(",", ";").split(";")
        self.name_servers = tuple(each.strip() for each in addresses if each.strip())
        self._timeout_ms = timeout_ms
        self._connections: dict[str, BlockingConnection] = {}  # one for each server of the cluster

    def close(self) -> None:
        """Close all connections. The survey can be used again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def brokers(self) -> list[BrokerPlace]:
        """Every broker name the first name server that answers knows, sorted by name.

        Raises:
            ConnectError: no name server answers.
        """
        info = self._first_answer(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo)
        clusters = {name: c for c, names in info.cluster_addr_table.items() for name in names}
        return [
            BrokerPlace(
                data.cluster or clusters.get(name, ""),
                name,
                data.broker_addrs[min(data.broker_addrs)],
            )
            for name, data in sorted(info.broker_addr_table.items())
            if data.broker_addrs
        ]

    def topics_of(self, place: BrokerPlace) -> list[str]:
        """The topics a broker has, sorted."""
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        (answer,) = self._ask(place.address, code, [GetAllTopicConfigRequestHeader()])
        found = _body(answer, place.address, TopicConfigAndMappingSerializeWrapper)
        return sorted(found.topic_config_table)

    def queue_states(self, place: BrokerPlace, topics: Sequence[str]) -> list[QueueState]:
        """The queues of these topics on a broker; a topic that is gone meanwhile has none."""
        headers = [GetTopicStatsInfoRequestHeader(topic=topic) for topic in topics]
        found: list[QueueState] = []
        for answer in self._ask(place.address, RequestCode.GET_TOPIC_STATS_INFO, headers):
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                continue
            table = _body(answer, place.address, TopicStatsTable).offset_table
            found += [
                QueueState(
                    queue, max(0, o.min_offset), max(0, o.max_offset), o.last_update_timestamp
                )
                for queue, o in sorted(table.items())
            ]
        return found

    def committed_offsets(self, place: BrokerPlace) -> dict[tuple[str, str], dict[int, int]]:
        """By (group, topic): the offset each queue of it on this broker goes on from, for every group."""
        (answer,) = self._ask(place.address, RequestCode.GET_ALL_CONSUMER_OFFSET, [_Nothing()])
        table = _body(answer, place.address, ConsumerOffsetSerializeWrapper).offset_table
        found: dict[tuple[str, str], dict[int, int]] = {}
        for key, offsets in table.items():
            topic, separator, group = key.partition("@")
            if separator:
                found[group, topic] = offsets
        return found

    def groups(self, place: BrokerPlace) -> list[str]:
        """The groups a broker knows a configuration of, sorted."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        (answer,) = self._ask(place.address, code, [_Nothing()])
        return sorted(
            _body(answer, place.address, SubscriptionGroupWrapper).subscription_group_table
        )

    def consume_times(
        self, place: BrokerPlace, groups: Sequence[str]
    ) -> dict[tuple[str, MessageQueue], int]:
        """By (group, queue): the store time (ms) of the message the group consumed last there.

        A broker that refuses to tell of a group leaves it out.
        """
        headers = [GetConsumeStatsRequestHeader(consumer_group=group) for group in groups]
        found: dict[tuple[str, MessageQueue], int] = {}
        answers = self._ask(place.address, RequestCode.GET_CONSUME_STATS, headers)
        for group, answer in zip(groups, answers, strict=True):
            if answer.code != ResponseCode.SUCCESS:
                continue
            table = _body(answer, place.address, ConsumeStats).offset_table
            for queue, at in table.items():
                if at.last_timestamp > 0:
                    found[group, queue] = at.last_timestamp
        return found

    def topics(self) -> list[str]:
        """Every topic any name server that answers knows, sorted.

        Raises:
            ConnectError: no name server answers.
        """
        found: set[str] = set()
        failure: Exception | None = None
        answered = False
        for address in self.name_servers:
            code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            try:
                (answer,) = self._ask(address, code, [_Nothing()])
            except (ConnectError, RequestTimeout) as error:
                failure = error
                continue
            found |= set(_body(answer, address, TopicList).topic_list)
            answered = True
        if not answered:
            raise failure or ConnectError("no name server address is given")
        return sorted(found)

    def routes(self, topics: Iterable[str]) -> list[RouteAnswer]:
        """What each name server for itself says of each topic; one that does not answer says so."""
        wanted = list(topics)
        headers = [
            GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
            for topic in wanted
        ]
        found: list[RouteAnswer] = []
        for address in self.name_servers:
            try:
                answers = self._ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, headers)
            except (ConnectError, RequestTimeout) as error:
                found += [RouteAnswer(address, topic, None, str(error)) for topic in wanted]
                continue
            for topic, answer in zip(wanted, answers, strict=True):
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    found.append(RouteAnswer(address, topic, None))
                else:
                    found.append(
                        RouteAnswer(address, topic, _body(answer, address, TopicRouteData))
                    )
        return found

    def _first_answer(self, code: RequestCode, kind: type[T]) -> T:
        failure: Exception | None = None
        for address in self.name_servers:
            try:
                (answer,) = self._ask(address, code, [_Nothing()])
            except (ConnectError, RequestTimeout) as error:
                failure = error
                continue
            return _body(answer, address, kind)
        raise failure or ConnectError("no name server address is given")

    def _ask(
        self, address: str, code: RequestCode, headers: Sequence[msgspec.Struct]
    ) -> list[Command]:
        """Requests of one code to one server, some of them ahead; answers in their order."""
        fresh = address not in self._connections
        try:
            return self._ask_once(address, code, headers)
        except ConnectError:
            if fresh:
                raise
            return self._ask_once(address, code, headers)  # the old connection had been closed

    def _ask_once(
        self, address: str, code: RequestCode, headers: Sequence[msgspec.Struct]
    ) -> list[Command]:
        connection = self._connections.get(address)
        if connection is None:
            connection = BlockingConnection(address, timeout_ms=self._timeout_ms)
            self._connections[address] = connection
        sent: list[int] = []
        answers: list[Command] = []
        try:
            for header in headers:
                sent.append(connection.send(code, header))
                if len(sent) - len(answers) >= _AHEAD:
                    answers.append(connection.receive(sent[len(answers)]))
            answers += [connection.receive(opaque) for opaque in sent[len(answers) :]]
        except (ConnectError, RequestTimeout):
            self._connections.pop(address).close()
            raise
        return answers


def _body(answer: Command, address: str, kind: type[T]) -> T:
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark or "", address=address)
    try:
        return decode_body(kind, answer.body)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{address}: {error}") from None


def wanted_topics(
    names: Iterable[str], wanted: Callable[[str], bool], places: Sequence[BrokerPlace]
) -> list[str]:
    """The names that are wanted and are not those of clusters and brokers, which brokers make topics of too."""
    own = {place.cluster for place in places} | {place.broker_name for place in places}
    return [name for name in names if name not in own and wanted(name)]
