"""Options of consuming: each option stated once, and the value that a member is made of."""

import enum
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypedDict

import msgspec

from roquette.base.executor import in_threads
from roquette.base.javatypes import java_hash
from roquette.client.core.rebalance import Strategy, averagely
from roquette.errors import ConfigError, ExpressionError, MessageIllegal
from roquette.filter.tags import check_length
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.message.properties import encode_properties
from roquette.message.record_layout import StoredRecord
from roquette.wire.bodies import SubscriptionData

if TYPE_CHECKING:
    from roquette.filter.sql_eval import SqlFilter


# Selection of the messages of a topic that a consumer wants: tags, or an SQL92 expression over properties.
# Brokers leave out what is not wanted, by hashes of tags and as far as they can; here the text decides again. Apache: FilterAPI, MessageSelector.


_SQL_IN_TAGS: Final = re.compile(
    r"[<>=]|\s(and|or|not|in|like|is|between|contains|startswith|endswith)\b", re.IGNORECASE
)


class Sql(NamedTuple):
    """An SQL92 expression over a message's properties; made by `sql`."""

    expression: str


def sql(expression: str) -> Sql:
    """A filter such as `sql("price > 3 AND region IN ('eu', 'us')")`, for `filter=` of a consumer.

    Properties are texts; a comparison with a number reads them as numbers, and what is not one does not match. Tags are
    the property TAGS.

    Raises:
        ConfigError: it is no expression; the words say where.
    """
    if not isinstance(expression, str):
        raise ConfigError(f"sql() takes a text, not {type(expression).__name__}")
    try:
        _compiled(expression)
    except ExpressionError as error:
        raise ConfigError(f"filter {expression!r} is no SQL92 expression: {error}") from None
    return Sql(expression)


def _compiled(expression: str) -> "SqlFilter":
    """Raises ExpressionError. The language is loaded by whoever uses it."""
    from roquette.filter.sql_compile import compile_sql

    return compile_sql(expression)


Selection = str | Sql
"""What is wanted of a topic: tags as `*` or `a || b`, or an expression."""


def check_selection(topic: str, wanted: object) -> Selection:
    """Raises ConfigError: it is neither tags nor an expression."""
    if isinstance(wanted, Sql):
        return wanted
    if not isinstance(wanted, str):
        raise ConfigError(f"tags={wanted!r} of topic {topic} are no str, such as '*' or 'a || b'")
    try:
        check_length(wanted)
    except ExpressionError as error:
        raise ConfigError(f"tags of topic {topic}: {error}") from None
    if _SQL_IN_TAGS.search(wanted):
        raise ConfigError(
            f"tags={wanted!r} of topic {topic} is an expression, not a list of tags: pass filter=roquette.sql({wanted!r})"
        )
    return wanted


def subscription(topic: str, wanted: Selection, now_ms: int) -> SubscriptionData:
    """The selection as brokers want it (FilterAPI.build, buildSubscriptionData)."""
    if isinstance(wanted, Sql):
        return SubscriptionData(
            topic=topic,
            sub_string=wanted.expression,
            sub_version=now_ms,
            expression_type="SQL92",
        )
    words = [word.strip() for word in wanted.split("||")]
    tags = [word for word in words if word] if wanted.strip() not in ("", "*") else []
    return SubscriptionData(
        topic=topic,
        sub_string=wanted if tags else "*",
        tags_set=tags,
        code_set=[java_hash(tag) for tag in tags],
        sub_version=now_ms,
        expression_type="TAG",
    )


Matcher = Callable[[StoredRecord, ReceivedMessage], bool]


def matcher(wanted: SubscriptionData) -> Matcher | None:
    """Return the test of a message that a broker gave: True when it is wanted; None: every one is."""
    if wanted.expression_type == "SQL92":
        chosen = _compiled(wanted.sub_string)
        return lambda record, message: chosen.matches(record.properties.encode())
    if not wanted.tags_set:
        return None
    tags = frozenset(wanted.tags_set)
    return lambda record, message: message.tag in tags


def wants(wanted: SubscriptionData, message: ReceivedMessage) -> bool | None:
    """Return True when a subscription lets a stored message through; None: its expression cannot be read."""
    if wanted.expression_type == "SQL92":
        try:
            return _compiled(wanted.sub_string).matches(
                encode_properties(message.properties).encode()
            )
        except ExpressionError:
            return None
    return not wanted.tags_set or message.tag in wanted.tags_set


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


# Functions that an application gives, and their answers: one judge of handlers, checks, servers, stores and encoders.


