"""Letting a group go on elsewhere: first a plan with what it changes per queue, then the change."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec

from roquette.admin.cluster import masters_of
from roquette.admin.command import Flag, OperationPlan, OperationReport, command
from roquette.base.clock import Clock
from roquette.base.javatypes import whole_number
from roquette.client import calls
from roquette.client.calls import Answer, Operation, ask_all
from roquette.client.operator_calls import broker_settings, reset_by_time, reset_offset
from roquette.errors import BrokerError, ClientError, ConfigError
from roquette.message.message import MessageQueue
from roquette.wire.codes import ResponseCode

# Places in queues, as people name them: an end, a count from an end, an offset, a time.
# | word | place | |---|---| | `first`, `earliest` | the oldest message there is | | `last`, `latest` | behind the newest message | | `120` | that offset | | `-10` | ten messages before the end | | `+100` | a hundred messages after the start | | `@-1h` | the first message stored since then: ms, s, m, h, d | | `@2026-09-01T10:00` | the first message stored at that time or later; without a zone it is this machine's time | | `@1790000000000` | the same, in milliseconds since 1970 |


_SPAN: Final = re.compile(r"-(\d{1,12})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FORMS: Final = (
    "first, last, 120, -10 (before the end), +100 (after the start), @-1h or @2026-09-01T10:00"
)
_MOST: Final = 2**63 - 1


class QueuePlace(NamedTuple):
    """A place in any queue: either a time, or a number counted from an end, or an offset.

    Attributes:
        kind: "start" and "end" (count `number` from there), "offset", "time" (epoch milliseconds), or "group".
        group: of the last kind: where this one is.
    """

    kind: str
    number: int
    group: str = ""

    def at(self, low: int, high: int) -> int:
        """The offset in a queue with these ends, never outside of them; not for a time or a group."""
        wanted = {"start": low + self.number, "end": high + self.number, "offset": self.number}
        return max(low, min(wanted[self.kind], high))


def parse_place(text: str, now_ms: int) -> QueuePlace:
    """Parse what a word of people means; raises ConfigError."""
    words = text.strip()
    if words in ("first", "earliest"):
        return QueuePlace("start", 0)
    if words in ("last", "latest"):
        return QueuePlace("end", 0)
    if words.startswith("@"):
        return QueuePlace("time", _time(words[1:], text, now_ms))
    if words[:1] in ("+", "-") and whole_number(words[1:], _MOST) >= 0:
        return QueuePlace("start" if words[0] == "+" else "end", int(words))
    if (offset := whole_number(words, _MOST)) >= 0:
        return QueuePlace("offset", offset)
    raise ConfigError(f"{text!r} is no place in a queue: say {_FORMS}")


def _time(words: str, text: str, now_ms: int) -> int:
    if span := _SPAN.fullmatch(words):
        return max(0, now_ms - int(span[1]) * _UNITS_MS[span[2]])
    if (ms := whole_number(words, _MOST)) >= 0:
        return ms
    try:
        moment = datetime.fromisoformat(words)
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{text!r} is no time: say @-90m, @2026-09-01T10:00 or @2026-09-01T10:00+02:00"
        ) from None


_SERVER_SIDE: Final = "useServerSideResetOffset"  # else all queues, and to a time only


class SeekRow(msgspec.Struct, frozen=True):
    """One queue of a plan.

    Attributes:
        committed: where the group goes on now; -1: it has no offset there.
        target: where it will. `delta`: messages it gets again (negative) or never (positive).
        online: members are connected to the broker.
        error: why this queue was not changed.
    """

    topic: str
    broker: str
    queue: int
    first: int
    end: int
    committed: int
    target: int
    delta: int
    online: bool
    error: str = ""

    NARROW: ClassVar = ("first", "end", "online", "topic")
    SIGNED: ClassVar = ("delta",)


class SeekPlan(msgspec.Struct, frozen=True):
    """Plan of a reset, by broker and queue. `addresses`: of the masters, by name; `old`: those that cannot move members in one queue."""

    group: str
    topic: str
    place: QueuePlace
    rows: list[SeekRow]
    addresses: dict[str, str]
    old: list[str]


class _FoundQueue(NamedTuple):
    """A queue of the topic. `address`: of its broker's master; `first`, `end`: offsets."""

    broker: str
    address: str
    queue: MessageQueue
    first: int
    end: int


