"""Messages as an asynchronous iterator, over a push consumer that hands out one message at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from roquette.client.handed import HandedQueues
from roquette.client.handler import ACKED
from roquette.client.opened import Opened
from roquette.client.push_consumer import PushConsumer
from roquette.errors import ClientClosed, Retry
from roquette.message.message import HandlerDecision, ReceivedMessage


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
