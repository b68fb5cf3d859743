"""Explanation of why a message did or did not arrive: what is asked of whom about it, and what the answers mean."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import product
from typing import Annotated, Any, Final

from roquette.admin.catalogue import OWN, kind_of
from roquette.admin.cluster import (
    TRANS_GROUP,
    Holdings,
    cluster_info,
    configs_of,
    gone_of,
    left_words,
    look_at,
    masters_in,
    system_names,
)
from roquette.admin.command import Flag, OperationReport, Printed, command
from roquette.admin.stored import MOST, RESENT_OF, full_words
from roquette.base.clock import Clock
from roquette.base.javatypes import whole_number
from roquette.base.options import counted
from roquette.client import calls, operator_calls
from roquette.client.calls import Answer, Operation, ask, ask_all, together
from roquette.client.consumer_options import wants
from roquette.client.operator_calls import query, view
from roquette.errors import ClientError, ConfigError
from roquette.message.message import ReceivedMessage
from roquette.message.message_id import decode_offset_message_id, host_text
from roquette.message.names import (
    DLQ_PREFIX,
    PERM_READ,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
)
from roquette.message.properties import DELAY, REAL_TOPIC, TIMER_OUT_MS, TRANSACTION_CHECK_TIMES
from roquette.wire.bodies import ClusterInfo
from roquette.wire.bodies.tables import SubscriptionGroupConfig, TopicConfig

# From facts to verdicts: pure.


# Facts of a message: where it and its copies lie, who reads, and where each reader is.


UNFOUND: Final = "it never came, is older than what is kept, or is on a broker that name servers do not know any more"


@dataclass(frozen=True)
class BrokerEvidence:
    """One broker.

    Attributes:
        topic: the topic as the broker has it; None: it has none.
        groups: the configurations of groups.
        delays_ms: of each delay level, from level 1 on.
        first_ms: when the oldest message of its log was stored.
    """

    holdings: Holdings
    topic: TopicConfig | None
    groups: dict[str, SubscriptionGroupConfig]
    delays_ms: tuple[int, ...]
    first_ms: int


@dataclass(frozen=True)
class Attempt:
    """A member handled the message, as its trace says. `ok` is None when no end of it was traced."""

    group: str
    host: str
    begun_ms: int
    retries: int
    ok: bool | None


@dataclass(frozen=True)
class MessageFacts:
    """All of it.

    Attributes:
        copies: the message wherever it was found: in its topic, among delayed ones, half messages, retries, dead letters.
        unreachable: brokers that did not answer or are not there, and why.
        resent: messages that an operator made of it, in its topic; they are found by its first key.
    """

    asked: str
    topic: str
    now_ms: int
    copies: list[ReceivedMessage]
    brokers: dict[str, BrokerEvidence]
    attempts: list[Attempt] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    resent: list[ReceivedMessage] = field(default_factory=list)


@dataclass(frozen=True)
class MessageVerdict:
    """One thing that happened, or did not, and how it is known.

    Attributes:
        code: the kind of verdict; docs/reference/explain.md lists them.
        group: whom it concerns; "" for everybody.
        evidence: what was looked at.
        broker: where; "" for everywhere. topic, message: which it is about, as it was asked for.
    """

    code: str
    group: str
    says: str
    evidence: str
    broker: str = ""
    topic: str = ""
    message: str = ""


Verdicts = Iterator[MessageVerdict]


def explain(facts: MessageFacts) -> list[MessageVerdict]:
    """Explain what became of the message: where it is, what holds it back, and each group's part."""
    stored = [copy for copy in facts.copies if copy.topic == facts.topic]
    found = [
        *_missing(facts),
        *_stored(stored),
        *_delayed(facts, stored),
        *_timed(facts, stored),
        *_transaction(facts, stored),
    ]
    for copy in stored:
        where = copy.queue.broker_name
        found += [replace(each, broker=where) for each in _readers(facts, copy)]
    found += _failures(facts)
    found += _resent(facts)
    for broker, reason in sorted(facts.unreachable.items()):
        found.append(
            MessageVerdict(
                "unknown", "", f"{broker} was not asked: it may have more", reason, broker
            )
        )
    return [replace(each, topic=facts.topic, message=facts.asked) for each in found]


