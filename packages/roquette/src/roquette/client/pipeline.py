"""Sends that are under way together: to each queue they leave in the order they were given.

What cannot leave yet waits in the line of its topic, until there is a route, or of its queue, until its
broker is connected. One task looks after each line, and nothing new passes by a line that waits. HOT.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from roquette.base.lifecycle import Tasks
from roquette.client.core.route_cache import TopicRoute, may_retry
from roquette.client.events import EventKind
from roquette.client.receipt import SendReceipt
from roquette.client.send_request import Chooser, Entry, Headers, Preparation, SendRequest, weight
from roquette.client.session import Session
from roquette.client.under_way import Lot, UnderWay
from roquette.errors import ClientClosed, ClientError, RoquetteError
from roquette.message.message import Message, MessageQueue
from roquette.message.record import encode_batch
from roquette.remoting.request import Peer
from roquette.wire.command import Command

K = TypeVar("K")


class _Sending:
    """A request on its way and the future its sender has. The pipeline's part of the connection gives it the answer."""

    __slots__ = ("address", "choose", "lot", "pipeline", "request", "result", "target")

    def __init__(
        self,
        pipeline: "SendPipeline",
        request: SendRequest,
        choose: Chooser,
        result: "asyncio.Future[SendReceipt]",
        lot: Lot,
    ) -> None:
        self.lot = lot
        self.pipeline = pipeline
        self.request = request
        self.choose = choose
        self.result = result
        self.target: MessageQueue | None = None
        self.address = ""

    def done(self) -> bool:
        """See Waiter: its place is free only when the answer is here."""
        return False

    def set_result(self, reply: Command) -> None:
        self.pipeline.answered(self, reply)

    def set_exception(self, error: BaseException) -> None:
        self.pipeline.failed(self, error)


class Places:
    """So many, and so many bytes; who waits for room gets it in turn. What is larger than all of it goes alone.

    Attributes:
        free, free_bytes: what nobody has; the bytes are below 0 while something large is alone.
    """

    __slots__ = ("_count", "_waiting", "free", "free_bytes")

    def __init__(self, count: int, size: int) -> None:
        self.free = self._count = count
        self.free_bytes = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_take(self, size: int) -> bool:
        """Take one, if there is room and nobody waits."""
        return not self._waiting and self._fits(size)

    @property
    def waits(self) -> bool:
        """True if somebody waits for room."""
        return bool(self._waiting)

    def _fits(self, size: int) -> bool:
        if self.free == 0 or (size > self.free_bytes and self.free != self._count):
            return False
        self.free -= 1
        self.free_bytes -= size
        return True

    async def take(self, size: int) -> None:
        """Take one, as soon as there is room."""
        if self.try_take(size):
            return
        entry = size, asyncio.get_running_loop().create_future()
        self._waiting.append(entry)
        try:
            await entry[1]
        except asyncio.CancelledError:
            if not entry[1].cancelled():
                self.release(size)  # it came at the same time
            elif entry in self._waiting:
                self._waiting.remove(entry)
                self._let_in()  # those behind it may be smaller
            raise

    def release(self, size: int) -> None:
        """Give one back."""
        self.free += 1
        self.free_bytes += size
        if self._waiting:
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            size, place = self._waiting[0]
            if not place.done():
                if not self._fits(size):
                    return
                place.set_result(None)
            self._waiting.popleft()


LetGo = Callable[[_Sending], None]


