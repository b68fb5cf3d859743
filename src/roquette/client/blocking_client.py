"""The client for programs without an event loop: one loop in a thread of its own, blocking calls into it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from roquette.base.executor import LoopThread
from roquette.client.client import Client as AsyncClient
from roquette.client.producer import SendReceipt
from roquette.client.push_consumer import PushConsumer
from roquette.message.message import Message, MessageQueue, ReceivedMessage


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

    def start(self) -> Self:
        """Begin; `with` does it."""
        if not self._started:
            self._thread.start()
            self._thread.call(self._client.start())
            self._started = True
        return self

    def close(self) -> None:
        """Leave all groups, close all connections, end the thread."""
        if self._started:
            self._started = False
            self._thread.call(self._client.close())
            self._thread.stop()

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
        return self._thread.call(self._client.send(topic, body, **options))

    def send_oneway(self, topic: str | Message, body: bytes | str = b"", **options: Any) -> None:
        """Send without an answer."""
        self._thread.call(self._client.send_oneway(topic, body, **options))

    def send_batch(
        self, topic: str, messages: Sequence[bytes | str | Message], **options: Any
    ) -> list[SendReceipt]:
        """Send many messages in few requests."""
        return self._thread.call(self._client.send_batch(topic, messages, **options))

    def subscribe(
        self,
        topic: str | Mapping[str, str],
        *,
        group: str,
        handler: Callable[[ReceivedMessage], bool | None],
        **options: Any,
    ) -> Callable[[], None]:
        """Join a group; `handler` runs in the client's thread. Returns a function that leaves the group."""
        consumer: PushConsumer = self._thread.call(
            self._client.subscribe(topic, group=group, handler=handler, **options)
        )
        return lambda: self._thread.call(consumer.close())

    def consume(
        self, topic: str | Mapping[str, str], *, group: str, **options: Any
    ) -> Iterator[ReceivedMessage]:
        """Messages one after the other: asking for the next one acknowledges the one before."""
        stream = self._thread.run(lambda: self._client.consume(topic, group=group, **options))
        try:
            while True:
                yield self._thread.call(stream.__anext__())
        finally:
            if self._started:
                self._thread.call(stream.aclose())

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic."""
        return self._thread.call(self._client.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The queue's oldest offset."""
        return self._thread.call(self._client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the queue's next message will get."""
        return self._thread.call(self._client.max_offset(queue))
