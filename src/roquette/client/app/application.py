"""An application of consumers: what it is made of, how a process of it begins and ends."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar, Unpack

from roquette.client.answers import check_function
from roquette.client.app.endpoint import Endpoint, Errors, Fate, Policy
from roquette.client.app.process import LEAVE_S, run_until_told
from roquette.client.app.values import Decode
from roquette.client.arguments import Timeout, Topics, member_options, seconds_of
from roquette.client.client import Client
from roquette.client.consumer_options import ConsumerOptions
from roquette.client.push_consumer import PushConsumer
from roquette.client.settings import ClientSettings, config_of
from roquette.errors import ConfigError

log = logging.getLogger("roquette.client")

LAST_SENDS_S: Final = 1.0  # for what handlers have sent, when they took all the time there is

F = TypeVar("F", bound=Callable[..., Any])

Lifespan = Callable[[Client], AbstractAsyncContextManager[Mapping[str, object] | None]]
"""Entered before the consumers join, left after the last handler has ended; what it yields, handlers get by name."""


class App:
    """Consumers that start and end together.

        app = roquette.App("127.0.0.1:9876")

        @app.consumer("orders", group="billing")
        async def bill(order: Order, mq: roquette.Client) -> None:
            await mq.send("bills", ...)

    `roquette run module:app` runs it as a process, `async with app.serving(client)` inside of a test.

    Args:
        name_servers, settings: as of `Client`.
        lifespan: `@asynccontextmanager async def lifespan(mq): ...; yield {"db": db}`; a handler gets what it names
            behind a `*`: `async def bill(order: Order, *, db: Database)`.
        drain: how long, in seconds or as a timedelta, handlers at work may go on, and then what they sent without waiting, when the application is told
            to end (SIGTERM). It ends within `drain` + 5 s, whatever they do while the loop runs; messages of handlers that were ended come again.
    """

    def __init__(
        self,
        name_servers: str = "",
        *,
        lifespan: Lifespan | None = None,
        drain: float | timedelta = 30.0,
        **settings: Unpack[ClientSettings],
    ) -> None:
        config_of(name_servers, settings)  # what is wrong is said here
        if lifespan is not None:
            check_function("lifespan (without @asynccontextmanager?)", lifespan, waits=False)
        self.name_servers = name_servers
        self.drain_s = seconds_of(drain, "drain")
        self.unfinished = 0  # handlers that had to be ended at work, of the last run
        self.unsaid = 0  # messages it had sent, whose end was not known when it ended
        self._settings = settings
        self._lifespan = lifespan
        self._endpoints: list[Endpoint] = []

    def consumer(
        self,
        topic: Topics,
        *,
        group: str,
        undecodable: Fate = "dead-letter",
        dead_letter_on: Errors = (),
        drop_on: Errors = (),
        decode: Decode | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[F], F]:
        """Let the function handle the group's messages of a topic. A plain `def` runs in a thread.

        Its parameters are served by their types: `ReceivedMessage`, `Client`, and one value of the body: bytes, str,
        or of JSON dict, list, dataclass, TypedDict, msgspec.Struct, pydantic's models. It returns None or True when
        done; False, an exception or any other answer lets the message come again.

        Args:
            undecodable: what becomes of a message whose body is no such value: "dead-letter" (to `%DLQ%<group>` at
                once), "drop", or "retry" like any failure.
            dead_letter_on, drop_on: exceptions of the handler that trying again does not cure. Broadcasting has no
                dead letters: such a message is logged and passed over.
            decode: makes the value of a body; any exception of it means that it is none.
            options: see `ConsumerOptions`.

        Raises:
            ConfigError: a word or a parameter is wrong, or the application has a consumer of the group.
        """
        member_options(group, topic, options, call="consumer")
        policy = Policy(
            undecodable=undecodable, dead_letter_on=dead_letter_on, drop_on=drop_on, decode=decode
        )

        def add(function: F) -> F:
            if any(each.group == group for each in self._endpoints):
                raise ConfigError(f"the application already has a consumer of group {group}")
            self._endpoints.append(Endpoint(function, topic, group, policy, options))
            return function

        return add

    @asynccontextmanager
    async def serving(
        self, client: Client | None = None, *, drain: Timeout = None
    ) -> AsyncIterator[Client]:
        """The consumers have joined inside of the block; at its end their handlers come to theirs and they leave.

        Args:
            client: theirs, which stays open; None makes one.
            drain: instead of the application's.
        """
        limit_s = self.drain_s if drain is None else seconds_of(drain, "drain")
        self.unfinished = self.unsaid = 0
        joined: list[PushConsumer] = []
        end_s = 0.0

        async def close(own: Client) -> None:
            rest_s = end_s - asyncio.get_running_loop().time()
            await own.close(timeout=max(LAST_SENDS_S, rest_s))
            self.unsaid = own.unsaid

        async with AsyncExitStack() as stack:
            if client is None:
                client = await Client(self.name_servers, **self._settings).start()
                stack.push_async_callback(close, client)
            things: Mapping[str, object] | None = {}
            if self._lifespan is not None:
                things = await stack.enter_async_context(self._lifespan(client))
            try:
                for each in self._endpoints:
                    joined.append(await each.join(client, things or {}))
                yield client
            finally:
                end_s = asyncio.get_running_loop().time() + limit_s
                if joined:
                    left = asyncio.gather(*(each.left(limit_s) for each in joined))
                    self.unfinished = sum(await left)

    def run(
        self,
        *,
        name_servers: str = "",
        drain: Timeout = None,
        ready: Callable[[], object] = int,
    ) -> int:
        """Serve until SIGTERM or SIGINT; a second one ends the process at once.

        Args:
            name_servers, drain: instead of the application's.
            ready: called once all consumers have joined.

        Returns:
            The exit status: 0, or 1 when the end of messages that were sent was not known in time. When handlers had to be
            ended at work the process ends here, with status 1.

        Raises:
            ConfigError, ClientError: it could not begin.
        """
        if not self._endpoints:
            raise ConfigError("the application has no consumer: @app.consumer(topic, group=)")
        if name_servers:
            self.name_servers = name_servers
        limit_s = self.drain_s if drain is None else seconds_of(drain, "drain")
        threads = sum(e.threads for e in self._endpoints)

        async def body(stop: asyncio.Event) -> int:
            async with self.serving(drain=limit_s):
                ready()
                await stop.wait()
                log.info("drains seconds=%s", limit_s)
            return self.unfinished

        return run_until_told(body, threads=threads, limit_s=limit_s + LEAVE_S) or min(
            self.unsaid, 1
        )
