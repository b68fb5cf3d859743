"""Positions as people write them in options: words, offsets per queue, times per topic, broker or queue. Pure."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from roquette.base.options import OptionKind, Unfit

T = TypeVar("T")
Times = tuple[tuple[str, str, int, int], ...]
"""(topic, broker_name or "", queue_id or -1, timestamp in ms): "" and -1 mean all."""

EARLIEST = -2
LATEST = -1
GROUP = -3  # where the consumer group goes on; never in JSON


@dataclass(frozen=True, slots=True)
class Position:
    """Position at which to begin or end: what `queues` or `times` names, by `timestamp_ms` if it is set, else `default`.

    Attributes:
        default: EARLIEST, LATEST or GROUP.
        timestamp_ms: the first message stored then or later, in every queue.
        queues: (topic, broker_name, queue_id, offset); offsets are queue offsets, or EARLIEST or LATEST.
        saved: `queues` are from a checkpoint or `frozen_options`: a queue they lack was made later, and `default` is its
            start. Otherwise people have written them, and each queue that is read must be there.
        latest_without_match: a queue without a message that late begins at its end; otherwise it is an error.
    """

    default: int = EARLIEST
    timestamp_ms: int | None = None
    queues: tuple[tuple[str, str, int, int], ...] = ()
    times: Times = ()
    latest_without_match: bool = False
    saved: bool = False

    def leaves_start_open(self, topic: str, broker_name: str, queue_id: int) -> bool:
        """Return True if a queue begins at what the broker has, or where a group is."""
        place = topic, broker_name, queue_id
        if self.timestamp_ms is not None:
            return False
        if any(
            time[:3] in (place, (topic, broker_name, -1), (topic, "", -1)) for time in self.times
        ):
            return False
        named = {each[:3]: each[3] for each in self.queues}
        return named.get(place, self.default) in (EARLIEST, GROUP)


def position_of(
    default: int,
    timestamp_ms: int | None,
    times: Times | None,
    offsets: Position | None,
    lenient: bool,
) -> Position | None:
    """The position that options give; None when none does.

    Precedence is that of Spark's Kafka source: timestamp, offsets by timestamp, offsets.
    """
    if timestamp_ms is not None:
        return Position(default, timestamp_ms=timestamp_ms, latest_without_match=lenient)
    if times is not None:
        return Position(default, times=times, latest_without_match=lenient)
    return offsets


def _of_json(read: Callable[[Any], T]) -> Callable[[str], T]:
    """A parser of JSON texts; JSON of another shape is a ValueError."""

    def parse(text: str) -> T:
        try:
            return read(json.loads(text))
        except (AttributeError, TypeError):
            raise ValueError from None

    return parse


def _at_offsets(default: int, value: Any, least: int) -> Position:
    """Read {"topic":{"broker-a":{"0":23,"1":-1}}}, also as our checkpoints write it (under "offsets")."""
    saved = value.get("v") == 1 and isinstance(value.get("offsets"), dict)
    found = [
        (str(topic), str(broker), _whole(queue), _whole(offset))
        for topic, brokers in (value["offsets"] if saved else value).items()
        for broker, queues in brokers.items()
        for queue, offset in queues.items()
    ]
    for topic, broker, queue, offset in found:
        if offset < least:
            empty = "would read nothing"
            why = empty if offset == EARLIEST else "is invalid; -2 is earliest, -1 latest"
            raise Unfit(f"offset {offset} of {topic} {broker} {queue} {why}")
    if not found and not saved:
        raise Unfit("no queue is named")
    return Position(default, queues=tuple(sorted(found)), saved=saved)


def _starting(text: str) -> Position:
    words = {"earliest": EARLIEST, "latest": LATEST, "group": GROUP}
    if text.lower() in words:
        return Position(words[text.lower()])
    return _of_json(lambda value: _at_offsets(EARLIEST, value, EARLIEST))(text)


def _ending(text: str) -> Position:
    if text.lower() == "latest":
        return Position(LATEST)
    return _of_json(lambda value: _at_offsets(LATEST, value, LATEST))(text)


def _times(value: Any) -> Iterator[tuple[str, str, int, int]]:
    """Read {"topic":{"broker-a":{"0":1700000000000}}}; a number may stand for a whole broker or topic."""
    for topic, brokers in value.items():
        if isinstance(brokers, int):
            yield str(topic), "", -1, _time(brokers)
            continue
        for broker, queues in brokers.items():
            if isinstance(queues, int):
                yield str(topic), str(broker), -1, _time(queues)
                continue
            for queue, at_ms in queues.items():
                yield str(topic), str(broker), _whole(queue), _time(at_ms)


def _assigned(value: Any) -> tuple[tuple[str, str, int], ...]:
    """Read {"topic":{"broker-a":[0,1]}}."""
    found = {
        (str(topic), str(broker), _whole(queue))
        for topic, brokers in value.items()
        for broker, queues in brokers.items()
        for queue in queues
    }
    if not found or any(queue < 0 for _, _, queue in found):
        raise ValueError
    return tuple(sorted(found))


_queues = _of_json(_assigned)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("not a whole number")
    return int(value)


def _time(value: object) -> int:
    at_ms = _whole(value)
    if at_ms < 0:
        raise ValueError("before 1970")
    return at_ms


_OFFSETS: Final = 'JSON such as {"topic":{"broker-a":{"0":23,"1":-1}}}'
STARTING: Final = OptionKind(wanted=f"earliest, latest, group or {_OFFSETS}", parse=_starting)
ENDING: Final = OptionKind(wanted=f"latest or {_OFFSETS}", parse=_ending)
TIMES: Final = OptionKind(
    wanted='JSON with milliseconds, such as {"topic":1700000000000} or {"topic":{"broker-a":{"0":1700000000000}}}',
    parse=_of_json(lambda value: tuple(sorted(_times(value)))),
)
ASSIGNED: Final = OptionKind(
    wanted='JSON such as {"topic":{"broker-a":[0,1]}}',
    parse=lambda text: _queues(text) if text else (),
)
