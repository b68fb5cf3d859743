"""The life of a client: what it is made of, its start and its end."""

import asyncio
import dataclasses
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    Unpack,
)

from roquette.base.clock import Clock, SystemClock
from roquette.base.entropy import Entropy, fork_count
from roquette.base.files import Files, OsFiles, home_directory
from roquette.base.lifecycle import Tasks
from roquette.client.arguments import Timeout, seconds_of
from roquette.client.config import ClientConfig
from roquette.client.consumer_options import Encode, MemberOptions, V, check_function
from roquette.client.events import Events, Listener
from roquette.client.handler import BatchHandler, Handler, inside_handler
from roquette.client.interceptors import Interceptor
from roquette.client.producer import FLUSH_S, Producer
from roquette.client.push_consumer import PushConsumer
from roquette.client.requests import Replies
from roquette.client.session import Session
from roquette.client.settings import ClientSettings, config_of
from roquette.client.trace import MessageTrace
from roquette.client.transactions import Checks
from roquette.client.under_way import Interceptors
from roquette.errors import ClientClosed
from roquette.message.names import DEFAULT_PRODUCER_GROUP
from roquette.remoting.address import local_address

if TYPE_CHECKING:
    from roquette.client.reader import Reader

log = logging.getLogger("roquette.client")

FORKED: Final = (
    "this process was forked off the one that started the client, whose connections and threads stayed there: "
    "make a client in the child"
)


class Outside(NamedTuple):
    """Clock, entropy and files that a client gets from outside."""

    clock: Clock = SystemClock()
    entropy: Entropy = Entropy()
    files: Files = OsFiles()


class ClosesFirst(Protocol):
    """Part of a client that ends before the client's consumers leave their groups."""

    async def close(self) -> None:
        """End it; may be called twice."""
        ...


