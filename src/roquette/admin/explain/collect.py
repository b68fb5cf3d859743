"""What to ask whom about a message."""

import re
from collections.abc import Iterable
from typing import Final

from roquette.admin.cluster import masters_of
from roquette.admin.explain.facts import Attempt, BrokerFacts, Facts
from roquette.admin.explain.traces import attempts_in
from roquette.admin.left import Holdings, look_at
from roquette.admin.topics import list_topics
from roquette.client import calls, change_calls, inspection_calls
from roquette.client.find_requests import query, view
from roquette.client.operations import Operation, ask, ask_all
from roquette.errors import ClientError, ConfigError
from roquette.message.message import ReceivedMessage
from roquette.message.message_id import decode_offset_message_id, host_text
from roquette.message.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
)
from roquette.wire.bodies import ConsumerConnection

MOST: Final = 32
"""Messages of one key that a broker is asked for."""

_SYSTEM: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Masters = list[tuple[str, str]]


def collect(asked: str, topic: str | None, now_ms: int) -> Operation[list[Facts]]:
    """What brokers know of a message id or key: facts of each message it names; of one without copies if none does.

    Args:
        topic: None looks through all topics.

    Raises:
        ConfigError: no broker is there. ClientError: none answers.
    """
    masters = yield from masters_of()
    wanted, named = asked, topic
    placed = yield from _at_its_place(masters, asked)
    if placed is not None:
        wanted, named = placed.message_id, placed.origin_topic
    topics = [named] if named else (yield from list_topics())
    found: dict[tuple[str, str], list[ReceivedMessage]] = {}
    for name in topics:
        for copy in (yield from _find(masters, [name], wanted)):
            found.setdefault((name, copy.message_id), []).append(copy)
    if placed is not None and placed.origin_topic == placed.topic:
        known = found.setdefault((placed.topic, placed.message_id), [])
        if not any(copy.offset_message_id == placed.offset_message_id for copy in known):
            known.append(placed)
    waiting = yield from _find(masters, _SYSTEM, wanted)
    for copy in waiting:
        name = copy.properties.get("REAL_TOPIC", "")
        if not name.startswith((RETRY_PREFIX, DLQ_PREFIX)) and (named is None or name == named):
            found.setdefault((name, copy.message_id), [])
    if not found and named is None:
        raise ConfigError(
            f"no broker has {asked!r} in any topic: it never came, or is older than what is kept; "
            "--topic says more about one of them"
        )
    facts: list[Facts] = []
    for name, message_id in sorted(found) or [(named or "", wanted)]:
        copies = found.get((name, message_id), [])
        copies = copies + [copy for copy in waiting if copy.message_id == message_id]
        facts.append((yield from _facts(masters, (message_id, name, now_ms), copies)))
    return facts


def _at_its_place(masters: Masters, asked: str) -> Operation[ReceivedMessage | None]:
    """The message at the place that an offset message id names; None: it is no such id, or nothing is there."""
    try:
        host, offset = decode_offset_message_id(asked)
    except ValueError:
        return None
    address = host_text(host)
    name = next((name for name, known in masters if known == address), address)
    try:
        return (yield from ask(address, view(name, "", offset)))
    except ClientError:
        return None


def _find(masters: Masters, topics: Iterable[str], key: str) -> Operation[list[ReceivedMessage]]:
    asks = [
        (address, query(name, topic, key, MOST)) for name, address in masters for topic in topics
    ]
    answers = yield from ask_all(asks)
    return [message for answer in answers for message in answer.value or ()]


def _facts(
    masters: Masters, about: tuple[str, str, int], copies: list[ReceivedMessage]
) -> Operation[Facts]:
    message_id, topic, now_ms = about
    brokers: dict[str, BrokerFacts] = {}
    unreachable: dict[str, str] = {}
    for name, address in masters:
        try:
            brokers[name] = yield from _broker(address, topic)
        except ClientError as error:
            unreachable[name] = str(error)
    if not brokers:
        raise ClientError("no broker answers: " + "; ".join(unreachable.values()))
    groups = {
        group
        for broker in brokers.values()
        for group, read in broker.holdings.pairs
        if read == topic
    }
    failures = [
        name
        for group in sorted(groups)
        for name in (
            *(RETRY_PREFIX + group, DLQ_PREFIX + group),
            *(f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"),
        )
    ]
    more = yield from _find(masters, failures, message_id)
    attempts = yield from _attempts(masters, message_id)
    known = [copy for copy in [*copies, *more] if copy.queue.broker_name in brokers]
    return Facts(message_id, topic, now_ms, known, brokers, attempts, unreachable)


def _broker(address: str, topic: str) -> Operation[BrokerFacts]:
    holdings: Holdings = yield from look_at(address, [topic])
    configs = yield from ask(address, inspection_calls.topic_configs())
    groups = yield from ask(address, change_calls.group_configs())
    settings = yield from ask(address, inspection_calls.broker_settings())
    table = yield from ask(address, calls.runtime_info())
    readers = sorted({group for group, _ in holdings.pairs} | set(holdings.broadcasting))
    answers = yield from ask_all((address, calls.group_connections(group)) for group in readers)
    online: dict[str, ConsumerConnection] = {
        group: answer.value
        for group, answer in zip(readers, answers, strict=True)
        if answer.value is not None
    }
    delays = delays_ms(settings.get("messageDelayLevel", ""))
    first_ms = int(table.get("earliestMessageTimeStamp", "0"))
    return BrokerFacts(holdings, configs.get(topic), online, groups, delays, first_ms)


def delays_ms(levels: str) -> tuple[int, ...]:
    """The setting messageDelayLevel, such as `1s 5s 1m`, in milliseconds; a level that cannot be read is 0."""
    words = [re.fullmatch(r"(\d+)([smhd])", word) for word in levels.split()]
    return tuple(int(word[1]) * _UNITS[word[2]] if word else 0 for word in words)


def _attempts(masters: Masters, message_id: str) -> Operation[list[Attempt]]:
    """Who handled it, by the trace topic; none when nobody traces."""
    found = yield from _find(masters, [TRACE_TOPIC], message_id)
    return attempts_in(
        ((message.body.decode("utf-8", "replace"), message.born_host) for message in found),
        message_id,
    )
