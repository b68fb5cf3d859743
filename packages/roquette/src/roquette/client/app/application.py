"""An application of consumers: what it is made of, how a process of it begins and ends."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Unpack

from roquette.base.executor import new_loop
from roquette.client.app.router import Router
from roquette.client.app.values import Things
from roquette.client.arguments import Timeout, seconds_of
from roquette.client.client import Client
from roquette.client.consumer_options import Encode, check_function, to_json
from roquette.client.push_consumer import PushConsumer
from roquette.client.settings import ClientSettings, config_of
from roquette.errors import ConfigError
from roquette.message.names import DEFAULT_PRODUCER_GROUP
from roquette.remoting.http1 import served_health

# A process that serves until it is told to end: signals, the loop, the longest end, the exit status.


log = logging.getLogger("roquette.client")

LEAVE_S: Final = 5.0  # beside handlers: offsets are saved, groups left, connections closed

Body = Callable[[asyncio.Event], Awaitable[int]]
"""Ends after the event is set; how many handlers were ended at work."""


def run_until_told(body: Body, *, limit_s: float) -> int:
    """Run it on a loop of its own (uvloop's where installed) until SIGTERM or SIGINT; returns 0.

    The process ends at once, with status 1, when something was ended at work or the end takes too long: a thread,
    or a task that will not be cancelled, would hold it up. A second signal ends it as well, with 128 + its number.

    Args:
        limit_s: the longest that the end may take.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        if (unfinished := runner.run(_serve(body, limit_s))) > 0:
            _end(1, f"ended with {unfinished} handlers at work")
    return 0


def _end(status: int, why: str) -> None:
    log.error("%s; what was not done comes again", why)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


async def _serve(body: Body, limit_s: float) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            _end(128 + number, "told twice to end")
        stop.set()
        loop.call_later(limit_s, _end, 1, f"the end took longer than {limit_s} s")

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, on_signal, number)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda n, _: loop.call_soon_threadsafe(on_signal, n))
    return await body(stop)


LAST_SENDS_S: Final = 1.0  # for what handlers have sent, when they took all the time there is

Lifespan = Callable[[Client], AbstractAsyncContextManager[Any]]
"""Entered before the consumers join, left after the last handler has ended. Of a mapping that it yields functions get
values by name; any other object they get by its type."""


class App(Router):
    """Consumers, servers and checks that start and end together.

        app = roquette.App("127.0.0.1:9876", group="billing")

        @app.consumer("orders")
        async def bill(order: Order, mq: roquette.Client) -> None:
            await mq.send("bills", ...)

    `roquette run module:app` runs it as a process, `async with app.serving(client)` inside of a test.

    Args:
        name_servers, settings: as of `Client`.
        group: of the functions that name none, and the client's, which transactions need.
        encode: as of `Client`, also of what functions return to be sent.
        lifespan: `@asynccontextmanager async def lifespan(mq): ...; yield {"db": db}`; a handler gets what it names
            behind a `*`: `async def bill(order: Order, *, db: Database)`.
        drain: how long, in seconds or as a timedelta, handlers at work may go on, and then what they sent without waiting, when the application is told
            to end (SIGTERM). It ends within `drain` + 5 s, whatever they do while the loop runs; messages of handlers that were ended come again.
    """

    def __init__(
        self,
        name_servers: str = "",
        *,
        group: str | None = None,
        encode: Encode[Any] = to_json,
        lifespan: Lifespan | None = None,
        drain: float | timedelta = 30.0,
        **settings: Unpack[ClientSettings],
    ) -> None:
        super().__init__(group=group)
        config_of(name_servers, settings)  # what is wrong is said here
        check_function("encode", encode, waits=False)
        if lifespan is not None:
            check_function("lifespan (without @asynccontextmanager?)", lifespan, waits=False)
        self.name_servers = name_servers
        self.drain_s = seconds_of(drain, "drain")
        self.unfinished = 0  # handlers that had to be ended at work, of the last run
        self.unsaid = 0  # messages it had sent, whose end was not known when it ended
        self._settings = settings
        self._lifespan = lifespan
        self._encode = encode
        self._client: Client | None = None  # while `run` serves
        self._waits_for = "the application has not begun"  # why it is not ready; "": it is

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
                group, encode = self.group or DEFAULT_PRODUCER_GROUP, self._encode
                made = Client(self.name_servers, group=group, encode=encode, **self._settings)
                client = await made.start()
                stack.push_async_callback(close, client)
            things: Things = None
            if self._lifespan is not None:
                things = await stack.enter_async_context(self._lifespan(client))
            for topic, function in self._checks.items():
                function.bind(client, things)
                client.on_check(topic, function.answer_to)
            try:
                for member in self._members.values():
                    joined.append(await member.join(client, things))
                self._waits_for = ""
                yield client
            finally:
                self._waits_for = "the application drains"
                end_s = asyncio.get_running_loop().time() + limit_s
                if joined:
                    left = asyncio.gather(*(each.left(limit_s) for each in joined))
                    self.unfinished = sum(await left)

    def run(
        self,
        *,
        name_servers: str = "",
        drain: Timeout = None,
        health: str = "",
        ready: Callable[[], object] = int,
    ) -> int:
        """Serve until SIGTERM or SIGINT; a second one ends the process at once.

        Args:
            name_servers, drain: instead of the application's.
            health: "host:port" of /healthz and /readyz, which says 503 until all consumers have joined, while no server
                can be reached, and when the application has been told to end; "": nowhere.
            ready: called once all consumers have joined.

        Returns:
            The exit status: 0, or 1 when the end of messages that were sent was not known in time. When handlers had to be
            ended at work the process ends here, with status 1.

        Raises:
            ConfigError, ClientError: it could not begin.
        """
        if not self._members:
            raise ConfigError("the application has no consumer: @app.consumer(topic, group=)")
        if name_servers:
            self.name_servers = name_servers
        limit_s = self.drain_s if drain is None else seconds_of(drain, "drain")

        async def body(stop: asyncio.Event) -> int:
            pages = served_health(health, "roquette application", self._why_not_ready)
            async with pages, self.serving(drain=limit_s) as client:
                self._client = client
                ready()
                await stop.wait()
                self._waits_for = "the application drains"
                log.info("drains seconds=%s", limit_s)
            return self.unfinished

        return run_until_told(body, limit_s=limit_s + LEAVE_S) or min(self.unsaid, 1)

    def _why_not_ready(self) -> str:
        if not self._waits_for and self._client is not None and not self._client.is_connected:
            return "no name server and no broker can be reached"
        return self._waits_for
