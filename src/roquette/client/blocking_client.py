"""The client for programs without an event loop. Written by tools/make_sync.py: change the asynchronous client instead."""

import concurrent.futures
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from roquette.client import pop, pull_consumer, push_consumer, transactions
from roquette.client.arguments import ModelName, StrategyName
from roquette.client.blocking_base import BlockingBase, BlockingCheck, BlockingHandler, Twin
from roquette.client.consumer_options import StartFrom, StartPoint
from roquette.client.producer import Selector, SendReceipt
from roquette.client.push_consumer import CLOSE_S
from roquette.client.selection import Selection, Sql
from roquette.message.message import Message, MessageQueue, ReceivedMessage


class PushConsumer(Twin[push_consumer.PushConsumer]):
    """One member of one group. `start` joins, `close` leaves; the others take over at once."""

    def close(self, limit_s: float = CLOSE_S) -> None:
        """Stop pulling, let handlers at work finish (`limit_s` seconds at most), save offsets, leave the group.

        Cancelled, it goes on without its caller. A handler that closes its own consumer does not wait: the
        consumer closes when the handler has returned.
        """
        self._close(lambda: self._twin.close(limit_s))


class PullConsumer(Twin[pull_consumer.PullConsumer]):
    """Reads the queues it is told to read. One batch per queue is fetched ahead."""

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, each from the group's offset, or from its first message without one."""
        self._call(lambda: self._twin.assign(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue reading a queue at an offset; what was fetched ahead is thrown away."""
        self._run(lambda: self._twin.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the oldest message the broker has."""
        self._call(lambda: self._twin.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue at what is sent from now on."""
        self._call(lambda: self._twin.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, when: datetime | int) -> None:
        """Continue at the first message stored at or after a time (milliseconds since 1970 when a number)."""
        self._call(lambda: self._twin.seek_to_time(queue, when))

    def committed(self, queue: MessageQueue) -> int | None:
        """Where the group goes on; None when it has committed nothing there."""
        return self._call(lambda: self._twin.committed(queue))

    def pause(self, *queues: MessageQueue) -> None:
        """`poll` gives nothing of these queues until `resume`; what was fetched ahead waits."""
        self._run(lambda: self._twin.pause(*queues))

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with queues that were paused."""
        self._run(lambda: self._twin.resume(*queues))

    def position(self, queue: MessageQueue) -> int:
        """The offset the next `poll` of the queue continues with."""
        return self._run(lambda: self._twin.position(queue))

    def assigned(self) -> list[MessageQueue]:
        """The queues being read."""
        return self._run(self._twin.assigned)

    def poll(self, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        """The next messages of any assigned queue, in its order; empty when none came in time."""
        return self._call(lambda: self._twin.poll(timeout_s))

    def commit(self) -> None:
        """Store the positions as the group's offsets."""
        self._call(self._twin.commit)

    def close(self) -> None:
        """Stop reading."""
        self._close(self._twin.close)


class Job(Twin[pop.Job]):
    """A popped message: `ack` it when it is done; else it comes again, at the latest when its time is over."""

    @property
    def expires_in(self) -> float:
        """Seconds until the message comes again; below 0: it may be with somebody else already."""
        return self._run(lambda: self._twin.expires_in)

    def ack(self) -> None:
        """The message is done. Returns when the broker has confirmed it; acks that wait together go together.

        Cancelled, it is sent all the same. Acknowledging it twice does nothing.

        Raises:
            JobExpired: its time is over: it comes again. JobSettled: it was given back.
            ClientError: the broker refused, or did not answer; it may be tried again while there is time.
        """
        self._call(self._twin.ack)

    def extend(self, seconds: float) -> None:
        """Hide the message for so long from now. Raises what `ack` does."""
        self._call(lambda: self._twin.extend(seconds))

    def retry(self, after: float = 0.0) -> None:
        """It failed: let it come again after so many seconds, with one try more. Raises what `ack` does.

        Popped in order, the messages behind it wait.
        """
        self._call(lambda: self._twin.retry(after))

    def bury(self) -> None:
        """Put it into the group's dead-letter topic `%DLQ%<group>` and acknowledge it. Raises what `ack` does."""
        self._call(self._twin.bury)

    @property
    def message(self) -> ReceivedMessage:
        """The message."""
        return self._twin.message


class Jobs(Twin[pop.Jobs]):
    """An asynchronous iterator over popped messages; several tasks may iterate over it at the same time."""

    def __iter__(self) -> Iterator[Job]:
        while True:
            try:
                job = self._call(self._twin.__anext__)
            except StopAsyncIteration:  # closed
                return
            yield Job(self._owner, job)

    def __enter__(self) -> Self:
        self._call(self._twin.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(lambda: self._twin.__aexit__(kind, error, trace))


class Transaction(Twin[transactions.Transaction]):
    """One message that is delivered only if what belongs to it has succeeded; made by `Client.transaction`."""

    @property
    def receipt(self) -> SendReceipt:
        """Of the half message."""
        return self._run(lambda: self._twin.receipt)

    @property
    def message_id(self) -> str:
        """The message's id, the same that consumers and checks see."""
        return self._run(lambda: self._twin.message_id)

    def commit(self) -> None:
        """Let the message be delivered, now; the end of the block does it otherwise."""
        self._call(self._twin.commit)

    def rollback(self) -> None:
        """Drop the message, now."""
        self._call(self._twin.rollback)

    def __enter__(self) -> Self:
        self._call(self._twin.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(lambda: self._twin.__aexit__(kind, error, trace))


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
        """Send many messages in few requests; a receipt for each.

        Raises:
            MessageIllegal: a message goes to another topic, or breaks a rule; nothing was sent.
            ClientError: a part was not stored; `receipts` of the error are those of the parts before it.
        """
        return self._call(
            lambda: self._client.send_batch(topic, messages, queue=queue, timeout_ms=timeout_ms)
        )

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
                into the database, not into memory. A function or a coroutine function.

        Raises:
            ConfigError: `check` cannot be called, the topic has no legal name, or the client has no group of its own.
        """
        kept = self._keep_check(topic, check)
        self._run(lambda: self._client.on_check(topic, kept))

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
    ) -> PushConsumer:
        """Join a group and have messages handed to `handler`; `close` the returned consumer to leave.

        Args:
            topic: a topic, or topics with their tags or filters: {"orders": "new || paid", "stock": sql("left < 3")}.
            handler: returns None or True when done; False or an exception lets the message come again.
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
                shares; "AVG_BY_CIRCLE": dealt in turn; "CONSISTENT_HASH": few queues move when members change.

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
        self, *, group: str, tags: str = "*", filter: Sql | None = None, batch: int = 32
    ) -> PullConsumer:
        """A reader under your control: assign, seek, poll, commit.

        Args:
            group: whose offsets are read and committed; the reader does not join it.
            tags, filter: as in `subscribe`.
            batch: the most messages one request asks for; a broker may give fewer (Apache's: 32).
        """
        return PullConsumer(
            self,
            self._call(
                lambda: self._client.pull_consumer(
                    group=group, tags=tags, filter=filter, batch=batch
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