def _missing(facts: MessageFacts) -> Verdicts:
    if facts.copies:
        return
    if not any(broker.topic for broker in facts.brokers.values()):
        yield MessageVerdict(
            "topic-gone", "", f"no broker has a topic {facts.topic}: its messages went with it", ""
        )
        return
    oldest = "; ".join(
        f"{name} begins at {_time(broker.first_ms)}"
        for name, broker in sorted(facts.brokers.items())
    )
    yield MessageVerdict(
        "not-found",
        "",
        f"no broker has {facts.asked!r} in {facts.topic}: {UNFOUND}",
        f"index of the brokers that answer; {oldest}",
    )


def _stored(stored: list[ReceivedMessage]) -> Verdicts:
    for copy in stored:
        says = f"stored at {_time(copy.store_timestamp_ms)} by {copy.queue.broker_name}"
        evidence = f"{_place(copy)}, sent by {copy.born_host}, tag {copy.tag or 'none'}"
        yield MessageVerdict("stored", "", says, evidence, copy.queue.broker_name)
    if len(stored) > 1:
        text = (
            f"{len(stored)} messages have this id or key: sent more than once, or delivered again"
        )
        yield MessageVerdict("several", "", text, ", ".join(map(_place, stored)))


def _delayed(facts: MessageFacts, stored: list[ReceivedMessage]) -> Verdicts:
    for copy in facts.copies:
        if copy.topic != SCHEDULE_TOPIC:
            continue
        broker = facts.brokers[copy.queue.broker_name]
        level = int(copy.properties.get(DELAY, "0"))
        progress = broker.holdings.delays.get(copy.queue.queue_id + 1, 0)
        evidence = f"{_place(copy)}, delivered up to offset {progress}"
        target = copy.properties.get(REAL_TOPIC, facts.topic)
        if progress > copy.queue_offset:
            if stored and target == facts.topic:
                yield MessageVerdict(
                    "delay-over",
                    "",
                    f"waited at delay level {level}, and was put to {target}",
                    evidence,
                    copy.queue.broker_name,
                )
            continue
        wait_ms = broker.delays_ms[level - 1] if 0 < level <= len(broker.delays_ms) else 0
        due = _due(copy.store_timestamp_ms + wait_ms, facts.now_ms)
        group = target.removeprefix(RETRY_PREFIX) if target.startswith(RETRY_PREFIX) else ""
        yield MessageVerdict(
            "delayed",
            group,
            f"waits at delay level {level} for {target}: {due}",
            evidence,
            copy.queue.broker_name,
        )


def _timed(facts: MessageFacts, stored: list[ReceivedMessage]) -> Verdicts:
    for copy in facts.copies:
        if copy.topic == TIMER_TOPIC and not stored:
            due_ms = int(copy.properties.get(TIMER_OUT_MS, "0"))
            says = f"is to be delivered at a time of its own: {_due(due_ms, facts.now_ms)}"
            if due_ms <= facts.now_ms:
                says += "; it was recalled, or the broker is late"
            yield MessageVerdict("timed", "", says, _place(copy), copy.queue.broker_name)


def _transaction(facts: MessageFacts, stored: list[ReceivedMessage]) -> Verdicts:
    halves = [copy for copy in facts.copies if copy.topic == TRANS_HALF_TOPIC]
    if not halves:
        return
    half = max(halves, key=lambda copy: (copy.store_timestamp_ms, copy.queue_offset))
    checks = max(0, whole_number(half.properties.get(TRANSACTION_CHECK_TIMES, "0"), _MOST))
    evidence = f"half message at {_place(half)}, checked {counted(checks, 'time')}"
    where = half.queue.broker_name
    if stored:
        yield MessageVerdict("committed", "", "its transaction was committed", evidence, where)
        return
    if any(copy.topic == TRANS_CHECK_MAX_TIME_TOPIC for copy in facts.copies):
        says = "its producer never said what became of the transaction: the broker has given up"
        yield MessageVerdict(
            "given-up", "", says, f"{evidence}; it is in {TRANS_CHECK_MAX_TIME_TOPIC}", where
        )
        return
    places = facts.brokers[half.queue.broker_name].holdings.places
    progress = places.get((TRANS_GROUP, TRANS_HALF_TOPIC), {}).get(half.queue.queue_id, 0)
    evidence += f"; transactions are ended up to offset {progress}"
    if half.queue_offset >= progress:
        yield MessageVerdict(
            "open", "", "its transaction is neither committed nor rolled back yet", evidence, where
        )
    else:
        yield MessageVerdict(
            "rolled-back", "", "its transaction was rolled back: nobody gets it", evidence, where
        )


