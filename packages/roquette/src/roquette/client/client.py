"""The client as applications see it: send, consume, subscribe, pull. Each kind of call has a module of its own."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack, cast, overload

from roquette.client import calls
from roquette.client.arguments import (
    Timeout,
    Topics,
    as_message,
    as_subscriptions,
    check_count,
    check_group,
    check_words,
    member_options,
    milliseconds_of,
    seconds_of,
    since_1970_ms,
    start_point,
)
from roquette.client.calls import Call, ask_all
from roquette.client.client_base import ClientBase
from roquette.client.consumer import Consumer, MessageStream
from roquette.client.consumer_options import (
    ConsumerOptions,
    PopOptions,
    ReaderOptions,
    ServeOptions,
    StartFrom,
    StreamOptions,
    V,
    check_function,
    for_loop,
)
from roquette.client.handler import BatchHandler, Handler
from roquette.client.operator_calls import FOREVER_MS, query, view
from roquette.client.producer import KeyedOptions, OnewayOptions, SendOptions, SendReceipt
from roquette.client.push_consumer import PushConsumer
from roquette.client.requests import ReplyHandler, Server, as_request
from roquette.client.settings import options_of_call
from roquette.client.transactions import MOST_CHECKS, Check, Transaction, check_transactional
from roquette.errors import ConfigError, MessageIllegal, RequestTimeout
from roquette.message.message import Message, MessageQueue, ReceivedMessage
from roquette.message.message_id import decode_offset_message_id, host_text
from roquette.message.names import client_topic_error

if TYPE_CHECKING:
    from roquette.client.pop import PoppedMessages
    from roquette.client.reader import Reader


# Calls by which an application gets messages from its client: handlers, streams, readers.


class ConsumeCalls(ClientBase):
    """Consuming: as a member of a group, or as a reader outside of it."""

    @overload
    def subscribe(
        self, topic: Topics, handler: Handler, *, group: str, **options: Unpack[ConsumerOptions]
    ) -> Consumer: ...

    @overload
    def subscribe(
        self,
        topic: Topics,
        handler: BatchHandler,
        *,
        group: str,
        batch: int | None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer: ...

    def subscribe(
        self,
        topic: Topics,
        handler: Handler | BatchHandler,
        *,
        group: str,
        batch: int | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """Have the group's messages handed to `handler`, from when the consumer is awaited or entered on.

            async with mq.subscribe("orders", bill, group="billing"):
                ...

        Args:
            topic: a topic, or topics with their tags or filters: {"orders": "new || paid", "stock": sql("left < 3")}.
            handler: returns None or True when done; False, an exception or any other answer lets the message come again.
                A coroutine function, or a function, which runs in a thread. With `batch` it takes a list of one queue's messages,
                in their order, and may return a number: so many of the first are done, and the others come again (Apache:
                ackIndex, counted from 0).
            batch: the most messages of one call. A call has what waits of one queue, and never waits for more: while
                handlers are quicker than messages come, what one pull brought (of Apache's brokers 32 at most).
            options: see `ConsumerOptions`.

        Raises:
            ConfigError: an option is wrong; awaited, that this client already has a consumer of the group.
        """
        if batch is not None:
            check_count("batch", batch)
        options = options_of_call("subscribe", options, ConsumerOptions, self._environ)
        chosen = member_options(group, topic, options, batch=batch or 0)
        check_function("handler", handler)
        return Consumer(group, partial(self._join, handler, chosen))

    def consume(
        self, topic: Topics, *, group: str, **options: Unpack[StreamOptions]
    ) -> MessageStream:
        """An asynchronous iterator over the group's messages: asking for the next one acknowledges the one before.

            async with mq.consume("orders", group="billing") as messages:
                async for message in messages:
                    ...

        Args:
            topic: as in `subscribe`.
            options: see `StreamOptions`.

        Raises:
            ConfigError: an option is wrong.
        """
        options = options_of_call("consume", options, StreamOptions, self._environ)
        timeout = options.pop("timeout", None)
        words = cast(ConsumerOptions, {"concurrency": 1, **options})  # as operators see it
        chosen = member_options(group, topic, words)
        limit_s = None if timeout is None else seconds_of(timeout)
        stream = MessageStream(partial(self._join, None, chosen), limit_s)
        self._first_closed.append(stream)
        stream._gone = partial(self._forget, stream)
        return stream

    def reader(self, *, group: str, **options: Unpack[ReaderOptions]) -> "Reader":
        """A reader under your control: assign queues or subscribe to topics; seek, pause, poll, commit.

        Args:
            group: whose offsets are read and committed; the reader joins it by `Reader.subscribe` only.
            options: see `ReaderOptions`; `start_from` counts after `Reader.subscribe`.

        Raises:
            ConfigError: an option is wrong. ClientClosed: the client is not started, or closed.
        """
        from roquette.client.reader import Reader, ReadPlan  # loaded by readers

        options = options_of_call("reader", options, ReaderOptions, self._environ)
        check_group(group)
        wanted = as_subscriptions("t", options)["t"]
        plan = ReadPlan(
            wanted=wanted,
            batch=options.get("batch", 32),
            start_from=start_point(options.get("start_from", StartFrom.FIRST)),
            auto_commit_s=seconds_of(options.get("auto_commit", 0.0), "auto_commit"),
            max_messages=options.get("max_messages", 10_000),
            max_bytes=options.get("max_bytes", 64 << 20),
        )
        check_count("batch", plan.batch)
        check_count("max_messages", plan.max_messages)
        check_count("max_bytes", plan.max_bytes)
        reader = Reader(self.session, group, plan)
        self._readers.append(reader)
        reader._gone = partial(self._forget, reader)
        return reader


# Calls by which an application looks at queues and stored messages.


class LookCalls(ClientBase):
    """Looking: queues and their offsets."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted; raises RouteNotFound."""
        space = self.session.namespace
        route = await self.session.route(space.wrap(topic), fresh=True)
        return list(space.shown_queues(route.subscribe))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The queue's oldest offset."""
        return await self._ask_master(queue, calls.min_offset)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the queue's next message will get."""
        return await self._ask_master(queue, calls.max_offset)

    async def offset_by_time(self, queue: MessageQueue, when: datetime | int) -> int:
        """The offset of the first message stored at or after a time (milliseconds when a number)."""
        timestamp = since_1970_ms("when", when)
        return await self._ask_master(queue, lambda known: calls.offset_by_time(known, timestamp))

    async def find(
        self,
        topic: str,
        key: str,
        *,
        most: int = 64,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[ReceivedMessage]:
        """The messages of a topic with a key, or with a message id, of all brokers, by the time they were stored.

        Args:
            key: one of `message.keys`, or a `message_id`.
            most: of each broker, 1 to 1,000; brokers may have a lower limit (Apache's: 64 for what has no time).
            since, until: stored between these.

        Raises:
            RouteNotFound: no name server knows the topic.
            BrokerError, ConnectError, RequestTimeout: no message was found, and a broker did not answer.
            ConfigError: `most` is out of range, a time has no zone.
        """
        check_count("most", most)
        begin_ms = 0 if since is None else since_1970_ms("since", since)
        end_ms = FOREVER_MS if until is None else since_1970_ms("until", until)
        space = self.session.namespace
        topic = space.wrap(topic)
        route = await self.session.route(topic)
        asks = [
            (address, query(name, topic, key, min(most, 1_000), begin_ms, end_ms))
            for name in sorted(route.addresses)
            if (address := route.address_for_read(name)) is not None
        ]
        answers = await self.session.run(ask_all(asks))
        found = [space.show(message) for answer in answers for message in answer.value or ()]
        if not found:
            for answer in answers:
                answer.get()
        return sorted(found, key=lambda message: message.store_timestamp_ms)

    async def message_at(self, offset_message_id: str) -> ReceivedMessage:
        """The message at a place: the `offset_message_id` of a message or a receipt.

        Raises:
            BrokerError: there is none any more. ConnectError, RequestTimeout: the broker does not answer.
            ConfigError: it is no such id.
        """
        try:
            host, offset = decode_offset_message_id(offset_message_id)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        found = await self.session.api.call(host_text(host), view("", "", offset))
        return self.session.namespace.show(found)

    async def _ask_master(
        self, queue: MessageQueue, call: Callable[[MessageQueue], Call[int]]
    ) -> int:
        queue = self.session.namespace.wrap_queue(queue)
        await self.session.route(queue.topic)
        return await self.session.api.call(self.session.master_of(queue), call(queue))


# Popping: messages one at a time, each with a time in which it must be done.


MOST_A_POP: Final = 32  # brokers give no more
LONGEST_INVISIBLE_S: Final = 43_200.0  # brokers keep no check-point longer than their timer wheel


class PopCalls(ClientBase):
    """Consuming without owning queues: any number of processes share a group's messages, also of one queue."""

    def pop(self, topic: str, *, group: str, **options: Unpack[PopOptions]) -> "PoppedMessages":
        """Take messages one by one, each to be acknowledged within a time; else it comes again.

            async with mq.pop("orders", group="billing", invisible=60.0) as messages:
                async for message in messages:
                    await work(message)
                    await message.ack()

        It needs no membership of the group, and shares it with consumers of any language that pop.

        Args:
            options: see `PopOptions`.

        Raises:
            ConfigError: an option is wrong. ClientClosed: the client is not started, or closed.
        """
        from roquette.client.pop import (
            PoppedMessages,  # loaded by those who pop
            PopPlan,
        )

        options = options_of_call("pop", options, PopOptions, self._environ)
        check_group(group)
        if not isinstance(topic, str):
            raise ConfigError(f"topic {topic!r:.80} is no str")
        wanted = as_subscriptions(topic, options)[topic]
        batch = options.get("batch", 16)
        check_count("batch", batch)
        if batch > MOST_A_POP:
            raise ConfigError(f"batch={batch} is not 1 to {MOST_A_POP}")
        invisible_s = seconds_of(
            options.get("invisible", 60.0), "invisible", 0.001, LONGEST_INVISIBLE_S
        )
        start_from = options.get("start_from", StartFrom.FIRST)
        begin = start_point(start_from) if isinstance(start_from, str) else None
        if not isinstance(begin, StartFrom):
            raise ConfigError("start_from of pop is StartFrom.FIRST or StartFrom.LAST")
        most = options.get("max_reconsume_times", -1)
        check_count("max_reconsume_times", most, least=-1)
        timeout = options.get("timeout")
        plan = PopPlan(
            topic=self.session.namespace.wrap(topic),
            group=self.session.namespace.wrap(group),
            wanted=wanted,
            invisible_ms=int(invisible_s * 1000),
            batch=batch,
            from_first=begin is StartFrom.FIRST,
            orderly=options.get("orderly", False),
            renew=options.get("renew", False),
            most_tries=17 if most < 0 else most + 1,
            timeout_s=None if timeout is None else seconds_of(timeout),
        )
        self._first_closed = [part for part in self._first_closed if not _is_drained(part)]
        polls = None
        for part in self._first_closed:
            if isinstance(part, PoppedMessages) and part.closed and part._plan.pool == plan.pool:
                polls = part._polls
        popped = PoppedMessages(self.session, plan, self._interceptors, polls)
        self._first_closed = [part for part in self._first_closed if not _is_drained(part)]
        self._first_closed.append(popped)
        return popped


def _is_drained(part: object) -> bool:
    """It is closed, and no answer can come any more that is its own."""
    from roquette.client.pop import PoppedMessages

    if not isinstance(part, PoppedMessages):
        return False
    return part.closed and (part._polls.to is not part or not part._polls)


# Requests of an application, and the servers that answer them.


LONGEST_WAIT_S: Final = 600.0


class RequestCalls(ClientBase[V]):
    """Requests and replies: calls by message, between any languages' clients."""

    async def request(
        self,
        topic: str | Message,
        body: bytes | str | V = b"",
        *,
        timeout: float | timedelta = 3.0,
        **options: Unpack[KeyedOptions],
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of one of those that serve the topic.

        Args:
            timeout: seconds, or a timedelta, for the sending and the reply together.
            options: see `KeyedOptions`.

        Raises:
            RequestTimeout: no reply came; whether the request was carried out is not known.
            MessageIllegal, RouteNotFound, BrokerError, ConnectError: it was not sent; as `send`.
            ConfigError: `timeout` is no number of seconds between 0.001 and 600.
        """
        timeout = seconds_of(timeout, "timeout", 0.001, LONGEST_WAIT_S)
        check_words("request", options, KeyedOptions)
        message = as_message(topic, body, cast(SendOptions, options), encode=self._encode)
        session, replies = self.session, self._replies
        began = asyncio.get_running_loop().time()
        correlation_id = f"{session.client_id}-{self._entropy.token(16)}"
        sent = False
        try:
            async with asyncio.timeout(timeout) as limit:
                await replies.meet(session, session.namespace.wrap(message.topic))
                replies.expect(correlation_id)
                request = as_request(message, correlation_id, session.client_id, timeout)
                left_ms = int((timeout - (asyncio.get_running_loop().time() - began)) * 1000)
                await self._sender.send(request, timeout_ms=max(1, left_ms))
                sent = True
                return await replies.wait(correlation_id)
        except TimeoutError:
            if not limit.expired():
                raise
            how = "was stored, and no reply came" if sent else "was not known to be stored"
            words = f"the request to {message.topic} {how} within {timeout} s"
            raise RequestTimeout(words) from None
        finally:
            replies.forget(correlation_id)

    def serve(
        self, topic: Topics, handler: Server[V], *, group: str, **options: Unpack[ServeOptions]
    ) -> Consumer:
        """Answer the requests to a topic, from when the consumer is awaited or entered on. Members of a group share them.

        A request whose sender waits no longer is skipped, as far as the server can tell whose clock may be any other than the
        brokers': by how much longer than others it has waited. One whose handler fails gets no reply: its sender's time ends.

        Args:
            handler: gets the request and returns the reply's body (or a value, with `Client(encode=)`), or None for no reply. A coroutine
                function, or a function, which runs in a thread.
            options: see `ServeOptions`.

        Raises:
            ConfigError: an option is wrong, or this client already has a consumer of the group.
        """
        options = options_of_call("serve", options, ServeOptions, self._environ)
        options.setdefault("start_from", StartFrom.LAST)  # nobody waits for old requests any more
        chosen = member_options(group, topic, cast(ConsumerOptions, options))
        check_function("handler", handler)

        async def join() -> PushConsumer:
            server = for_loop(handler, chosen.concurrency)
            answer = ReplyHandler(self.session, self._sender.group, server, self._encode)
            return await self._join(answer, chosen)

        return Consumer(group, join)


# Calls by which an application sends.


class SendCalls(ClientBase[V]):
    """Sending: one message, many at once, without waiting."""

    async def send(
        self,
        topic: str | Message,
        body: bytes | str | V = b"",
        *,
        timeout: Timeout = None,
        **options: Unpack[SendOptions],
    ) -> SendReceipt:
        """Send one message and wait until the broker has it.

        Args:
            options: see `SendOptions`.
            timeout: of all tries together, in seconds or as a timedelta; None: the client's `send_timeout` (3 s).

        Raises:
            MessageIllegal, RouteNotFound, BrokerError, ConnectError, RequestTimeout
        """
        message = as_message(topic, body, options, self._clock, self._encode, "send")
        limit_ms = milliseconds_of(timeout)
        return await self._sender.send(
            message,
            queue=options.get("queue"),
            selector=options.get("selector"),
            timeout_ms=limit_ms,
        )

    async def recall(self, receipt: SendReceipt) -> None:
        """Take back a message that was sent with `deliver_at` and has not been delivered yet.

        Raises:
            MessageIllegal: the receipt is of no such message, or of a broker that gives no handles.
            BrokerError: the broker refuses: the message is due, or its setting recallMessageEnable is off (the default).
        """
        if not receipt.recall_handle:
            raise MessageIllegal(
                f"message {receipt.message_id} cannot be recalled: its receipt has no recall handle"
            )
        topic, recalled = self.session.namespace.wrap(receipt.queue.topic), False
        await self.session.route(topic)
        address = self.session.master_of(receipt.queue)
        try:
            await self.session.api.call(
                address, calls.recall(self._sender.group, topic, receipt.recall_handle)
            )
            recalled = True
        finally:
            self._trace.recalled(receipt, self._group, recalled)

    async def send_nowait(
        self,
        topic: str | Message,
        body: bytes | str | V = b"",
        **options: Unpack[SendOptions],
    ) -> "asyncio.Future[SendReceipt]":
        """Send without waiting for the answer: the future gets it. Waits while too many are unanswered."""
        message = as_message(topic, body, options, self._clock, self._encode, "send_nowait")
        return await self._sender.send_nowait(
            message, queue=options.get("queue"), selector=options.get("selector")
        )

    async def send_oneway(
        self,
        topic: str | Message,
        body: bytes | str | V = b"",
        **options: Unpack[OnewayOptions],
    ) -> None:
        """Send without an answer: fastest, but whether it arrived stays unknown."""
        check_words("send_oneway", options, OnewayOptions)
        message = as_message(topic, body, cast(SendOptions, options), encode=self._encode)
        await self._sender.send_oneway(message, queue=options.get("queue"))

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[bytes | str | V | Message],
        *,
        queue: MessageQueue | None = None,
        timeout: Timeout = None,
    ) -> list[SendReceipt]:
        """Send many messages in few requests, those with shard keys to their keys' queues; a receipt for each, in order.

        Raises:
            MessageIllegal: a message goes to another topic, or breaks a rule; nothing was sent.
            ClientError: a part was not stored. `outcomes` of the error has a receipt or an error for each message, in order:
                parts after it were tried, or, when two had failed, with the same keys, or to a given queue, not sent (NotSent).
        """
        if isinstance(messages, (str, bytes, bytearray)):
            raise TypeError(f"a batch is a list of messages, not {type(messages).__name__}")
        limit_ms = milliseconds_of(timeout)
        listed = [
            as_message(m) if isinstance(m, Message) else as_message(topic, m, encode=self._encode)
            for m in messages
        ]
        if others := sorted({message.topic for message in listed} - {topic}):
            raise MessageIllegal(f"a batch to {topic} has messages to {', '.join(others)}")
        return await self._sender.send_batch(listed, queue=queue, timeout_ms=limit_ms)

    async def flush(self, *, timeout: Timeout = None) -> None:
        """Wait until what was sent before this call has its end: futures of `send_nowait` are done, whatever with, and what
        was sent one way has come to its broker. The end of the client does the same, for 30 seconds.

        Args:
            timeout: seconds, or a timedelta; None: as long as the sends' own limits are.

        Raises:
            RequestTimeout: it was not so in time, or a connection broke over which something went one way; the error says
                how many messages there are whose end is not known. Sends go on.
        """
        left = await self._sender.flush(None if timeout is None else seconds_of(timeout))
        if left:
            raise RequestTimeout(f"the end of {left} messages is not known")


# Transactions of an application.


class TransactionCalls(ClientBase[V]):
    """Transactions: a message and the application's own work succeed together."""

    def transaction(
        self,
        topic: str | Message,
        body: bytes | str | V = b"",
        **options: Unpack[KeyedOptions],
    ) -> Transaction:
        """Send a message that is delivered only if the block succeeds.

            async with mq.transaction("orders", body, key="7") as tx:
                await database.save(order, tx.message_id)

        The message is stored before the block begins, unseen. The end of the block commits it, an exception rolls it
        back. When neither reaches the broker (the process died, the block was cancelled), the broker asks a producer of
        this client's group: `on_check` must have been called for the topic, here or in another process of the group.

        Args:
            options: see `KeyedOptions`.

        Raises:
            ConfigError: the client has no producer group of its own, or the message has a delay.
            MessageIllegal, RouteNotFound, BrokerError, ConnectError, RequestTimeout: at the block's begin; as `send`.
            NotDurable: at the block's begin: it is not stored as safely as the broker promises. It is rolled back.
            TransactionLost: at the block's end: its message was dropped before, by a check.
        """
        check_words("transaction", options, KeyedOptions)
        message = as_message(topic, body, cast(SendOptions, options), encode=self._encode)
        check_transactional(message, self._group)
        return Transaction(self.session, self._sender, message, self._checks)

    def on_check(self, topic: str, check: Check) -> None:
        """Say what became of half messages to a topic whose producer said nothing.

        Args:
            check: gets the message; answers True (deliver it), False (drop it) or None (not known yet: the broker asks
                again, 15 times by default). It is asked in any process of the group, also in one that did not send it: look
                into the database, not into memory. What is not found and young (`message.born_at`) may be at work elsewhere:
                answer None, not False. Of transactions at work in this client it is not asked. A coroutine function,
                or a function, which runs in a thread.

        Raises:
            ConfigError: `check` cannot be called, the topic has no legal name, or the client has no group of its own.
        """
        if (error := client_topic_error(topic)) is not None:
            raise ConfigError(error)
        check_function("check", check)
        check_transactional(Message(topic, b""), self._group)
        self._checks.add(topic, for_loop(check, MOST_CHECKS))


class Client(SendCalls[V], TransactionCalls[V], RequestCalls[V], ConsumeCalls, PopCalls, LookCalls):
    """Producers and consumers of one process in one cluster.

        async with Client("127.0.0.1:9876") as mq:
            await mq.send("orders", b"...", key="7", tag="new")
            async for message in mq.consume("orders", group="billing"):
                ...

    Args:
        name_servers: "host:port;host:port", or where such a list is found: "http://host:port/path", "dns://name:port"; without
            it those of the environment's NAMESRV_ADDR.
        group: the producer group.
        encode: makes the bodies of values that are sent, which are neither bytes nor str: `roquette.to_json`, a registry's
            serializer, a function of yours. `Client[Order]` is one that takes orders.
        settings: see `ClientSettings`: `tls=True` or `TlsOptions(ca=...)`; `access_key` and `secret_key`, or `credentials`;
            `send_timeout=5` ... What is not said the environment may say, as ROQUETTE_SEND_TIMEOUT.

    Raises:
        ConfigError: an argument is wrong.
    """


__all__ = ["Client", "ReceivedMessage"]
