"""State of a cluster as it says itself, asked over plain sockets: brokers, queues and their ends, groups and their places,
and the routes each single name server knows. For processes without an event loop, such as Spark's.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from roquette.admin.cluster import cluster_info, require_one
from roquette.admin.topics import create_topic
from roquette.base.clock import SystemClock
from roquette.base.executor import pause
from roquette.client import calls
from roquette.client.calls import Operation, ask, ask_all
from roquette.client.config import environment_security
from roquette.errors import (
    BrokerError,
    ConnectError,
    RouteNotFound,
)
from roquette.message.message import MessageQueue
from roquette.message.names import PERM_WRITE
from roquette.remoting.security import Security
from roquette.wire.bodies import TopicRouteData
from roquette.wire.codes import ResponseCode
from roquette_spark.workers.connection import BlockingConnections

_ROUTE_WAIT_MS: Final = 15_000  # brokers tell name servers of a new topic at once; routes follow
_ROUTE_STEP_MS: Final = 50


class BrokerAddress(NamedTuple):
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
    """Answer of one name server about one topic; `route` is None when it knows none, `error` when it did not answer."""

    name_server: str
    topic: str
    route: TopicRouteData | None
    error: str = ""


class ClusterInspector:
    """Questions to the name servers and brokers of a cluster. No connection outlives a question.

    Args:
        namesrv_addr: "host:port;host:port".
        timeout_ms: of connecting and of each answer.
        security: of the connections; None: as the environment says (`client/config.py`).
    """

    def __init__(
        self, namesrv_addr: str, *, timeout_ms: int = 30_000, security: Security | None = None
    ) -> None:
        self._connections = BlockingConnections(
            namesrv_addr,
            timeout_ms=timeout_ms,
            security=environment_security() if security is None else security,
        )
        self.name_servers = self._connections.name_servers
        self.run = self._connections.run

    def brokers(self) -> list[BrokerAddress]:
        """Every broker name the first name server that answers knows, sorted by name.

        Raises:
            ConnectError: no name server answers.
        """
        info = self.run(cluster_info())
        clusters = {name: c for c, names in info.cluster_addr_table.items() for name in names}
        return [
            BrokerAddress(
                data.cluster or clusters.get(name, ""),
                name,
                data.broker_addrs[min(data.broker_addrs)],
            )
            for name, data in sorted(info.broker_addr_table.items())
            if data.broker_addrs
        ]

    def topics_of(self, broker: BrokerAddress) -> list[str]:
        """The topics a broker has, sorted."""
        return self.run(ask(broker.address, calls.topics_of_broker()))

    def queue_states(self, broker: BrokerAddress, topics: Sequence[str]) -> list[QueueState]:
        """The queues of these topics on a broker; a topic that is gone meanwhile has none."""
        asks = ((broker.address, calls.topic_stats(topic)) for topic in topics)
        found: list[QueueState] = []
        for answer in self.run(ask_all(asks)):
            error = answer.error
            if isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
                continue
            found += [
                QueueState(
                    queue, max(0, at.min_offset), max(0, at.max_offset), at.last_update_timestamp
                )
                for queue, at in answer.get().offset_table.items()
            ]
        return found

    def committed_offsets(self, broker: BrokerAddress) -> dict[tuple[str, str], dict[int, int]]:
        """By (group, topic): the offset each queue of it on this broker goes on from, for every group."""
        return self.run(ask(broker.address, calls.committed_offsets()))

    def consume_times(
        self, broker: BrokerAddress, groups: Sequence[str]
    ) -> dict[tuple[str, MessageQueue], int]:
        """By (group, queue): the store time (ms) of the message the group consumed last there.

        A broker that refuses to tell of a group leaves it out.
        """
        asks = ((broker.address, calls.consume_stats(group)) for group in groups)
        return {
            (group, queue): at.last_timestamp
            for group, answer in zip(groups, self.run(ask_all(asks)), strict=True)
            if not isinstance(answer.error, BrokerError)
            for queue, at in answer.get().offset_table.items()
            if at.last_timestamp > 0
        }

    def topics(self) -> list[str]:
        """Every topic any name server that answers knows, sorted.

        Raises:
            ConnectError: no name server answers.
        """
        if not self.name_servers:
            raise ConnectError("no name server address is given")
        asks = ((address, calls.topic_names()) for address in self.name_servers)
        answers = self.run(ask_all(asks))
        require_one(answers)
        return sorted({topic for answer in answers for topic in answer.value or ()})

    def routes(self, topics: Iterable[str]) -> list[RouteAnswer]:
        """Return what each name server for itself says of each topic; one that does not answer says so."""
        listed = list(topics)
        wanted = [(address, topic) for address in self.name_servers for topic in listed]
        answers = self.run(ask_all((address, calls.route(topic)) for address, topic in wanted))
        return [
            RouteAnswer(
                address,
                topic,
                answer.value,
                "" if isinstance(answer.error, RouteNotFound) else answer.reason,
            )
            for (address, topic), answer in zip(wanted, answers, strict=True)
        ]

    def writable_queues(self, topic: str) -> dict[str, int]:
        """Return the number of queues that take messages, by broker name; empty when the topic does not exist."""
        try:
            found = self._connections.ask_name_servers(calls.route(topic))
        except RouteNotFound:
            return {}
        finally:
            self._connections.close()
        return {
            data.broker_name: data.write_queue_nums
            for data in found.queue_datas
            if data.perm & PERM_WRITE
        }

    def create_topic(self, topic: str, queues: int) -> dict[str, int]:
        """Make a topic with so many queues on every master, and wait until its route is known.

        Returns its queues by broker name.

        Raises:
            BrokerError, ConnectError: a master refused, or cannot be reached.
            RouteNotFound: the name servers did not hear of it in time.
        """
        self.run(_created_everywhere(self.name_servers, topic, queues))
        clock = SystemClock()
        end_ms = clock.steady_ms() + _ROUTE_WAIT_MS
        while not (found := self.writable_queues(topic)):
            if clock.steady_ms() > end_ms:
                raise RouteNotFound(
                    topic, f"the name servers did not hear of the new topic {topic}"
                )
            pause(_ROUTE_STEP_MS)
        return found


def _created_everywhere(name_servers: Sequence[str], topic: str, queues: int) -> Operation[None]:
    (yield from create_topic(name_servers, topic, queues=queues)).require_all()


def wanted_topics(
    names: Iterable[str], wanted: Callable[[str], bool], brokers: Sequence[BrokerAddress]
) -> list[str]:
    """The names that are wanted and are not those of clusters and brokers, which brokers make topics of too."""
    own = {broker.cluster for broker in brokers} | {broker.broker_name for broker in brokers}
    return [name for name in names if name not in own and wanted(name)]
