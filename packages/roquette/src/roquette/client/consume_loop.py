"""The tasks that pull a push consumer's queues: long polling, flow control, offset correction."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from roquette.base.lifecycle import Health
from roquette.client import calls
from roquette.client.calls import Pulled, PullFilter
from roquette.client.consumer_options import MemberOptions, Model
from roquette.client.core.process_queue import ProcessQueue
from roquette.client.core.rates import ConsumeRates
from roquette.client.core.route_cache import TopicRoute
from roquette.client.selection import matcher
from roquette.client.session import Session
from roquette.errors import BrokerError, ClientError, CorruptRecord
from roquette.message.message import MessageQueue, ReceivedMessage, received
from roquette.message.names import RETRY_PREFIX
from roquette.message.record import decode_records
from roquette.message.sysflag import COMPRESSED
from roquette.wire.bodies import SubscriptionData
from roquette.wire.codes import ResponseCode

log = logging.getLogger("roquette.client")

FLOW_CONTROL_PAUSE_MS: Final = 20
_NO_LIMIT: Final = 1 << 62


class Receiver(Protocol):
    """Receiver of pulled messages."""

    def submit(self, state: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Handle these messages."""
        ...

    def bury(self, state: ProcessQueue, message: ReceivedMessage) -> None:
        """Set aside a message whose body cannot be decompressed."""
        ...

    async def move(self, state: ProcessQueue, offset: int) -> None:
        """Go on at another offset, with a new `ProcessQueue`."""
        ...