def _readers(facts: MessageFacts, copy: ReceivedMessage) -> Verdicts:
    broker = facts.brokers[copy.queue.broker_name]
    if broker.topic is None:
        says = f"{copy.queue.broker_name} has no topic {facts.topic} any more: nobody can read it"
        yield MessageVerdict("topic-gone", "", says, _place(copy))
        return
    groups = sorted(
        {group for group, topic in broker.holdings.pairs if topic == facts.topic}
        | {
            group
            for group in broker.holdings.broadcasting
            if facts.topic in broker.holdings.online[group].subscription_table
        }
    )
    if not groups:
        yield MessageVerdict(
            "nobody", "", f"no group reads {facts.topic} at {copy.queue.broker_name}", _place(copy)
        )
    for group in groups:
        yield _reader(facts, copy, broker, group)


def _reader(
    facts: MessageFacts, copy: ReceivedMessage, broker: BrokerEvidence, group: str
) -> MessageVerdict:
    online = broker.holdings.online.get(group)
    subscribed = online.subscription_table.get(facts.topic) if online else None
    if group in broker.holdings.broadcasting:
        says = "broadcasts: its members keep their offsets themselves, and which of them has it cannot be known"
        return MessageVerdict(
            "broadcast", group, says, counted(len(online.connection_set) if online else 0, "member")
        )
    place = broker.holdings.places.get((group, facts.topic), {}).get(copy.queue.queue_id)
    wanted = None if subscribed is None else wants(subscribed, copy)
    evidence = f"offset {'none' if place is None else place} in the queue, the message is {copy.queue_offset}"
    if subscribed is not None:
        evidence += f", subscribed to {subscribed.expression_type} {subscribed.sub_string!r}"
    if wanted is False:
        kind = "sql" if subscribed is not None and subscribed.expression_type == "SQL92" else "tag"
        says = f"does not want it: its {'condition' if kind == 'sql' else 'tags'} leave it out"
        return MessageVerdict(f"filtered-by-{kind}", group, says, evidence)
    if place is not None and place > copy.queue_offset:
        return _passed(facts, copy, group, evidence, known=wanted is not None)
    return _waiting(copy, broker, group, place, evidence)


def _passed(
    facts: MessageFacts, copy: ReceivedMessage, group: str, evidence: str, *, known: bool
) -> MessageVerdict:
    tries = [attempt for attempt in facts.attempts if attempt.group == group]
    if tries:
        last = max(tries, key=lambda attempt: attempt.begun_ms)
        outcome = {True: "with success", False: "and failed", None: "; no end of it was traced"}[
            last.ok
        ]
        says = f"handled it at {_time(last.begun_ms)} at {last.host} {outcome}"
        return MessageVerdict(
            "handled", group, says, f"{evidence}; trace, attempt {last.retries + 1}"
        )
    says = "is past it: it was handled, or skipped by a reset; who did it is not traced"
    if not known:
        says += "; with nobody online, what the group filters is not known"
    return MessageVerdict("passed", group, says, evidence)


def _waiting(
    copy: ReceivedMessage, broker: BrokerEvidence, group: str, place: int | None, evidence: str
) -> MessageVerdict:
    topic, config = broker.topic, broker.groups.get(group)
    if config is not None and not config.consume_enable:
        return MessageVerdict("disabled", group, "may not consume (consumeEnable=false)", evidence)
    if topic is not None and not (
        topic.perm & PERM_READ and copy.queue.queue_id < topic.read_queue_nums
    ):
        says = "cannot reach it: the topic is not readable, or has fewer queues to read now"
        numbers = f"perm {topic.perm}, {topic.read_queue_nums} queues to read"
        return MessageVerdict("out-of-reach", group, says, f"{numbers}; {evidence}")
    if group not in broker.holdings.online:
        return MessageVerdict(
            "offline", group, "has not read it, and nobody of it is connected", evidence
        )
    if place is None:
        says = "has committed nothing in this queue yet: it has just begun, or begins behind the message"
        return MessageVerdict("not-begun", group, says, evidence)
    before = copy.queue_offset - place
    says = "reads it next" if before == 0 else f"has {counted(before, 'message')} before it"
    return MessageVerdict(
        "waiting", group, f"{says}; held up by what is at offset {place}", evidence
    )


