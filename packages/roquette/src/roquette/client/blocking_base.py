"""Base of the generated blocking client: an event loop in a thread, and a pool of threads for handlers."""

import asyncio
import concurrent.futures
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, Unpack, cast

from roquette.base.entropy import fork_count
from roquette.base.executor import LoopThread, start_thread
from roquette.client.arguments import Timeout, seconds_of
from roquette.client.client import Client as AsyncClient
from roquette.client.client_base import FORKED
from roquette.client.consumer_options import (
    ConsumerOptions,
    Encode,
    OffsetStore,
    StreamOptions,
    V,
    check_function,
    plain,
)
from roquette.client.events import Listener
from roquette.client.handler import inside_handler
from roquette.client.interceptors import Interceptor
from roquette.client.requests import Answer
from roquette.client.settings import ClientSettings
from roquette.client.transactions import Check
from roquette.errors import ClientClosed
from roquette.message.message import DONE, Delivery, Done, MessageQueue, ReceivedMessage
from roquette.message.names import DEFAULT_PRODUCER_GROUP

T = TypeVar("T")
P = TypeVar("P")
Made = TypeVar("Made", bound=AbstractAsyncContextManager[Any])
Options = TypeVar("Options", ConsumerOptions, StreamOptions)

BlockingHandler = Callable[[ReceivedMessage], bool | None]
"""Returns None or True when done; False, an exception or any other answer lets the message come again later."""

BlockingBatchHandler = Callable[[list[ReceivedMessage]], int | None]
"""Returns None or True when all are done, False when none is, or how many of the first are: the others come again."""

BlockingCheck = Callable[[ReceivedMessage], bool | None]
"""What became of a half message: True: deliver it. False: drop it. None: not known yet, ask again."""

BlockingServer = Callable[[ReceivedMessage], Answer[P]]
"""Answers a request: the reply's body, or None for no reply."""

HANDLERS: Final = (
    20  # threads of one client: as many as a subscription's `concurrency` is by default
)
_NOT_OPEN: Final = "the client is not started, or closed: use 'with Client(...)'"


