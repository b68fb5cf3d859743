"""The client for programs without an event loop. Written by tools/make_sync.py: change the asynchronous client instead."""

import concurrent.futures
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Unpack, overload

from roquette.client.arguments import Timeout, Topics
from roquette.client.blocking_base import (
    BlockingBase,
    BlockingBatchHandler,
    BlockingCheck,
    BlockingHandler,
    BlockingServer,
)
from roquette.client.blocking_twins import (
    Consumer,
    MessageStream,
    PoppedMessages,
    Reader,
    Transaction,
)
from roquette.client.consumer_options import (
    ConsumerOptions,
    PopOptions,
    ReaderOptions,
    ServeOptions,
    StreamOptions,
    V,
)
from roquette.client.producer import KeyedOptions, OnewayOptions, SendOptions, SendReceipt
from roquette.message.message import Message, MessageQueue, ReceivedMessage


class Client(BlockingBase[V]):
    """`roquette.Client` without `await`: for any thread, also for its own handlers, which run in a pool of threads.

        with Client("127.0.0.1:9876") as mq:
            mq.send("orders", b"...")
            for message in mq.consume("orders", group="billing"):
                ...

    Arguments are those of the asynchronous client. A forked child must make a client of its own.
    """

    def send(
        self,
        topic: str | Message,
        body: bytes | str | V = b"",
        *,
        timeout: Timeout = None,
        **options: Unpack[SendOptions],
    ) -> SendReceipt:
        """Send one message and wait until the broker has it."""
        return self._call(lambda: self._client.send(topic, body, timeout=timeout, **options))

    def recall(self, receipt: SendReceipt) -> None:
        """Take back a message that was sent with `deliver_at` and has not been delivered yet."""
        self._call(lambda: self._client.recall(receipt))

    def send_nowait(
        self, topic: str | Message, body: bytes | str | V = b"", **options: Unpack[SendOptions]
    ) -> concurrent.futures.Future[SendReceipt]:
        """Send without waiting for the answer: the future gets it. Waits while too many are unanswered."""
        return self._submit(lambda: self._client.send_nowait(topic, body, **options))

    def send_oneway(
        self, topic: str | Message, body: bytes | str | V = b"", **options: Unpack[OnewayOptions]
    ) -> None:
        """Send without an answer: fastest, but whether it arrived stays unknown."""
        self._call(lambda: self._client.send_oneway(topic, body, **options))

    def send_batch(
        self,
        topic: str,
        messages: Sequence[bytes | str | V | Message],
        *,
        queue: MessageQueue | None = None,
        timeout: Timeout = None,
    ) -> list[SendReceipt]:
        """Send many messages in few requests, those with shard keys to their keys' queues; a receipt for each, in order."""
        return self._call(
            lambda: self._client.send_batch(topic, messages, queue=queue, timeout=timeout)
        )

    def flush(self, *, timeout: Timeout = None) -> None:
        """Wait until what was sent before this call has its end: futures of `send_nowait` are done, whatever with, and what
        was sent one way has come to its broker. The end of the client does the same, for 30 seconds."""
        self._call(lambda: self._client.flush(timeout=timeout))

    def transaction(
        self, topic: str | Message, body: bytes | str | V = b"", **options: Unpack[KeyedOptions]
    ) -> Transaction:
        """Send a message that is delivered only if the block succeeds."""
        return Transaction(
            self, self._run(lambda: self._client.transaction(topic, body, **options))
        )

    def on_check(self, topic: str, check: BlockingCheck) -> None:
        """Say what became of half messages to a topic whose producer said nothing."""
        kept = self._keep_check(topic, check)
        self._run(lambda: self._client.on_check(topic, kept))

    def request(
        self,
        topic: str | Message,
        body: bytes | str | V = b"",
        *,
        timeout: float | timedelta = 3.0,
        **options: Unpack[KeyedOptions],
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of one of those that serve the topic."""
        return self._call(lambda: self._client.request(topic, body, timeout=timeout, **options))

    def serve(
        self,
        topic: Topics,
        handler: BlockingServer[V],
        *,
        group: str,
        **options: Unpack[ServeOptions],
    ) -> Consumer:
        """Answer the requests to a topic, from when the consumer is awaited or entered on. Members of a group share them."""
        return Consumer(
            self,
            self._call(
                lambda: self._client.serve(
                    topic, self._beside(handler), group=group, **options
                )._entered()
            ),
        )

    @overload
    def subscribe(
        self,
        topic: Topics,
        handler: BlockingHandler,
        *,
        group: str,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer: ...

    @overload
    def subscribe(
        self,
        topic: Topics,
        handler: BlockingBatchHandler,
        *,
        group: str,
        batch: int | None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer: ...

    def subscribe(
        self,
        topic: Topics,
        handler: BlockingHandler | BlockingBatchHandler,
        *,
        group: str,
        batch: int | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """Have the group's messages handed to `handler`, from when the consumer is awaited or entered on."""
        return Consumer(
            self,
            self._call(
                lambda: self._client.subscribe(
                    topic,
                    self._beside(handler),
                    group=group,
                    batch=batch,
                    **self._options_beside(options),
                )._entered()
            ),
        )

    def consume(
        self, topic: Topics, *, group: str, **options: Unpack[StreamOptions]
    ) -> MessageStream:
        """An asynchronous iterator over the group's messages: asking for the next one acknowledges the one before."""
        return MessageStream(
            self,
            self._run(
                lambda: self._client.consume(topic, group=group, **self._options_beside(options))
            ),
        )

    def reader(self, *, group: str, **options: Unpack[ReaderOptions]) -> Reader:
        """A reader under your control: assign queues or subscribe to topics; seek, pause, poll, commit."""
        return Reader(self, self._run(lambda: self._client.reader(group=group, **options)))

    def pop(self, topic: str, *, group: str, **options: Unpack[PopOptions]) -> PoppedMessages:
        """Take messages one by one, each to be acknowledged within a time; else it comes again."""
        return PoppedMessages(
            self, self._run(lambda: self._client.pop(topic, group=group, **options))
        )

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted; raises RouteNotFound."""
        return self._call(lambda: self._client.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The queue's oldest offset."""
        return self._call(lambda: self._client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the queue's next message will get."""
        return self._call(lambda: self._client.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, when: datetime | int) -> int:
        """The offset of the first message stored at or after a time (milliseconds when a number)."""
        return self._call(lambda: self._client.offset_by_time(queue, when))

    def find(
        self,
        topic: str,
        key: str,
        *,
        most: int = 64,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[ReceivedMessage]:
        """The messages of a topic with a key, or with a message id, of all brokers, by the time they were stored."""
        return self._call(
            lambda: self._client.find(topic, key, most=most, since=since, until=until)
        )

    def message_at(self, offset_message_id: str) -> ReceivedMessage:
        """The message at a place: the `offset_message_id` of a message or a receipt."""
        return self._call(lambda: self._client.message_at(offset_message_id))