class ClientBase(Generic[V]):
    """State and life cycle that all calls of a client share; `Client` is what applications use.

    Attributes:
        unsaid: of how many messages the end was not known when the client was closed.
    """

    def __init__(
        self,
        name_servers: str = "",
        *,
        group: str = DEFAULT_PRODUCER_GROUP,
        encode: Encode[V] | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        if encode is not None:
            check_function("encode", encode, waits=False)
        self._begin_with(config_of(name_servers, settings), group, Outside())
        self._encode = encode
        self._environ: Mapping[str, str] = os.environ

    @classmethod
    def _within(
        cls, outside: Outside, config: ClientConfig, group: str = DEFAULT_PRODUCER_GROUP
    ) -> Self:
        """A client that takes its clock, chance, files and all options from elsewhere, as simulations do."""
        client = cls.__new__(cls)
        client._encode = None
        client._environ = {}
        client._begin_with(config, group, outside)
        return client

    def _begin_with(self, config: ClientConfig, group: str, outside: Outside) -> None:
        if config.offset_root is None:
            root = f"{home_directory()}/.rocketmq_offsets"
            config = dataclasses.replace(config, offset_root=root)
        self.config = config
        self._group = group
        self._clock, self._entropy, self._files = outside
        self._interceptors = Interceptors()
        self._events = Events()
        self._trace = MessageTrace(config.trace_topic)
        if config.trace:
            self._interceptors.add(self._trace)
        self._checks = Checks(self._trace)
        self._replies = Replies()
        self._session: Session | None = None
        self._forks = fork_count()
        self._producer: Producer | None = None
        self._consumers: list[PushConsumer] = []
        self._readers: list[Reader] = []
        self._first_closed: list[ClosesFirst] = []
        self._tasks = Tasks()
        self._closing: asyncio.Task[None] | None = None
        self.unsaid = 0

    async def start(self) -> Self:
        """Begin; `async with` does it. No connection is made before the first call needs one."""
        if self._session is None:
            self._closing = None
            host = self.config.local_host or local_address()
            session = Session(
                self.config,
                clock=self._clock,
                entropy=self._entropy,
                local_host=host,
                more_rows=[self._checks.row(), self._replies.row()],
                events=self._events,
            )
            self._producer = Producer(session, self._group, self._interceptors)
            self._session = session
            await session.start()
            if self.config.trace:
                self._trace.begin(session)
            self._checks.serve(session, self._producer.group)
        return self

    async def close(self, *, timeout: Timeout = None) -> None:
        """Leave all groups, wait until what was sent has its end, close all connections; may be called twice.

        Handlers at work come to their ends and may send. Nobody else may call the client any more. Cancelled, it goes on
        without its caller; called by a handler it does not wait, or the handler would wait for its own end.

        Args:
            timeout: how long, in seconds or as a timedelta, sends may take that have no answer yet (30 by default). The log
                tells of how many messages the end was not known by then; futures of `send_nowait` get ClientClosed.
        """
        limit_s = FLUSH_S if timeout is None else seconds_of(timeout)
        if self._session is not None and self._closing is None:
            self._closing = self._tasks.start("close", self._close(self._session, limit_s))
        if self._closing is not None and not inside_handler():
            await asyncio.shield(self._closing)

    async def _close(self, session: Session, limit_s: float) -> None:
        try:
            for part in list(self._first_closed):
                # or its consumer would wait for the message left without an answer
                await part.close()
            for consumer in self._consumers[::-1]:
                await consumer.left()
            for reader in list(self._readers):
                await reader.close()
            assert self._producer is not None
            self.unsaid = await self._producer.flush(limit_s)
            if self.unsaid:
                words = "closed before the end of %d messages was known: they are stored, or lost"
                log.error(words, self.unsaid)
            await self._trace.aclose()
        finally:
            self._session = None
            await session.close()

    # What it calls is bound here: at the end of the interpreter modules have no names any more.
    def __del__(
        self,
        warn: Callable[..., None] = warnings.warn,
        is_ending: Callable[[], bool] = sys.is_finalizing,
    ) -> None:
        if is_ending() or getattr(self, "_session", None) is None:
            return
        if self._forks == fork_count():
            warn(f"unclosed client {self!r}", ResourceWarning, source=self)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _join(
        self, handler: Handler | BatchHandler | None, options: MemberOptions
    ) -> PushConsumer:
        """Join a group. Without a handler messages are asked for, from `PushConsumer.handed`."""
        if self._closing is not None:
            raise ClientClosed("the client is closed")
        space = self.session.namespace
        if space:
            options = dataclasses.replace(
                options,
                group=space.wrap(options.group),
                subscriptions=space.wrap_keys(options.subscriptions),
            )
        consumer = PushConsumer(
            self.session, self._sender, self._files, handler, options, self._interceptors
        )
        self._consumers.append(consumer)  # a close that comes while it joins must find it
        consumer.gone = partial(self._forget, consumer)
        await consumer.start()
        return consumer

    def _forget(self, part: object) -> None:
        """It is closed already when the client is."""
        lists: tuple[list[Any], ...] = (self._consumers, self._readers, self._first_closed)
        for parts in lists:
            if part in parts:
                parts.remove(part)

    def intercept(self, interceptor: Interceptor) -> None:
        """Call it around each message that is sent and each that is handled from now on."""
        self._interceptors.add(interceptor)

    def on_event(self, listener: Listener) -> None:
        """Call it with each event of connections, routes, queues and full windows from now on (`roquette.Event`)."""
        self._events.add(listener)

    @property
    def is_connected(self) -> bool:
        """True if a connection to a name server or a broker is open; False before the first call needs one."""
        if self._session is None:
            return False
        remoting = self._session.remoting
        return any(remoting.peer(address) is not None for address in remoting.addresses())

    def _is_open(self) -> bool:
        """Return True when the caller may use the client: while it closes, its handlers alone may."""
        return self._session is not None and (self._closing is None or inside_handler())

    @property
    def session(self) -> Session:
        """The shared connections and routes (for tools); raises ClientClosed."""
        if self._forks != fork_count():
            raise ClientClosed(FORKED)
        if self._session is None or not self._is_open():
            raise ClientClosed("the client is not started, or closed: use 'async with Client(...)'")
        return self._session

    @property
    def _sender(self) -> Producer:
        producer = self._producer
        if producer is None or self._closing is not None or self._forks != fork_count():
            assert self.session is not None  # or it says why not
            assert producer is not None
        return producer
