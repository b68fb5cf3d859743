"""Backend of the proxy: brokers, as requests and answers of the remoting protocol."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from roquette.base.lifecycle import Tasks
from roquette.client.calls import Call
from roquette.client.core.route_cache import TOPICS, keep
from roquette.errors import ClientError
from roquette.proxy.service import Caller, Then
from roquette.wire.bodies.clients import HeartbeatData
from roquette.wire.bodies.route import BrokerData, TopicRouteData
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.headers import GetSubscriptionGroupConfigRequestHeader
from roquette.wire.json_body import decode_body
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


# Topics and groups as a proxy of its own process knows them: asked once for all who wait, kept, and asked again in the background.


log = logging.getLogger("roquette.proxy")

FRESH_S: Final = 20.0  # Apache: topicRouteServiceCacheRefreshSeconds
WAITING: Final = 10_000  # who wait for answers of one table

T = TypeVar("T")


def group_config(group: str) -> Call[SubscriptionGroupConfig | None]:
    """A consumer group as a broker has it; None: it has none."""

    def read(answer: Command) -> SubscriptionGroupConfig | None:
        return None if answer.code else decode_body(SubscriptionGroupConfig, answer.body)

    header = GetSubscriptionGroupConfigRequestHeader(group=group)
    missing = frozenset((ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,))
    return Call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, read, header, also=missing)


class Lookup(Generic[T]):
    """A table of things by name.

    Args:
        fetch: asks for one; None: there is none, which is not kept. now_s: steady time.
    """

    def __init__(
        self, fetch: Callable[[str], Awaitable[T | None]], tasks: Tasks, now_s: Callable[[], float]
    ) -> None:
        self._fetch = fetch
        self._tasks = tasks
        self._now_s = now_s
        self._known: dict[str, tuple[T, float]] = {}
        self._asked: dict[str, list[Callable[[T | None], None]]] = {}
        self._waiting = 0

    def known(self, name: str) -> T | None:
        """Return what is known now."""
        found = self._known.get(name)
        return None if found is None else found[0]

    def put(self, name: str, value: T) -> None:
        """Something newer is known of it; when it is asked for again does not change."""
        found = self._known.get(name)
        if found is not None:
            self._known[name] = value, found[1]

    def forget(self, name: str) -> None:
        """The next one asks."""
        self._known.pop(name, None)

    def get(self, name: str, then: Callable[[T | None], None]) -> None:
        """Look it up: at once where it is known, also when that is being looked at again."""
        found = self._known.get(name)
        if found is not None:
            if self._now_s() - found[1] > FRESH_S and name not in self._asked:
                self._begin(name)
            then(found[0])
        elif self._waiting >= WAITING:
            then(None)
        else:
            if name not in self._asked:
                self._begin(name)
            self._asked[name].append(then)
            self._waiting += 1

    def _begin(self, name: str) -> None:
        self._asked[name] = []
        self._tasks.start(f"lookup-{name}", self._look(name))

    async def _look(self, name: str) -> None:
        found = self._known.get(name)
        value = None if found is None else found[0]  # it stays where nobody can be asked
        try:
            value = await self._fetch(name)
        except ClientError as error:
            log.debug("lookup failed name=%s error=%s", name, error)
        finally:
            if value is None:
                self._known.pop(name, None)
            else:
                keep(self._known, name, (value, self._now_s()), TOPICS)
            waiting = self._asked.pop(name)
            self._waiting -= len(waiting)
            loop = asyncio.get_running_loop()
            for then in waiting:  # each on its own: what one does wrong does not concern the others
                loop.call_soon(then, value)
