"""Messages as an asynchronous iterator, over a push consumer that hands out one message at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from roquette.client.handler import Handler
from roquette.client.push_consumer import PushConsumer
from roquette.errors import ClientClosed
from roquette.message.message import ReceivedMessage


class MessageStream:
    """`async for message in mq.consume(...)`. Joins the group at the first `anext`, leaves it at `aclose`.

    A closed stream has no more messages, and a waiting `anext` ends.
    """

    def __init__(self, join: Callable[[Handler], Awaitable[PushConsumer]]) -> None:
        self._join = join
        self._consumer: PushConsumer | None = None
        self._closed = False
        self._messages: asyncio.Queue[tuple[ReceivedMessage, asyncio.Future[bool]] | None] = (
            asyncio.Queue()  # None: closed
        )
        self._current: asyncio.Future[bool] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if not self._closed:
            self.ack()
            if self._consumer is None:
                await self._begin()
            if (found := await self._messages.get()) is not None:
                message, self._current = found
                return message
        self._messages.put_nowait(None)
        raise StopAsyncIteration

    async def _begin(self) -> None:
        try:
            self._consumer = await self._join(self._handle)
        except ClientClosed:
            if not self._closed:
                raise
        else:
            if self._closed:
                await self._consumer.close()

    async def _handle(self, message: ReceivedMessage) -> bool:
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._messages.put_nowait((message, decided))
        return await decided

    def ack(self) -> None:
        """The current message is done (asking for the next one does the same)."""
        if self._current is not None and not self._current.done():
            self._current.set_result(True)

    def retry(self) -> None:
        """The current message failed: let it come again later."""
        if self._current is not None and not self._current.done():
            self._current.set_result(False)

    async def aclose(self) -> None:
        """Leave the group. A message neither acknowledged nor retried comes again."""
        self._closed = True
        if self._current is not None and not self._current.done():
            self._current.cancel()
        while not self._messages.empty():
            if (waiting := self._messages.get_nowait()) is not None:
                waiting[1].cancel()
        self._messages.put_nowait(None)
        if self._consumer is not None:
            await self._consumer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
