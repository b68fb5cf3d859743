"""Positions as people write them in options: words, offsets per queue, times per topic, broker or queue. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from roquette.errors import ConfigError
from roquette.spark.option_values import OptionValues

EARLIEST = -2
LATEST = -1
GROUP = -3  # where the consumer group goes on; never in JSON


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or end: what `queues` or `times` names, by `timestamp_ms` if it is set, else `default`.

    Attributes:
        default: EARLIEST, LATEST or GROUP.
        timestamp_ms: the first message stored then or later, in every queue.
        queues: (topic, broker_name, queue_id, offset); offsets are queue offsets, or EARLIEST or LATEST.
        times: (topic, broker_name or "", queue_id or -1, timestamp in ms): "" and -1 mean all.
        latest_without_match: a queue without a message that late begins at its end; otherwise it is an error.
    """

    default: int = EARLIEST
    timestamp_ms: int | None = None
    queues: tuple[tuple[str, str, int, int], ...] = ()
    times: tuple[tuple[str, str, int, int], ...] = ()
    latest_without_match: bool = False


def read_position(given: OptionValues, side: str) -> Position | None:
    """The position of "starting" or "ending"; None when no option tells one.

    Precedence is that of Spark's Kafka source: timestamp, offsets by timestamp, offsets.
    """
    offsets, timestamp, by_time = f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    lenient = side == "ending" or (
        given.choice("startingOffsetsByTimestampStrategy", "error", "latest") == "latest"
    )
    default = EARLIEST if side == "starting" else LATEST
    if given.given(timestamp):
        at_ms = given.integer(timestamp, 0, least=0)
        return Position(default, timestamp_ms=at_ms, latest_without_match=lenient)
    if given.given(by_time):
        times = tuple(sorted(_times(given, by_time)))
        return Position(default, times=times, latest_without_match=lenient)
    if not given.given(offsets):
        return None
    text = given.text(offsets)
    word = text.lower()
    if side == "starting" and word in {"earliest", "latest", "group"}:
        return Position({"earliest": EARLIEST, "latest": LATEST, "group": GROUP}[word])
    if side == "ending" and word == "latest":
        return Position(LATEST)
    return Position(default, queues=tuple(sorted(_offsets(given, offsets, text))))


def _offsets(given: OptionValues, name: str, text: str) -> Iterator[tuple[str, str, int, int]]:
    """Read {"topic":{"broker-a":{"0":23,"1":-1}}}, also as our checkpoints write it (under "offsets")."""
    words = "earliest, latest, group" if name == "startingOffsets" else "latest"
    try:
        value = json.loads(text)
        if value.get("v") == 1 and isinstance(value.get("offsets"), dict):
            value = value["offsets"]
        found = [
            (str(topic), str(broker), _whole(queue), _whole(offset))
            for topic, brokers in value.items()
            for broker, queues in brokers.items()
            for queue, offset in queues.items()
        ]
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            f"{given.source}: option {name} must be {words} or JSON such as "
            f'{{"topic":{{"broker-a":{{"0":23,"1":-1}}}}}}, not {text[:80]!r}'
        ) from None
    for topic, broker, queue, offset in found:
        if offset < EARLIEST or (name == "endingOffsets" and offset == EARLIEST):
            raise ConfigError(
                f"{given.source}: option {name}: offset {offset} of {topic} {broker} {queue} "
                + (
                    "would read nothing"
                    if offset == EARLIEST
                    else "is none; -2 is earliest, -1 latest"
                )
            )
        yield topic, broker, queue, offset


def _times(given: OptionValues, name: str) -> Iterator[tuple[str, str, int, int]]:
    """Read {"topic":{"broker-a":{"0":1700000000000}}}; a number may stand for a whole broker or topic."""
    text = given.text(name)
    try:
        for topic, brokers in json.loads(text).items():
            if isinstance(brokers, int):
                yield str(topic), "", -1, _time(brokers)
                continue
            for broker, queues in brokers.items():
                if isinstance(queues, int):
                    yield str(topic), str(broker), -1, _time(queues)
                    continue
                for queue, at_ms in queues.items():
                    yield str(topic), str(broker), _whole(queue), _time(at_ms)
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            f"{given.source}: option {name} must be JSON with milliseconds, such as "
            f'{{"topic":1700000000000}} or {{"topic":{{"broker-a":{{"0":1700000000000}}}}}}, '
            f"not {text[:80]!r}"
        ) from None


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("not a whole number")
    return int(value)


def _time(value: object) -> int:
    at_ms = _whole(value)
    if at_ms < 0:
        raise ValueError("before 1970")
    return at_ms


def read_assigned(given: OptionValues) -> tuple[tuple[str, str, int], ...]:
    """The queues of option assign: {"topic":{"broker-a":[0,1]}}."""
    text = given.text("assign")
    try:
        found = [
            (str(topic), str(broker), _whole(queue))
            for topic, brokers in json.loads(text).items()
            for broker, queues in brokers.items()
            for queue in queues
        ]
    except (ValueError, AttributeError, TypeError):
        found = []
    if not found or any(queue < 0 for _, _, queue in found):
        raise ConfigError(
            f'{given.source}: option assign must be JSON such as {{"topic":{{"broker-a":[0,1]}}}}, '
            f"not {text[:80]!r}"
        )
    return tuple(sorted(set(found)))
