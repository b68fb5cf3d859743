"""Push consumption: a member of a group that owns some queues, pulls them, and hands messages to a handler.

Clustering: each queue to one member, offsets in the broker, failed messages go back to it and return later.
Broadcasting: every queue, offsets in a local file. Apache: DefaultMQPushConsumerImpl, RebalanceImpl.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from roquette.base.files import Files
from roquette.base.lifecycle import Health
from roquette.client import calls
from roquette.client.broker_requests import running_info
from roquette.client.calls import Pulled, PullFilter
from roquette.client.concurrent import ConcurrentQueues, HandedQueues
from roquette.client.consumer_options import MemberOptions, Model, matcher, outcome, subscription
from roquette.client.core.process_queue import (
    SAMPLE_S,
    ConsumeRates,
    LocalOffsetFile,
    ProcessQueue,
    Telling,
)
from roquette.client.core.route_cache import TopicRoute
from roquette.client.events import EventKind
from roquette.client.handler import BatchHandler, Handler, HandlerRunner, Messages, next_step
from roquette.client.offset_store import MemberOffsets
from roquette.client.orderly import GIVE_UP_S, REVOKE_S, Membership, OrderlyQueues, QueueLocks
from roquette.client.producer import Producer
from roquette.client.session import CANCEL_S, SOON_S, Session, members_of
from roquette.client.under_way import Interceptors
from roquette.errors import BrokerError, ClientClosed, ClientError, CorruptRecord
from roquette.message.message import MessageQueue, ReceivedMessage, received
from roquette.message.names import RETRY_PREFIX, retry_topic
from roquette.message.record import decode_records
from roquette.message.sysflag import COMPRESSED
from roquette.remoting.request import Outcome, Reply, Task
from roquette.wire.bodies import ConsumeMessageDirectlyResult, ConsumerData, SubscriptionData
from roquette.wire.codes import CURRENT_VERSION, ResponseCode, version_text
from roquette.wire.json_body import encode_body

# The tasks that pull a push consumer's queues: long polling, flow control, offset correction.


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
        commit = state.committable() if self._commits and broker_id == 0 else 0
        call = calls.pull(
            self._group,
            queue,
            state.next_offset,
            max(config.pull_batch, self._batch),
            PullFilter(wanted.sub_string, wanted.expression_type),
            sub_version=wanted.sub_version,
            hold_ms=config.pull_hold_ms,
            commit=commit,
        )
        route = session.known_route(queue.topic)
        address = (
            route.address_for_read(queue.broker_name, broker_id) if route is not None else None
        )
        address = address or session.master_of(queue)
        state.last_pull_ms = session.clock.now_ms()
        session.greet_soon(address)
        state.telling = Telling(commit, session.clock.steady_ms()) if commit > 0 else None
        pulled = await session.api.call(address, call, timeout_ms=config.pull_timeout_ms)
        state.telling = None
        return pulled

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


IDLE_S: Final = 0.2  # a queue without work for so long is at rest
CLOSE_S: Final = 10.0  # how long `close` waits for handlers at work
SETTLE_S: Final = 1.0  # within it a new master hears of all members and their locks
LAST_COMMIT_S: Final = 3.0  # how long it tries to save the last offsets


class PushConsumer:
    """One member of one group. `start` joins, `close` leaves; the others take over at once.

    Args:
        handler: takes lists with `options.batch`. None: the messages are asked for, from `handed`.
    """

    def __init__(
        self,
        session: Session,
        producer: Producer,
        files: Files,
        handler: Handler | BatchHandler | None,
        options: MemberOptions,
        interceptors: Interceptors,
    ) -> None:
        self.group = group = options.group
        self.session = session
        self.options = options
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        self._producer = producer
        self._handler = HandlerRunner(
            handler or self._hand_out,
            session.namespace.shown(group),
            interceptors,
            many=options.batch > 0,
            most=options.concurrency,
            next_step=partial(next_step, options, session.config.orderly_suspend_ms),
        )
        self._subscriptions = {
            topic: subscription(topic, wanted, session.clock.now_ms())
            for topic, wanted in options.subscriptions.items()
        }
        if options.model is Model.CLUSTERING:
            retry = retry_topic(group)
            self._subscriptions[retry] = subscription(retry, "*", session.clock.now_ms())
        rates = self._rates = ConsumeRates(self._subscriptions, session.clock.steady_ms())
        self._pulls = PullLoop(session, group, self._subscriptions, options, self, rates)
        self.offsets = MemberOffsets(
            session, group, options.start_from, self._local_file(files), options.offsets
        )
        self._idle = asyncio.Event()
        member = Membership(
            session=session,
            producer=producer,
            group=group,
            max_reconsume_times=options.max_reconsume_times,
            shares=options.model is Model.CLUSTERING,
            handle=self._handle,
            rates=rates,
            revoked=self._revoked,
            handlers_s=GIVE_UP_S - (REVOKE_S if options.on_revoke is not None else 0.0),
            retry_levels=options.retry_levels,
            save=self.offsets.save,
            changed=self.rebalance_soon,
            idle=self._idle,
        )
        self._locks = QueueLocks(member, orderly=options.orderly)
        self._work: OrderlyQueues | ConcurrentQueues
        self.handed: HandedQueues | None = None
        if handler is None:
            self._work = self.handed = HandedQueues(member, self._locks, self._handler)
        elif options.orderly:
            self._work = OrderlyQueues(member, self._locks, options.batch or 1)
        else:
            work = ConcurrentQueues(member, self._locks, options.concurrency, options.batch or 1)
            self._work = work
        self._rebalance_event = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._again: asyncio.Task[None] | None = None
        self._settled_at = 0.0
        self.started = False  # whether it has joined its group
        self.gone: Callable[[], object] = bool  # called when it has left
        self._closing = False
        self._leaving: asyncio.Task[None] | None = None
        self._unreadable = 0
        self._started_ms = session.clock.now_ms()

    # life

    async def start(self) -> None:
        """Join the group and begin; returns when the first share of queues is known.

        Cancelled, or with an error, it leaves the group again, and ends within `CANCEL_S` although that may take longer.
        """
        try:
            await self._join()
        finally:
            if not self.started:
                await asyncio.wait((self._begin_leaving(CLOSE_S),), timeout=CANCEL_S)

    async def _join(self) -> None:
        await self.offsets.load()
        await self.session.add_consumer(self)
        for topic in self.topics():
            await self.session.learn_route(topic, self.group)
        await self.session.heartbeat()  # first: brokers name members, who share queues, by it
        await self._rebalance()
        if self._closing:
            raise ClientClosed(f"group {self.group} was left while it was joined")
        tasks, config = self.session.tasks, self.session.config
        name = f"consumer-{self.group}"
        self._tasks = [
            tasks.keep(f"{name}-rebalance", self._rebalance_loop),
            tasks.every(f"{name}-persist", config.persist_offsets_ms / 1000, self.persist),
            tasks.every(f"{name}-rates", SAMPLE_S, self._sample),
        ]
        if self.options.model is Model.CLUSTERING:
            step = config.lock_interval_ms / 1000
            self._tasks.append(tasks.every(f"{name}-locks", step, self._renew_locks))
            self._tasks.append(tasks.keep(f"{name}-idle", self._commit_idle))
        self._tasks += self._work.start(name)
        self.started = True

    async def close(self, limit_s: float = CLOSE_S) -> None:
        """Stop pulling, let handlers at work finish (`limit_s` seconds at most), save offsets, leave the group.

        Cancelled, it goes on without its caller. A handler that closes its own consumer does not wait: the
        consumer closes when the handler has returned.
        """
        if self._handler.inside():
            self._begin_leaving(limit_s)
        else:
            await self.left(limit_s)

    async def left(self, limit_s: float = CLOSE_S) -> int:
        """Wait until the group is left, whoever asks; how many handlers were ended at work by then."""
        await asyncio.shield(self._begin_leaving(limit_s))
        return self._handler.cut_off + self._handler.busy

    def pause(self) -> None:
        """Pull nothing more until `resume`; handlers go on with what is here, and the queues stay ours."""
        self._pulls.paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self._pulls.paused = False

    def _begin_leaving(self, limit_s: float) -> "asyncio.Task[None]":
        if self._leaving is None:
            self._closing = True
            for queue in self.queues.values():
                self._work.drop(queue)  # at once: what handlers still do does not count as failed
            self._leaving = self.session.tasks.start(f"leave-{self.group}", self._leave(limit_s))
            self._leaving.add_done_callback(lambda _: self.gone())
        return self._leaving

    async def _leave(self, limit_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        late = False
        if not self.options.orderly:
            await self._work.close(min(GIVE_UP_S, limit_s))
            if late := self._handler.busy > 0:  # others wait no longer for our locks
                await self.offsets.save(self._worked())
        await self._work.close(max(deadline - loop.time(), 0.0))
        while self._handler.busy and loop.time() < deadline:
            await asyncio.sleep(0.01)
        worked = self._worked()
        if late:
            worked = await self.offsets.ahead(worked)
        deadline = loop.time() + LAST_COMMIT_S
        while not await self.offsets.save(worked) and loop.time() < deadline:
            await asyncio.sleep(0.1)  # whoever gets the queues next would do that work again
        if self.queues:
            await self._revoked(list(self.queues))
        await self._locks.close()  # offsets are stored: who is next begins behind our work
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.session.remove_consumer(self)

    async def _revoked(self, queues: list[MessageQueue]) -> None:
        """Tell the application, which may take `REVOKE_S`, of its own queues alone."""
        tell = self.options.on_revoke
        shown = self.session.namespace.shown_queue
        own = [shown(queue) for queue in queues if not queue.topic.startswith(RETRY_PREFIX)]
        if tell is None or not own:
            return
        try:
            async with asyncio.timeout(REVOKE_S):
                await outcome(tell(own))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # we are ended; else something that on_revoke awaited was
            log.warning("on_revoke failed group=%s error=%r", self.group, error)
        except Exception as error:  # noqa: BLE001 - the application's
            log.warning("on_revoke failed group=%s error=%r", self.group, error)

    def _worked(self) -> list[ProcessQueue]:
        return [state for state in self.queues.values() if self.started or state.moved()]

    def _local_file(self, files: Files) -> LocalOffsetFile | None:
        root = self.session.config.offset_root
        if self.options.model is Model.CLUSTERING:
            return None
        assert root is not None, "a Client has one"
        return LocalOffsetFile(files, root, self.session.client_id, self.group)

    # what the session asks

    def describe(self) -> ConsumerData:
        """This consumer's part of a heartbeat."""
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model=self.options.model.value,
            consume_from_where=self.options.consume_from_where,
            subscription_data_set=list(self._subscriptions.values()),
        )

    def topics(self) -> list[str]:
        """Topics whose routes are needed."""
        return list(self._subscriptions)

    def rebalance_soon(self) -> None:
        """Members or routes changed: share again now."""
        self._rebalance_event.set()

    def master_moved(self) -> None:
        """Lock our queues there first, and share them again only when the others have said the same."""
        if self.started and not self._closing:
            self._settled_at = asyncio.get_running_loop().time() + SETTLE_S
            self.session.tasks.start(f"locks-{self.group}", self._renew_locks())

    def running_info(self, jstack: bool) -> Outcome:
        """Describe what this consumer is doing, for operators."""
        properties = {
            "PROP_NAMESERVER_ADDR": ";".join(self.session.name_servers),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": "true" if self.options.orderly else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(self.options.concurrency),
            "PROP_CLIENT_VERSION": version_text(CURRENT_VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "unreadableMessages": str(self._unreadable),
        }
        info = running_info(properties, self._subscriptions, self.queues, self._rates)
        if jstack:
            info.jstack = self._handler.stacks()
        return Reply(b"", encode_body(info))

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets this consumer has reached in its queues of a topic, for operators."""
        return {q: state.committable() for q, state in self.queues.items() if q.topic == topic}

    def continue_from(self, offsets: dict[MessageQueue, int]) -> None:
        """An operator resets our offsets through us (Apache: MQClientInstance.resetOffset)."""
        self.session.tasks.start(f"reset-{self.group}", self._restart(offsets))

    async def _restart(self, offsets: dict[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            state = self.queues.get(queue)
            if state is not None and not self._closing:
                await self._begin_at(state, offset)
        await self.persist()

    async def move(self, state: ProcessQueue, offset: int) -> None:
        """Go on elsewhere in a queue, and save the new offset."""
        await self._begin_at(state, offset)
        await self.persist()

    async def _begin_at(self, state: ProcessQueue, offset: int) -> None:
        """Go on elsewhere in a queue; results of handlers still at work are not counted."""
        state.drop()
        try:
            await self._work.rest(state.queue)
        finally:
            if self.queues.get(state.queue) is state and not self._closing:
                await self.begin(state.queue, offset)

    def consume_directly(self, message: ReceivedMessage) -> Outcome:
        """An operator wants one message processed now (consumeMessageDirectly)."""
        return Task(self._consume_directly(self.session.namespace.show(message)))

    async def _consume_directly(self, message: ReceivedMessage) -> Reply:
        started_ms = self.session.clock.steady_ms()
        ok, error = await self._handler.run([message])
        result = "CR_SUCCESS" if ok else "CR_LATER"
        answer = ConsumeMessageDirectlyResult(
            order=self.options.orderly,
            consume_result=result if error is None else "CR_THROW_EXCEPTION",
            remark=None if error is None else repr(error),
            spent_time_mills=self.session.clock.steady_ms() - started_ms,
        )
        return Reply(b"", encode_body(answer))

    # sharing the queues

    async def _rebalance_loop(self, health: Health) -> None:
        period = self.session.config.rebalance_ms / 1000
        while not self._closing:
            missing = any(
                self.session.known_route(t) is None
                for t in self.topics()
                if not t.startswith(RETRY_PREFIX)
            )
            try:
                async with asyncio.timeout(SOON_S if missing else period):
                    await self._rebalance_event.wait()
            except TimeoutError:
                pass
            loop = asyncio.get_running_loop()
            while (pause_s := self._settled_at - loop.time()) > 0:
                await asyncio.sleep(pause_s)
            self._rebalance_event.clear()
            try:
                await self._rebalance()
                health.worked()
            except ClientError as error:
                log.warning("rebalance failed group=%s error=%s", self.group, error)

    async def _rebalance(self) -> None:
        """Work out our queues of each topic and give up and take up the difference (RebalanceImpl).

        What is given up comes first, of all topics: others wait for it, perhaps those for which we wait.
        """
        before = set(self.queues)
        shares: dict[str, list[MessageQueue]] = {}
        for topic in self.topics():
            route = self.session.known_route(topic)
            if route is None:
                route = await self.session.learn_route(topic, self.group)
            if route is None:
                continue
            queues = route.subscribe
            if self.options.model is Model.CLUSTERING:
                members = await members_of(self.session, self.group, topic)
                if self.session.client_id not in members:
                    self._rebalance_later(SOON_S)
                    continue  # not known there yet: keep what we have until then
                queues = self.options.strategy(self.session.client_id, members, queues)
            shares[topic] = queues
        wanted = {queue for queues in shares.values() for queue in queues}
        self._pulls.divide(wanted)
        gone = [q for q in self.queues if q.topic in shares and q not in wanted]
        if gone and not self._closing:
            self._work.give_up([self.queues.pop(queue) for queue in gone])
        for topic, queues in shares.items():
            await self._take_up(topic, queues)
        if gone:
            log.info("queues given up group=%s count=%d", self.group, len(gone))
        if before != set(self.queues):
            space = self.session.namespace
            held = tuple(space.shown_queues(sorted(self.queues)))
            group = space.shown(self.group)
            self.session.events.tell(EventKind.REBALANCED, group=group, queues=held)

    async def _take_up(self, topic: str, wanted: list[MessageQueue]) -> None:
        leaving = self._work.leaving()
        await self._locks.keep(topic, leaving | set(wanted))
        asked = [q for q in wanted if q not in self.queues and q not in leaving]
        added = await self._locks.lock(asked) if asked else []
        if len(added) < len(asked):
            self._rebalance_later(self._locks.pause_s())
        for queue in added:
            offset = await self._start_offset(queue)
            if self._closing:
                return
            if offset is not None:
                await self.begin(queue, offset)
        if added:
            log.info("queues changed group=%s topic=%s now=%d", self.group, topic, len(wanted))

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        """Take up a queue at an offset."""
        state = ProcessQueue(queue, offset, self.session.prefetch)
        self.queues[queue] = state
        self._work.begin(state)
        name = f"pull-{queue.topic}-{queue.queue_id}"
        self.session.tasks.keep(name, partial(self._pulls.run, state))

    async def _start_offset(self, queue: MessageQueue) -> int | None:
        """The offset to begin with (RebalancePushImpl.computePullFromWhere); None: try again later."""
        try:
            return await self.offsets.begin_at(queue)
        except ClientError as error:
            log.warning("no start offset yet group=%s queue=%s error=%s", self.group, queue, error)
            self._rebalance_later(SOON_S)
            return None

    def _rebalance_later(self, pause_s: float) -> None:
        if self._again is None or self._again.done():
            self._again = self.session.tasks.start("rebalance-again", self._wait(pause_s))

    async def _wait(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        self.rebalance_soon()

    async def _renew_locks(self) -> None:
        await self._work.renew(self.queues)

    # consuming

    async def _handle(self, state: ProcessQueue, messages: Messages) -> int:
        began_ms = self.session.clock.steady_ms()
        done = (await self._handler.run(messages))[0]
        took_ms = self.session.clock.steady_ms() - began_ms
        self._rates.handled(state.queue.topic, done, len(messages) - done, took_ms)
        return done

    def _sample(self) -> None:
        self._rates.sample(self.session.clock.steady_ms())

    async def _hand_out(self, message: ReceivedMessage) -> bool:
        assert self.handed is not None
        return await self.handed.handle(message)

    def bury(self, state: ProcessQueue, message: ReceivedMessage) -> None:
        """A message whose body cannot be decompressed goes to the dead letters (broadcasting: it is skipped)."""
        self._unreadable += 1
        if self.options.model is Model.BROADCASTING:
            state.finish(message)
        else:
            self._work.bury(state, message)

    def submit(self, state: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Hand what was pulled to those that work."""
        self._work.submit(state, messages)

    # offsets

    async def persist(self) -> None:
        """Save the offsets that have changed; the log names those that a broker does not take."""
        await self.offsets.save_changed(self.queues.values())

    async def commit(self) -> None:
        """Save the offsets that have changed. Raises ClientError: a broker does not take one."""
        if not await self.offsets.save_changed(self.queues.values()):
            raise ClientError(f"an offset of group {self.group} was not saved: see the log")

    def share(self) -> list[MessageQueue]:
        """Our queues of the topics that were asked for, in the application's names, sorted."""
        own = (queue for queue in self.queues if not queue.topic.startswith(RETRY_PREFIX))
        return sorted(map(self.session.namespace.shown_queue, own))

    async def _commit_idle(self, health: Health) -> None:
        """Commit where a queue came to rest, so that no member repeats it; not each offset on the way there."""
        while True:
            await self._idle.wait()
            self._idle.clear()
            at = {state: state.next_offset for state in self.queues.values() if not state.count}
            await asyncio.sleep(IDLE_S)
            await self.offsets.save_changed(
                [s for s, n in at.items() if not s.count and s.next_offset == n and not s.dropped]
            )
            health.worked()
