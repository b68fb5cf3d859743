"""The newest messages of a topic before a place, by tags or SQL92, page by page. No group is made, and none is moved."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import msgspec

from roquette.admin.cluster import require_one
from roquette.admin.command import Flag, OperationReport, command
from roquette.admin.seek import QueuePlace, parse_place
from roquette.base.clock import Clock
from roquette.base.javatypes import whole_number
from roquette.base.options import counted
from roquette.client import calls
from roquette.client.calls import ANY_NAME_SERVER, EVERYTHING, Operation, PullFilter, ask, ask_all
from roquette.client.consumer_options import sql, subscription, wants
from roquette.client.core.route_cache import TopicRoute
from roquette.errors import ClientError, ConfigError
from roquette.message.message import MessageQueue, ReceivedMessage, received
from roquette.message.record import decode_records

READER: Final = "TOOLS_CONSUMER"
"""The group that looks are made for: Apache's tools have the same."""
AT_ONCE: Final = 32
"""Messages of one pull: what brokers give at most, unless they are set otherwise."""
MOST_READ: Final = 2_048
"""Messages that a page may read besides those it shows, of all queues together."""
MOST_BYTES: Final = 32 << 20
"""Of bodies: a page that has so much reads no further."""
_FIRST, _AT_MOST = 4, 256  # of a queue in a step: without a filter at first; with one
_UNREAD: Final = 2**63 - 1

Before = QueuePlace | Mapping[MessageQueue, int]
"""A place in each queue, or an offset by queue, as a page says where the next one begins."""


class MessageRow(msgspec.Struct, frozen=True):
    """A stored message in a line of a table; `size`: bytes of its body as it was sent."""

    id: str
    topic: str
    broker: str
    queue: int
    offset: int
    tag: str
    keys: str
    stored_ms: int
    size: int
    retries: int

    NARROW: ClassVar = ("retries", "size", "tag", "topic", "stored_ms", "keys")


def row_of(message: ReceivedMessage) -> MessageRow:
    """A message in a line."""
    return MessageRow(
        message.message_id,
        message.topic,
        message.queue.broker_name,
        message.queue.queue_id,
        message.queue_offset,
        message.tag or "",
        " ".join(message.keys),
        message.store_timestamp_ms,
        len(message.body),
        message.reconsume_times,
    )


class NewestPage(msgspec.Struct, frozen=True):
    """Messages, the newest first: by their store times, and those of a queue by their offsets.

    Attributes:
        read: how many were looked at.
        before: of each queue, the offset before which the next page begins. more: there is something before them.
        errors: brokers and queues that did not tell, and why.
    """

    messages: list[ReceivedMessage]
    read: int
    before: dict[MessageQueue, int]
    more: bool
    errors: list[str]


class _Reading:
    """A queue that is read backwards, between the offsets `low` and `high`.

    Attributes:
        begin: all from there on is read. found: what passes, each with its time, the newest first.
        oldest_ms: the time of the last of them. error: why it is read no further.
    """

    def __init__(self, address: str, queue: MessageQueue, low: int, high: int) -> None:
        self.address = address
        self.queue = queue
        self.low = low
        self.high = self.begin = high
        self.found: list[tuple[int, ReceivedMessage]] = []
        self.oldest_ms = _UNREAD
        self.error: ClientError | None = None

    @property
    def is_over(self) -> bool:
        return self.begin <= self.low or self.error is not None

    def take(self, begin: int, messages: list[ReceivedMessage]) -> None:
        """Add what passes, by offset, of the messages from an offset on to those that are read."""
        self.begin = begin
        for message in reversed(messages):
            # A broker's clock may go back: in a queue offsets decide, or a page would leave some out.
            self.oldest_ms = min(self.oldest_ms, message.store_timestamp_ms)
            self.found.append((self.oldest_ms, message))