def _failures(facts: MessageFacts) -> Verdicts:
    groups = sorted(
        {
            copy.topic.removeprefix(DLQ_PREFIX)
            for copy in facts.copies
            if copy.topic.startswith(DLQ_PREFIX)
        }
    )
    for group in groups:
        dead = [copy for copy in facts.copies if copy.topic == DLQ_PREFIX + group]
        failed = counted(max(copy.reconsume_times for copy in dead), "time")
        says = f"failed {failed} and gave it up: it is a dead letter"
        yield MessageVerdict("dead", group, says, ", ".join(map(_place, dead)))
    retried = [copy for copy in facts.copies if copy.topic.startswith(RETRY_PREFIX)]
    for topic in sorted({copy.topic for copy in retried}):
        group = topic.removeprefix(RETRY_PREFIX)
        last = max(
            (copy for copy in retried if copy.topic == topic),
            key=lambda copy: (copy.reconsume_times, copy.store_timestamp_ms),
        )
        places = facts.brokers[last.queue.broker_name].holdings.places
        place = places.get((group, topic), {}).get(last.queue.queue_id, 0)
        evidence = f"{_place(last)}, the group is at {place} there"
        times = counted(last.reconsume_times, "time")
        if place > last.queue_offset:
            yield MessageVerdict(
                "retried",
                group,
                f"failed, and got it again {times}",
                evidence,
                last.queue.broker_name,
            )
        else:
            says = f"failed {times}, and is to get it again"
            yield MessageVerdict("retrying", group, says, evidence, last.queue.broker_name)


def _resent(facts: MessageFacts) -> Verdicts:
    for again in facts.resent:
        says = f"was sent again at {_time(again.born_timestamp_ms)} as {again.message_id}"
        evidence = f"{_place(again)}, its property {RESENT_OF}"
        yield MessageVerdict("resent", "", says, evidence, again.queue.broker_name)


def _place(copy: ReceivedMessage) -> str:
    queue = copy.queue
    return f"{queue.topic}@{queue.broker_name}:{queue.queue_id} offset {copy.queue_offset}"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _due(due_ms: int, now_ms: int) -> str:
    if due_ms <= now_ms:
        return f"was due at {_time(due_ms)}"
    return f"due at {_time(due_ms)}, in {(due_ms - now_ms) / 1000:.0f} s"


# Requests about a message: what to ask whom.


# Message trace, as Apache's clients and ours write it, read for one message: pure.


_FIELD, _RECORD = "\x01", "\x02"
_MOST = 2**63 - 1


