"""A reader as a member of a group: which queues are its own, and what it saves when they change.

Apache: DefaultLitePullConsumerImpl in SUBSCRIBE mode, RebalanceLitePullImpl.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from roquette.base.lifecycle import Health
from roquette.client.consumer_options import StartFrom
from roquette.client.core.rebalance import Strategy
from roquette.client.members import CANCEL_S, SOON_S, members_of
from roquette.client.offset_store import MemberOffsets
from roquette.client.operator_requests import running_info
from roquette.client.session import Session
from roquette.errors import ClientError, Refused
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.remoting.outcomes import Outcome, Reply
from roquette.wire.bodies import ConsumerData, SubscriptionData
from roquette.wire.codes import CURRENT_VERSION, ResponseCode, version_text
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.client")

Changed = Callable[[list[MessageQueue], list[MessageQueue]], None]
"""Told when a reader's queues have changed: those it gained, and those it lost."""


class GroupReader(Protocol):
    """Reader as its membership of a group uses it."""

    def assigned(self) -> list[MessageQueue]:
        """The queues it reads."""
        ...

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read a queue from there on."""
        ...

    async def give_up(self, queues: list[MessageQueue]) -> None:
        """Read them no more, and save what is done of them."""
        ...

    def offsets(self) -> dict[MessageQueue, int]:
        """Return what would be committed now."""
        ...


class PullGroup:
    """The membership of one reader."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        start_from: StartFrom | int,
        strategy: Strategy,
        reader: GroupReader,
    ) -> None:
        self.group = group
        self.changed: Changed | None = None
        self._session = session
        self._subscriptions = subscriptions
        self._start_from = start_from
        self._strategy = strategy
        self._reader = reader
        self._store = MemberOffsets(session, group, start_from, None)
        self._event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join; returns when the first share of queues is known. Raises ConfigError."""
        await self._session.add_consumer(self)
        try:
            for topic in self.topics():
                await self._session.learn_route(topic, self.group)
            await self._session.heartbeat()
            if not await self._rebalance():
                self._session.tasks.start("rebalance-again", self._again())
            self._task = self._session.tasks.keep(f"reader-{self.group}", self._run)
        finally:
            if self._task is None:
                leaving = self._session.tasks.start("leave", self._session.remove_consumer(self))
                await asyncio.wait((leaving,), timeout=CANCEL_S)

    async def close(self) -> None:
        """Leave."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._session.remove_consumer(self)

    async def _run(self, health: Health) -> None:
        while True:
            try:
                async with asyncio.timeout(self._session.config.rebalance_ms / 1000):
                    await self._event.wait()
            except TimeoutError:
                pass
            self._event.clear()
            if not await self._rebalance():
                self._session.tasks.start("rebalance-again", self._again())
            health.worked()

    async def _again(self) -> None:
        await asyncio.sleep(SOON_S)
        self.rebalance_soon()

    async def _rebalance(self) -> bool:
        """Give up and take up the difference; False: something is not known yet."""
        known = True
        mine: dict[str, list[MessageQueue]] = {}
        for topic in self.topics():
            route = self._session.known_route(topic)
            if route is None:
                route = await self._session.learn_route(topic, self.group)
            members = await members_of(self._session, self.group, topic)
            if route is None or self._session.client_id not in members:
                known = False  # keep what we have until the next turn
                continue
            mine[topic] = self._strategy(self._session.client_id, members, route.subscribe)
        wanted = {queue for queues in mine.values() for queue in queues}
        space = self._session.namespace
        before = [space.wrap_queue(queue) for queue in self._reader.assigned()]
        gone = [queue for queue in before if queue.topic in mine and queue not in wanted]
        lost = list(space.shown_queues(gone))
        if lost:
            await self._reader.give_up(lost)
        gained = []
        for queue in sorted(wanted.difference(before)):
            try:
                shown = space.shown_queue(queue)
                self._reader.seek(shown, await self._store.begin_at(queue))
                gained.append(shown)
            except ClientError as error:
                log.warning(
                    "no start offset yet group=%s queue=%s error=%s", self.group, queue, error
                )
                known = False
        if gained or lost:
            log.info("queues changed group=%s +%d -%d", self.group, len(gained), len(lost))
            if self.changed is not None:
                try:
                    self.changed(gained, lost)
                except Exception:
                    log.exception("on_change failed group=%s", self.group)
        return known

    # what the session asks

    def describe(self) -> ConsumerData:
        """Its part of a heartbeat."""
        where = self._start_from
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_TIMESTAMP" if isinstance(where, int) else where,
            subscription_data_set=list(self._subscriptions.values()),
        )

    def topics(self) -> list[str]:
        """Topics whose routes are needed."""
        return list(self._subscriptions)

    def rebalance_soon(self) -> None:
        """Members or routes changed."""
        self._event.set()

    def master_moved(self) -> None:
        """Queues need no locks here; shares are worked out again."""
        self.rebalance_soon()

    def running_info(self, jstack: bool) -> Outcome:
        """Describe what this reader is doing, for operators."""
        properties = {
            "PROP_NAMESERVER_ADDR": ";".join(self._session.name_servers),
            "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
            "PROP_CLIENT_VERSION": version_text(CURRENT_VERSION),
        }
        return Reply(b"", encode_body(running_info(properties, self._subscriptions, {})))

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets it has reached in its queues of a topic."""
        known = self._session.namespace.wrap_queue
        offsets = {known(q): offset for q, offset in self._reader.offsets().items()}
        return {q: offset for q, offset in offsets.items() if q.topic == topic}

    def continue_from(self, offsets: dict[MessageQueue, int]) -> None:
        """An operator resets our offsets through us."""
        for queue in self._reader.assigned():
            offset = offsets.get(self._session.namespace.wrap_queue(queue))
            if offset is not None:
                self._reader.seek(queue, offset)

    def consume_directly(self, message: ReceivedMessage) -> Outcome:
        """It has no handler."""
        raise Refused(ResponseCode.SYSTEM_ERROR, f"group {self.group} is read by pulling")