class PullLoop:
    """Pulls the queues of one consumer; `run` is the task of one queue.

    Attributes:
        paused: nothing more is pulled while it is True.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        options: MemberOptions,
        receiver: Receiver,
        rates: ConsumeRates,
    ) -> None:
        self._session = session
        self._config = session.config
        self._namespace = session.namespace
        self._group = group
        self._subscriptions = subscriptions
        self._matchers = {topic: matcher(wanted) for topic, wanted in subscriptions.items()}
        self._orderly = options.orderly
        self._batch = options.batch
        self._commits = options.model is Model.CLUSTERING and options.offsets is None
        self._receiver = receiver
        self._rates = rates
        self.paused = False
        self._limits: dict[str, tuple[int, int]] = {}  # of topics: messages and bytes of one queue

    def divide(self, queues: Iterable[MessageQueue]) -> None:
        """These are the consumer's queues: each has its part of what a topic may have (Apache: messageQueueChanged)."""
        config = self._config
        counts, sizes = config.pull_threshold_topic_count, config.pull_threshold_topic_bytes
        for topic, number in Counter(queue.topic for queue in queues).items():
            self._limits[topic] = (
                max(counts // number, 1) if counts else _NO_LIMIT,
                max(sizes // number, 1) if sizes else _NO_LIMIT,
            )

    async def run(self, state: ProcessQueue, health: Health) -> None:
        """Pull until the queue is given up."""
        config = self._config
        broker_id = 0
        while not state.dropped:
            if self._must_pause(state) or (self._orderly and not state.locked):
                await asyncio.sleep(config.pull_pause_ms / 1000)
                continue
            queue = state.queue
            route = self._session.known_route(queue.topic)
            try:
                began_ms = self._session.clock.steady_ms()
                pulled = await self._pull(state, broker_id)
                if state.dropped:
                    return
                stuck = pulled.again and pulled.next_offset == state.next_offset
                asked_id, broker_id = broker_id, pulled.suggested_broker_id
                if pulled.moved and asked_id != 0:
                    broker_id = 0  # a replica that is behind: only a master says what there is
                    await self._moved(route, queue, config.pull_retry_ms)
                    continue
                if pulled.moved:
                    await self._move(state, pulled.next_offset)
                    return
                self._take(state, pulled, began_ms)
                health.worked()
                if stuck and pulled.suggested_broker_id == 0:  # "ask the master": that is not who
                    await self._moved(route, queue, config.pull_pause_ms)  # we take for it
            except (ClientError, CorruptRecord) as error:
                pause_ms = config.pull_retry_ms
                if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
                    pause_ms = FLOW_CONTROL_PAUSE_MS
                else:
                    self._session.noise.warning(
                        f"pull-{state.queue.topic}",
                        "pull failed queue=%s error=%s",
                        state.queue,
                        error,
                    )
                if await self._moved(route, queue, pause_ms, error):
                    broker_id = 0
                elif not isinstance(error, BrokerError):
                    replica = route.replica_of(queue.broker_name) if route is not None else 0
                    broker_id = 0 if broker_id else replica

    async def _moved(
        self,
        route: TopicRoute | None,
        queue: MessageQueue,
        pause_ms: int,
        error: Exception | None = None,
    ) -> bool:
        """Pause, at a master's failure until there is another one; True when there is."""
        if error is None or (isinstance(error, ClientError) and error.stale_route):
            masters = self._session.masters
            return await masters.moved(route, queue.topic, queue.broker_name, pause_ms / 1000)
        await asyncio.sleep(pause_ms / 1000)
        return False

    def _must_pause(self, state: ProcessQueue) -> bool:
        """Return True when enough is waiting for the handlers (DefaultMQPushConsumerImpl.pullMessage's flow control)."""
        config = self._config
        count, size = self._limits.get(state.queue.topic, (_NO_LIMIT, _NO_LIMIT))
        return (
            self.paused
            or state.count > min(config.pull_threshold_count, count)
            or state.size > min(config.pull_threshold_bytes, size)
            or state.must_wait()
            or (not self._orderly and state.span() > config.pull_threshold_span)
        )

    async def _pull(self, state: ProcessQueue, broker_id: int) -> Pulled:
        session, config, queue = self._session, self._config, state.queue
        wanted = self._subscriptions[queue.topic]
        call = calls.pull(
            self._group,
            queue,
            state.next_offset,
            max(config.pull_batch, self._batch),
            PullFilter(wanted.sub_string, wanted.expression_type),
            sub_version=wanted.sub_version,
            hold_ms=config.pull_hold_ms,
            commit=state.committable() if self._commits and broker_id == 0 else 0,
        )
        route = session.known_route(queue.topic)
        address = (
            route.address_for_read(queue.broker_name, broker_id) if route is not None else None
        )
        address = address or session.master_of(queue)
        state.last_pull_ms = session.clock.now_ms()
        session.greet_soon(address)
        return await session.api.call(address, call, timeout_ms=config.pull_timeout_ms)

    def _take(self, state: ProcessQueue, pulled: Pulled, began_ms: int) -> None:
        if not pulled.records:
            state.next_offset = pulled.next_offset
            return
        messages: list[ReceivedMessage] = []
        unreadable: list[ReceivedMessage] = []
        retrying = state.queue.topic.startswith(RETRY_PREFIX)
        matches = self._matchers[state.queue.topic]
        for record in decode_records(pulled.records):
            try:
                message = received(record, state.queue.broker_name)
            except CorruptRecord as error:
                record.sys_flag &= ~COMPRESSED
                unreadable.append(received(record, state.queue.broker_name))
                log.warning("body is unreadable queue=%s error=%s", state.queue, error)
                continue
            if matches is not None and not matches(record, message):
                continue
            if retrying:
                message.topic = message.origin_topic  # a returned message shows what it was sent to
            if self._namespace:
                self._namespace.show(message)
            messages.append(message)
        state.take(messages + unreadable, pulled.next_offset)
        took_ms = self._session.clock.steady_ms() - began_ms
        self._rates.pulled(state.queue.topic, len(messages) + len(unreadable), took_ms)
        self._receiver.submit(state, messages)
        for message in unreadable:
            self._receiver.bury(state, message)

    async def _move(self, state: ProcessQueue, offset: int) -> None:
        """The broker says our offset is outside the queue: go on where it says (pullKernel's OFFSET_ILLEGAL)."""
        log.warning("offset moved queue=%s from=%d to=%d", state.queue, state.next_offset, offset)
        await self._receiver.move(state, offset)
