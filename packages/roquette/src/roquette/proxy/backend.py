"""Backend of the proxy: brokers, as requests and answers of the remoting protocol."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from roquette.proxy.answers import Then
from roquette.proxy.call import Caller
from roquette.wire.bodies.clients import HeartbeatData
from roquette.wire.bodies.group_config import SubscriptionGroupConfig
from roquette.wire.bodies.route import BrokerData, TopicRouteData
from roquette.wire.proto.definition_pb2 import Endpoints


class RequestUnderWay(Protocol):
    """A request under way."""

    def cancel(self) -> None:
        """Nobody wants the answer: `then` is not called any more, and what waits (a held POP) hands out nothing.

        A POP at a broker that is not in this process cannot be taken back: there, `then` is called all the same, and
        gives back what it gets.
        """


class TopicFacts(NamedTuple):
    """Facts of a topic that the proxy needs.

    Attributes:
        kind: NORMAL, FIFO, DELAY, TRANSACTION, MIXED, PRIORITY, LITE, or UNSPECIFIED.
        route: the queues this proxy itself sends to and receives from: those of its own broker when it is LOCAL.
    """

    name: str
    kind: str
    route: TopicRouteData


class Backend(Protocol):
    """Brokers behind the proxy. Every `then` is called at most once, in the loop's thread, perhaps at once.

    Attributes:
        in_process: the broker is one of ours, in this process.
    """

    in_process: bool

    def ask(
        self, caller: Caller, broker: str, code: int, header: Any, body: bytes, then: Then,
        timeout_ms: int = 3000,
    ) -> RequestUnderWay:  # fmt: skip
        """Send a request to the master of a broker name.

        Args:
            header: the Struct of `wire/headers` that `code` has, or None.
            then: gets the answer; SYSTEM_BUSY, PROXY_TIMEOUT and the like where there is none.
        """

    def topic(self, caller: Caller, name: str, then: Callable[[TopicFacts | None], None]) -> None:
        """Look a topic up; None: there is none, and none may be made for this caller."""

    def route(
        self, caller: Caller, name: str, used: Endpoints, then: Callable[[TopicFacts | None], None]
    ) -> None:
        """The topic with all its queues, of all brokers: for the client's own choice."""

    def endpoints(
        self, caller: Caller, broker: BrokerData, number: int, used: Endpoints
    ) -> Endpoints:
        """Return where the caller reaches the member of a route's broker with this id; `used`: the endpoints it used to get here."""

    def group(
        self, caller: Caller, name: str, then: Callable[[SubscriptionGroupConfig | None], None]
    ) -> None:
        """Look a consumer group up, as far as it exists or may be made."""

    def register(self, caller: Caller, heartbeat: HeartbeatData) -> None:
        """A client lives: its groups, as a heartbeat of the remoting protocol."""

    def unregister(self, caller: Caller, client_id: str, group: str, *, producer: bool) -> None:
        """A client has left a group."""

    @property
    def own(self) -> Caller:
        """Caller of requests that no client makes: renewals after its connection is gone."""
