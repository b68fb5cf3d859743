"""Messages as an asynchronous iterator, over a push consumer that hands out one message at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from roquette.client.handed import HandedQueues
from roquette.client.push_consumer import PushConsumer
from roquette.errors import ClientClosed
from roquette.message.message import ReceivedMessage


class MessageStream:
    """`async for message in mq.consume(...)`. Joins the group at the first `anext`, leaves it at `aclose`.

    A closed stream has no more messages, and a waiting `anext` ends.
    """

    def __init__(self, join: Callable[[], Awaitable[PushConsumer]]) -> None:
        self._join = join
        self._consumer: PushConsumer | None = None
        self._handed: HandedQueues | None = None
        self._closed = False
        self._turn = asyncio.Lock()
        self.gone: Callable[[], object] = bool  # called when it is closed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if not self._closed:
            self.ack()
            if self._handed is None:
                await self._begin()
            if self._handed is not None and (message := await self._handed.take()) is not None:
                return message
        raise StopAsyncIteration

    async def _begin(self) -> None:
        """Join the group, unless another task has done it meanwhile."""
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

    def ack(self) -> None:
        """The current message is done (asking for the next one does the same)."""
        if self._handed is not None:
            self._handed.settle(True)

    def retry(self) -> None:
        """The current message failed: let it come again later."""
        if self._handed is not None:
            self._handed.settle(False)

    async def aclose(self) -> None:
        """Leave the group. A message neither acknowledged nor retried comes again."""
        self._closed = True
        if self._consumer is not None:
            await self._consumer.close()
        self.gone()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
