"""Options of consuming: each option stated once, and the value that a member is made of."""

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypedDict

from roquette.client.core.rebalance import Strategy, averagely
from roquette.client.selection import Selection, Sql
from roquette.message.message import MessageQueue


class Model(enum.Enum):
    """Way in which a group shares messages."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class StartFrom(enum.StrEnum):
    """Start of a group that has no offset yet in a queue; the values are Apache's ConsumeFromWhere.

    Attributes:
        LAST: after the newest message; but in a queue whose first message ever is still in memory brokers begin there,
            as Apache's clients have it.
        FIRST: at the oldest message the broker still has.
    """

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"


StartPoint = StartFrom | datetime | int
"""Or at the first message stored at a time: a datetime, or milliseconds since 1970."""


Revoked = Callable[[list[MessageQueue]], "Awaitable[None] | None"]
"""Called with queues that go to another member, when the handlers at work on them have ended."""


class OffsetStore(Protocol):
    """Keeps where a group goes on, in place of the brokers (or, broadcasting, of the local file): say in the database
    that handlers write to. Both are functions or coroutine functions; the queues of the group's retry topic are among
    the queues. What they raise is logged, and they are called again.
    """

    def load(self, group: str, queue: MessageQueue) -> "Awaitable[int | None] | int | None":
        """Return the offset the group goes on from in a queue that is taken up; None: nothing is known, `start_from` says it."""
        ...

    def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> "Awaitable[object] | object":
        """Keep these: all messages before each are done. Called as a broker would be, also when queues are given up.

        A store whose handlers keep the offset with their result does nothing here, and its consumer is orderly: otherwise
        handlers end in any order, and the last offset kept says nothing of those before it.
        """
        ...


ModelName = Literal["clustering", "broadcasting"]
StrategyName = Literal["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"] | Strategy
"""A name of Apache's, or a function such as `roquette.by_machine_room` and its kin make: the same in every member."""


class TopicOptions(TypedDict, total=False):
    """Options of a consumer's topics: the messages it gets, and the place it begins at.

    Attributes:
        tag: "a || b" delivers messages with one of these tags only; "*", the default, delivers all.
        filter: `roquette.sql("price > 3")` delivers messages whose properties match only; the broker needs
            enablePropertyFilter=true.
        start_from: where a group that has no offset yet begins: StartFrom.FIRST, the default (of servers StartFrom.LAST),
            StartFrom.LAST, or at the first message stored at a time (a datetime, or milliseconds since 1970). A group that has
            one goes on there.
    """

    tag: str
    filter: Sql | None
    start_from: StartPoint


class GroupOptions(TopicOptions, total=False):
    """Options that all members of a group have.

    Attributes:
        max_reconsume_times: after how many failures a message goes to the dead-letter topic `%DLQ%<group>`. -1, the
            default, is Apache's: 16 times, or, for handlers in order, without end.
    """

    max_reconsume_times: int


class LoopOptions(GroupOptions, total=False):
    """Options of loops over messages.

    Attributes:
        timeout: the loop ends when no message came for so long, in seconds or as a timedelta; None, the default: it waits.
    """

    timeout: float | timedelta | None


class QueueOptions(GroupOptions, total=False):
    """Options of members that own queues.

    Attributes:
        model: "clustering" gives each message to one member, keeps offsets at the brokers and retries what failed;
            "broadcasting" gives every member all messages, keeps offsets in a local file and retries nothing.
        strategy: how queues are divided among the members; it must be the same in all of them. "AVG": contiguous
            shares; "AVG_BY_CIRCLE": dealt in turn; "CONSISTENT_HASH": few queues move when members change; or a function
            of (own client id, all client ids, queues), as `by_config`, `by_machine_room` and `nearby` make them.
        on_revoke: called with the queues that go to another member, or that `close` gives up: when the handlers at
            work on them have ended and before anybody else gets them; a function or a coroutine function, cut off
            after 0.5 s. Others wait 2 s at most: when handlers take longer, another member has the queues by then.
        retry_levels: the delay level of the first failure, the second, and so on; the last one is for all that follow. ():
            the broker's: 10 s, 30 s, 1 min, 2 min ... 2 h. Not for orderly consumers, which try again at once.
        offsets: keeps where the group goes on in the place of the brokers, which then know nothing of its lag.
    """

    model: ModelName
    strategy: StrategyName
    on_revoke: Revoked | None
    retry_levels: Sequence[int]
    offsets: OffsetStore | None


class StreamOptions(QueueOptions, LoopOptions, total=False):
    """Options of an iterator over a group's messages: `Client.consume`."""


class ServeOptions(TopicOptions, total=False):
    """Options of servers of requests: `Client.serve`.

    Attributes:
        concurrency: how many messages are handled at the same time, of all queues together (20). 1 handles them one
            after the other, yet promises no order when a message fails; that is `orderly`. With `batch` it is how many calls.
    """

    concurrency: int


class ConsumerOptions(ServeOptions, QueueOptions, total=False):
    """Options of a group's handlers: `Client.subscribe`, `App.consumer`.

    Attributes:
        orderly: handle each queue's messages one at a time, in order, under the broker's lock of the queue. A
            message that fails is tried again before the next one, which waits. `concurrency` queues run side by side.
    """

    orderly: bool


class PopOptions(LoopOptions, total=False):
    """Options of popping messages: `Client.pop`. `start_from` is StartFrom.FIRST or StartFrom.LAST.

    Attributes:
        invisible: how long, in seconds or as a timedelta, nobody else gets a message that was handed to us (60 s);
            `extend` prolongs it.
        batch: the most messages one request takes from a broker, 1 to 32 (16). They wait here with their time running:
            `batch` times what one message takes must be less than `invisible`.
        orderly: each queue's messages in order; a queue gives nothing more until all that it gave are settled.
        renew: prolong, by `invisible`, each message that the application holds and has not settled.
    """

    invisible: float | timedelta
    batch: int
    orderly: bool
    renew: bool


class ReaderOptions(TopicOptions, total=False):
    """Options of a reader: `Client.reader`.

    Attributes:
        batch: the most messages one request asks for (32); a broker may give fewer (Apache's: 32).
        auto_commit: how often, in seconds or as a timedelta, to commit what is done: messages before those of the last `poll`.
            0, the default: only `commit` does (Apache's: 5).
        max_messages, max_bytes: how much of all queues together is fetched ahead (10,000, 64 MiB); a queue may pass
            them by one batch.
    """

    batch: int
    auto_commit: float | timedelta
    max_messages: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Options of one member, checked.

    Attributes:
        subscriptions: topics, each with what is wanted of it.
        start_from: a StartFrom, or milliseconds since 1970.
        offsets: a store of the application's; None: the brokers', or, broadcasting, the local file.
        batch: how many messages the handler takes at once, in a list; 0: one, by itself.
    """

    group: str
    subscriptions: Mapping[str, Selection]
    model: Model = Model.CLUSTERING
    start_from: StartFrom | int = StartFrom.LAST
    concurrency: int = 20
    orderly: bool = False
    max_reconsume_times: int = -1
    strategy: Strategy = averagely
    on_revoke: Revoked | None = None
    retry_levels: tuple[int, ...] = ()
    batch: int = 0
    offsets: OffsetStore | None = None

    @property
    def consume_from_where(self) -> str:
        """Apache's word for `start_from`."""
        return "CONSUME_FROM_TIMESTAMP" if isinstance(self.start_from, int) else self.start_from
