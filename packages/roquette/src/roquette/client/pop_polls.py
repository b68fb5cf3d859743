"""Asking brokers for messages: at most one pop under way at each.

A broker answers a pop although nobody waits for it any more, and hides what it gives. So pops outlive the `PoppedMessages` that
asked: the next `PoppedMessages` of the same group, topic and filter gets their answers.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from roquette.client import pop_requests
from roquette.client.members import SOON_S
from roquette.client.pop_requests import Popped
from roquette.client.selection import Selection
from roquette.client.session import Session
from roquette.errors import ClientError, CorruptRecord, Unreachable
from roquette.message.message import MessageQueue
from roquette.wire.bodies import SubscriptionData
from roquette.wire.headers import PopMessageRequestHeader

HOLD_EXTRA_MS: Final = 5_000  # an answer to a pop may come so long after the broker has held it


@dataclass(frozen=True, slots=True, kw_only=True)
class PopPlan:
    """Plan of popping; `PopOptions` explains each.

    Attributes:
        timeout_s: after so long without a message there are no more.
    """

    topic: str
    group: str
    wanted: Selection = "*"
    invisible_ms: int = 60_000
    batch: int = 16
    from_first: bool = False
    orderly: bool = False
    renew: bool = False
    most_tries: int = 17
    timeout_s: float | None = None

    @property
    def pool(self) -> tuple[object, ...]:
        """Key of those that ask for the same, and may take each other's answers."""
        return self.topic, self.group, self.wanted, self.orderly


class Taker(Protocol):
    """Receiver of the answers."""

    _plan: PopPlan
    _wanted: SubscriptionData

    def _take(self, popped: Popped, name: str) -> None:
        """Messages of a broker. Raises CorruptRecord, RemoteProtocolError."""
        ...

    def _poll_ended(self) -> None:
        """A pop has ended."""
        ...


class Polls:
    """The pops under way; `to` gets their answers."""

    to: Taker

    def __init__(self, session: Session, topic: str) -> None:
        self._session = session
        self._topic = topic
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._attempts: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def ask(self) -> None:
        """Begin to pop from each broker that is not asked already."""
        route = self._session.known_route(self._topic)
        names = {queue.broker_name for queue in route.subscribe} if route is not None else set()
        for name in names or {""}:  # "": the route is asked for
            if name not in self._tasks:
                self._tasks[name] = self._session.tasks.start("pop", self._poll(name))

    async def _poll(self, name: str) -> None:
        session, topic = self._session, self._topic
        route = session.known_route(topic)
        pause_s = session.config.pull_retry_ms / 1000
        try:
            if not name:
                await session.route(topic, fresh=True)
                route = session.known_route(topic)
                if route is None or not route.subscribe:
                    raise ClientError(f"topic {topic} has no queue that can be read")
                return
            await self._pop(name)
        except (ClientError, CorruptRecord) as error:
            session.noise.warning(
                f"pop-{topic}-{name}", "pop failed topic=%s broker=%s error=%s", topic, name, error
            )
            if isinstance(error, Unreachable):  # it may be starting
                pause_s = SOON_S
            if name:
                await session.masters.moved(route, topic, name, pause_s)
            else:
                await asyncio.sleep(SOON_S)
        finally:
            del self._tasks[name]
            self.to._poll_ended()

    async def _pop(self, name: str) -> None:
        session, plan, wanted = self._session, self.to._plan, self.to._wanted
        hold_ms = session.config.pull_hold_ms
        if plan.orderly and name not in self._attempts:
            self._attempts[name] = session.entropy.token(16)
        header = PopMessageRequestHeader(
            consumer_group=plan.group,
            topic=plan.topic,
            queue_id=-1,
            max_msg_nums=plan.batch,
            invisible_time=plan.invisible_ms,
            poll_time=hold_ms,
            init_mode=0 if plan.from_first else 1,
            exp_type=wanted.expression_type,
            exp=wanted.sub_string,
            order=plan.orderly,
            attempt_id=self._attempts.get(name),
            bname=name,
        )
        address = session.master_of(MessageQueue(plan.topic, name, -1))
        popped = await session.api.call(
            address, pop_requests.pop(header), timeout_ms=hold_ms + HOLD_EXTRA_MS
        )
        self._attempts.pop(name, None)  # one that was not answered gets the same messages again
        if popped.full:
            await asyncio.sleep(session.config.pull_retry_ms / 1000)
        elif popped.records:
            self.to._take(popped, name)
