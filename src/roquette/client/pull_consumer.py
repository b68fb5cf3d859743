"""Pulling under the application's control: assign queues, seek, poll, commit (Apache: DefaultLitePullConsumer)."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import TypeVar

from roquette.base.lifecycle import Health
from roquette.client import calls
from roquette.client.calls import Call, PullFilter
from roquette.client.selection import Matcher, Selection, matcher, subscription
from roquette.client.session import Session
from roquette.errors import ClientClosed, ClientError, CorruptRecord, OffsetOutOfRange
from roquette.message.message import MessageQueue, ReceivedMessage, received
from roquette.message.record import decode_records
from roquette.wire.bodies import SubscriptionData

log = logging.getLogger("roquette.client")

T = TypeVar("T")


_Fetched = tuple[MessageQueue, int, list[ReceivedMessage], int]
"""A queue, the generation of its reader, messages, and the offset behind them."""


class PullConsumer:
    """Reads the queues it is told to read. One batch per queue is fetched ahead.

    Args:
        group: whose offsets `commit` and a first `assign` use; it never joins the group.
        wanted: tags as `*` or `a || b`, or an expression.

    Attributes:
        unreadable: messages that were skipped, since their bodies cannot be decompressed.
    """

    def __init__(
        self, session: Session, *, group: str, wanted: Selection = "*", batch: int = 32
    ) -> None:
        self.group = group
        self.unreadable = 0
        self._session = session
        self._wanted = wanted
        self._batch = batch
        self._positions: dict[MessageQueue, int] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._ready: asyncio.Queue[_Fetched] = asyncio.Queue()
        self._paused: dict[MessageQueue, list[_Fetched]] = {}  # with what came meanwhile
        self._taken: dict[MessageQueue, asyncio.Event] = {}
        self._generation: dict[MessageQueue, int] = {}
        self._closed = False

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, each from the group's offset, or from its first message without one."""
        wanted = list(queues)
        for queue in [q for q in self._positions if q not in wanted]:
            self._forget(queue)
        for queue in wanted:
            if queue not in self._positions:
                await self._session.route(queue.topic)
                address = self._session.master_of(queue)
                api = self._session.api
                offset = await api.call(address, calls.committed_offset(self.group, queue))
                if offset is None:
                    offset = await api.call(address, calls.min_offset(queue))
                self.seek(queue, offset)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue reading a queue at an offset; what was fetched ahead is thrown away."""
        if offset < 0:
            raise OffsetOutOfRange(f"offset {offset} of {queue} is negative")
        self._forget(queue)
        self._positions[queue] = offset
        generation = self._generation[queue] = self._generation.get(queue, 0) + 1
        self._taken[queue] = asyncio.Event()
        self._tasks[queue] = self._session.tasks.keep(
            f"read-{queue.topic}-{queue.queue_id}", partial(self._read, queue, [offset], generation)
        )

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the oldest message the broker has."""
        self.seek(queue, await self._ask(queue, calls.min_offset(queue)))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue at what is sent from now on."""
        self.seek(queue, await self._ask(queue, calls.max_offset(queue)))

    async def seek_to_time(self, queue: MessageQueue, when: datetime | int) -> None:
        """Continue at the first message stored at or after a time (milliseconds since 1970 when a number)."""
        at_ms = int(when.timestamp() * 1000) if isinstance(when, datetime) else when
        self.seek(queue, await self._ask(queue, calls.offset_by_time(queue, at_ms)))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group goes on; None when it has committed nothing there."""
        return await self._ask(queue, calls.committed_offset(self.group, queue, zero_if_new=False))

    async def _ask(self, queue: MessageQueue, call: Call[T]) -> T:
        await self._session.route(queue.topic)
        return await self._session.api.call(self._session.master_of(queue), call)

    def pause(self, *queues: MessageQueue) -> None:
        """`poll` gives nothing of these queues until `resume`; what was fetched ahead waits."""
        for queue in queues:
            self._paused.setdefault(queue, [])

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with queues that were paused."""
        for queue in queues:
            for fetched in self._paused.pop(queue, ()):
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

    async def poll(self, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        """The next messages of any assigned queue, in its order; empty when none came in time."""
        if self._closed:
            raise ClientClosed("the pull consumer is closed")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while (left := deadline - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    fetched = await self._ready.get()
            except TimeoutError:
                break
            queue, generation, messages, next_offset = fetched
            if queue in self._paused:
                self._paused[queue].append(fetched)
                continue
            if self._generation.get(queue) != generation or queue not in self._positions:
                continue  # fetched before a seek
            self._positions[queue] = next_offset
            self._taken[queue].set()
            if messages:
                return messages
        return []

    async def commit(self) -> None:
        """Store the positions as the group's offsets."""
        for queue, offset in list(self._positions.items()):
            address = self._session.master_of(queue)
            await self._session.api.call(address, calls.commit(self.group, queue, offset))

    async def _read(
        self, queue: MessageQueue, at: list[int], generation: int, health: Health
    ) -> None:
        """`at`: the offset to go on from, kept over an error."""
        wanted = subscription(queue.topic, self._wanted, self._session.clock.now_ms())
        matches = matcher(wanted)
        taken = self._taken[queue]
        while True:
            route = self._session.known_route(queue.topic)
            try:
                messages, offset = await self._pull(queue, at[0], wanted, matches)
            except (ClientError, CorruptRecord) as error:
                self._session.noise.warning(
                    f"read-{queue.topic}", "pull failed queue=%s error=%s", queue, error
                )
                pause_s = self._session.config.pull_retry_ms / 1000
                await self._session.masters.moved(route, queue.topic, queue.broker_name, pause_s)
                continue
            taken.clear()
            self._ready.put_nowait((queue, generation, messages, offset))
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
                    messages.append(message)
            except CorruptRecord as error:
                self.unreadable += 1
                words = "body is unreadable, the message is skipped queue=%s offset=%d error=%s"
                log.warning(words, queue, record.queue_offset, error)
        return messages, pulled.next_offset

    async def close(self) -> None:
        """Stop reading."""
        self._closed = True
        tasks = list(self._tasks.values())
        for queue in list(self._positions):
            self._forget(queue)
        await asyncio.gather(*tasks, return_exceptions=True)
