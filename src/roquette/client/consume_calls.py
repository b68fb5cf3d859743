"""How an application gets messages by its client: handlers, streams, readers."""

from collections.abc import Mapping, Sequence
from functools import partial

from roquette.client.answers import check_function
from roquette.client.arguments import (
    ModelName,
    StrategyName,
    as_subscriptions,
    check_count,
    check_group,
    consumer_options,
    start_point,
)
from roquette.client.client_base import ClientBase
from roquette.client.consumer_options import OffsetStore, Revoked, StartFrom, StartPoint
from roquette.client.handler import BatchHandler, Handler
from roquette.client.pull_consumer import PullConsumer, ReadOptions
from roquette.client.push_consumer import PushConsumer
from roquette.client.selection import Selection, Sql
from roquette.client.stream import MessageStream
from roquette.errors import ConfigError


class ConsumeCalls(ClientBase):
    """Consuming: as a member of a group, or as a reader outside of it."""

    async def subscribe(
        self,
        topic: str | Mapping[str, Selection],
        *,
        group: str,
        handler: Handler,
        tags: str = "*",
        filter: Sql | None = None,
        concurrency: int = 20,
        start_from: StartPoint = StartFrom.LAST,
        model: ModelName = "clustering",
        orderly: bool = False,
        max_reconsume_times: int = -1,
        strategy: StrategyName = "AVG",
        on_revoke: Revoked | None = None,
        retry_levels: Sequence[int] = (),
        offsets: OffsetStore | None = None,
    ) -> PushConsumer:
        """Join a group and have messages handed to `handler`; `close` the returned consumer to leave.

        Args:
            topic: a topic, or topics with their tags or filters: {"orders": "new || paid", "stock": sql("left < 3")}.
            handler: returns None or True when done; False, an exception or any other answer lets the message come again.
            tags: "a || b" delivers messages with one of these tags only; "*" delivers all.
            filter: `roquette.sql("price > 3")` delivers messages whose properties match only; the broker needs
                enablePropertyFilter=true.
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
                shares; "AVG_BY_CIRCLE": dealt in turn; "CONSISTENT_HASH": few queues move when members change; or a function
                of (own client id, all client ids, queues), as `by_config`, `by_machine_room` and `nearby` make them.
            on_revoke: called with the queues that go to another member, or that `close` gives up: when the handlers at
                work on them have ended and before anybody else gets them; a function or a coroutine function, cut off
                after 0.5 s. Others wait 2 s at most: when handlers take longer, another member has the queues by then.
            retry_levels: the delay level of the first failure, the second, and so on; the last one is for all that follow. ():
                the broker's: 10 s, 30 s, 1 min, 2 min ... 2 h. Not for orderly consumers, which try again at once.
            offsets: keeps where the group goes on in the place of the brokers, which then know nothing of its lag.

        Raises:
            ConfigError: an option is wrong, or this client already has a consumer of the group.
        """
        options = consumer_options(
            group,
            as_subscriptions(topic, tags, filter),
            concurrency=concurrency,
            start_from=start_from,
            model=model,
            orderly=orderly,
            max_reconsume_times=max_reconsume_times,
            strategy=strategy,
            on_revoke=on_revoke,
            retry_levels=retry_levels,
            offsets=offsets,
        )
        check_function("handler", handler)
        return await self._join(handler, options)

    async def subscribe_batches(
        self,
        topic: str | Mapping[str, Selection],
        *,
        group: str,
        handler: BatchHandler,
        batch: int = 32,
        tags: str = "*",
        filter: Sql | None = None,
        concurrency: int = 20,
        start_from: StartPoint = StartFrom.LAST,
        model: ModelName = "clustering",
        orderly: bool = False,
        max_reconsume_times: int = -1,
        strategy: StrategyName = "AVG",
        on_revoke: Revoked | None = None,
        retry_levels: Sequence[int] = (),
        offsets: OffsetStore | None = None,
    ) -> PushConsumer:
        """`subscribe` with a handler that takes several messages at once: a list of one queue's, in its order.

        Args:
            handler: returns None or True when all are done; False, an exception or any other answer lets all come again; a number says
                how many of the first are done, and the others come again (Apache: ackIndex, counted from 0).
            batch: the most messages of one call. A call has what waits of one queue, and never waits for more: while
                handlers are quicker than messages come, what one pull brought (of Apache's brokers 32 at most).
            concurrency: how many calls run at the same time.

        All other options are those of `subscribe`. Orderly, those that are not done are tried again before what follows.

        Raises:
            ConfigError: an option is wrong, or this client already has a consumer of the group.
        """
        check_count("batch", batch)
        options = consumer_options(
            group,
            as_subscriptions(topic, tags, filter),
            concurrency=concurrency,
            start_from=start_from,
            model=model,
            orderly=orderly,
            max_reconsume_times=max_reconsume_times,
            strategy=strategy,
            on_revoke=on_revoke,
            retry_levels=retry_levels,
            offsets=offsets,
            batch=batch,
        )
        check_function("handler", handler)
        return await self._join(handler, options)

    def consume(
        self,
        topic: str | Mapping[str, Selection],
        *,
        group: str,
        tags: str = "*",
        filter: Sql | None = None,
        start_from: StartPoint = StartFrom.LAST,
        model: ModelName = "clustering",
        max_reconsume_times: int = -1,
    ) -> MessageStream:
        """An asynchronous iterator over messages: asking for the next one acknowledges the one before.

        Leaving the loop by `break` or an error leaves the current message unacknowledged: it comes again.
        """

        async def join() -> PushConsumer:
            options = consumer_options(
                group,
                as_subscriptions(topic, tags, filter),
                concurrency=1,
                start_from=start_from,
                model=model,
                orderly=False,
                max_reconsume_times=max_reconsume_times,
                strategy="AVG",
            )
            return await self._join(None, options)

        stream = MessageStream(join)
        self._first_closed.append(stream)
        stream.gone = partial(self._forget, stream)
        return stream

    async def pull_consumer(
        self,
        *,
        group: str,
        tags: str = "*",
        filter: Sql | None = None,
        batch: int = 32,
        start_from: StartPoint = StartFrom.LAST,
        auto_commit_s: float = 0.0,
        max_messages: int = 10_000,
        max_bytes: int = 64 << 20,
    ) -> PullConsumer:
        """A reader under your control: assign queues or subscribe to topics; seek, pause, poll, commit.

        Args:
            group: whose offsets are read and committed; the reader joins it by `PullConsumer.subscribe` only.
            tags, filter: as in `subscribe`.
            batch: the most messages one request asks for; a broker may give fewer (Apache's: 32).
            start_from: where a group that has no offset yet begins after `PullConsumer.subscribe`.
            auto_commit_s: how often, in seconds, to commit what is done: messages before those of the last `poll`. 0:
                only `commit` does (Apache's: 5).
            max_messages, max_bytes: how much of all queues together is fetched ahead; a queue may pass them by one batch.
        """
        check_group(group)
        wanted = as_subscriptions("t", tags, filter)["t"]
        check_count("batch", batch)
        check_count("max_messages", max_messages)
        check_count("max_bytes", max_bytes)
        if not isinstance(auto_commit_s, int | float) or auto_commit_s < 0:
            raise ConfigError(f"auto_commit_s={auto_commit_s!r} is not a number of seconds")
        options = ReadOptions(
            wanted=wanted,
            batch=batch,
            start_from=start_point(start_from),
            auto_commit_s=auto_commit_s,
            max_messages=max_messages,
            max_bytes=max_bytes,
        )
        consumer = PullConsumer(self.session, group, options)
        self._pull_consumers.append(consumer)
        consumer.gone = partial(self._forget, consumer)
        return consumer
