"""The client as applications see it: send, consume, subscribe, pull."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

from roquette.base.clock import Clock, SystemClock
from roquette.base.entropy import Entropy
from roquette.base.files import Files, OsFiles, home_directory
from roquette.base.lifecycle import Tasks
from roquette.client import calls
from roquette.client.access import AccessWords, access_of
from roquette.client.arguments import (
    ModelName,
    StrategyName,
    as_message,
    as_subscriptions,
    check_count,
    check_group,
    consumer_options,
)
from roquette.client.calls import Call
from roquette.client.config import ClientConfig
from roquette.client.consumer_options import StartFrom, StartPoint
from roquette.client.handler import Handler, inside_handler
from roquette.client.producer import Producer, Selector, SendReceipt
from roquette.client.pull_consumer import PullConsumer
from roquette.client.push_consumer import PushConsumer
from roquette.client.session import Session
from roquette.client.stream import MessageStream
from roquette.errors import ClientClosed, MessageIllegal
from roquette.message.message import Message, MessageQueue, ReceivedMessage
from roquette.message.names import DEFAULT_PRODUCER_GROUP
from roquette.remoting.address import local_address


class Client:
    """Producers and consumers of one process in one cluster.

        async with Client("127.0.0.1:9876") as mq:
            await mq.send("orders", b"...", key="7", tag="new")
            async for message in mq.consume("orders", group="billing"):
                ...

    Args:
        name_servers: "host:port;host:port".
        group: the producer group.
        config: everything else; its `name_servers` is replaced by the first argument when that is given.
        clock, entropy, files: the outside world; replaced in simulations.
        access: `tls=True` or `TlsOptions(ca=...)`; `access_key` and `secret_key`, or `credentials`. They win over
            those of `config`.

    Raises:
        ConfigError: an argument is wrong.
    """

    def __init__(
        self,
        name_servers: str = "",
        *,
        group: str = DEFAULT_PRODUCER_GROUP,
        config: ClientConfig | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        files: Files | None = None,
        **access: Unpack[AccessWords],
    ) -> None:
        settings = config or ClientConfig(name_servers=name_servers)
        tls, credentials = access_of(access)
        if tls is not None or credentials is not None:
            settings = dataclasses.replace(
                settings,
                tls=tls or settings.tls,
                credentials=credentials or settings.credentials,
            )
        if name_servers:
            settings = dataclasses.replace(settings, name_servers=name_servers)
        if settings.offset_root is None:
            settings = dataclasses.replace(
                settings, offset_root=f"{home_directory()}/.rocketmq_offsets"
            )
        self.config = settings
        self._group = group
        self._clock = clock or SystemClock()
        self._entropy = entropy or Entropy()
        self._files = files or OsFiles()
        self._session: Session | None = None
        self._producer: Producer | None = None
        self._consumers: list[PushConsumer] = []
        self._pull_consumers: list[PullConsumer] = []
        self._streams: list[MessageStream] = []
        self._tasks = Tasks()
        self._closing: asyncio.Task[None] | None = None

    # life

    async def start(self) -> Self:
        """Begin; `async with` does it. No connection is made before the first call needs one."""
        if self._session is None:
            host = self.config.local_host or local_address()
            session = Session(
                self.config, clock=self._clock, entropy=self._entropy, local_host=host
            )
            self._producer = Producer(session, self._group)
            self._session = session
            await session.start()
        return self

    async def close(self) -> None:
        """Leave all groups and close all connections; may be called twice.

        Cancelled, it goes on without its caller; called by a handler it does not wait, or the handler would
        wait for its own end.
        """
        session, self._session = self._session, None
        if session is not None:
            self._closing = self._tasks.start("close", self._close(session))
        if self._closing is not None and not inside_handler():
            await asyncio.shield(self._closing)

    async def _close(self, session: Session) -> None:
        for stream in self._streams:
            await (
                stream.aclose()
            )  # or its consumer would wait for the message left without an answer
        for consumer in self._consumers[::-1]:
            await consumer.left()
        for reader in self._pull_consumers:
            await reader.close()
        await session.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def session(self) -> Session:
        """The shared connections and routes (for tools); raises ClientClosed."""
        if self._session is None:
            raise ClientClosed("the client is not started, or closed: use 'async with Client(...)'")
        return self._session

    @property
    def _sender(self) -> Producer:
        assert self.session is not None
        assert self._producer is not None
        return self._producer

    # sending

    async def send(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        key: str | Sequence[str] | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        shard_key: str | None = None,
        delay_level: int = 0,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send one message and wait until the broker has it.

        Args:
            key: one key or several, to find the message by. tag: what consumers filter by.
            shard_key: messages with one shard key go to one queue, in order.
            delay_level: 1..18 (1 s .. 2 h) delivers later.
            queue, selector: choose the queue yourself.

        Raises:
            MessageIllegal, RouteNotFound, BrokerError, ConnectError, RequestTimeout
        """
        message = as_message(topic, body, key, tag, properties, shard_key, delay_level)
        check_count("timeout_ms", 1 if timeout_ms is None else timeout_ms)
        return await self._sender.send(
            message, queue=queue, selector=selector, timeout_ms=timeout_ms
        )

    async def send_nowait(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        key: str | Sequence[str] | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        shard_key: str | None = None,
        delay_level: int = 0,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> "asyncio.Future[SendReceipt]":
        """Send without waiting for the answer: the future gets it. Waits while too many are unanswered."""
        message = as_message(topic, body, key, tag, properties, shard_key, delay_level)
        return await self._sender.send_nowait(message, queue=queue, selector=selector)

    async def send_oneway(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        key: str | Sequence[str] | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send without an answer: fastest, but whether it arrived stays unknown."""
        await self._sender.send_oneway(
            as_message(topic, body, key, tag, properties, None, 0), queue=queue
        )

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[bytes | str | Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendReceipt]:
        """Send many messages in few requests; a receipt for each.

        Raises:
            MessageIllegal: a message goes to another topic, or breaks a rule; nothing was sent.
            ClientError: a part was not stored; `receipts` of the error are those of the parts before it.
        """
        if isinstance(messages, (str, bytes, bytearray)):
            raise TypeError(f"a batch is a list of messages, not {type(messages).__name__}")
        check_count("timeout_ms", 1 if timeout_ms is None else timeout_ms)
        listed = [
            as_message(m) if isinstance(m, Message) else as_message(topic, m) for m in messages
        ]
        if others := sorted({message.topic for message in listed} - {topic}):
            raise MessageIllegal(f"a batch to {topic} has messages to {', '.join(others)}")
        return await self._sender.send_batch(listed, queue=queue, timeout_ms=timeout_ms)

    # consuming

    async def subscribe(
        self,
        topic: str | Mapping[str, str],
        *,
        group: str,
        handler: Handler,
        tags: str = "*",
        concurrency: int = 20,
        start_from: StartPoint = StartFrom.LAST,
        model: ModelName = "clustering",
        orderly: bool = False,
        max_reconsume_times: int = -1,
        strategy: StrategyName = "AVG",
    ) -> PushConsumer:
        """Join a group and have messages handed to `handler`; `close` the returned consumer to leave.

        Args:
            topic: a topic, or topics with their tags: {"orders": "new || paid"}.
            handler: returns None or True when done; False or an exception lets the message come again.
            tags: "a || b" delivers messages with one of these tags only; "*" delivers all.
            concurrency: how many messages are handled at the same time, of all queues together. 1 handles them one
                after the other, yet promises no order when a message fails; that is `orderly`.
            start_from: where a group that has no offset yet begins: StartFrom.LAST, StartFrom.FIRST, or at the first
                message stored at a time (a datetime, or milliseconds since 1970). A group that has one goes on there.
            model: "clustering" gives each message to one member, keeps offsets at the brokers and retries what
                failed; "broadcasting" gives every member all messages, keeps offsets in a local file and retries nothing.
            orderly: handle each queue's messages one at a time, in order, under the broker's lock of the queue. A
                message that fails is tried again before the next one, which waits. `concurrency` queues run side by side.
            max_reconsume_times: after how many failures a message goes to the dead-letter topic `%DLQ%<group>`. -1 is
                Apache's default: 16 times, or, orderly, without end.
            strategy: how queues are divided among the members; it must be the same in all of them. "AVG": contiguous
                shares; "AVG_BY_CIRCLE": dealt in turn; "CONSISTENT_HASH": few queues move when members change.

        Raises:
            ConfigError: an option is wrong, or this client already has a consumer of the group.
        """
        options = consumer_options(
            group,
            as_subscriptions(topic, tags),
            handler,
            concurrency=concurrency,
            start_from=start_from,
            model=model,
            orderly=orderly,
            max_reconsume_times=max_reconsume_times,
            strategy=strategy,
        )
        consumer = PushConsumer(self.session, self._sender, self._files, handler, options)
        self._consumers.append(consumer)  # a close that comes while it joins must find it
        try:
            await consumer.start()
        finally:
            if not consumer.started:
                self._consumers.remove(consumer)
        return consumer

    def consume(
        self,
        topic: str | Mapping[str, str],
        *,
        group: str,
        tags: str = "*",
        start_from: StartPoint = StartFrom.LAST,
        model: ModelName = "clustering",
        max_reconsume_times: int = -1,
    ) -> MessageStream:
        """An asynchronous iterator over messages: asking for the next one acknowledges the one before.

        Leaving the loop by `break` or an error leaves the current message unacknowledged: it comes again.
        """

        async def join(handler: Handler) -> PushConsumer:
            return await self.subscribe(
                topic,
                group=group,
                handler=handler,
                tags=tags,
                concurrency=1,
                start_from=start_from,
                model=model,
                max_reconsume_times=max_reconsume_times,
            )

        stream = MessageStream(join)
        self._streams.append(stream)
        return stream

    async def pull_consumer(self, *, group: str, tags: str = "*", batch: int = 32) -> PullConsumer:
        """A reader under your control: assign, seek, poll, commit.

        Args:
            group: whose offsets are read and committed; the reader does not join it.
            tags: as in `subscribe`.
            batch: the most messages one request asks for; a broker may give fewer (Apache's: 32).
        """
        check_group(group)
        as_subscriptions("t", tags)
        check_count("batch", batch)
        consumer = PullConsumer(self.session, group=group, tags=tags, batch=batch)
        self._pull_consumers.append(consumer)
        return consumer

    # looking

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted; raises RouteNotFound."""
        return list((await self.session.route(topic, fresh=True)).subscribe)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The queue's oldest offset."""
        return await self._ask_master(queue, calls.min_offset(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the queue's next message will get."""
        return await self._ask_master(queue, calls.max_offset(queue))

    async def offset_by_time(self, queue: MessageQueue, when: datetime | int) -> int:
        """The offset of the first message stored at or after a time (milliseconds when a number)."""
        timestamp = int(when.timestamp() * 1000) if isinstance(when, datetime) else when
        return await self._ask_master(queue, calls.offset_by_time(queue, timestamp))

    async def _ask_master(self, queue: MessageQueue, call: Call[int]) -> int:
        await self.session.route(queue.topic)
        return await self.session.api.call(self.session.master_of(queue), call)


__all__ = ["Client", "ReceivedMessage"]
