"""The client for programs without an event loop: one loop in a thread of its own, blocking calls into it."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

from roquette.base.executor import LoopThread, start_thread
from roquette.client.client import Client as AsyncClient
from roquette.client.handler import inside_handler
from roquette.client.producer import SendReceipt
from roquette.client.push_consumer import PushConsumer
from roquette.errors import ClientClosed
from roquette.message.message import Message, MessageQueue, ReceivedMessage

T = TypeVar("T")


class Client:
    """`roquette.Client` without `await`.

        with Client("127.0.0.1:9876") as mq:
            mq.send("orders", b"...")
            for message in mq.consume("orders", group="billing"):
                ...

    Arguments are those of the asynchronous client.
    """

    def __init__(self, name_servers: str = "", **options: Any) -> None:
        self._thread = LoopThread("roquette-client")
        self._client = AsyncClient(name_servers, **options)
        self._started = False
        self._ending: Thread | None = None

    def start(self) -> Self:
        """Begin; `with` does it. A closed client does not begin again."""
        if self._ending is not None:
            raise ClientClosed("the client was closed: make another one")
        if not self._started:
            self._thread.start()
            self._thread.call(self._client.start())
            self._started = True
        return self

    def close(self) -> None:
        """Leave all groups, close all connections, end the thread.

        Called by a handler it does not wait, or the handler would wait for its own end: the client closes
        when the handler has returned.
        """
        if self._started:
            self._started = False
            self._ending = start_thread("roquette-client-end", self._end)
        if self._ending is not None and not inside_handler():
            self._ending.join()

    def _end(self) -> None:
        self._thread.call(self._client.close())
        self._thread.stop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._started:
            work.close()
            raise ClientClosed("the client is not started, or closed: use 'with Client(...)'")
        return self._thread.call(work)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, topic: str | Message, body: bytes | str = b"", **options: Any) -> SendReceipt:
        """Send one message and wait until the broker has it."""
        return self._call(self._client.send(topic, body, **options))

    def send_oneway(self, topic: str | Message, body: bytes | str = b"", **options: Any) -> None:
        """Send without an answer."""
        self._call(self._client.send_oneway(topic, body, **options))

    def send_batch(
        self, topic: str, messages: Sequence[bytes | str | Message], **options: Any
    ) -> list[SendReceipt]:
        """Send many messages in few requests."""
        return self._call(self._client.send_batch(topic, messages, **options))

    def subscribe(
        self,
        topic: str | Mapping[str, str],
        *,
        group: str,
        handler: Callable[[ReceivedMessage], bool | None],
        **options: Any,
    ) -> Callable[[], None]:
        """Join a group. Returns a function that leaves it.

        Handlers run one after the other in a thread of their own, and may use this client.
        """

        def run(message: ReceivedMessage) -> Awaitable[bool | None]:
            return self._thread.beside(_handle, handler, message)

        consumer: PushConsumer = self._call(
            self._client.subscribe(topic, group=group, handler=run, **options)
        )

        def leave() -> None:
            if self._started:
                self._thread.call(consumer.close())

        return leave

    def consume(
        self, topic: str | Mapping[str, str], *, group: str, **options: Any
    ) -> Iterator[ReceivedMessage]:
        """Messages one after the other: asking for the next one acknowledges the one before."""
        if not self._started:
            raise ClientClosed("the client is not started, or closed: use 'with Client(...)'")
        stream = self._thread.run(lambda: self._client.consume(topic, group=group, **options))
        try:
            while True:
                yield self._call(stream.__anext__())
        except StopAsyncIteration:  # the client was closed meanwhile
            return
        finally:
            if self._started:
                self._thread.call(stream.aclose())

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic."""
        return self._call(self._client.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The queue's oldest offset."""
        return self._call(self._client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the queue's next message will get."""
        return self._call(self._client.max_offset(queue))


def _handle(
    handler: Callable[[ReceivedMessage], bool | None], message: ReceivedMessage
) -> bool | None:
    try:
        return handler(message)
    except (SystemExit, KeyboardInterrupt) as error:  # they would end the thread for all handlers
        raise RuntimeError(f"the handler raised {error!r}") from error
