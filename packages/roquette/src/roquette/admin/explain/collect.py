"""What to ask whom about a message."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import product
from typing import Annotated, Any, Final

from roquette.admin.catalogue import OWN, kind_of
from roquette.admin.cluster import (
    cluster_info,
    configs_of,
    gone_of,
    left_words,
    masters_in,
    system_names,
)
from roquette.admin.command import Flag, Printed, Report, command
from roquette.admin.explain.verdicts import UNFOUND, Attempt, BrokerEvidence, MessageFacts, explain
from roquette.admin.left import Holdings, look_at
from roquette.admin.stored import MOST, full_words
from roquette.base.clock import Clock
from roquette.base.javatypes import whole_number
from roquette.client import calls, operator_calls
from roquette.client.operations import AT_ONCE, Answer, Operation, ask, ask_all, together
from roquette.client.operator_calls import query, view
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

# Message trace, as Apache's clients and ours write it, read for one message: pure.


_FIELD, _RECORD = "\x01", "\x02"
_MOST = 2**63 - 1


def attempts_in(texts: Iterable[tuple[str, str]], message_id: str) -> list[Attempt]:
    """Who handled a message, of trace messages' (body, sender's host), by the time it began.

    Records of other messages, and those that cannot be read, are left out.
    """
    begun: dict[str, Attempt] = {}
    ended: dict[str, bool] = {}
    for text, host in texts:
        for record in text.split(_RECORD):
            fields = record.strip().split(_FIELD)
            if fields[0] == "SubBefore" and len(fields) >= 7 and fields[5] == message_id:
                _, at_ms, _, group, request, _, retries, *_ = fields
                begun_ms, times = whole_number(at_ms, _MOST), whole_number(retries, _MOST)
                if begun_ms >= 0 and times >= 0:
                    group = group.rpartition("%")[2]
                    begun[request] = Attempt(group, host, begun_ms, times, None)
            elif fields[0] == "SubAfter" and len(fields) >= 5 and fields[2] == message_id:
                ended[fields[1]] = fields[4] == "true"
    found = [
        Attempt(each.group, each.host, each.begun_ms, each.retries, ended.get(request))
        for request, each in begun.items()
    ]
    return sorted(found, key=lambda each: each.begun_ms)


_SYSTEM: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Masters = list[tuple[str, str]]


@command()
def explain_message(
    clock: Clock,
    message: Annotated[str, Flag("ID|KEY")],
    *,
    topic: str | None = None,
) -> Operation[Report[list[dict[str, Any]]]]:
    """Say what became of a message: where it is, who got it or why not, and how that is known.

    Takes a message id, an offset message id or a key. The verdicts: docs/howto/explain.md.

    Args:
        topic: Where it was sent; else all topics.
    """
    found = yield from collect(message, topic, clock.now_ms())
    value: list[dict[str, Any]] = []
    shown: list[str] = []
    for facts in found:
        verdicts = explain(facts)
        plain = [asdict(verdict) for verdict in verdicts]
        value.append({"message_id": facts.asked, "topic": facts.topic, "verdicts": plain})
        shown.append(Printed(f"{facts.asked} in {facts.topic}"))
        for verdict in verdicts:
            who = f"group {verdict.group}: " if verdict.group else ""
            shown.append(Printed(f"  {verdict.code:16} {who}{verdict.says}"))
            if verdict.evidence:
                shown.append(Printed(f"  {'':16}   {verdict.evidence}"))
    if len(found) > 1:
        shown.append(f"{len(found)} messages have this key")
    copies = [copy for facts in found for copy in facts.copies if copy.topic == facts.topic]
    return Report(value, shown, full_words(copies, MOST))


def collect(asked: str, topic: str | None, now_ms: int) -> Operation[list[MessageFacts]]:
    """What brokers know of a message id or key: facts of each message it names; of one without copies if none does.

    Args:
        topic: None looks through all topics.

    Raises:
        ConfigError: no broker is there. ClientError: none answers.
    """
    info = yield from cluster_info()
    masters = masters_in(info)
    away = {gone.broker_name: left_words(gone) for gone in gone_of([info]) if not gone.broker_id}
    away = {name: words for name, words in away.items() if name not in dict(masters)}
    wanted, named = asked, topic
    placed = yield from _at_its_place(masters, asked)
    if placed is not None:
        wanted, named = placed.message_id, placed.origin_topic
    found: dict[tuple[str, str], list[ReceivedMessage]] = {}
    for copy in (yield from _copies(masters, wanted, named, system_names(info))):
        found.setdefault((copy.topic, copy.message_id), []).append(copy)
    if placed is not None and placed.origin_topic == placed.topic:
        known = found.setdefault((placed.topic, placed.message_id), [])
        if not any(copy.offset_message_id == placed.offset_message_id for copy in known):
            known.append(placed)
    waiting = yield from _find(product(_SYSTEM, masters), wanted)
    for copy in waiting:
        name = copy.properties.get("REAL_TOPIC", "")
        if not name.startswith((RETRY_PREFIX, DLQ_PREFIX)) and (named is None or name == named):
            found.setdefault((name, copy.message_id), [])
    if not found and named is None:
        raise ConfigError(
            f"no broker has {asked!r} in any topic: {UNFOUND}; --topic says more about one of them"
        )
    facts: list[MessageFacts] = []
    brokers: dict[str, list[Answer[BrokerEvidence]]] = {}
    for name, message_id in sorted(found) or [(named or "", wanted)]:
        copies = found.get((name, message_id), [])
        copies = copies + [copy for copy in waiting if copy.message_id == message_id]
        if name not in brokers:
            brokers[name] = yield from together(_broker(address, name) for _, address in masters)
        about = message_id, name, now_ms
        facts.append((yield from _facts(masters, about, copies, brokers[name], away)))
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


def _copies(
    masters: Masters, wanted: str, topic: str | None, own: set[str]
) -> Operation[list[ReceivedMessage]]:
    """The messages of an id or key in a topic; without one, in all topics of users: batch by batch, of an id until one has it."""
    if topic is not None:
        return (yield from _find(product([topic], masters), wanted))
    answers = yield from ask_all((address, calls.topics_of_broker()) for _, address in masters)
    places = sorted(
        (name, place)
        for place, answer in zip(masters, answers, strict=True)
        for name in answer.value or ()
        if kind_of(name, own) == OWN
    )
    copies: list[ReceivedMessage] = []
    for start in range(0, len(places), AT_ONCE):
        copies += yield from _find(places[start : start + AT_ONCE], wanted)
        if any(copy.message_id == wanted for copy in copies):
            break
    return copies


def _find(
    places: Iterable[tuple[str, tuple[str, str]]], key: str
) -> Operation[list[ReceivedMessage]]:
    """What is found of a key in topics at brokers."""
    answers = yield from ask_all(
        (address, query(broker, topic, key, MOST)) for topic, (broker, address) in places
    )
    return [message for answer in answers for message in answer.value or ()]


def _facts(
    masters: Masters,
    about: tuple[str, str, int],
    copies: list[ReceivedMessage],
    told: Sequence[Answer[BrokerEvidence]],
    away: dict[str, str],
) -> Operation[MessageFacts]:
    message_id, topic, now_ms = about
    named = [(name, answer) for (name, _), answer in zip(masters, told, strict=True)]
    brokers = {name: answer.value for name, answer in named if answer.value is not None}
    unreachable = away | {name: answer.reason for name, answer in named if answer.error is not None}
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
    more = yield from _find(product(failures, masters), message_id)
    attempts = yield from _attempts(masters, message_id)
    known = [copy for copy in [*copies, *more] if copy.queue.broker_name in brokers]
    return MessageFacts(message_id, topic, now_ms, known, brokers, attempts, unreachable)


def _broker(address: str, topic: str) -> Operation[BrokerEvidence]:
    holdings: Holdings = yield from look_at(address, [topic])
    (config,) = yield from configs_of(topic, [address])
    groups = yield from ask(address, operator_calls.group_configs())
    settings = yield from ask(address, operator_calls.broker_settings())
    table = yield from ask(address, calls.runtime_info())
    delays = delays_ms(settings.get("messageDelayLevel", ""))
    first_ms = int(table.get("earliestMessageTimeStamp", "0"))
    return BrokerEvidence(holdings, config.get(), groups, delays, first_ms)


def delays_ms(levels: str) -> tuple[int, ...]:
    """The setting messageDelayLevel, such as `1s 5s 1m`, in milliseconds; a level that cannot be read is 0."""
    words = [re.fullmatch(r"(\d+)([smhd])", word) for word in levels.split()]
    return tuple(int(word[1]) * _UNITS[word[2]] if word else 0 for word in words)


def _attempts(masters: Masters, message_id: str) -> Operation[list[Attempt]]:
    """Who handled it, by the trace topic; none when nobody traces."""
    found = yield from _find(product([TRACE_TOPIC], masters), message_id)
    return attempts_in(
        ((message.body.decode("utf-8", "replace"), message.born_host) for message in found),
        message_id,
    )