class BlockingBase(Generic[V]):
    """The life of a blocking client. A closed one may be started again."""

    def __init__(
        self,
        name_servers: str = "",
        *,
        group: str = DEFAULT_PRODUCER_GROUP,
        encode: Encode[V] | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        def make() -> AsyncClient[V]:
            return AsyncClient(name_servers, group=group, encode=encode, **settings)

        self._begin_with(make, LoopThread("roquette-client", HANDLERS))

    def _begin_with(self, make: Callable[[], AsyncClient[V]], thread: LoopThread) -> None:
        self._make = make
        self._client = make()  # what is wrong with the arguments is said here
        self._thread = thread
        self._started = False
        self._ending: Thread | None = None
        self._turn = Lock()
        self._forks = fork_count()
        self._interceptors: list[Interceptor] = []
        self._listeners: list[Listener] = []
        self._checks: dict[str, Check] = {}

    _lent = False  # the client is another's, who begins and ends it

    @classmethod
    def _lend(cls, client: AsyncClient[V]) -> Self:
        """The twin of a client that runs on this loop, for functions in other threads."""
        twin = cls.__new__(cls)
        twin._begin_with(lambda: client, LoopThread.running("roquette-lent", HANDLERS))
        twin._started = twin._lent = True
        return twin

    def start(self) -> Self:
        """Begin; `with` does it. A closed client begins anew, without the subscriptions it had."""
        if self._started:
            return self
        if self._ending is not None:
            if inside_handler():
                raise ClientClosed("the client was closed: a handler of it cannot start it again")
            self._ending.join()
            self._ending = None
            self._client = self._make()
            for interceptor in self._interceptors:
                self._client.intercept(interceptor)
            for listener in self._listeners:
                self._client.on_event(listener)
            for topic, check in self._checks.items():
                self._client.on_check(topic, check)
            self._thread = LoopThread("roquette-client", HANDLERS)
        self._forks = fork_count()
        self._thread.start()
        self._thread.call(self._client.start())
        self._started = True
        return self

    def close(self, *, timeout: Timeout = None) -> None:
        """Leave all groups, wait until what was sent has its end, close all connections, end the threads.

        Called by a handler it does not wait, or the handler would wait for its own end: the client closes
        when the handler has returned.

        Args:
            timeout: as of the asynchronous client's.
        """
        if timeout is not None:
            seconds_of(timeout)
        with self._turn:  # who comes second, in another thread, finds whom to wait for
            if self._started and not self._lent:
                self._started = False
                if self._forks != fork_count():
                    return  # all of it is the parent's
                self._ending = start_thread("roquette-client-end", partial(self._end, timeout))
        if self._ending is not None and not inside_handler():
            self._ending.join()

    def _end(self, timeout: Timeout) -> None:
        self._thread.call(self._client.close(timeout=timeout))
        self._thread.stop()

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        open_ = getattr(self, "_started", False) and not self._lent
        if open_ and self._forks == fork_count():
            warn(f"unclosed client {self!r}", ResourceWarning, source=self)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def intercept(self, interceptor: Interceptor) -> None:
        """Call it around each message that is sent and each that is handled from now on; on the client's own thread."""
        self._interceptors.append(interceptor)
        self._client.intercept(interceptor)

    def on_event(self, listener: Listener) -> None:
        """Call it with each event from now on; on the client's own thread, which it must not block."""
        self._listeners.append(listener)
        self._client.on_event(listener)

    @property
    def is_connected(self) -> bool:
        """True if a connection to a name server or a broker is open; False before the first call needs one."""
        return self._started and self._run(lambda: self._client.is_connected)

    # for the generated calls

    def _check_open(self) -> None:
        if not self._started and not (inside_handler() and self._client._is_open()):
            raise ClientClosed(_NOT_OPEN)
        if self._forks != fork_count():
            raise ClientClosed(FORKED)

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run what is asynchronous, and wait for it."""
        self._check_open()
        return self._thread.call(work())

    def _run(self, step: Callable[[], T]) -> T:
        """Run a plain function on the client's loop, and wait for it."""
        self._check_open()
        return self._thread.run(step)

    def _submit(
        self, work: Callable[[], Coroutine[Any, Any, "asyncio.Future[T]"]]
    ) -> "concurrent.futures.Future[T]":
        """Begin something, and wait until it has begun; its end is the future's."""
        ended: concurrent.futures.Future[T] = concurrent.futures.Future()

        def end(answer: "asyncio.Future[T]") -> None:
            error = ClientClosed("cancelled") if answer.cancelled() else answer.exception()
            if not ended.set_running_or_notify_cancel():
                return
            if error is not None:
                ended.set_exception(error)
            else:
                ended.set_result(answer.result())

        async def begin() -> None:
            (await work()).add_done_callback(end)

        self._call(begin)
        return ended

    def _beside(self, handler: Callable[[Any], T]) -> Callable[[Any], Awaitable[T]]:
        """A handler that runs in the pool, for the loop."""
        check_function("handler", handler, waits=False)

        async def run(message: object) -> T:
            return await self._thread.beside(_handle, handler, message)

        return run

    def _store_beside(self, store: OffsetStore) -> OffsetStore:
        """A store whose functions run in the pool, for the loop."""
        return _StoreBeside(self._thread, store)

    def _keep_check(self, topic: str, check: BlockingCheck) -> Check:
        self._checks[topic] = kept = self._beside(check)
        return kept

    def _options_beside(self, options: Options) -> Options:
        """Options whose functions run in the pool, for the loop."""
        beside: dict[str, Any] = {**options}
        if (on_revoke := beside.get("on_revoke")) is not None:
            beside["on_revoke"] = self._beside(on_revoke)
        if (offsets := beside.get("offsets")) is not None:
            beside["offsets"] = self._store_beside(offsets)
        return cast(Options, beside)


class _StoreBeside:
    def __init__(self, thread: LoopThread, store: OffsetStore) -> None:
        for name in ("load", "save"):
            check_function(f"offsets.{name}", getattr(store, name, None), waits=False)
        self._thread = thread
        self._store = store

    def load(self, group: str, queue: MessageQueue) -> Awaitable[int | None]:
        return self._thread.beside(plain, self._store.load, group, queue)

    def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> Awaitable[object]:
        return self._thread.beside(plain, self._store.save, group, offsets)


class Twin(Generic[Made]):
    """A blocking twin of something that a client made."""

    def __init__(self, client: BlockingBase, twin: Made) -> None:
        self._owner = client
        self._twin = twin

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._owner._call(work)

    def _run(self, step: Callable[[], T]) -> T:
        return self._owner._run(step)

    _settles = False  # its end must reach the brokers, or raise

    def _close(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        if self._owner._started or self._settles:  # else the client has closed it
            self._call(work)

    def __enter__(self) -> Self:
        self._call(self._twin.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(lambda: self._twin.__aexit__(kind, error, trace))

    def _each(self, messages: AsyncIterator[ReceivedMessage]) -> Iterator[ReceivedMessage]:
        """The messages of an iterator on the loop, until it ends or the client is closed."""
        while True:
            try:
                message = self._call(lambda: _next(messages))
            except StopAsyncIteration:
                return
            if message.delivery is not None:
                message.delivery = _DeliveryBeside(self._owner, message.delivery)
            yield message


async def _next(messages: AsyncIterator[ReceivedMessage]) -> ReceivedMessage:
    return await anext(messages)


class _DeliveryBeside:
    """Delivery of a message whose handler is in a thread: carries each call to the loop, and returns when that is done."""

    def __init__(self, client: BlockingBase, delivery: Delivery) -> None:
        self._client = client
        self._delivery = delivery

    def ack(self, message: ReceivedMessage) -> Done:
        return self._wait(lambda: self._delivery.ack(message))

    def retry(self, message: ReceivedMessage, after_s: float | None) -> Done:
        return self._wait(lambda: self._delivery.retry(message, after_s))

    def dead_letter(self, message: ReceivedMessage) -> Done:
        return self._wait(lambda: self._delivery.dead_letter(message))

    def extend(self, message: ReceivedMessage, seconds: float) -> Done:
        return self._wait(lambda: self._delivery.extend(message, seconds))

    def expires_in(self, message: ReceivedMessage) -> float | None:
        return self._client._run(lambda: self._delivery.expires_in(message))

    def _wait(self, begin: Callable[[], Awaitable[None]]) -> Done:
        async def work() -> None:
            await begin()

        self._client._call(work)
        return DONE


def _handle(handler: Callable[[P], T], message: P) -> T:
    try:
        return plain(handler, message)  # type: ignore[no-any-return]
    except (SystemExit, KeyboardInterrupt) as error:  # they would end the thread for all handlers
        raise RuntimeError(f"the handler raised {error!r}") from error
