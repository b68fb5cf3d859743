"""Sending: one message, one way, pipelined, in batches; retries go to another broker.

Apache: DefaultMQProducerImpl.sendDefaultImpl and sendKernelImpl.
"""

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypedDict

from roquette.client import calls
from roquette.client.calls import AHEAD
from roquette.client.core.namespace import Namespace
from roquette.client.core.route_cache import (
    PAUSE_LEAST_MS,
    TOPICS,
    KeysPart,
    LatencyTable,
    RoundRobin,
    TopicRoute,
    by_key,
    by_keys,
    keep,
    may_retry,
    pause_ms,
    shares,
    was_not_taken,
)
from roquette.client.pipeline import Linger, SendPipeline
from roquette.client.receipt import SendReceipt, all_stored
from roquette.client.send_request import SEND_OK, Chooser, Headers, Preparation, SendRequest
from roquette.client.session import Session
from roquette.client.under_way import Interceptors, UnderWay
from roquette.errors import (
    ClientError,
    ConnectError,
    MessageIllegal,
    NotSent,
    RequestTimeout,
    RouteNotFound,
)
from roquette.message.message import Message, MessageQueue
from roquette.message.names import RETRY_PREFIX
from roquette.message.properties import PGROUP, TRAN_MSG
from roquette.message.record import encode_batch
from roquette.message.sysflag import TRANSACTION_PREPARED

__all__ = ["Producer", "Selector", "SendReceipt"]


# Probes of brokers that did not answer a send, so that they get sends again when they answer. Apache: startDetector.


class Detector:
    """Of one producer; `step` runs at an interval."""

    def __init__(self, session: Session, table: LatencyTable) -> None:
        self._session = session
        self._table = table

    async def step(self) -> None:
        """Ask each broker that is isolated once."""
        names = self._table.isolated()
        for start in range(0, len(names), AHEAD):
            await asyncio.gather(*map(self._probe, names[start : start + AHEAD]))

    async def _probe(self, name: str) -> None:
        session = self._session
        queue = session.queue_at(name)
        if queue is not None:
            limit_ms = session.config.detect_timeout_ms
            try:
                address = session.master_of(queue)
                await session.api.call(address, calls.max_offset(queue), timeout_ms=limit_ms)
            except ClientError:
                return
        self._table.reached(name)  # it answers, or no route names it any more


log = logging.getLogger("roquette.client")

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]

FLUSH_S: Final = 30.0  # how long a client's end waits for sends, and any flush for one-way sends
MISSES: Final = 2  # parts of a batch that fail one after the other; then the rest is not tried


