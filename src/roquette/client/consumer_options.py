"""How a member of a group consumes: its options as values, checked before anything happens."""

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from roquette.client.core.rebalance import Strategy, averagely
from roquette.client.selection import Selection
from roquette.message.message import MessageQueue


class Model(enum.Enum):
    """How a group shares messages."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class StartFrom(enum.StrEnum):
    """Where a group that has no offset yet begins in a queue; the values are Apache's ConsumeFromWhere.

    Attributes:
        LAST: after the newest message; what was sent earlier is never consumed.
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
        """Where the group goes on in a queue that is taken up; None: nothing is known, `start_from` says it."""
        ...

    def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> "Awaitable[object] | object":
        """Keep these: all messages before each are done. Called as a broker would be, also when queues are given up.

        A store whose handlers keep the offset with their result does nothing here, and its consumer is orderly: otherwise
        handlers end in any order, and the last offset kept says nothing of those before it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How one consumer consumes; `Client.subscribe` explains each option.

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
