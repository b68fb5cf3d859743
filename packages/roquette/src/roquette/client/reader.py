"""Pulling under the application's control: assign queues, seek, poll, commit (Apache: DefaultLitePullConsumer)."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar

from roquette.base.lifecycle import Health
from roquette.client import calls
from roquette.client.arguments import (
    Timeout,
    as_strategy,
    as_subscriptions,
    seconds_of,
    since_1970_ms,
)
from roquette.client.broker_requests import running_info
from roquette.client.calls import Call, PullFilter
from roquette.client.consumer import Opened
from roquette.client.consumer_options import (
    Matcher,
    Selection,
    StartFrom,
    StrategyName,
    check_function,
    matcher,
    subscription,
)
from roquette.client.core.rebalance import Strategy
from roquette.client.offset_store import MemberOffsets
from roquette.client.session import CANCEL_S, SOON_S, Session, members_of
from roquette.errors import ClientClosed, ClientError, ConfigError, CorruptRecord, Refused
from roquette.message.message import MessageQueue, ReceivedMessage, received
from roquette.message.record import decode_records
from roquette.remoting.request import Outcome, Reply
from roquette.wire.bodies import ConsumerData, SubscriptionData
from roquette.wire.codes import CURRENT_VERSION, ResponseCode, version_text
from roquette.wire.json_body import encode_body

# A reader as a member of a group: which queues are its own, and what it saves when they change.
# Apache: DefaultLitePullConsumerImpl in SUBSCRIBE mode, RebalanceLitePullImpl.


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


T = TypeVar("T")


_Fetched = tuple[MessageQueue, int, list[ReceivedMessage], int]
"""A queue, the generation of its reader, messages, and the offset behind them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Plan of a reader; `ReaderOptions` explains each."""

    wanted: Selection = "*"
    batch: int = 32
    start_from: StartFrom | int = StartFrom.LAST
    auto_commit_s: float = 0.0
    max_messages: int = 10_000
    max_bytes: int = 64 << 20


class Reader(Opened):
    """Reads the queues it is told to read, or, after `subscribe`, its share of topics as a member of its group.

    One batch of each queue is fetched ahead, while all of them together are within `max_messages` and `max_bytes`.

    Args:
        group: whose offsets are read and committed; only `subscribe` joins it.

    Attributes:
        unreadable: messages that were skipped, since their bodies cannot be decompressed.
    """

    def __init__(self, session: Session, group: str, options: ReadPlan) -> None:
        self.group = session.namespace.wrap(group)
        self.unreadable = 0
        self._gone: Callable[[], object] = bool  # called when it is closed
        self._session = session
        self._namespace = session.namespace
        self._options = options
        self._wanted = options.wanted
        self._batch = options.batch
        self._positions: dict[MessageQueue, int] = {}
        self._wished: list[MessageQueue] = []  # by the last `assign`
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._ready: asyncio.Queue[_Fetched] = asyncio.Queue()
        self._paused: dict[MessageQueue, list[_Fetched]] = {}  # with what came meanwhile
        self._taken: dict[MessageQueue, asyncio.Event] = {}
        self._generation: dict[MessageQueue, int] = {}
        self._closed = False
        self._ahead = self._ahead_bytes = 0
        self._room = asyncio.Event()
        self._done: dict[MessageQueue, int] = {}  # what may be committed unasked
        self._saved: dict[MessageQueue, int] = {}
        self._last: tuple[MessageQueue, int] | None = None  # what the last poll gave, and its end
        self._member: PullGroup | None = None
        self._joining = False
        self._watching: list[asyncio.Task[None]] = []
        self._committing = asyncio.Lock()
        if options.auto_commit_s:
            self._watching.append(
                session.tasks.every(f"commit-{group}", options.auto_commit_s, self._commit_done)
            )

    async def subscribe(
        self,
        *topics: str,
        strategy: StrategyName = "AVG",
        on_change: Changed | None = None,
    ) -> None:
        """Join the group and read our share of these topics, as it changes with members and queues.

        A topic that no name server knows yet is read as soon as there is one.

        Args:
            strategy: as in `Client.subscribe`.
            on_change: called on the client's loop, after the change, with the queues gained and those lost; it must not wait.

        Raises:
            ConfigError: it is subscribed, or reads queues by `assign`; or this client has a consumer of the group.
        """
        if self._closed:
            raise ClientClosed("the reader is closed")
        if self._joining or self._positions:
            raise ConfigError("a reader either assigns queues itself or subscribes, once")
        if on_change is not None:
            check_function("on_change", on_change, waits=False)
        shares = as_strategy(strategy)
        wanted = as_subscriptions(dict.fromkeys(topics, self._wanted), {})
        now_ms = self._session.clock.now_ms()
        named = self._namespace.wrap_keys(wanted)
        subscriptions = {t: subscription(t, chosen, now_ms) for t, chosen in named.items()}
        member = PullGroup(
            self._session,
            self.group,
            subscriptions,
            self._options.start_from,
            shares,
            self,
        )
        member.changed = on_change
        self._joining = True
        try:
            await member.start()
            self._member = member
        finally:
            if self._member is None:
                self._joining = False
                for queue in self.assigned():
                    self._forget(queue)
        if self._closed:
            await member.close()

    def watch(self, topic: str, on_change: Changed) -> None:
        """Call `on_change`, on the client's loop, with queues a topic gained and lost, seen as often as routes are asked for (`poll_routes`)."""
        check_function("on_change", on_change, waits=False)
        work = partial(self._watch, topic, on_change)
        self._watching.append(self._session.tasks.keep(f"watch-{topic}", work))

    async def _watch(self, topic: str, on_change: Changed, health: Health) -> None:
        known: list[MessageQueue] | None = None
        while True:
            try:
                route = await self._session.route(self._namespace.wrap(topic))
                now = [self._namespace.shown_queue(queue) for queue in route.subscribe]
            except ClientError as error:
                log.debug("no route yet topic=%s error=%s", topic, error)
            else:
                if known is not None and now != known:
                    before, after = set(known), set(now)
                    on_change(sorted(after - before), sorted(before - after))
                known = now
            health.worked()
            await asyncio.sleep(self._session.config.poll_routes_ms / 1000)

    async def give_up(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading some queues; with automatic commits, what is done of them is committed first."""
        queues = list(queues)
        for queue in queues:
            self._forget(queue)
        if self._options.auto_commit_s:
            await self._commit_done()
        for queue in queues:
            self._done.pop(queue, None)
            self._saved.pop(queue, None)

    def offsets(self) -> dict[MessageQueue, int]:
        """The positions of all queues."""
        return dict(self._positions)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, each from the group's offset, or from its first message without one."""
        if self._joining:
            raise ConfigError("a reader that has subscribed is given its queues")
        self._wished = wanted = list(queues)
        for queue in [q for q in self._positions if q not in wanted]:
            self._forget(queue)
        for queue in wanted:
            if queue not in self._positions:
                offset = await self._ask(queue, partial(calls.committed_offset, self.group))
                if offset is None:
                    offset = await self._ask(queue, calls.min_offset)
                if self._wished is not wanted:
                    return  # another `assign` came meanwhile
                if queue not in self._positions:  # nor did a `seek`
                    self.seek(queue, offset)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue reading a queue at an offset; what was fetched ahead is thrown away."""
        if offset < 0:
            raise ConfigError(f"offset {offset} of {queue} is negative")
        if self._closed:
            raise ClientClosed("the reader is closed")
        self._forget(queue)
        self._positions[queue] = offset
        self._done[queue] = offset
        if self._last is not None and self._last[0] == queue:
            self._last = None
        generation = self._generation[queue] = self._generation.get(queue, 0) + 1
        self._taken[queue] = asyncio.Event()
        self._tasks[queue] = self._session.tasks.keep(
            f"read-{queue.topic}-{queue.queue_id}", partial(self._read, queue, [offset], generation)
        )

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the oldest message the broker has."""
        self.seek(queue, await self._ask(queue, calls.min_offset))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue at what is sent from now on."""
        self.seek(queue, await self._ask(queue, calls.max_offset))

    async def seek_to_time(self, queue: MessageQueue, when: datetime | int) -> None:
        """Continue at the first message stored at or after a time (milliseconds since 1970 when a number)."""
        self.seek(queue, await self.offset_for_time(queue, when))

    async def offset_for_time(self, queue: MessageQueue, when: datetime | int) -> int:
        """The offset of the first message stored at or after a time; the end of the queue when there is none."""
        at_ms = since_1970_ms("when", when)
        return await self._ask(queue, lambda known: calls.offset_by_time(known, at_ms))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset the group goes on from; None when it has committed nothing there."""
        committed = partial(calls.committed_offset, self.group, zero_if_new=False)
        return await self._ask(queue, committed)

    async def _ask(self, queue: MessageQueue, call: Callable[[MessageQueue], Call[T]]) -> T:
        queue = self._namespace.wrap_queue(queue)
        await self._session.route(queue.topic)
        return await self._session.api.call(self._session.master_of(queue), call(queue))

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        await self._ask(queue, lambda known: calls.commit(self.group, known, offset))
        if queue in self._done:
            self._saved[queue] = offset

    def pause(self, *queues: MessageQueue) -> None:
        """`poll` gives nothing of these queues until `resume`; what was fetched ahead waits."""
        for queue in queues:
            self._paused.setdefault(queue, [])

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with queues that were paused."""
        for queue in queues:
            for fetched in self._paused.pop(queue, ()):
                self._count(fetched, 1)
                self._ready.put_nowait(fetched)

    def position(self, queue: MessageQueue) -> int:
        """The offset the next `poll` of the queue continues with."""
        return self._positions[queue]

    def assigned(self) -> list[MessageQueue]:
        """The queues being read."""
        return list(self._positions)

    def _forget(self, queue: MessageQueue) -> None:
        self._positions.pop(queue, None)
        if queue in self._paused:
            self._paused[queue].clear()
        task = self._tasks.pop(queue, None)
        if task is not None:
            task.cancel()

    async def poll(self, *, timeout: Timeout = 5.0) -> list[ReceivedMessage]:
        """The next messages of any assigned queue, in its order; empty when none came in time.

        Args:
            timeout: seconds, or a timedelta; None: as long as it takes.
        """
        if self._closed:
            raise ClientClosed("the reader is closed")
        if self._last is not None:
            queue, offset = self._last
            if queue in self._positions:
                self._done[queue] = offset
            self._last = None
        loop = asyncio.get_running_loop()
        deadline = math.inf if timeout is None else loop.time() + seconds_of(timeout)
        while (left := deadline - loop.time()) > 0:
            try:
                async with asyncio.timeout(None if left == math.inf else left):
                    fetched = await self._ready.get()
            except TimeoutError:
                break
            queue, generation, messages, next_offset = fetched
            self._count(fetched, -1)
            if queue in self._paused:
                self._paused[queue].append(fetched)
                continue
            if self._generation.get(queue) != generation or queue not in self._positions:
                continue  # fetched before a seek
            self._positions[queue] = next_offset
            self._taken[queue].set()
            if messages:
                self._last = queue, next_offset
                return messages
            self._done[queue] = next_offset  # nothing of it was wanted
        return []

    def _count(self, fetched: _Fetched, sign: int) -> None:
        """Count what is fetched ahead and not paused: there is more of it (`sign` 1), or less (-1)."""
        self._ahead += sign * len(fetched[2])
        self._ahead_bytes += sign * sum(len(message.body) for message in fetched[2])
        self._room.set()

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets of the group, and return when the brokers have them: those given, or all positions.

        Raises:
            ClientError: a broker does not take one.
        """
        given = dict(self._positions if offsets is None else offsets)
        self._done.update((q, offset) for q, offset in given.items() if q in self._positions)
        async with self._committing:
            for queue, offset in given.items():
                if self._options.auto_commit_s:  # a later `poll` counts as well, and may be saved
                    offset = self._done.get(queue, offset)
                await self._commit(queue, offset)

    async def _commit_done(self) -> None:
        async with self._committing:
            for queue in list(self._done):
                offset = self._done.get(queue)  # as it is now: the queue may be given up, or sought
                if offset is None or self._saved.get(queue) == offset:
                    continue
                try:
                    await self._commit(queue, offset)
                except ClientError as error:
                    words = "commit failed queue=%s error=%s"
                    self._session.noise.warning(f"commit-{queue.broker_name}", words, queue, error)

    async def _read(
        self, queue: MessageQueue, at: list[int], generation: int, health: Health
    ) -> None:
        """`at`: the offset to go on from, kept over an error."""
        wanted = subscription(queue.topic, self._wanted, self._session.clock.now_ms())
        matches = matcher(wanted)
        taken = self._taken[queue]
        while True:
            most = self._options
            while self._ahead >= most.max_messages or self._ahead_bytes >= most.max_bytes:
                self._room.clear()
                await self._room.wait()
            known = self._namespace.wrap_queue(queue)
            route = self._session.known_route(known.topic)
            try:
                messages, offset = await self._pull(known, at[0], wanted, matches)
            except (ClientError, CorruptRecord) as error:
                self._session.noise.warning(
                    f"read-{queue.topic}", "pull failed queue=%s error=%s", queue, error
                )
                pause_s = self._session.config.pull_retry_ms / 1000
                await self._session.masters.moved(route, known.topic, queue.broker_name, pause_s)
                continue
            taken.clear()
            fetched = queue, generation, messages, offset
            self._count(fetched, 1)
            self._ready.put_nowait(fetched)
            at[0] = offset
            health.worked()
            await taken.wait()

    async def _pull(
        self, queue: MessageQueue, offset: int, wanted: SubscriptionData, matches: Matcher | None
    ) -> tuple[list[ReceivedMessage], int]:
        session = self._session
        if session.known_route(queue.topic) is None:
            await session.route(queue.topic)
        call = calls.pull(
            self.group,
            queue,
            offset,
            self._batch,
            PullFilter(wanted.sub_string, wanted.expression_type),
            hold_ms=session.config.pull_hold_ms,
        )
        pulled = await session.api.call(
            session.master_of(queue), call, timeout_ms=session.config.pull_timeout_ms
        )
        route = session.known_route(queue.topic)
        if pulled.moved and route is not None and route.master_of(queue.broker_name) is None:
            return [], offset  # a replica that is behind: only a master says what there is
        messages: list[ReceivedMessage] = []
        for record in decode_records(pulled.records):
            try:
                message = received(record, queue.broker_name)
                if matches is None or matches(record, message):
                    messages.append(self._namespace.show(message))
            except CorruptRecord as error:
                self.unreadable += 1
                words = "body is unreadable, the message is skipped queue=%s offset=%d error=%s"
                log.warning(words, queue, record.queue_offset, error)
        return messages, pulled.next_offset

    async def close(self) -> None:
        """Stop reading and leave the group; with automatic commits, what is done is committed.

        Messages of the last `poll` count as done when `commit` was called, or another `poll`.
        """
        self._closed = True
        tasks = [*self._tasks.values(), *self._watching]
        for task in self._watching:
            task.cancel()
        for queue in self.assigned():
            self._forget(queue)
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._options.auto_commit_s:
            await self._commit_done()
        if self._member is not None:
            await self._member.close()
        self._gone()
