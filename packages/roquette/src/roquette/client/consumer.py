"""A member of a group as an application holds it, whose messages go to a handler."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from roquette.client.arguments import Timeout, seconds_of
from roquette.client.concurrent import HandedQueues
from roquette.client.handler import ACKED
from roquette.client.push_consumer import CLOSE_S, PushConsumer
from roquette.errors import ClientClosed, Retry
from roquette.message.message import HandlerDecision, MessageQueue, ReceivedMessage

# Objects of a client that begin and end: consumers, streams, popped messages, readers.


class Opened:
    """`async with` begins it and ends it; `await` begins it and leaves its end to `close`, or to the client's."""

    async def start(self) -> None:
        """Begin; may be called twice."""

    async def close(self) -> None:
        """End it; may be called twice."""
        raise NotImplementedError

    async def _entered(self) -> Self:
        await self.start()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._entered().__await__()

    async def __aenter__(self) -> Self:
        return await self._entered()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Consumer(Opened):
    """Member of a group, of `Client.subscribe` and `Client.serve`: `async with mq.subscribe(...)`, or `await mq.subscribe(...)`.

    Attributes:
        group: the group it is a member of.
    """

    def __init__(self, group: str, join: Callable[[], Awaitable[PushConsumer]]) -> None:
        self.group = group
        self._join = join
        self._turn = asyncio.Lock()
        self._member: PushConsumer | None = None

    async def start(self) -> None:
        """Join the group; returns when the first share of queues is known. Cancelled, the group is left again.

        Raises:
            ConfigError: this client already has a consumer of the group. ClientClosed: the client is closed.
        """
        async with self._turn:
            if self._member is None:
                await self._begin()

    async def _begin(self) -> None:
        self._member = await self._join()

    async def close(self, *, timeout: Timeout = None) -> None:
        """Stop pulling, let handlers at work finish, save offsets, leave the group; may be called twice.

        Cancelled, it goes on without its caller. A handler that closes its own consumer does not wait: the
        consumer closes when the handler has returned.

        Args:
            timeout: how long, in seconds or as a timedelta, handlers at work may take (10 s by default).
        """
        limit_s = CLOSE_S if timeout is None else seconds_of(timeout)
        if self._member is not None:
            await self._member.close(limit_s)

    def pause(self) -> None:
        """Pull nothing more until `resume`; handlers go on with what is here, and the queues stay ours."""
        self._joined().pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._joined().resume()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are its share now, sorted; none before it has joined."""
        return [] if self._member is None else self._member.share()

    def _joined(self) -> PushConsumer:
        if self._member is None:
            raise ClientClosed(
                f"the consumer of {self.group} has not joined: await it, or use it in 'async with'"
            )
        return self._member


# Messages as an asynchronous iterator, over a push consumer that hands out one message at a time.


class MessageStream(Opened):
    """`async for message in mq.consume(...)`. Joins the group at its start, or else at the first `anext`.

    Asking for the next message acknowledges the one before. Leaving the loop by `break` or an error leaves the current
    message unacknowledged: it comes again. A closed stream has no more messages, and a waiting `anext` ends.
    """

    def __init__(
        self, join: Callable[[], Awaitable[PushConsumer]], limit_s: float | None = None
    ) -> None:
        """`limit_s`: after so many seconds without a message there are no more."""
        self._join = join
        self._limit_s = limit_s
        self._consumer: PushConsumer | None = None
        self._handed: HandedQueues | None = None
        self._closed = False
        self._turn = asyncio.Lock()
        self._gone: Callable[[], object] = bool  # called when it is closed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if not self._closed:
            if self._handed is not None:
                self._handed.settle(ACKED)
            else:
                await self.start()
            if (handed := self._handed) is not None:
                # a limit costs more than all the rest of a message that is there
                taken = handed.take() if self._limit_s is None else self._in_time(handed)
                if (message := await taken) is not None:
                    return message
        raise StopAsyncIteration

    async def _in_time(self, handed: HandedQueues) -> ReceivedMessage | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limit_s):
                return await handed.take()
        return None

    async def start(self) -> None:
        """Join the group, unless another task has done it."""
        async with self._turn:
            if self._handed is None and not self._closed:
                await self._begin_once()

    async def _begin_once(self) -> None:
        try:
            self._consumer = await self._join()
        except ClientClosed:
            if not self._closed:
                raise
        else:
            self._handed = self._consumer.handed
            if self._closed:
                await self._consumer.close()

    async def commit(self) -> None:
        """Save the group's offsets, and return when the brokers have them: of all messages before the one at work, and of
        that when it is acknowledged. Without it they are saved each 5 s, and at the end.

        Raises:
            ClientError: a broker does not take one; they are saved later. ClientClosed: the stream has not begun.
        """
        if self._consumer is None:
            raise ClientClosed("the stream has not begun: nothing can be committed")
        await self._consumer.commit()

    async def close(self) -> None:
        """Leave the group. A message neither acknowledged nor retried comes again."""
        self._closed = True
        if self._consumer is not None:
            await self._consumer.close()
        self._gone()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Retry) and self._handed is not None:
            self._handed.settle(HandlerDecision(after_s=error.after_s))
        await self.close()