def attempts_in(texts: Iterable[tuple[str, str]], message_id: str) -> list[Attempt]:
    """List who handled a message, of trace messages' (body, sender's host), by the time it began.

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

SEARCHED_AT_ONCE: Final = 1_024
"""Requests of one step of a search through all topics; after each it is told how far it is."""

Masters = list[tuple[str, str]]


class SearchTooLarge(ConfigError):
    """All topics would have to be looked through, with more requests than were allowed; `topics`: how many there are."""

    def __init__(self, topics: int) -> None:
        super().__init__(f"{topics:,} topics would have to be looked through: say which")
        self.topics = topics


@command()
def explain_message(
    clock: Clock,
    tell: Callable[[str], None],
    message: Annotated[str, Flag("ID|KEY")],
    *,
    topic: str | None = None,
) -> Operation[OperationReport[list[dict[str, Any]]]]:
    """Say what became of a message: where it is, who got it or why not, and how that is known.

    Takes a message id, an offset message id or a key. The verdicts: docs/reference/explain.md.

    Args:
        topic: Where it was sent; else all topics.
    """
    found = yield from collect(message, topic, clock.now_ms(), tell)
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
    return OperationReport(value, shown, full_words(copies, MOST))


def collect(
    asked: str,
    topic: str | None,
    now_ms: int,
    tell: Callable[[str], None] = lambda text: None,
    most: int | None = None,
) -> Operation[list[MessageFacts]]:
    """Ask what brokers know of a message id or key: facts of each message it names; of one without copies if none does.

    Args:
        topic: None looks through all topics. tell: gets a sentence after each step of that, but the last.
        most: requests of such a search; None: any number.

    Raises:
        ConfigError: no broker is there, or none has it. SearchTooLarge: it takes more than `most`. ClientError: none answers.
    """
    info = yield from cluster_info()
    masters = masters_in(info)
    away = {gone.broker_name: left_words(gone) for gone in gone_of([info]) if not gone.broker_id}
    away = {name: words for name, words in away.items() if name not in dict(masters)}
    wanted, named = asked, topic
    placed = yield from _at_its_place(info, asked)
    if placed is not None:
        wanted, named = placed.message_id, placed.origin_topic
    found: dict[tuple[str, str], list[ReceivedMessage]] = {}
    if named is not None:
        copies = yield from _find(product([named], masters), wanted)
    else:
        copies = yield from _search(masters, wanted, system_names(info), tell, most)
    for copy in copies:
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
        told = brokers[name]
        facts.append((yield from _facts(masters, message_id, name, now_ms, copies, told, away)))
    return facts


def _at_its_place(info: ClusterInfo, asked: str) -> Operation[ReceivedMessage | None]:
    """The message at the place that an offset message id names; None: it is no such id, or nothing is there. An id is what
    somebody typed: no server is asked but the cluster's own."""
    try:
        host, offset = decode_offset_message_id(asked)
    except ValueError:
        return None
    address = host_text(host)
    for name, data in info.broker_addr_table.items():
        if address in data.broker_addrs.values():
            try:
                return (yield from ask(address, view(name, "", offset)))
            except ClientError:
                return None
    return None


def _search(
    masters: Masters, wanted: str, own: set[str], tell: Callable[[str], None], most: int | None
) -> Operation[list[ReceivedMessage]]:
    """The messages of an id or key in all topics of users: step by step, of an id until a topic has it."""
    answers = yield from ask_all((address, calls.topics_of_broker()) for _, address in masters)
    places = sorted(
        (name, place)
        for place, answer in zip(masters, answers, strict=True)
        for name in answer.value or ()
        if kind_of(name, own) == OWN
    )
    topics = {name: number for number, name in enumerate(dict(places), 1)}
    if most is not None and len(places) > most:
        raise SearchTooLarge(len(topics))
    copies: list[ReceivedMessage] = []
    for start in range(0, len(places), SEARCHED_AT_ONCE):
        step = places[start : start + SEARCHED_AT_ONCE]
        copies += yield from _find(step, wanted)
        if any(copy.message_id == wanted for copy in copies):
            break
        if start + len(step) < len(places):
            tell(f"looked at {topics[step[-1][0]]:,} of {len(topics):,} topics")
    return copies


def _find(
    places: Iterable[tuple[str, tuple[str, str]]], key: str
) -> Operation[list[ReceivedMessage]]:
    """Ask what is found of a key in topics at brokers."""
    answers = yield from ask_all(
        (address, query(broker, topic, key, MOST)) for topic, (broker, address) in places
    )
    return [message for answer in answers for message in answer.value or ()]


def _facts(
    masters: Masters,
    message_id: str,
    topic: str,
    now_ms: int,
    copies: list[ReceivedMessage],
    told: Sequence[Answer[BrokerEvidence]],
    away: dict[str, str],
) -> Operation[MessageFacts]:
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
    keys = [key for copy in known for key in copy.keys]
    same = (yield from _find(product([topic], masters), keys[0])) if keys else []
    resent = [each for each in same if each.properties.get(RESENT_OF) == message_id]
    return MessageFacts(message_id, topic, now_ms, known, brokers, attempts, unreachable, resent)


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
    """Ask who handled it, by the trace topic; none when nobody traces."""
    found = yield from _find(product([TRACE_TOPIC], masters), message_id)
    return attempts_in(
        ((message.body.decode("utf-8", "replace"), message.born_host) for message in found),
        message_id,
    )
