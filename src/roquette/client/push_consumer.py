"""Push consumption: a member of a group that owns some queues, pulls them, and hands messages to a handler.

Clustering: each queue to one member, offsets in the broker, failed messages go back to it and return later.
Broadcasting: every queue, offsets in a local file. Apache: DefaultMQPushConsumerImpl, RebalanceImpl.
"""

import asyncio
import enum
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from roquette.base.files import Files
from roquette.base.lifecycle import Health
from roquette.client.answers import running_info
from roquette.client.consume_loop import pull_loop, subscription
from roquette.client.core.offsets import LocalOffsetFile
from roquette.client.core.process_queue import ProcessQueue
from roquette.client.core.rebalance import Strategy, averagely
from roquette.client.handler import Handler, HandlerRunner
from roquette.client.offset_store import OffsetStore, StartFrom
from roquette.client.orderly import OrderlyQueues
from roquette.client.producer import Producer
from roquette.client.retries import DEAD, hand_back
from roquette.client.session import Session
from roquette.errors import ClientClosed, ClientError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.message.names import RETRY_PREFIX, retry_topic
from roquette.remoting.outcomes import Outcome, Reply, Task
from roquette.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    SubscriptionData,
)
from roquette.wire.codes import CURRENT_VERSION, version_text
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.client")

EXPIRY_BEAT_S: Final = 60.0
CLOSE_S: Final = 10.0  # how long `close` waits for handlers at work
LAST_COMMIT_S: Final = 3.0  # and how long it tries to save the last offsets


class Model(enum.Enum):
    """How a group shares messages."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How one consumer consumes.

    Attributes:
        concurrency: handlers at work at the same time.
        orderly: one message of a queue at a time, in order, under the broker's queue lock.
        max_reconsume_times: failures after which a message goes to the dead letters; -1: the broker's 16.
        strategy: how queues are shared; the same in all members.
    """

    model: Model = Model.CLUSTERING
    start_from: StartFrom = field(default_factory=StartFrom)
    concurrency: int = 20
    orderly: bool = False
    max_reconsume_times: int = -1
    strategy: Strategy = averagely


