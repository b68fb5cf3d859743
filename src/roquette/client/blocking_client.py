"""The client for programs without an event loop. Written by tools/make_sync.py: change the asynchronous client instead."""

import concurrent.futures
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from roquette.client.arguments import ModelName, StrategyName, Timeout
from roquette.client.blocking_base import (
    BlockingBase,
    BlockingBatchHandler,
    BlockingCheck,
    BlockingHandler,
    BlockingRevoked,
    BlockingServer,
)
from roquette.client.blocking_twins import Jobs, PullConsumer, PushConsumer, Transaction
from roquette.client.consumer_options import OffsetStore, StartFrom, StartPoint
from roquette.client.producer import Selector, SendReceipt
from roquette.client.selection import Selection, Sql
from roquette.message.message import Message, MessageQueue, ReceivedMessage


class Client(BlockingBase):
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
        body: bytes | str = b"",
        *,
        key: str | Sequence[str] | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        shard_key: str | None = None,
        delay_level: int = 0,
        deliver_at: datetime | timedelta | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send one message and wait until the broker has it.

        Args:
            key: one key or several, to find the message by. tag: what consumers filter by.
            shard_key: messages with one shard key go to one queue, in order.
            delay_level: 1..18 (1 s .. 2 h) delivers later.
            deliver_at: deliver then (a datetime with a zone), or after so long (a timedelta); `recall` takes it back.
            queue, selector: choose the queue yourself.

        Raises:
            MessageIllegal, RouteNotFound, BrokerError, ConnectError, RequestTimeout
        """
        return self._call(
            lambda: self._client.send(
                topic,
                body,
                key=key,
                tag=tag,
                properties=properties,
                shard_key=shard_key,
                delay_level=delay_level,
                deliver_at=deliver_at,
                queue=queue,
                selector=selector,
                timeout_ms=timeout_ms,
            )
        )

    def recall(self, receipt: SendReceipt) -> None:
        """Take back a message that was sent with `deliver_at` and has not been delivered yet.

        Raises:
            MessageIllegal: the receipt is of no such message, or of a broker that gives no handles.
            BrokerError: the broker refuses: the message is due, or its setting recallMessageEnable is off (the default).
        """
        self._call(lambda: self._client.recall(receipt))

    def send_nowait(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        key: str | Sequence[str] | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        shard_key: str | None = None,
        delay_level: int = 0,
        deliver_at: datetime | timedelta | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> concurrent.futures.Future[SendReceipt]:
        """Send without waiting for the answer: the future gets it. Waits while too many are unanswered."""
        return self._submit(
            lambda: self._client.send_nowait(
                topic,
                body,
                key=key,
                tag=tag,
                properties=properties,
                shard_key=shard_key,
                delay_level=delay_level,
                deliver_at=deliver_at,
                queue=queue,
                selector=selector,
            )
        )

    def send_oneway(
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
        self._call(
            lambda: self._client.send_oneway(
                topic, body, key=key, tag=tag, properties=properties, queue=queue
            )
        )

    def send_batch(
        self,
        topic: str,
        messages: Sequence[bytes | str | Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendReceipt]:
        """Send many messages in few requests, those with shard keys to their keys' queues; a receipt for each, in order.

        Raises:
            MessageIllegal: a message goes to another topic, or breaks a rule; nothing was sent.
            ClientError: a part was not stored. `outcomes` of the error has a receipt or an error for each message, in order:
                parts after it were tried, or, when two had failed, with the same keys, or to a given queue, not sent (NotSent).
        """
        return self._call(
            lambda: self._client.send_batch(topic, messages, queue=queue, timeout_ms=timeout_ms)
        )

    def flush(self, *, timeout: Timeout = None) -> None:
        """Wait until what was sent before this call has its end: futures of `send_nowait` are done, whatever with, and what
        was sent one way has come to its broker. The end of the client does the same, for 30 seconds.

        Args:
            timeout: seconds, or a timedelta; None: as long as the sends' own limits are.

        Raises:
            RequestTimeout: it was not so in time, or a connection broke over which something went one way; the error says
                how many messages there are whose end is not known. Sends go on.
        """
        self._call(lambda: self._client.flush(timeout=timeout))

    def transaction(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        key: str | Sequence[str] | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        shard_key: str | None = None,
    ) -> Transaction:
        """Send a message that is delivered only if the block succeeds.

            with mq.transaction("orders", body, key="7") as tx:
                database.save(order, tx.message_id)

        The message is stored before the block begins, unseen. The end of the block commits it, an exception rolls it
        back. When neither reaches the broker (the process died, the block was cancelled), the broker asks a producer of
        this client's group: `on_check` must have been called for the topic, here or in another process of the group.

        Args:
            key, tag, properties, shard_key: as in `send`.

        Raises:
            ConfigError: the client has no producer group of its own, or the message has a delay.
            MessageIllegal, RouteNotFound, BrokerError, ConnectError, RequestTimeout: at the block's begin; as `send`.
            NotDurable: at the block's begin: it is not stored as safely as the broker promises. It is rolled back.
            TransactionLost: at the block's end: its message was dropped before, by a check.
        """
        return Transaction(
            self,
            self._run(
                lambda: self._client.transaction(
                    topic, body, key=key, tag=tag, properties=properties, shard_key=shard_key
                )
            ),
        )

    def on_check(self, topic: str, check: BlockingCheck) -> None:
        """Say what became of half messages to a topic whose producer said nothing.

        Args:
            check: gets the message; answers True (deliver it), False (drop it) or None (not known yet: the broker asks
                again, 15 times by default). It is asked in any process of the group, also in one that did not send it: look
                into the database, not into memory. What is not found and young (`message.born_at`) may be at work elsewhere:
                answer None, not False. Of transactions at work in this client it is not asked. A function or a coroutine
                function.

        Raises:
            ConfigError: `check` cannot be called, the topic has no legal name, or the client has no group of its own.
        """
        kept = self._keep_check(topic, check)
        self._run(lambda: self._client.on_check(topic, kept))

    def request(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        timeout: float = 3.0,
        key: str | Sequence[str] | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        shard_key: str | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of one of those that serve the topic.

        Args:
            timeout: seconds, for the sending and the reply together.
            key, tag, properties, shard_key: as in `send`.

        Raises:
            RequestTimeout: no reply came; whether the request was carried out is not known.
            MessageIllegal, RouteNotFound, BrokerError, ConnectError: it was not sent; as `send`.
            ConfigError: `timeout` is no number of seconds between 0.001 and 600.
        """
        return self._call(
            lambda: self._client.request(
                topic,
                body,
                timeout=timeout,
                key=key,
                tag=tag,
                properties=properties,
                shard_key=shard_key,
            )
        )

    def serve(
        self,
        topic: str,
        *,
        group: str,
        handler: BlockingServer,
        concurrency: int = 20,
        start_from: StartFrom = StartFrom.LAST,
    ) -> PushConsumer:
        """Answer the requests to a topic; `close` the returned consumer to stop. Members of a group share them.

        A request whose sender waits no longer is skipped, as far as the server can tell whose clock may be any other than the
        brokers': by how much longer than others it has waited. One whose handler fails gets no reply: its sender's time ends.

        Args:
            handler: gets the request and returns the reply's body, or None for no reply. A function or a coroutine function.
            concurrency, start_from: as in `subscribe`.

        Raises:
            ConfigError: an option is wrong, or this client already has a consumer of the group.
        """
        return PushConsumer(
            self,
            self._call(
                lambda: self._client.serve(
                    topic,
                    group=group,
                    handler=self._beside(handler),
                    concurrency=concurrency,
                    start_from=start_from,
                )
            ),
        )

    def subscribe(
        self,
        topic: str | Mapping[str, Selection],
        *,
        group: str,
        handler: BlockingHandler,
        tags: str = "*",
        filter: Sql | None = None,
        concurrency: int = 20,
        start_from: StartPoint = StartFrom.LAST,
        model: ModelName = "clustering",
        orderly: bool = False,
        max_reconsume_times: int = -1,
        strategy: StrategyName = "AVG",
        on_revoke: BlockingRevoked | None = None,
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
        return PushConsumer(
            self,
            self._call(
                lambda: self._client.subscribe(
                    topic,
                    group=group,
                    handler=self._beside(handler),
                    tags=tags,
                    filter=filter,
                    concurrency=concurrency,
                    start_from=start_from,
                    model=model,
                    orderly=orderly,
                    max_reconsume_times=max_reconsume_times,
                    strategy=strategy,
                    on_revoke=on_revoke and self._beside(on_revoke),
                    retry_levels=retry_levels,
                    offsets=offsets and self._store_beside(offsets),
                )
            ),
        )

    def subscribe_batches(
        self,
        topic: str | Mapping[str, Selection],
        *,
        group: str,
        handler: BlockingBatchHandler,
        batch: int = 32,
        tags: str = "*",
        filter: Sql | None = None,
        concurrency: int = 20,
        start_from: StartPoint = StartFrom.LAST,
        model: ModelName = "clustering",
        orderly: bool = False,
        max_reconsume_times: int = -1,
        strategy: StrategyName = "AVG",
        on_revoke: BlockingRevoked | None = None,
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
        return PushConsumer(
            self,
            self._call(
                lambda: self._client.subscribe_batches(
                    topic,
                    group=group,
                    handler=self._beside(handler),
                    batch=batch,
                    tags=tags,
                    filter=filter,
                    concurrency=concurrency,
                    start_from=start_from,
                    model=model,
                    orderly=orderly,
                    max_reconsume_times=max_reconsume_times,
                    strategy=strategy,
                    on_revoke=on_revoke and self._beside(on_revoke),
                    retry_levels=retry_levels,
                    offsets=offsets and self._store_beside(offsets),
                )
            ),
        )

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
    ) -> Iterator[ReceivedMessage]:
        """An asynchronous iterator over messages: asking for the next one acknowledges the one before.

        Leaving the loop by `break` or an error leaves the current message unacknowledged: it comes again.
        """
        return self._messages(
            lambda: self._client.consume(
                topic,
                group=group,
                tags=tags,
                filter=filter,
                start_from=start_from,
                model=model,
                max_reconsume_times=max_reconsume_times,
            )
        )

    def pull_consumer(
        self,
        *,
        group: str,
        tags: str = "*",
        filter: Sql | None = None,
        batch: int = 32,
        start_from: StartPoint = StartFrom.LAST,
        auto_commit_s: float = 0.0,
        max_messages: int = 10000,
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
        return PullConsumer(
            self,
            self._call(
                lambda: self._client.pull_consumer(
                    group=group,
                    tags=tags,
                    filter=filter,
                    batch=batch,
                    start_from=start_from,
                    auto_commit_s=auto_commit_s,
                    max_messages=max_messages,
                    max_bytes=max_bytes,
                )
            ),
        )

    def pop(
        self,
        topic: str,
        *,
        group: str,
        invisible: float = 60.0,
        batch: int = 16,
        tags: str = "*",
        filter: Sql | None = None,
        start_from: StartFrom = StartFrom.LAST,
        orderly: bool = False,
        renew: bool = False,
        max_reconsume_times: int = -1,
    ) -> Jobs:
        """Take messages one by one, each to be acknowledged within a time; else it comes again.

            with mq.pop("orders", group="billing", invisible=60.0) as jobs:
                for job in jobs:
                    work(job.message)
                    job.ack()

        It needs no membership of the group, and shares it with consumers of any language that pop.

        Args:
            invisible: how long, in seconds, nobody else gets a message that was handed to us; `job.extend` prolongs it.
            batch: the most messages one request takes from a broker, 1 to 32. They wait here with their time running:
                `batch` times what one message takes must be less than `invisible`.
            tags, filter: as in `subscribe`.
            start_from: where a group that has no offset yet begins: StartFrom.LAST or StartFrom.FIRST.
            orderly: each queue's messages in order; a queue gives nothing more until all that it gave are settled.
            renew: prolong, by `invisible`, each job that the application holds and has not settled.
            max_reconsume_times: after how many failures a message goes to `%DLQ%<group>` unseen; -1: 16.

        Raises:
            ConfigError: an option is wrong.
        """
        return Jobs(
            self,
            self._run(
                lambda: self._client.pop(
                    topic,
                    group=group,
                    invisible=invisible,
                    batch=batch,
                    tags=tags,
                    filter=filter,
                    start_from=start_from,
                    orderly=orderly,
                    renew=renew,
                    max_reconsume_times=max_reconsume_times,
                )
            ),
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
        return self._call(
            lambda: self._client.find(topic, key, most=most, since=since, until=until)
        )

    def message_at(self, offset_message_id: str) -> ReceivedMessage:
        """The message at a place: the `offset_message_id` of a message or a receipt.

        Raises:
            BrokerError: there is none any more. ConnectError, RequestTimeout: the broker does not answer.
            ConfigError: it is no such id.
        """
        return self._call(lambda: self._client.message_at(offset_message_id))