class Producer:
    """Sends for one producer group over a shared session.

    Args:
        namespace: of the group and of the topics; None: the session's.

    Attributes:
        group: as brokers know it. `shown_group`: as the application does. `namespace`: of both.
        under_way: what has begun and not ended.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        interceptors: Interceptors,
        namespace: Namespace | None = None,
    ) -> None:
        self.namespace = session.namespace if namespace is None else namespace
        self.shown_group = group
        self.group = group = self.namespace.wrap(group)
        self._interceptors = interceptors
        self._begin = interceptors.begin
        self._session = session
        self._config = session.config
        config = session.config
        self._latency = LatencyTable(isolates=config.detect_isolated_brokers)
        if config.detect_isolated_brokers:
            step = Detector(session, self._latency).step
            session.tasks.every("detect-brokers", config.detect_interval_ms / 1000, step)
        self._turns: dict[str, RoundRobin] = {}
        self._headers = Headers(group, session.config, session.clock)
        self.under_way = UnderWay()
        self._pipeline = SendPipeline(
            session, self._headers, self._publish_route, self._attempts, self.under_way
        )
        self._preparation = Preparation(session, self.namespace)
        self.new_id = self._preparation.new_id
        self._linger: Linger | None = None
        if config.linger_ms:
            pause_s, waiting = config.linger_ms / 1000, self._send_waiting
            self._linger = Linger(pause_s, self._preparation, session.tasks, waiting)
        session.add_producer_group(group)

    @property
    def max_delay_level(self) -> int:
        """The highest delay level a message may have."""
        return self._config.max_delay_level

    # what users call

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send and wait for the broker's answer.

        Raises:
            MessageIllegal: the message breaks a rule before anything is sent.
            RouteNotFound, BrokerError, ConnectError, RequestTimeout: after every attempt failed.
        """
        with self.under_way.lot, self._begin(message, self.shown_group) as begun:
            alone = queue or selector or timeout_ms is not None
            if self._linger is not None and not alone and self._linger.fits(message):
                receipt = await self._linger.add(message)
            else:
                request = self._preparation.request(message)
                choose = self._chooser(message, queue, selector)
                receipt = (await self._attempts(request, choose, timeout_ms=timeout_ms))[0]
            begun.stored(receipt)
        return receipt

    async def send_half(self, message: Message) -> SendReceipt:
        """Send a message that nobody sees until the transaction ends."""
        named = {TRAN_MSG: "true", PGROUP: self.group}
        message = dataclasses.replace(message, properties={**message.properties, **named})
        with self.under_way.lot, self._begin(message, self.shown_group) as begun:
            request = self._preparation.request(message, named)
            request.sys_flag |= TRANSACTION_PREPARED
            choose = self._chooser(message, None, None)
            receipt = (await self._attempts(request, choose))[0]
            begun.stored(receipt)
        return receipt

    async def send_nowait(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> "asyncio.Future[SendReceipt]":
        """Send without waiting for the answer, which the returned future gets.

        Waits only while `max_in_flight` sends are unanswered. Messages to one queue leave in the order of the
        calls. Retries as `send` does; then order between messages is not kept.
        """
        with self._begin(message, self.shown_group) as begun:
            if self._linger is not None and not (queue or selector) and self._linger.fits(message):
                add = partial(self._linger.add, message)
                answer = await self._pipeline.hold(message.topic, len(message.body), add)
            else:
                request = self._preparation.request(message)
                choose = self._chooser(message, queue, selector)
                begun_now = self._pipeline.begin(request, choose)
                answer = begun_now or await self._pipeline.send(request, choose)
            begun.ends_with(answer)
        return answer

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send without an answer: whether it arrived stays unknown."""
        with self.under_way.lot, self._begin(message, self.shown_group):
            request = self._preparation.request(message)
            route = await self._publish_route(request.topic)
            target = self._chooser(message, queue, None)(route.publish, None)
            address = route.master_of(target.broker_name) or self._session.master_of(target)
            header = self._headers.header_for(request, target)
            await self._session.remoting.oneway(address, request.code, header, request.body)
            self._session.one_ways.sent(address)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendReceipt]:
        """Send many messages of one topic in as few requests as their size allows; a receipt for each.

        Messages with shard keys go to their keys' queues, each queue's together. After a part that fails the next ones are
        tried all the same, until `MISSES` of them failed one after the other; but none of the same keys, and to a given queue
        none at all, which keeps the order.

        Raises:
            MessageIllegal: topics differ, or a message has a delay or goes to a retry topic.
            ClientError: the first part's that was not stored; its `outcomes` has what became of each message.
        """
        if not messages:
            return []
        first = messages[0]
        for message in messages:
            if message.topic != first.topic or message.wait_store_ok != first.wait_store_ok:
                raise MessageIllegal(
                    "the messages of one batch must have the same topic and wait_store_ok"
                )
            if (
                message.delay_level
                or message.deliver_at_ms
                or message.priority is not None
                or message.topic.startswith(RETRY_PREFIX)
            ):
                raise MessageIllegal(
                    "a batch takes neither delayed messages nor priorities nor a retry topic"
                )
        with self.under_way.lot, ExitStack() as stack:
            begun = [
                stack.enter_context(self._begin(m, self.shown_group))
                for m in messages
                if self._interceptors
            ]
            outcomes = await self._send_parts(messages, queue, timeout_ms)
            for each, outcome in zip(begun, outcomes):
                if isinstance(outcome, SendReceipt):
                    each.stored(outcome)
            return all_stored(outcomes)

    async def flush(self, limit_s: float | None) -> int:
        """Wait for what has begun so far, `limit_s` seconds at most; of how many messages the end is not known."""
        if self._linger is not None:
            self._linger.flush()
        began = asyncio.get_running_loop().time()
        left = await self.under_way.wait(limit_s)
        limit_s = FLUSH_S if limit_s is None else limit_s
        rest_s = max(0.0, limit_s - (asyncio.get_running_loop().time() - began))
        return left + await self._session.one_ways.wait(self._session.beat, rest_s)

    async def _send_parts(
        self, messages: Sequence[Message], queue: MessageQueue | None, timeout_ms: int | None
    ) -> list[SendReceipt | ClientError]:
        """Send a batch, by queues and sizes; what became of each message."""
        first, most = messages[0], MISSES if queue is None else 1
        keys = [message.shard_key or "" if queue is None else "" for message in messages]
        entries, ids = self._preparation.entries(messages)
        outcomes: list[SendReceipt | ClientError] = [NotSent()] * len(messages)
        queues = await self._queues_now(first.topic, timeout_ms) if len({*keys}) > 1 else ()
        found = shares(queues, keys, range(len(keys))) if queues else [list(range(len(keys)))]
        parts = deque(part for share in found for part in self._preparation.cut(entries, share))
        misses, failed = 0, set[str]()
        while parts and misses < most:
            part = parts.popleft()
            named = {keys[place] for place in part}
            # A later message of a shard key must not be stored without those before it.
            if not failed.isdisjoint(named):
                continue
            choose = _sharing(named) if named != {""} else self._chooser(first, queue, None)
            try:
                body = encode_batch([entries[place] for place in part])
                request = self._preparation.batch(first.topic, body, [ids[place] for place in part])
                answers: Sequence[SendReceipt | ClientError]
                answers = await self._attempts(request, choose, timeout_ms=timeout_ms)
            except KeysPart as moved:  # the route, or which brokers are healthy, has changed
                parts.extendleft(reversed(shares(moved.queues, keys, part)))
                continue
            except ClientError as error:
                misses += 1
                failed |= named - {""}
                answers = [error] * len(part)
            else:
                misses = 0
            for place, outcome in zip(part, answers, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def _queues_now(self, topic: str, timeout_ms: int | None) -> Sequence[MessageQueue]:
        """Return the queues that a topic's messages go to; none: they are not known, and the attempts will say why."""
        budget = timeout_ms or self._config.send_timeout_ms
        try:
            return (
                await self._route_within(self.namespace.wrap(topic), budget, budget, None)
            ).publish
        except ClientError:
            return ()

    async def _send_waiting(self, first: Message, request: SendRequest) -> list[SendReceipt]:
        """Send what has waited for others."""
        return await self._attempts(request, self._chooser(first, None, None))

    # one send, step by step

    def _chooser(
        self, message: Message, queue: MessageQueue | None, selector: Selector | None
    ) -> Chooser:
        space = self.namespace
        if message.priority is not None and (queue is not None or selector is not None):
            raise TypeError("the priority chooses the queue: say neither queue nor selector")
        if queue is not None:
            if selector is not None:
                raise TypeError("either a queue or a selector chooses the queue")
            chosen = space.wrap_queue(queue)
            if chosen.topic != space.wrap(message.topic):
                raise MessageIllegal(
                    f"the queue is one of {queue.topic}, the message goes to {message.topic}"
                )
            return lambda queues, avoid: chosen
        if selector is not None:
            return lambda queues, avoid: space.wrap_queue(
                selector(space.shown_queues(queues), message)
            )
        if message.shard_key:
            key = message.shard_key
            return lambda queues, avoid: by_key(queues, key)
        turn = self._turns.get(message.topic)
        if turn is None:
            turn = RoundRobin(self._session.entropy.below(1 << 16))
            keep(self._turns, message.topic, turn, TOPICS)
        return turn.pick

    async def _publish_route(self, topic: str) -> TopicRoute:
        route = await self._session.publish_route(topic)
        if not route.publish:
            route = await self._session.route(topic, fresh=True)
        if not route.publish and any(map(route.has_replicas, route.addresses)):
            limit_s = self._config.send_timeout_ms / 1000
            route = await self._session.masters.found(topic, limit_s) or route
        if not route.publish:
            raise RouteNotFound(topic, f"topic {topic} has no writable queue on any master")
        return route

    async def _attempts(
        self,
        request: SendRequest,
        choose: Chooser,
        avoid: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendReceipt]:
        loop = asyncio.get_running_loop()
        budget = timeout_ms or self._config.send_timeout_ms
        deadline = loop.time() + budget / 1000
        attempts = self._config.send_attempts
        attempt, failures, failed = 0, 0, set[str]()
        stored: list[SendReceipt] = []
        last: ClientError | None = None
        while True:
            attempt += 1
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            if last is not None and left_ms < PAUSE_LEAST_MS and not stored:
                raise last  # what would come of another try is that there was no time for it
            target: MessageQueue | None = None
            try:
                known = self._session.known_route(request.topic)
                if known is not None and known.publish:  # what a timeout costs is a tenth of a send
                    route = known
                else:
                    route = await self._route_within(request.topic, left_ms, budget, last)
                queues = route.publish
                if self._config.latency_fault_tolerance:
                    queues = self._healthy(queues)
                target = choose(queues, avoid)
                stored = await self._once(route, request, target, left_ms)
                if stored[0].status == SEND_OK or attempt >= attempts or loop.time() >= deadline:
                    return stored
                avoid = target.broker_name
                if not self._wants_better(request, choose(queues, avoid), avoid):
                    return stored
            except ClientError as error:
                left_ms = int((deadline - loop.time()) * 1000)
                electing = (
                    error.stale_route
                    and target is not None
                    and route.has_replicas(target.broker_name)
                )
                if electing:  # for the sends that come after this one, too
                    self._session.masters.begin(request.topic)
                sent = target is not None and not was_not_taken(error)
                if not sent and (electing or attempts > 1):
                    attempt -= 1  # until the time is over
                if not may_retry(error, attempt, attempts, left_ms):
                    if stored:
                        return stored
                    raise
                log.info(
                    "send failed, trying again topic=%s attempt=%d error=%s",
                    request.topic,
                    attempt,
                    error,
                )
                failures, last = failures + 1, error
                if target is not None:
                    avoid = target.broker_name
                    failed.add(avoid)
                if electing:
                    if self._session.known_route(request.topic) is route:  # else try by the newer
                        await self._elected(request.topic, choose(queues, avoid), avoid, left_ms)
                    continue
                if error.stale_route:
                    await self._refresh(request.topic, left_ms)
                if target is None or choose(queues, avoid).broker_name in failed:
                    await self._pause(error, failures, int((deadline - loop.time()) * 1000))

    async def _pause(self, error: ClientError, failures: int, left_ms: int) -> None:
        """Before a broker that failed is tried again; a connection that broke, the first time, is made anew at once."""
        broke = isinstance(error, ConnectError) and not was_not_taken(error)
        if failures > 1 or not broke:
            jitter = self._session.entropy.below(1000) / 1000
            await asyncio.sleep(pause_ms(failures, left_ms, jitter) / 1000)

    async def _route_within(
        self, topic: str, left_ms: int, budget: int, before: ClientError | None
    ) -> TopicRoute:
        """The route, in time; else what the attempt `before` ended with is raised."""
        try:
            async with asyncio.timeout(left_ms / 1000):
                return await self._publish_route(topic)
        except TimeoutError:
            raise before or RequestTimeout(f"no route of {topic} within {budget} ms") from None

    def _wants_better(self, request: SendRequest, other: MessageQueue, avoid: str) -> bool:
        """Return True when another broker is tried, since one stored the message less safely than it should. Not with half messages:
        the first one's check could commit it, too."""
        return (
            self._config.retry_another_broker_when_not_store_ok
            and not request.sys_flag & TRANSACTION_PREPARED
            and other.broker_name != avoid
        )

    async def _elected(
        self, topic: str, target: MessageQueue, avoid: str | None, left_ms: int
    ) -> None:
        """Ask for the new master; wait for the answer only if the message can go nowhere else."""
        asked = self._session.masters.begin(topic)
        if target.broker_name == avoid:
            await asyncio.wait([asked], timeout=left_ms / 1000)

    async def _refresh(self, topic: str, limit_ms: int) -> None:
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._session.route(topic, fresh=True)
        except (ClientError, TimeoutError) as error:
            log.debug("route refresh failed topic=%s error=%s", topic, error)

    def _healthy(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        names = self._latency.available(
            sorted({q.broker_name for q in queues}), self._session.clock.steady_ms()
        )
        return [q for q in queues if q.broker_name in names] or queues

    async def _once(
        self, route: TopicRoute, request: SendRequest, target: MessageQueue, left_ms: int
    ) -> list[SendReceipt]:
        session = self._session
        address = route.master_of(target.broker_name) or session.master_of(target)
        started = session.clock.steady_ms()
        failed = True
        try:
            reply = await session.remoting.invoke(
                address,
                request.code,
                self._headers.header_for(request, target),
                request.body,
                timeout_ms=left_ms,
            )
            failed = False
        finally:
            if self._config.latency_fault_tolerance:
                now = session.clock.steady_ms()
                self._latency.record(target.broker_name, now - started, now, failed=failed)
        receipts = request.receipts(reply, target, address)
        if session.known_route(request.topic) is None:
            await self._refresh(request.topic, left_ms)  # auto-created by this very send
        session.greet_soon(address)
        return receipts


def _sharing(keys: set[str]) -> Chooser:
    return lambda queues, avoid: by_keys(queues, keys)


# Options of a message that an application sends: each option stated once.


class MessageOptions(TypedDict, total=False):
    """Options of any message: `Client.send_oneway` has these and `queue`.

    Attributes:
        key: one key or several, to find the message by.
        tag: what consumers filter by.
        properties: the application's own.
    """

    key: str | Sequence[str] | None
    tag: str | None
    properties: Mapping[str, str] | None


class OnewayOptions(MessageOptions, total=False):
    """Of `Client.send_oneway`.

    Attributes:
        queue: where it goes.
    """

    queue: MessageQueue | None


class KeyedOptions(MessageOptions, total=False):
    """Of `Client.request` and `Client.transaction`.

    Attributes:
        shard_key: messages with one shard key go to one queue, in order.
    """

    shard_key: str | None


class SendOptions(KeyedOptions, OnewayOptions, total=False):
    """Of `Client.send` and `Client.send_nowait`.

    Attributes:
        delay_level: 1..18 (1 s .. 2 h) delivers later.
        deliver_at: deliver then (a datetime with a zone), or after so long (a timedelta); `recall` takes it back.
        selector: chooses the queue, of all that may be written.
        priority: 0 and up: `pop` gets higher ones first. It chooses the queue (of brokers from 5.4 on): the topic is made with
            `+message.type=PRIORITY` and a queue for each priority; higher ones are the highest queue's.
    """

    delay_level: int
    deliver_at: datetime | timedelta | None
    selector: Selector | None
    priority: int | None