def plan_seek(
    group: str,
    topic: str,
    place: QueuePlace,
    queue: int | None = None,
    broker: str | None = None,
) -> Operation[SeekPlan]:
    """Plan where each queue of a topic would go on. Changes nothing.

    Args:
        queue: only this number, on every broker. broker: only on this one.

    Raises:
        ConfigError: there is no such topic, no such queue, or no offset of the group that is followed.
        ClientError: a broker that has the topic does not answer: a plan would be half of one.
    """
    masters = yield from masters_of(broker=broker)
    answers = yield from ask_all((address, calls.topic_stats(topic)) for _, address in masters)
    found: list[_FoundQueue] = []
    for (name, address), answer in zip(masters, answers, strict=True):
        if (
            isinstance(answer.error, BrokerError)
            and answer.error.code == ResponseCode.TOPIC_NOT_EXIST
        ):
            continue
        for each, ends in answer.get().offset_table.items():
            if queue is None or each.queue_id == queue:
                first, end = max(0, ends.min_offset), max(0, ends.max_offset)
                found.append(_FoundQueue(name, address, each, first, end))
    if not found:
        which = f"queue {queue} of topic" if queue is not None else "topic"
        raise ConfigError(
            f"no broker has {which} {topic}: 'roquette topic list' shows those there are"
        )
    found.sort(key=lambda each: (each.broker, each.queue.queue_id))
    before = yield from ask_all(
        (each.address, calls.committed_offset(group, each.queue, zero_if_new=False))
        for each in found
    )
    targets = yield from _targets(found, place)
    named = {each.broker: each.address for each in found}
    online = yield from ask_all(
        (address, calls.group_connections(group)) for address in named.values()
    )
    here = {name for name, answer in zip(named, online, strict=True) if answer.value is not None}
    settings = yield from ask_all((address, broker_settings()) for address in named.values())
    rows = [
        _row(each, answer, target, each.broker in here)
        for each, answer, target in zip(found, before, targets, strict=True)
    ]
    old = [name for name, setting in zip(named, settings, strict=True) if _is_old(setting)]
    return SeekPlan(group, topic, place, rows, named, old)


def _is_old(answer: Answer[dict[str, str]]) -> bool:
    """Brokers before 5.0, and those that are set so, read only the time of a reset, and would move every queue to it."""
    return answer.get().get(_SERVER_SIDE, "false") != "true"


def _targets(found: list[_FoundQueue], place: QueuePlace) -> Operation[list[int]]:
    if place.kind == "group":
        asked = yield from ask_all(
            (each.address, calls.committed_offset(place.group, each.queue, zero_if_new=False))
            for each in found
        )
        offsets = [answer.get() for answer in asked]
        if all(offset is None for offset in offsets):
            raise ConfigError(f"group {place.group} has no offset there: is the name right?")
        return [
            each.first if offset is None else max(each.first, min(offset, each.end))
            for each, offset in zip(found, offsets, strict=True)
        ]
    if place.kind != "time":
        return [place.at(each.first, each.end) for each in found]
    answers = yield from ask_all(
        (each.address, calls.offset_by_time(each.queue, place.number)) for each in found
    )
    return [
        max(each.first, min(answer.get(), each.end))
        for each, answer in zip(found, answers, strict=True)
    ]


def _row(found: _FoundQueue, answer: Answer[int | None], target: int, online: bool) -> SeekRow:
    committed = answer.get()
    now = -1 if committed is None else committed
    delta = target - now if now >= 0 else 0
    return SeekRow(
        found.queue.topic,
        found.broker,
        found.queue.queue_id,
        found.first,
        found.end,
        now,
        target,
        delta,
        online,
    )


