"""Sends that are under way together: to each queue they leave in the order they were given.

What cannot leave yet waits in the line of its topic, until there is a route, or of its queue, until its
broker is connected. One task looks after each line, and nothing new passes by a line that waits.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from roquette.client.core.retry_policy import may_retry
from roquette.client.core.route_cache import TopicRoute
from roquette.client.send_request import Chooser, SendReceipt, SendRequest
from roquette.client.session import Session
from roquette.errors import ClientClosed, ClientError, RoquetteError
from roquette.message.message import MessageQueue
from roquette.remoting.request import Peer
from roquette.wire.command import Command

K = TypeVar("K")


class _Sending:
    """A request on its way and the future its sender has."""

    __slots__ = ("choose", "request", "result", "target")

    def __init__(
        self, request: SendRequest, choose: Chooser, result: "asyncio.Future[SendReceipt]"
    ) -> None:
        self.request = request
        self.choose = choose
        self.result = result
        self.target: MessageQueue | None = None


LetGo = Callable[[_Sending], None]


class Pipeline:
    """At most `max_in_flight` sends without an answer.

    Args:
        publish_route: finds where a topic's messages go.
        attempts: sends what failed once more, by itself, and away from the broker that is named.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        publish_route: Callable[[str], Awaitable[TopicRoute]],
        attempts: Callable[[SendRequest, Chooser, str | None], Awaitable[list[SendReceipt]]],
    ) -> None:
        self._session = session
        self._group = group
        self._publish_route = publish_route
        self._attempts = attempts
        self._slots = asyncio.Semaphore(session.config.max_in_flight)
        self._unrouted: dict[str, deque[_Sending]] = {}
        self._unconnected: dict[MessageQueue, deque[_Sending]] = {}

    async def send(self, request: SendRequest, choose: Chooser) -> "asyncio.Future[SendReceipt]":
        """Send it when there is room; the future gets the answer, or ClientError after the last attempt."""
        await self._slots.acquire()
        result: asyncio.Future[SendReceipt] = asyncio.get_running_loop().create_future()
        sending = _Sending(request, choose, result)
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
            let_go = partial(self._failed, error=error)
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
        session = self._session
        request = sending.request
        header = request.header(self._group, target, session.config, session.clock.now_ms())
        try:
            reply = peer.invoke(request.code, header, request.body, session.config.send_timeout_ms)
        except RoquetteError as error:  # LocalProtocolError too: a frame that no broker takes
            self._failed(sending, error)
            return
        reply.add_done_callback(partial(self._answered, sending, target, address))

    def _answered(
        self,
        sending: _Sending,
        target: MessageQueue,
        address: str,
        reply: "asyncio.Future[Command]",
    ) -> None:
        if reply.cancelled() or sending.result.done():
            self._slots.release()
            return
        error = reply.exception()
        if error is None:
            try:
                receipts = sending.request.receipts(reply.result(), target, address)
            except ClientError as refusal:
                error = refusal
            else:
                self._slots.release()
                sending.result.set_result(receipts[0])
                return
        self._failed(sending, error)

    def _failed(self, sending: _Sending, error: BaseException) -> None:
        """Done, or tried again in a task of its own."""
        if isinstance(error, ClientError) and may_retry(
            error, 1, self._session.config.send_attempts, 1
        ):
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
        """What the sender gets, unless it gave up."""
        self._slots.release()
        result = sending.result
        if result.done():
            return
        if isinstance(outcome, SendReceipt):
            result.set_result(outcome)
            return
        result.set_exception(outcome)
        if isinstance(outcome, ClientClosed):
            result.exception()  # seen, although no caller may look any more