class PushConsumer:
    """One member of one group. `start` joins, `close` leaves; the others take over at once."""

    def __init__(
        self,
        session: Session,
        producer: Producer,
        files: Files,
        *,
        group: str,
        subscriptions: Mapping[str, str],
        handler: Handler,
        options: ConsumerOptions,
    ) -> None:
        self.group = group
        self.session = session
        self.options = options
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        self.work: asyncio.Queue[tuple[ProcessQueue, ReceivedMessage]] = asyncio.Queue()
        self._producer = producer
        self._handler = HandlerRunner(handler, group)
        self._subscriptions = {
            t: subscription(t, e, session.clock.now_ms()) for t, e in subscriptions.items()
        }
        if options.model is Model.CLUSTERING:
            retry = retry_topic(group)
            self._subscriptions[retry] = subscription(retry, "*", session.clock.now_ms())
        self._wanted_tags = {
            t: frozenset(d.tags_set) or None for t, d in self._subscriptions.items()
        }
        self.offsets = OffsetStore(session, group, options.start_from, self._local_file(files))
        self._orderly = (
            OrderlyQueues(
                session,
                producer,
                group,
                options.max_reconsume_times,
                handle=self._handle,
                save=self._save_state,
                changed=self.rebalance_soon,
                shares=options.model is Model.CLUSTERING,
            )
            if options.orderly
            else None
        )
        self._rebalance_event = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._at_work: dict[int, tuple[ProcessQueue, ReceivedMessage, int]] = {}  # by worker
        self._closing = False
        self._leaving: asyncio.Task[None] | None = None
        self._unreadable = 0
        self._started_ms = session.clock.now_ms()

    # life

    async def start(self) -> None:
        """Join the group and begin; returns when the first share of queues is known.

        Cancelled, or with an error, it leaves the group again before it ends.
        """
        try:
            await self._join()
        finally:
            if not self.started:
                await self.left()

    @property
    def started(self) -> bool:
        """Whether it has joined its group."""
        return bool(self._tasks)

    async def _join(self) -> None:
        await self.offsets.load()
        await self.session.add_consumer(self)
        for topic in self.topics():
            await self._learn_route(topic)
        await self.session.heartbeat()
        await self._rebalance()
        if self._closing:
            raise ClientClosed(f"group {self.group} was left while it was joined")
        tasks, config = self.session.tasks, self.session.config
        name = f"consumer-{self.group}"
        self._tasks = [
            tasks.keep(f"{name}-rebalance", self._rebalance_loop),
            tasks.every(f"{name}-persist", config.persist_offsets_ms / 1000, self.persist),
        ]
        if self._orderly is not None:
            step = config.lock_interval_ms / 1000
            self._tasks.append(tasks.every(f"{name}-locks", step, self._renew_locks))
        if not self.options.orderly and self.options.model is Model.CLUSTERING:
            self._tasks.append(tasks.every(f"{name}-timeouts", EXPIRY_BEAT_S, self._expire))
        for index in range(0 if self.options.orderly else self.options.concurrency):
            self._tasks.append(tasks.keep(f"{name}-worker-{index}", partial(self._worker, index)))

    async def close(self) -> None:
        """Stop pulling, let handlers at work finish (`CLOSE_S` at most), save offsets, leave the group.

        Cancelled, it goes on without its caller. A handler that closes its own consumer does not wait: the
        consumer closes when the handler has returned.
        """
        if self._handler.inside():
            self._begin_leaving()
        else:
            await self.left()

    async def left(self) -> None:
        """Wait until the group is left, whoever asks."""
        await asyncio.shield(self._begin_leaving())

    def _begin_leaving(self) -> "asyncio.Task[None]":
        if self._leaving is None:
            self._closing = True
            for queue in self.queues.values():
                queue.drop()  # at once: what handlers still do does not count as failed
            self._leaving = self.session.tasks.start(f"leave-{self.group}", self._leave())
        return self._leaving

    async def _leave(self) -> None:
        while not self.work.empty():
            self.work.get_nowait()  # taken by nobody: whoever gets the queue next pulls them again
        if self._orderly is not None:
            await self._orderly.close(CLOSE_S)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLOSE_S
        while self._handler.busy and loop.time() < deadline:
            await asyncio.sleep(0.01)
        deadline = loop.time() + LAST_COMMIT_S
        worked = [s for s in self.queues.values() if self.started or s.moved()]
        while not await self.offsets.save(worked) and loop.time() < deadline:
            await asyncio.sleep(0.1)  # whoever gets the queues next would do that work again
        if self._orderly is not None:
            await self._orderly.unlock(list(self.queues))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.session.remove_consumer(self)

    def _local_file(self, files: Files) -> LocalOffsetFile | None:
        root = self.session.config.offset_root
        if self.options.model is Model.CLUSTERING:
            return None
        assert root is not None, "a Client has one"
        return LocalOffsetFile(files, root, self.session.client_id, self.group)

    async def _learn_route(self, topic: str) -> None:
        try:
            await self.session.route(topic, fresh=True)
        except ClientError as error:
            if not topic.startswith(RETRY_PREFIX):
                words = "topic has no route yet group=%s topic=%s error=%s"
                self.session.noise.warning(f"route-{topic}", words, self.group, topic, error)

    # what the session asks

    def describe(self) -> ConsumerData:
        """This consumer's part of a heartbeat."""
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model=self.options.model.value,
            consume_from_where=self.options.start_from.wire_name,
            subscription_data_set=list(self._subscriptions.values()),
        )

    def topics(self) -> list[str]:
        """Topics whose routes are needed."""
        return list(self._subscriptions)

    def rebalance_soon(self) -> None:
        """Members or routes changed: share again now."""
        self._rebalance_event.set()

    def running_info(self, jstack: bool) -> Outcome:
        """What this consumer is doing, for operators."""
        properties = {
            "PROP_NAMESERVER_ADDR": ";".join(self.session.name_servers),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": "true" if self.options.orderly else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(self.options.concurrency),
            "PROP_CLIENT_VERSION": version_text(CURRENT_VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "unreadableMessages": str(self._unreadable),
        }
        info = running_info(properties, self._subscriptions, self.queues)
        return Reply(b"", encode_body(info))

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """Where this consumer is in its queues of a topic, for operators."""
        return {q: state.committable() for q, state in self.queues.items() if q.topic == topic}

    def continue_from(self, offsets: dict[MessageQueue, int]) -> None:
        """An operator resets our offsets through us (Apache: MQClientInstance.resetOffset)."""
        self.session.tasks.start(f"reset-{self.group}", self._restart(offsets))

    async def _restart(self, offsets: dict[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            state = self.queues.get(queue)
            if state is not None and not self._closing:
                await self.restart(state, offset)
        await self.persist()

    async def restart(self, state: ProcessQueue, offset: int) -> None:
        """Go on elsewhere in a queue; what its handlers still do of the old place counts no more."""
        state.drop()
        try:
            if self._orderly is not None:
                await self._orderly.rest(state.queue)
        finally:
            if self.queues.get(state.queue) is state and not self._closing:
                await self.begin(state.queue, offset)

    def consume_directly(self, message: ReceivedMessage) -> Outcome:
        """An operator wants one message processed now (consumeMessageDirectly)."""
        return Task(self._consume_directly(message))

    async def _consume_directly(self, message: ReceivedMessage) -> Reply:
        started_ms = self.session.clock.steady_ms()
        ok, error = await self._handler.run(message)
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
                async with asyncio.timeout(1.0 if missing else period):
                    await self._rebalance_event.wait()
            except TimeoutError:
                pass
            self._rebalance_event.clear()
            try:
                await self._rebalance()
                health.worked()
            except ClientError as error:
                log.warning("rebalance failed group=%s error=%s", self.group, error)

    async def _rebalance(self) -> None:
        """Work out our queues of each topic and take up or give up the difference (RebalanceImpl)."""
        for topic in self.topics():
            route = self.session.known_route(topic)
            if route is None:
                await self._learn_route(topic)
                route = self.session.known_route(topic)
            if route is None:
                continue
            queues = route.subscribe
            if self.options.model is Model.CLUSTERING:
                members = await self._members(topic)
                if self.session.client_id not in members:
                    continue  # not known there yet: keep what we have until the next turn
                queues = self.options.strategy(self.session.client_id, members, queues)
            await self._change_to(topic, queues)

    async def _members(self, topic: str) -> list[str]:
        route = self.session.known_route(topic)
        for name in sorted(route.addresses) if route is not None else ():
            address = route.address_for_read(name) if route is not None else None
            if address is None:
                continue
            try:
                members = await self.session.api.members(address, self.group)
            except ClientError:
                continue
            if members:
                return members
        return []

    async def _change_to(self, topic: str, wanted: list[MessageQueue]) -> None:
        mine = [queue for queue in self.queues if queue.topic == topic]
        gone = [queue for queue in mine if queue not in wanted]
        for queue in gone:
            state = self.queues.pop(queue)
            state.drop()
            if self._orderly is not None:
                self._orderly.give_up(state)
            else:
                await self._save_state(state)
        added = [queue for queue in wanted if queue not in self.queues]
        if added and self._orderly is not None:
            asked = [queue for queue in added if not self._orderly.is_leaving(queue)]
            added = await self._orderly.lock(asked)
            if len(added) < len(asked):
                self.session.tasks.start("rebalance-again", self._rebalance_later())
        for queue in added:
            if self._closing:
                return
            offset = await self._start_offset(queue)
            if offset is not None:
                await self.begin(queue, offset)
        if gone or added:
            log.info("queues changed group=%s topic=%s now=%d", self.group, topic, len(wanted))

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        """Take up a queue at an offset."""
        state = ProcessQueue(queue, offset, self.session.prefetch)
        self.queues[queue] = state
        if self._orderly is not None:
            self._orderly.begin(state)
        name = f"pull-{queue.topic}-{queue.queue_id}"
        self.session.tasks.keep(name, partial(pull_loop, self, state))

    async def _start_offset(self, queue: MessageQueue) -> int | None:
        """The offset to begin with (RebalancePushImpl.computePullFromWhere); None: try again later."""
        try:
            return await self.offsets.begin_at(queue)
        except ClientError as error:
            log.warning("no start offset yet group=%s queue=%s error=%s", self.group, queue, error)
            self.session.tasks.start("rebalance-again", self._rebalance_later())
            return None

    async def _rebalance_later(self) -> None:
        await asyncio.sleep(1.0)
        self.rebalance_soon()

    async def _renew_locks(self) -> None:
        if self._orderly is not None:
            await self._orderly.renew(self.queues)

    # consuming

    def wanted(self, message: ReceivedMessage) -> bool:
        """Brokers filter tags by hash; here the text decides."""
        tags = self._wanted_tags.get(message.queue.topic)
        return tags is None or message.tags in tags

    def expression(self, topic: str) -> SubscriptionData:
        """The subscription of a topic."""
        return self._subscriptions[topic]

    async def _worker(self, index: int, health: Health) -> None:
        if (left := self._at_work.pop(index, None)) is not None:
            self._failed(left[0], left[1])
        while True:
            health.worked()
            state, message = await self.work.get()
            if state.dropped:
                continue
            self._at_work[index] = (state, message, self.session.clock.steady_ms())
            done = await self._handle(message)
            if self._at_work.pop(index, None) is None:
                continue  # it took too long: the message has gone back already
            if done:
                state.finish(message)
            elif state.dropped:
                continue  # whoever has the queue now gets the message again
            else:
                self._failed(state, message)

    def _failed(self, state: ProcessQueue, message: ReceivedMessage) -> None:
        if self.options.model is Model.BROADCASTING:
            log.warning("message dropped, broadcasting has no retry id=%s", message.message_id)
            state.finish(message)
        else:
            self.session.tasks.keep("hand-back", partial(self._hand_back, state, message))

    async def _handle(self, message: ReceivedMessage) -> bool:
        return (await self._handler.run(message))[0]

    def _expire(self) -> None:
        """Messages a handler works on for too long go back to the broker (ProcessQueue.cleanExpiredMsg)."""
        limit_ms = self.session.config.consume_timeout_ms
        now_ms = self.session.clock.steady_ms()
        for index, (state, message, began_ms) in list(self._at_work.items()):
            if now_ms - began_ms <= limit_ms or state.dropped:
                continue
            del self._at_work[index]
            log.warning(
                "handler takes too long, the message goes back group=%s id=%s ms=%d",
                self.group,
                message.message_id,
                now_ms - began_ms,
            )
            self._failed(state, message)

    def bury(self, state: ProcessQueue, message: ReceivedMessage) -> None:
        """A message whose body nobody can decompress goes to the dead letters (broadcasting: it is skipped)."""
        self._unreadable += 1
        if self.options.model is Model.BROADCASTING:
            state.finish(message)
        else:
            self.session.tasks.keep(
                "bury", partial(self._hand_back, state, message, delay_level=DEAD)
            )

    async def _hand_back(
        self, state: ProcessQueue, message: ReceivedMessage, health: Health, delay_level: int = 0
    ) -> None:
        most = self.options.max_reconsume_times
        session, producer = self.session, self._producer
        while not await hand_back(session, producer, self.group, message, most, delay_level):
            await asyncio.sleep(5.0)  # neither way back worked: it stays ours, unacknowledged
            if state.dropped:
                return
        state.finish(message)

    def submit(self, state: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Queue pulled messages for the handlers; bounded by the pull loop's thresholds."""
        if self._orderly is not None:
            self._orderly.submit(state, messages)
            return
        for message in messages:
            self.work.put_nowait((state, message))

    # offsets

    def committed_offset(self, state: ProcessQueue) -> int:
        """What a pull may commit on its way; 0 commits nothing."""
        return 0 if self.options.model is Model.BROADCASTING else state.committable()

    async def persist(self) -> None:
        """Save the offsets that have changed; what a broker does not take is told in the log."""
        await self.offsets.save_changed(self.queues.values())

    async def _save_state(self, state: ProcessQueue) -> None:
        await self.offsets.save([state])
