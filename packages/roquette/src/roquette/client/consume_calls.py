"""Calls by which an application gets messages from its client: handlers, streams, readers."""

from functools import partial
from typing import TYPE_CHECKING, Unpack, cast, overload

from roquette.client.answers import check_function
from roquette.client.arguments import (
    Topics,
    as_subscriptions,
    check_count,
    check_group,
    member_options,
    seconds_of,
    start_point,
)
from roquette.client.client_base import ClientBase
from roquette.client.consumer import Consumer
from roquette.client.consumer_options import (
    ConsumerOptions,
    ReaderOptions,
    StartFrom,
    StreamOptions,
)
from roquette.client.handler import BatchHandler, Handler
from roquette.client.settings import options_of_call
from roquette.client.stream import MessageStream

if TYPE_CHECKING:
    from roquette.client.reader import Reader


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