def apply_seek(plan: SeekPlan) -> Operation[list[SeekRow]]:
    """Carry a plan out: the broker moves members that are online, else the offset is committed.

    Returns:
        The rows, with `error` where a broker refused.

    Raises:
        ConfigError: members are online at a broker without useServerSideResetOffset=true, which can move them to a time only: nothing was changed.
    """
    by_time: dict[str, int] = {}
    for name in {row.broker for row in plan.rows if row.online} & set(plan.old):
        if (time_ms := _whole_topic_time(plan)) is None:
            raise ConfigError(
                f"group {plan.group} is online at {name}, a broker without useServerSideResetOffset=true, which moves members only to first, last or "
                "a time, in all queues: stop the members first, or say one of these"
            )
        by_time[name] = time_ms
    asks = [
        (plan.addresses[row.broker], _change(plan.group, row))
        for row in plan.rows
        if row.broker not in by_time
    ]
    answers = iter((yield from ask_all(asks)))
    moved = yield from ask_all(
        (plan.addresses[name], reset_by_time(plan.group, plan.topic, time_ms))
        for name, time_ms in by_time.items()
    )
    told = dict(zip(by_time, moved, strict=True))
    return [
        _done(row, told[row.broker] if row.broker in told else next(answers)) for row in plan.rows
    ]


def _change(group: str, row: SeekRow) -> "calls.Call[None]":
    queue = MessageQueue(row.topic, row.broker, row.queue)
    if row.online:
        return reset_offset(group, queue, row.target)
    return calls.commit(group, queue, row.target)


def _whole_topic_time(plan: SeekPlan) -> int | None:
    """Return the time that a reset of all queues would be given; None when the plan is another one."""
    queues = {row.queue for row in plan.rows}
    if queues != set(range(len(queues))):
        return None
    if plan.place.kind == "time":
        return plan.place.number
    if plan.place.number == 0 and plan.place.kind in ("start", "end"):
        return 0 if plan.place.kind == "start" else -1
    return None


def _done(row: SeekRow, answer: Answer[None]) -> SeekRow:
    return msgspec.structs.replace(row, error=answer.reason) if answer.error else row


def _moved(rows: list[SeekRow], **_: object) -> OperationReport[list[SeekRow]]:
    return OperationReport(rows, failed=not_moved(rows))


@command(dry_run="Only show the plan.", confirmed=True, shows=_moved)
def seek_group(
    clock: Clock,
    group: str,
    *,
    topic: Annotated[str, Flag("--topic -t TOPIC")],
    to: Annotated[str | None, Flag("--to PLACE")] = None,
    like: Annotated[str | None, Flag("--like OTHER")] = None,
    queue: Annotated[int | None, Flag("--queue N", least=0)] = None,
    broker: str | None = None,
) -> Operation[OperationPlan[list[SeekRow]]]:
    """Let a group go on elsewhere: shows per queue what it gets again or never, asks, and does it.

    Members that are online are moved by their brokers (those without useServerSideResetOffset=true can move them to first, last or a time).

    Args:
        topic: Of which topic.
        to: first, last, 120, -10 (before the end), +100 (after the start), @-1h or @2026-09-01T10:00.
        like: In place of --to: where another group is.
        queue: Only this queue, on each broker.
        broker: Only queues of this broker.
    """
    if (to is None) == (like is None):
        raise ConfigError("say either --to PLACE or --like OTHER")
    place = QueuePlace("group", 0, like or "") if to is None else parse_place(to, clock.now_ms())
    plan = yield from plan_seek(group, topic, place, queue, broker)
    again = -sum(min(row.delta, 0) for row in plan.rows)
    never = sum(max(row.delta, 0) for row in plan.rows)
    asks = f"let group {group} get {again} messages again and never get {never}"
    new = all(row.committed < 0 and not row.online for row in plan.rows)
    note = f"group {group} has read nothing of topic {topic} yet: is the name right?"
    return OperationPlan(plan.rows, asks, apply_seek(plan), [note] if new else [])


def not_moved(rows: Sequence[SeekRow]) -> str:
    """Say what brokers refused, in words; "" when all is done."""
    failed = [row for row in rows if row.error]
    first = f"{failed[0].broker}: {failed[0].error}" if failed else ""
    return f"{len(failed)} of {len(rows)} queues were not changed: {first}" if failed else ""


def require_done(rows: Sequence[SeekRow]) -> None:
    """Raise ClientError when a broker refused a queue."""
    if words := not_moved(rows):
        raise ClientError(words)
