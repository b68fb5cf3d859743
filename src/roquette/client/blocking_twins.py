"""The client for programs without an event loop. Written by tools/make_sync.py: change the asynchronous client instead."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self

from roquette.client import pop, pull_consumer, push_consumer, transactions
from roquette.client.arguments import StrategyName
from roquette.client.blocking_base import (
    Twin,
)
from roquette.client.producer import SendReceipt
from roquette.client.pull_group import Changed
from roquette.client.push_consumer import CLOSE_S
from roquette.message.message import MessageQueue, ReceivedMessage


class PushConsumer(Twin[push_consumer.PushConsumer]):
    """One member of one group. `start` joins, `close` leaves; the others take over at once."""

    def close(self, limit_s: float = CLOSE_S) -> None:
        """Stop pulling, let handlers at work finish (`limit_s` seconds at most), save offsets, leave the group.

        Cancelled, it goes on without its caller. A handler that closes its own consumer does not wait: the
        consumer closes when the handler has returned.
        """
        self._close(lambda: self._twin.close(limit_s))

    def pause(self) -> None:
        """Pull nothing more until `resume`; handlers go on with what is here, and the queues stay ours."""
        self._run(self._twin.pause)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._run(self._twin.resume)


class PullConsumer(Twin[pull_consumer.PullConsumer]):
    """Reads the queues it is told to read, or, after `subscribe`, its share of topics as a member of its group."""

    def subscribe(
        self, *topics: str, strategy: StrategyName = "AVG", on_change: Changed | None = None
    ) -> None:
        """Join the group and read our share of these topics, as it changes with members and queues.

        A topic that no name server knows yet is read as soon as there is one.

        Args:
            strategy: as in `Client.subscribe`.
            on_change: called on the client's loop, after the change, with the queues gained and those lost; it must not wait.

        Raises:
            ConfigError: it is subscribed, or reads queues by `assign`; or this client has a consumer of the group.
        """
        self._call(lambda: self._twin.subscribe(*topics, strategy=strategy, on_change=on_change))

    def watch(self, topic: str, on_change: Changed) -> None:
        """Call `on_change`, on the client's loop, with queues a topic gained and lost, seen every `poll_routes_ms`."""
        self._run(lambda: self._twin.watch(topic, on_change))

    def give_up(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading some queues; with automatic commits, what is done of them is committed first."""
        self._call(lambda: self._twin.give_up(queues))

    def offsets(self) -> dict[MessageQueue, int]:
        """The positions of all queues."""
        return self._run(self._twin.offsets)

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

    def offset_for_time(self, queue: MessageQueue, when: datetime | int) -> int:
        """The offset of the first message stored at or after a time; the end of the queue when there is none."""
        return self._call(lambda: self._twin.offset_for_time(queue, when))

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

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets of the group, and return when the brokers have them: those given, or all positions.

        Raises:
            ClientError: a broker does not take one.
        """
        self._call(lambda: self._twin.commit(offsets))

    def close(self) -> None:
        """Stop reading and leave the group; with automatic commits, what is done is committed.

        Messages of the last `poll` count as done when `commit` was called, or another `poll`.
        """
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
        """Let the message be delivered, now; the end of the block does it otherwise.

        Raises:
            TransactionLost: the broker has dropped it before.
        """
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