def newest(
    topic: str,
    most: int,
    wanted: PullFilter = EVERYTHING,
    before: Before | None = None,
    queue: MessageQueue | None = None,
) -> Operation[NewestPage]:
    """Find the newest messages that pass a filter, up to `most`; fewer when bounds end it, and then `more` is True.

    Queues are merged by time, and each is read no further than that needs. When MOST_READ ends a page before each queue has
    given something that passes, later pages may have newer messages; none is left out or shown twice.

    Args:
        before: None: the ends. queue: only this one.

    Raises:
        RouteNotFound: there is no such topic. ConfigError: it has no such queue.
        ClientError: no broker tells, as when all refuse the filter.
    """
    readings, errors = yield from _ends(topic, before, queue)
    step = AT_ONCE if not wanted.takes_all else min(_FIRST, max(1, most // max(1, len(readings))))
    found = _merged(readings)
    while True:
        last_ms = found[most - 1][0] if len(found) >= most else -1
        read, size = sum(r.high - r.begin for r in readings), sum(len(m.body) for _, m in found)
        going = [r for r in readings if not r.is_over and r.oldest_ms > last_ms]
        if not going or read >= MOST_READ + most or size >= MOST_BYTES:
            break
        yield from _read(going, max(1, min(step, MOST_READ // len(going))), wanted)
        found = _merged(readings)
        step = min(2 * step, AT_ONCE if wanted.takes_all else _AT_MOST)
    broken = [r for r in readings if r.error is not None]
    if broken and len(broken) == len(readings) and not found:
        raise broken[0].error or ClientError("")
    errors += [f"{_words(r.queue)}: {' '.join(str(r.error).split())}" for r in broken]
    floor_ms = max((r.oldest_ms for r in readings if not r.is_over), default=-1)
    sure = [message for at_ms, message in found if at_ms >= floor_ms]
    shown = (sure or [message for _, message in found])[:most]
    begins = {r.queue: r.begin for r in readings}
    for _, message in found[len(shown) :]:
        begins[message.queue] = max(begins[message.queue], message.queue_offset + 1)
    more = any(begins[r.queue] > r.low for r in readings)
    return NewestPage(shown, read, begins, more, errors)


def _merged(readings: list[_Reading]) -> list[tuple[int, ReceivedMessage]]:
    found = [each for reading in readings for each in reading.found]
    return sorted(found, key=lambda e: (e[0], e[1].queue, e[1].queue_offset), reverse=True)


def _ends(
    topic: str, before: Before | None, wanted: MessageQueue | None
) -> Operation[tuple[list[_Reading], list[str]]]:
    """Ask where the queues begin and end; and the brokers that do not tell, with their reasons."""
    route = TopicRoute(topic, (yield from ask(ANY_NAME_SERVER, calls.route(topic))))
    named = {
        name: address
        for name in route.addresses
        if (wanted is None or name == wanted.broker_name)
        and (address := route.address_for_read(name))
    }
    told = yield from ask_all((address, calls.topic_stats(topic)) for address in named.values())
    require_one(told)
    errors: list[str] = []
    found: list[_Reading] = []
    for (name, address), answer in zip(named.items(), told, strict=True):
        errors += [f"{name}: {answer.reason}"] if answer.value is None else []
        for each, ends in answer.value.offset_table.items() if answer.value else ():
            if wanted in (None, each):
                low, high = max(0, ends.min_offset), max(0, ends.max_offset)
                found.append(_Reading(address, each, low, high))
    if wanted is not None and not found and not errors:
        raise ConfigError(f"topic {topic} has no queue {_words(wanted)}")
    yield from _begin(found, before)
    return found, errors


def _begin(readings: list[_Reading], before: Before | None) -> Operation[None]:
    """Set where they are read from."""
    if isinstance(before, QueuePlace) and before.kind == "time":
        at_ms = before.number
        asks = [(r.address, calls.offset_by_time(r.queue, at_ms)) for r in readings]
        for r, answer in zip(readings, (yield from ask_all(asks)), strict=True):
            r.error, r.high = answer.error, r.low if answer.value is None else answer.value
    elif isinstance(before, QueuePlace):
        for r in readings:
            r.high = before.at(r.low, r.high)
    elif before is not None:
        for r in readings:
            r.high = min(r.high, before.get(r.queue, r.high))
    for r in readings:
        r.begin = r.high = max(r.low, r.high)


def _read(going: list[_Reading], step: int, wanted: PullFilter) -> Operation[None]:
    """Read so many more of each, side by side."""
    chosen = subscription("", wanted.expression, 0) if wanted.kind == "TAG" else None
    got: dict[MessageQueue, list[ReceivedMessage]] = {r.queue: [] for r in going}
    starts = {r.queue: max(r.low, r.begin - step) for r in going}
    left = [(r, starts[r.queue]) for r in going]
    while left:
        answers = yield from ask_all(
            (r.address, calls.pull(READER, r.queue, at, min(AT_ONCE, r.begin - at), wanted))
            for r, at in left
        )
        further: list[tuple[_Reading, int]] = []
        for (reading, at), answer in zip(left, answers, strict=True):
            if answer.value is None:
                reading.error = answer.error
                continue
            for record in decode_records(answer.value.records):
                message = received(record, reading.queue.broker_name)
                # Brokers know tags by their hashes.
                if at <= message.queue_offset < reading.begin and (
                    chosen is None or wants(chosen, message)
                ):
                    got[reading.queue].append(message)
            after = answer.value.next_offset
            if after <= at:  # going on would leave out what is there
                reading.error = ClientError(f"nothing is given from offset {at} on")
            elif after < reading.begin:
                further.append((reading, after))
            else:
                reading.take(starts[reading.queue], got[reading.queue])
        left = further


# As people say it: places, and cursors of a page.


def _words(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


def cursor_of(before: Mapping[MessageQueue, int]) -> str:
    """Where the next page begins, as `parse_before` reads it."""
    return ",".join(f"{_words(queue)}:{at}" for queue, at in sorted(before.items()))


def parse_before(text: str | None, topic: str, now_ms: int) -> Before | None:
    """A place in each queue, such as @-1h, or a page's cursor, BROKER:QUEUE:OFFSET,...; raises ConfigError."""
    if text is None:
        return None
    if text.startswith("@") or ":" not in text:
        return parse_place(text, now_ms)
    found: dict[MessageQueue, int] = {}
    for word in text.split(","):
        queue, _, offset = word.rpartition(":")
        if (at := whole_number(offset, 2**63 - 1)) < 0:
            raise ConfigError(f"{word[:80]!r} is no place of a queue: say BROKER:QUEUE:OFFSET")
        found[parse_queue(queue, topic)] = at
    return found


def parse_queue(text: str, topic: str) -> MessageQueue:
    """BROKER:NUMBER of a topic; raises ConfigError."""
    broker, _, number = text.rpartition(":")
    if not broker or (queue := whole_number(number, 2**31 - 1)) < 0:
        raise ConfigError(f"{text[:80]!r} is no queue: say BROKER:NUMBER")
    return MessageQueue(topic, broker, queue)


def filter_of(tags: str, expression: str) -> PullFilter:
    """The filter of --tags and --sql; raises ConfigError when both are said, or the expression is none."""
    if expression and tags not in ("", "*"):
        raise ConfigError("say --tags or --sql, not both: TAGS IN ('a', 'b') goes into the latter")
    return PullFilter(sql(expression).expression, "SQL92") if expression else PullFilter(tags)


Tags = Annotated[str, Flag('--tag --tags "A || B"', "Only messages with one of these tags.")]
Expression = Annotated[
    str, Flag("--sql EXPRESSION", "Only what it lets pass (SQL92), as amount > 700.0.")
]
BeforePlace = Annotated[
    str | None,
    Flag(
        "--before PLACE", "Older ones: 120, -10, @-1h, @2026-09-01T10:00, or as the last page says."
    ),
]


@command(empty="no message there", watched=True)
def list_messages(
    clock: Clock,
    topic: str,
    *,
    before: BeforePlace = None,
    queue: Annotated[str | None, Flag("--queue BROKER:N", "Only of this one.")] = None,
    tags: Tags = "*",
    expression: Expression = "",
    most: Annotated[int, Flag("--most", "So many.", 1, 1_000)] = 40,
) -> Operation[OperationReport[list[MessageRow]]]:
    """List the newest messages of a topic, the newest first. No group is needed, and none is moved.

    Filters are the broker's own. It says how many messages were read, and where the next page begins.
    """
    place = parse_before(before, topic, clock.now_ms())
    one = None if queue is None else parse_queue(queue, topic)
    page = yield from newest(topic, most, filter_of(tags, expression), place, one)
    return OperationReport([row_of(each) for each in page.messages], notes=page_words(page))


def page_words(page: NewestPage) -> list[str]:
    """What of it was read, what was not, and where the next one begins."""
    words = [f"{each}: not looked at" for each in page.errors]
    older = f"; older: --before {cursor_of(page.before)}" if page.more else ""
    return [*words, f"{counted(page.read, 'message')} read{older}"]
