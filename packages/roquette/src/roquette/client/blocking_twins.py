"""Objects that the client hands out, for programs without an event loop. Written by tools/make_sync.py: change the asynchronous client instead."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from roquette.client import consumer, pop, reader, transactions
from roquette.client.arguments import Timeout
from roquette.client.blocking_base import (
    Twin,
)
from roquette.client.consumer_options import (
    StrategyName,
)
from roquette.client.producer import SendReceipt
from roquette.client.reader import Changed
from roquette.message.message import MessageQueue, ReceivedMessage


class Consumer(Twin[consumer.Consumer]):
    """Member of a group, of `Client.subscribe` and `Client.serve`: `with mq.subscribe(...)`, or `mq.subscribe(...)`."""

    def close(self, *, timeout: Timeout = None) -> None:
        """Stop pulling, let handlers at work finish, save offsets, leave the group; may be called twice."""
        self._close(lambda: self._twin.close(timeout=timeout))

    def pause(self) -> None:
        """Pull nothing more until `resume`; handlers go on with what is here, and the queues stay ours."""
        self._run(self._twin.pause)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._run(self._twin.resume)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are its share now, sorted; none before it has joined."""
        return self._run(lambda: self._twin.queues)

    @property
    def group(self) -> str:
        """The group it is a member of."""
        return self._twin.group


class MessageStream(Twin[consumer.MessageStream]):
    """`for message in mq.consume(...)`. Joins the group at its start, or else at the first `anext`."""

    def commit(self) -> None:
        """Save the group's offsets, and return when the brokers have them: of all messages before the one at work, and of
        that when it is acknowledged. Without it they are saved each 5 s, and at the end."""
        self._call(self._twin.commit)

    def close(self) -> None:
        """Leave the group. A message neither acknowledged nor retried comes again."""
        self._close(self._twin.close)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self._each(self._twin)


class Reader(Twin[reader.Reader]):
    """Reads the queues it is told to read, or, after `subscribe`, its share of topics as a member of its group."""

    def subscribe(
        self, *topics: str, strategy: StrategyName = "AVG", on_change: Changed | None = None
    ) -> None:
        """Join the group and read our share of these topics, as it changes with members and queues."""
        self._call(lambda: self._twin.subscribe(*topics, strategy=strategy, on_change=on_change))

    def watch(self, topic: str, on_change: Changed) -> None:
        """Call `on_change`, on the client's loop, with queues a topic gained and lost, seen as often as routes are asked for (`poll_routes`)."""
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
        """Return the offset the group goes on from; None when it has committed nothing there."""
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

    def poll(self, *, timeout: Timeout = 5.0) -> list[ReceivedMessage]:
        """The next messages of any assigned queue, in its order; empty when none came in time."""
        return self._call(lambda: self._twin.poll(timeout=timeout))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets of the group, and return when the brokers have them: those given, or all positions."""
        self._call(lambda: self._twin.commit(offsets))

    def close(self) -> None:
        """Stop reading and leave the group; with automatic commits, what is done is committed."""
        self._close(self._twin.close)


class PoppedMessages(Twin[pop.PoppedMessages]):
    """An asynchronous iterator over popped messages; several tasks may iterate over it at the same time."""

    def close(self) -> None:
        """End it: what was not handed out goes back at once; messages that are handed out may still be settled."""
        self._close(self._twin.close)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self._each(self._twin)


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

    _settles = True