class SendPipeline:
    """At most `max_in_flight` sends without an answer, and `max_bytes_in_flight` bytes of their bodies.

    Args:
        publish_route: finds where a topic's messages go.
        attempts: sends what failed once more, by itself, and away from the broker that is named.
        under_way: is told of each send from its call until its future is done.
    """

    def __init__(
        self,
        session: Session,
        headers: Headers,
        publish_route: Callable[[str], Awaitable[TopicRoute]],
        attempts: Callable[[SendRequest, Chooser, str | None], Awaitable[list[SendReceipt]]],
        under_way: UnderWay,
    ) -> None:
        self._under_way = under_way
        self._session = session
        self._headers = headers
        self._publish_route = publish_route
        self._attempts = attempts
        config = session.config
        self._timeout_ms: int = config.send_timeout_ms
        self._places = Places(config.max_in_flight, config.max_bytes_in_flight)
        self._loop = asyncio.get_running_loop()
        self._unrouted: dict[str, deque[_Sending]] = {}
        self._unconnected: dict[MessageQueue, deque[_Sending]] = {}

    def begin(self, request: SendRequest, choose: Chooser) -> "asyncio.Future[SendReceipt] | None":
        """Send it; the future gets the answer, or ClientError after the last attempt. None: there is no room now."""
        return self._begin(request, choose) if self._places.try_take(len(request.body)) else None

    async def send(self, request: SendRequest, choose: Chooser) -> "asyncio.Future[SendReceipt]":
        """The same, when there is room."""
        with self._under_way.lot:
            await self._place(self._session.namespace.shown(request.topic), len(request.body))
            return self._begin(request, choose)

    async def _place(self, topic: str, size: int) -> None:
        """Take one, as soon as there is room."""
        if not self._places.try_take(size):
            if not self._places.waits:
                self._session.events.tell(EventKind.BLOCKED, topic=topic)
            await self._places.take(size)

    async def hold(
        self, topic: str, size: int, begin: Callable[[], "asyncio.Future[SendReceipt]"]
    ) -> "asyncio.Future[SendReceipt]":
        """Begin what others send, when there is room: it has a place, and is under way, until its answer."""
        lot = self._under_way.lot
        with lot:
            await self._place(topic, size)
            return self._begin_held(lot, size, begin)

    def _begin_held(
        self, lot: Lot, size: int, begin: Callable[[], "asyncio.Future[SendReceipt]"]
    ) -> "asyncio.Future[SendReceipt]":
        answer: asyncio.Future[SendReceipt] | None = None
        try:
            answer = begin()
        finally:
            if answer is None:
                self._places.release(size)
        lot.begin()

        def ended(answer: object) -> None:
            self._places.release(size)
            lot.end()

        answer.add_done_callback(ended)
        return answer

    def _begin(self, request: SendRequest, choose: Chooser) -> "asyncio.Future[SendReceipt]":
        result: asyncio.Future[SendReceipt] = self._loop.create_future()
        lot = self._under_way.lot
        lot.begin()
        sending = _Sending(self, request, choose, result, lot)
        route = self._session.known_route(request.topic)
        if route is None or not route.publish or request.topic in self._unrouted:
            self._hold(self._unrouted, request.topic, sending, self._routed)
        else:
            self._to_queue(sending, route)
        return result

    def _to_queue(self, sending: _Sending, route: TopicRoute) -> None:
        """Choose its queue, once; send it, or put it into the queue's line."""
        try:
            target = sending.target = sending.choose(route.publish, None)
        except Exception as error:  # noqa: BLE001 - a selector's, whose caller gets it
            self._end(sending, error)
            return
        address = route.master_of(target.broker_name)
        peer = self._session.remoting.peer(address) if address is not None else None
        if address is None or peer is None or (self._unconnected and target in self._unconnected):
            self._hold(self._unconnected, target, sending, self._connected)
        else:
            self._post(sending, target, peer, address)

    def _hold(
        self,
        lines: dict[K, deque[_Sending]],
        key: K,
        sending: _Sending,
        ready: Callable[[K], Awaitable[LetGo]],
    ) -> None:
        line = lines.get(key)
        if line is None:
            line = lines[key] = deque()
            task = self._session.tasks.start("send", self._look_after(lines, key, line, ready))
            task.add_done_callback(partial(self._abandon, lines, key, line))
        line.append(sending)

    async def _look_after(
        self,
        lines: dict[K, deque[_Sending]],
        key: K,
        line: deque[_Sending],
        ready: Callable[[K], Awaitable[LetGo]],
    ) -> None:
        """Send a line once its route or connection is there; fail all of it when that does not come."""
        let_go: LetGo
        try:
            let_go = await ready(key)
        except ClientError as error:
            let_go = partial(self.failed, error=error)
        del lines[key]
        while line:
            let_go(line.popleft())

    def _abandon(
        self, lines: dict[K, deque[_Sending]], key: K, line: deque[_Sending], task: object
    ) -> None:
        """The line's task has ended. Who waits still does so because the client was closed."""
        if lines.get(key) is line:
            del lines[key]
        for sending in line:
            self._end(sending, ClientClosed("the client was closed"))

    async def _routed(self, topic: str) -> LetGo:
        route = await self._publish_route(topic)
        return partial(self._to_queue, route=route)

    async def _connected(self, target: MessageQueue) -> LetGo:
        address = self._session.master_of(target)
        peer = await self._session.remoting.connect(address)
        self._session.greet_soon(address)
        return partial(self._post, target=target, peer=peer, address=address)

    def _post(self, sending: _Sending, target: MessageQueue, peer: Peer, address: str) -> None:
        request = sending.request
        sending.address = address
        header = self._headers.header_for(request, target)
        try:
            peer.ask(request.code, header, request.body, self._timeout_ms, sending)
        except RoquetteError as error:  # LocalProtocolError too: a frame that no broker takes
            self.failed(sending, error)

    def answered(self, sending: _Sending, reply: Command) -> None:
        """The broker's answer is here."""
        if sending.result.done():
            self._release(sending)
            return
        assert sending.target is not None
        try:
            receipts = sending.request.receipts(reply, sending.target, sending.address)
        except ClientError as refusal:
            self.failed(sending, refusal)
            return
        self._release(sending)
        sending.result.set_result(receipts[0])

    def failed(self, sending: _Sending, error: BaseException) -> None:
        """Done, or tried again in a task of its own."""
        again = isinstance(error, ClientError) and may_retry(
            error, 1, self._session.config.send_attempts, 1
        )
        if again and not sending.result.done():
            task = self._session.tasks.start("send", self._again(sending))
            task.add_done_callback(partial(self._tried_again, sending))
        else:
            self._end(sending, error)

    async def _again(self, sending: _Sending) -> SendReceipt | ClientError:
        avoid = sending.target.broker_name if sending.target is not None else None
        try:
            return (await self._attempts(sending.request, sending.choose, avoid))[0]
        except ClientError as error:
            return error

    def _tried_again(
        self, sending: _Sending, task: "asyncio.Task[SendReceipt | ClientError]"
    ) -> None:
        if task.cancelled():
            self._end(sending, ClientClosed("the client was closed"))
        else:
            self._end(sending, task.exception() or task.result())

    def _end(self, sending: _Sending, outcome: SendReceipt | BaseException) -> None:
        """Give the sender its outcome, unless it gave up."""
        self._release(sending)
        result = sending.result
        if result.done():
            return
        if isinstance(outcome, SendReceipt):
            result.set_result(outcome)
            return
        result.set_exception(outcome)
        if isinstance(outcome, ClientClosed):
            result.exception()  # seen, although no caller may look any more

    def _release(self, sending: _Sending) -> None:
        self._places.release(len(sending.request.body))
        sending.lot.end()