if TYPE_CHECKING:
    from typing import Never

    from typing_extensions import TypeVar  # of the checkers: Python has it from 3.13 on

    V = TypeVar("V", default=Never, contravariant=True)  # noqa: PLC0105 - shown in signatures
else:
    from typing import TypeVar

    V = TypeVar("V", contravariant=True)  # noqa: PLC0105 - shown in signatures

Encode = Callable[[V], bytes]
"""Makes a body of a value."""


def check_function(what: str, function: object, *, waits: bool = True) -> None:
    """Refuse what would not run when it is called.

    Args:
        waits: whether a coroutine function may be given.

    Raises:
        ConfigError: it cannot be called, is a class or a generator function, or one of coroutines where none is awaited.
    """
    if not callable(function):
        raise ConfigError(f"{what}={function!r:.200} cannot be called")
    called: Any = getattr(type(function), "__call__", None)  # noqa: B004 - of an object that is one
    forms = (function, called)
    if isinstance(function, type):
        raise ConfigError(f"{what}={function!r:.200} is a class: give an object of it, or a method")
    if any(inspect.isgeneratorfunction(f) or inspect.isasyncgenfunction(f) for f in forms):
        raise ConfigError(
            f"{what}={function!r:.200} has a yield: a call of it makes a generator and runs nothing"
        )
    if not waits and any(inspect.iscoroutinefunction(f) for f in forms):
        raise ConfigError(
            f"{what}={function!r:.200} is a coroutine function, and nobody awaits it here: give a plain one"
        )


def for_loop(function: Callable[..., Any], most: int) -> Callable[..., Any]:
    """A function of an application as the loop may call it: a plain one in threads, `most` calls at a time, one of coroutines as it is."""
    called: Any = getattr(type(function), "__call__", None)  # noqa: B004 - of an object that is one
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        return function
    return in_threads(function, most, "roquette-handler")


def verdict(answer: object) -> bool | None:
    """None, True or False; raises TypeError for anything else: it was not understood, and is no success."""
    if answer is None or answer is True or answer is False:
        return answer
    raise not_understood(answer, "None, True nor False")


def not_understood(answer: object, wanted: str) -> TypeError:
    """The error for an answer that is none of what is wanted."""
    if inspect.iscoroutine(answer):
        answer.close()  # else Python warns of it, too
    return TypeError(f"it returned {answer!r:.80}, neither {wanted}")


async def outcome(answer: object) -> object:
    """Return the result of a call, awaited if it must be; raises TypeError: it made something that has not run."""
    found = await answer if isinstance(answer, Awaitable) else answer
    if inspect.isgenerator(found) or inspect.isasyncgen(found) or inspect.isawaitable(found):
        raise not_understood(found, "None nor a value")
    return found


def plain(call: Callable[..., Any], *words: object) -> Any:
    """Call a function of a program without an event loop and return its result; raises TypeError for what has not run."""
    found = call(*words)
    if inspect.isgenerator(found) or inspect.isasyncgen(found) or inspect.isawaitable(found):
        raise not_understood(found, "None nor a value: the blocking client calls plain functions")
    return found


def body_of(value: object, encode: Callable[[Any], bytes] | None = None) -> bytes:
    """The body that a value is, or is made into.

    Raises:
        TypeError: it is neither bytes nor str and there is no encoder, or the encoder made something else than bytes.
        MessageIllegal: the encoder raised, which is its cause.
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    kind = type(value).__name__
    if encode is None:
        raise TypeError(f"the body must be bytes or str, not {kind}; or say Client(encode=)")
    try:
        body = encode(value)
    except Exception as error:
        raise MessageIllegal(
            f"encode made no body of {kind}: {type(error).__name__}: {error}"[:500]
        ) from error
    if not isinstance(body, bytes):
        raise TypeError(f"encode made {type(body).__name__} of {kind}, not bytes")
    return body


# Values as bodies: JSON, as applications' decoders read it.


def to_json(value: object) -> bytes:
    """JSON of a dict, list, dataclass, TypedDict, msgspec.Struct, pydantic's model, number, date or of what has such in it.

    Raises:
        TypeError: it, or something in it, is none of these.
    """
    return msgspec.json.encode(value, enc_hook=_foreign)


def _foreign(value: Any) -> object:
    """Return a value that msgspec does not know as one that it does."""
    if hasattr(type(value), "model_dump"):  # pydantic's, which nothing here imports
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be made into JSON: {value!r:.80}")
