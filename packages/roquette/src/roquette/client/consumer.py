"""A member of a group as an application holds it, whose messages go to a handler."""

import asyncio
from collections.abc import Awaitable, Callable

from roquette.client.arguments import Timeout, seconds_of
from roquette.client.opened import Opened
from roquette.client.push_consumer import CLOSE_S, PushConsumer
from roquette.errors import ClientClosed
from roquette.message.message import MessageQueue


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