# Sends that wait a moment for others to their topic, and go with them as one batch.


Waiting = tuple[Message, Entry, str, "asyncio.Future[SendReceipt]"]
"""A message, checked, with its id, and the future that its sender has."""

SendAll = Callable[[Message, SendRequest], Awaitable[list[SendReceipt]]]
"""Sends the first message's batch."""


class _Batch:
    """Messages to one topic that wait; `timer` sends them."""

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.size = 0
        self.waiting: list[Waiting] = []


class Linger:
    """The batches of one producer that fill up. One goes after `seconds`, or before it is too large for one request.

    Attributes:
        fits: returns True when a message may wait for others.
    """

    def __init__(
        self, seconds: float, preparation: Preparation, tasks: Tasks, send: SendAll
    ) -> None:
        self._seconds = seconds
        self._preparation = preparation
        self._tasks = tasks
        self._send = send
        self.fits = preparation.fits
        self._filling: dict[str, _Batch] = {}

    def add(self, message: Message) -> "asyncio.Future[SendReceipt]":
        """Let it wait for others; the future gets what becomes of it. Raises MessageIllegal, or TypeError."""
        (entry,), (message_id,) = self._preparation.entries([message])
        topic, loop = message.topic, asyncio.get_running_loop()
        result: asyncio.Future[SendReceipt] = loop.create_future()
        batch = self._filling.get(topic)
        if batch is not None and batch.size + weight(entry) > self._preparation.batch_bytes:
            self._flush_topic(topic)
            batch = None
        if batch is None:
            batch = _Batch(loop.call_later(self._seconds, self._flush_topic, topic))
            self._filling[topic] = batch
        batch.size += weight(entry)
        batch.waiting.append((message, entry, message_id, result))
        return result

    def flush(self) -> None:
        """Send all that wait, now."""
        for topic in list(self._filling):
            self._flush_topic(topic)

    def _flush_topic(self, topic: str) -> None:
        batch = self._filling.pop(topic)
        batch.timer.cancel()
        if waiting := [each for each in batch.waiting if not each[3].done()]:
            task = self._tasks.start("send", self._send_batch(waiting))
            task.add_done_callback(partial(self._ended, waiting))

    async def _send_batch(self, waiting: list[Waiting]) -> list[SendReceipt] | ClientError:
        first = waiting[0][0]
        try:
            if len(waiting) == 1:
                return await self._send(first, self._preparation.request(first))
            body = encode_batch([entry for _, entry, _, _ in waiting])
            ids = [message_id for _, _, message_id, _ in waiting]
            return await self._send(first, self._preparation.batch(first.topic, body, ids))
        except ClientError as error:
            return error

    def _ended(
        self, waiting: list[Waiting], task: "asyncio.Task[list[SendReceipt] | ClientError]"
    ) -> None:
        outcome: list[SendReceipt] | BaseException | None
        outcome = ClientClosed("the client was closed") if task.cancelled() else task.exception()
        outcome = outcome or task.result()
        for place, (_, _, _, result) in enumerate(waiting):
            if result.done():
                continue  # its sender gave up
            if isinstance(outcome, list):
                result.set_result(outcome[place])
                continue
            result.set_exception(copy.copy(outcome))  # each is raised by itself
            if isinstance(outcome, ClientClosed):
                result.exception()  # seen, although no caller may look any more
