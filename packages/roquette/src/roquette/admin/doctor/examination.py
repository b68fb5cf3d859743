"""Collects the facts of one look at a cluster: few kinds of requests, all bounded, and all of them read only.

Who does not answer costs its own facts, never the examination; a check says that it does not answer.
"""

import re
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final, TypeVar

from roquette.admin.facts import (
    BrokerFacts,
    ClusterFacts,
    DelayLevel,
    FilterProbe,
    GroupFacts,
    MemberFacts,
    NameServerFacts,
    is_of_group,
    whole,
)
from roquette.base.clock import Clock
from roquette.client import calls, operator_calls
from roquette.client.calls import Answer, Call, Operation, PullFilter, ask_all
from roquette.client.operator_calls import config_list, time_spans
from roquette.errors import BrokerError, CorruptRecord, RequestTimeout, Unreachable
from roquette.message.message import MessageQueue
from roquette.message.names import (
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TOOLS_CONSUMER_GROUP,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    is_system_topic,
    is_users_group,
    retry_topic,
)
from roquette.message.properties import DELAY_LEVELS
from roquette.message.record import decode_records
from roquette.wire.bodies import ClusterInfo, ConsumerConnection, SubscriptionData, TopicRouteData
from roquette.wire.codes import DRAIN_NOTES, ResponseCode

# The part of an examination about consumer groups: members, what each of them is doing, what their filters pass.


MAX_GROUPS: Final = 2_000
MAX_MEMBERS: Final = 2_000
"""Of all groups together: each is asked what it is doing."""
MAX_PROBES: Final = 2_000
MAX_WAITS: Final = 2_000
MIN_LAG: Final = 50
"""Messages that a group with members may be behind, whatever their age."""
NEWEST: Final = 32
"""Messages of a queue among which one should pass a group's filter."""


def examine_groups(
    masters: Sequence[BrokerFacts], left_out: list[str]
) -> Operation[tuple[list[GroupFacts], list[str]]]:
    """Every group that has members online, and the names of the others."""
    names = sorted(
        {group for broker in masters for group in broker.groups if is_users_group(group)}
    )
    if len(names) > MAX_GROUPS:
        left_out.append(f"{len(names) - MAX_GROUPS} of {len(names)} consumer groups")
        names = names[:MAX_GROUPS]
    groups: dict[str, GroupFacts] = {}
    for name, broker, online in (yield from _online(names, masters)):
        facts = groups.setdefault(name, GroupFacts(group=name, members=[], probes=[]))
        _join(facts, broker.name, online)
    found = [groups[name] for name in sorted(groups)]
    yield from _probe_filters(found, masters, left_out)  # before who may keep a broker waiting
    yield from _ask_members(found, {broker.name: broker.address for broker in masters}, left_out)
    return found, [name for name in names if name not in groups]


def _online(
    names: Sequence[str], masters: Sequence[BrokerFacts]
) -> Operation[list[tuple[str, BrokerFacts, ConsumerConnection]]]:
    """Groups with members, and where: many brokers know a group of which none of its members has heard.

    A group is asked where it has offsets, or a topic of retries, which brokers make when a member comes; then where a topic
    is that its members read; one that has left no trace anywhere, where it may be new or broadcasts.
    """
    wanted = set(names)
    known = [wanted.intersection(broker.groups) for broker in masters]
    traces = [
        {group for group in here if retry_topic(group) in broker.topics}
        | here.intersection(group for group, _ in broker.offsets)
        for broker, here in zip(masters, known, strict=True)
    ]
    traced = set().union(*traces)
    first: list[set[str]] = []
    for broker, here, trace in zip(masters, known, traces, strict=True):
        if broker.refused:  # it did not tell of what
            first.append(here)
        else:
            first.append(trace | (yield from _untraced(broker, here - traced)))
    told = yield from _connected(masters, first)
    reads: dict[str, set[str]] = {}
    for (name, _), online in told.items():
        reads.setdefault(name, set()).update(online.subscription_table)
    then = [
        {group for group in here - asked if not reads.get(group, set()).isdisjoint(broker.topics)}
        for broker, here, asked in zip(masters, known, first, strict=True)
    ]
    told |= yield from _connected(masters, then)
    return [
        (name, masters[at], online)
        for (name, at), online in sorted(told.items(), key=itemgetter(0))
    ]


def _untraced(broker: BrokerFacts, groups: set[str]) -> Operation[set[str]]:
    """Of these groups those to ask: all, or where topics are fewer, those that a topic is read by."""
    topics = [
        topic for topic in broker.topics if not is_system_topic(topic) and not is_of_group(topic)
    ]
    if len(groups) <= len(topics):
        return groups
    answers = yield from ask_all(
        (broker.address, operator_calls.readers_of(topic)) for topic in topics
    )
    return groups.intersection(name for answer in answers for name in answer.value or ())


def _connected(
    masters: Sequence[BrokerFacts], groups: Sequence[set[str]]
) -> Operation[dict[tuple[str, int], ConsumerConnection]]:
    """The members of groups at each master, by name and the master's number; a group without members is left out."""
    asked = [(name, at) for at, names in enumerate(groups) for name in sorted(names)]
    answers = yield from ask_all(
        (masters[at].address, calls.group_connections(name)) for name, at in asked
    )
    pairs = zip(asked, answers, strict=True)
    return {place: answer.value for place, answer in pairs if answer.value is not None}


def examine_waits(facts: ClusterFacts, now_ms: int) -> Operation[None]:
    """For how long messages wait for groups that are away, and for those that are far behind."""
    away = set(facts.offline)
    reads = {group.group: group.subscriptions for group in facts.groups}
    pairs = [
        (broker, pair)
        for pair, positions in facts.behind().items()
        if pair[0] in away
        or (pair[1] in reads.get(pair[0], ()) and sum(at.lag for at in positions) >= MIN_LAG)
        for broker in facts.masters()
        if any(at.queue.broker_name == broker.name for at in positions)
    ]
    if len(pairs) > MAX_WAITS:
        facts.left_out.append(f"how long {len(pairs) - MAX_WAITS} of {len(pairs)} groups wait")
        pairs = pairs[:MAX_WAITS]
    answers = yield from ask_all((broker.address, time_spans(*pair)) for broker, pair in pairs)
    for (broker, pair), answer in zip(pairs, answers, strict=True):
        # Of a message that is deleted they say that it has been there since 1970: the queue's first one is the next.
        spans = [span for span in answer.value or () if span.min_time_stamp > 0]
        known = (min(span.delay_time, now_ms - span.min_time_stamp) for span in spans)
        broker.waits[pair] = max(known, default=0)


def _join(facts: GroupFacts, broker: str, online: ConsumerConnection) -> None:
    """Take in a group's members at one broker."""
    facts.model = online.message_model or facts.model
    facts.subscriptions = facts.subscriptions | online.subscription_table
    members = {member.client_id: member for member in facts.members}
    for connection in online.connection_set:
        member = members.get(connection.client_id)
        if member is None:
            member = MemberFacts(client_id=connection.client_id, addresses={})
            members[connection.client_id] = member
            facts.members.append(member)
        member.addresses.setdefault(broker, []).append(connection.client_addr)


def _ask_members(
    groups: Sequence[GroupFacts], addresses: dict[str, str], left_out: list[str]
) -> Operation[None]:
    members = [(group, member) for group in groups for member in group.members]
    if len(members) > MAX_MEMBERS:
        left_out.append(f"{len(members) - MAX_MEMBERS} of {len(members)} members of groups")
        members = members[:MAX_MEMBERS]
    answers = yield from ask_all(
        (
            addresses[min(member.addresses)],
            operator_calls.running_info(group.group, member.client_id),
        )
        for group, member in members
    )
    for (_, member), answer in zip(members, answers, strict=True):
        member.running, error = answer.value, answer.error
        late = isinstance(error, BrokerError) and error.code == ResponseCode.CONSUME_MSG_TIMEOUT
        member.silent = late or isinstance(error, RequestTimeout)


def _probe_filters(
    groups: Sequence[GroupFacts], masters: Sequence[BrokerFacts], left_out: list[str]
) -> Operation[None]:
    """Pull the newest messages of the queues of each group that filters, under its filter; nothing is committed."""
    full: dict[str, list[tuple[str, MessageQueue, int]]] = {}
    for broker in masters:
        for queue, ends in broker.queues.items():
            if ends.max_offset - ends.min_offset >= NEWEST:
                place = broker.address, queue, ends.max_offset - NEWEST
                full.setdefault(queue.topic, []).append(place)
    wanted = [
        (group, data, place)
        for group in groups
        for data in group.subscriptions.values()
        if filters(data)
        for place in full.get(data.topic, ())
    ]
    if len(wanted) > MAX_PROBES:
        left_out.append(f"the filters of {len(wanted) - MAX_PROBES} of {len(wanted)} queues")
        wanted = wanted[:MAX_PROBES]
    answers = yield from ask_all(
        (address, _probe(queue, offset, data)) for _, data, (address, queue, offset) in wanted
    )
    for (group, data, (_, queue, _)), answer in zip(wanted, answers, strict=True):
        if answer.value is not None and not answer.value.moved:
            passes = answer.value.records != b""
            group.probes.append(FilterProbe(queue, data.sub_string, NEWEST, passes))


def _probe(queue: MessageQueue, offset: int, data: SubscriptionData) -> calls.Call[calls.Pulled]:
    wanted = PullFilter(data.sub_string, data.expression_type or "TAG")
    return calls.pull(TOOLS_CONSUMER_GROUP, queue, offset, 1, wanted)


def filters(data: SubscriptionData) -> bool:
    """Return True when a subscription leaves messages out."""
    if data.topic.startswith(RETRY_PREFIX):
        return False
    return not PullFilter(data.sub_string or "*", data.expression_type or "TAG").takes_all


T = TypeVar("T")

MAX_TOPICS: Final = 5_000
"""Topics whose routes are compared, and topics of a broker whose queues are looked at."""
LATE_MS: Final = 10_000
"""A delayed message is late when it should have been delivered so long ago."""
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RUNTIME: Final = re.compile(
    r"\[ (\d{1,9}) days, (\d{1,9}) hours, (\d{1,9}) minutes, (\d{1,9}) seconds \]"
)


def who_is_there(name_servers: Sequence[str], clock: Clock) -> Operation[ClusterFacts]:
    """Name servers, brokers, and what each broker tells of itself; raises ClientError: no name server answers."""
    facts = ClusterFacts()
    facts.name_servers = yield from _name_servers(name_servers)
    facts.brokers = _brokers_of(facts.name_servers)
    yield from _running_state(facts.brokers, clock)
    facts.at_ms, facts.steady_ms = clock.now_ms(), clock.steady_ms()
    return facts


def where_they_are(name_servers: Sequence[str], clock: Clock) -> Operation[ClusterFacts]:
    """Besides who is there: topics, groups, ends of queues, and where each group is in them."""
    facts = yield from who_is_there(name_servers, clock)
    yield from _tables(facts.masters())
    for broker in facts.masters():
        yield from _queue_ends(broker, facts.left_out)
    facts.at_ms, facts.steady_ms = clock.now_ms(), clock.steady_ms()
    return facts


def examine(name_servers: Sequence[str], clock: Clock) -> Operation[ClusterFacts]:
    """One look at all that checks judge; raises ClientError: no name server answers."""
    facts = yield from where_they_are(name_servers, clock)
    call = operator_calls.broker_settings()
    for broker, settings in (yield from _each(facts.answering(), call, "settings")):
        broker.settings = settings or {}
    yield from _routes(facts)
    for broker in facts.masters():
        yield from _delays(broker, clock)
        yield from _half_messages(broker)
    facts.groups, facts.offline = yield from examine_groups(facts.masters(), facts.left_out)
    yield from examine_waits(facts, clock.now_ms())
    facts.at_ms, facts.steady_ms = clock.now_ms(), clock.steady_ms()
    return facts


def _name_servers(addresses: Sequence[str]) -> Operation[list[NameServerFacts]]:
    clusters = yield from ask_all((address, calls.cluster_info()) for address in addresses)
    if clusters and all(answer.error is not None for answer in clusters):
        clusters[0].get()
    notes = yield from ask_all((address, config_list(DRAIN_NOTES)) for address in addresses)
    return [
        NameServerFacts(
            address=address,
            error=cluster.reason,
            cluster=cluster.value or ClusterInfo(),
            drained=sorted(drains.value or ()),
        )
        for address, cluster, drains in zip(addresses, clusters, notes, strict=True)
    ]


def _brokers_of(name_servers: Iterable[NameServerFacts]) -> list[BrokerFacts]:
    """Every address any name server tells, each once."""
    found: dict[tuple[str, int, str], BrokerFacts] = {}
    for server in name_servers:
        info = server.cluster
        clusters = {name: c for c, names in info.cluster_addr_table.items() for name in names}
        for name, data in info.broker_addr_table.items():
            for broker_id, address in data.broker_addrs.items():
                found.setdefault(
                    (name, broker_id, address),
                    BrokerFacts(
                        cluster=data.cluster or clusters.get(name, ""),
                        name=name,
                        broker_id=broker_id,
                        address=address,
                    ),
                )
    return [found[key] for key in sorted(found)]


def _running_state(brokers: Sequence[BrokerFacts], clock: Clock) -> Operation[None]:
    """Run-time tables, which tell a broker's clock, too, to a second."""
    asked_ms = clock.now_ms()
    answers = yield from ask_all((broker.address, calls.runtime_info()) for broker in brokers)
    answered_ms = clock.now_ms()
    for broker, answer in zip(brokers, answers, strict=True):
        broker.error, broker.runtime = answer.reason, answer.value or {}
        broker.connected = not isinstance(answer.error, Unreachable)
        now_ms = _clock_of(broker.runtime)
        if now_ms is not None:
            broker.ahead_ms = now_ms - answered_ms, now_ms + 1000 - asked_ms


def _clock_of(runtime: dict[str, str]) -> int | None:
    """A broker's wall time when it answered: its start and how long it runs, which it tells in whole seconds."""
    found = _RUNTIME.fullmatch(runtime.get("runtime", ""))
    booted_ms = whole(runtime.get("bootTimestamp", ""))
    if found is None or booted_ms is None:
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return booted_ms + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def _each(
    brokers: Sequence[BrokerFacts], call: Call[T], what: str
) -> Operation[list[tuple[BrokerFacts, T | None]]]:
    """Return what each broker answers; one that does not, or refuses, has that noted."""
    answers = yield from ask_all((broker.address, call) for broker in brokers)
    for broker, answer in zip(brokers, answers, strict=True):
        if answer.error is not None:
            broker.refused.append(f"{what}: {answer.reason}")
    return [(broker, answer.value) for broker, answer in zip(brokers, answers, strict=True)]


def _tables(masters: Sequence[BrokerFacts]) -> Operation[None]:
    for broker, topics in (yield from _each(masters, operator_calls.topic_configs(), "topics")):
        broker.topics = topics or {}
    for broker, groups in (yield from _each(masters, calls.groups_of_broker(), "groups")):
        broker.groups = groups or []
    for broker, offsets in (yield from _each(masters, calls.committed_offsets(), "offsets")):
        broker.offsets = offsets or {}


def _routes(facts: ClusterFacts) -> Operation[None]:
    """The routes of each name server, when there is more than one to compare."""
    servers = [server for server in facts.name_servers if not server.error]
    if len(servers) < 2:
        return
    told = yield from ask_all((server.address, calls.topic_names()) for server in servers)
    for server, names_told in zip(servers, told, strict=True):
        server.topics = names_told.value or []
    names = sorted({topic for server in servers for topic in server.topics})
    names = _bounded(names, facts.left_out, "topics whose routes are compared")
    for server in servers:
        asks = ((server.address, calls.route(topic)) for topic in names)
        answers: list[Answer[TopicRouteData]] = yield from ask_all(asks)
        server.routes = {
            topic: answer.value
            for topic, answer in zip(names, answers, strict=True)
            if answer.error is None or topic not in server.topics
        }


def _bounded(names: list[str], left_out: list[str], what: str) -> list[str]:
    if len(names) > MAX_TOPICS:
        left_out.append(f"{len(names) - MAX_TOPICS} of {len(names)} {what}")
    return names[:MAX_TOPICS]


def _queue_ends(broker: BrokerFacts, left_out: list[str]) -> Operation[None]:
    """Of the topics that are consumed first, when there are too many."""
    consumed = {topic for _, topic in broker.offsets}
    own = [topic for topic in broker.topics if not is_system_topic(topic)]
    own.sort(key=lambda topic: (topic not in consumed and not is_of_group(topic), topic))
    names = _bounded(own, left_out, f"topics of {broker.label}")
    answers = yield from ask_all((broker.address, calls.topic_stats(topic)) for topic in names)
    tables = [answer.value.offset_table for answer in answers if answer.value is not None]
    broker.queues = {queue: ends for table in tables for queue, ends in table.items()}


def delays_ms(levels: str) -> list[int]:
    """Return how long each delay level is, of a setting such as `1s 5s 2h`; words that are none are left out."""
    return [
        count * _UNITS_MS[word[-1]]
        for word in levels.split()
        if word[-1] in _UNITS_MS and (count := whole(word[:-1]) or 0) > 0
    ]


def _delays(broker: BrokerFacts, clock: Clock) -> Operation[None]:
    found: list[DelayLevel] = []
    levels = delays_ms(broker.settings.get("messageDelayLevel") or DELAY_LEVELS)
    for level, delay_ms in enumerate(levels, 1):
        text = broker.runtime.get(f"scheduleMessageOffset_{level}", "")
        delivered, end = (whole(part) for part in text.partition(",")[::2])
        if delivered is not None and end is not None:
            found.append(DelayLevel(level, delay_ms, delivered, end))
    waiting = [level for level in found if level.delivered < level.end]
    ahead_ms = 0 if broker.ahead_ms is None else broker.ahead_ms[0]
    now_ms = clock.now_ms() + ahead_ms
    answers = yield from ask_all(
        (
            broker.address,
            calls.offset_by_time(
                MessageQueue(SCHEDULE_TOPIC, broker.name, level.level - 1),
                now_ms - level.delay_ms - LATE_MS,
            ),
        )
        for level in waiting
    )
    due = {level.level: answer.value or 0 for level, answer in zip(waiting, answers, strict=True)}
    broker.delays = [
        DelayLevel(level.level, level.delay_ms, level.delivered, level.end, due.get(level.level, 0))
        for level in found
    ]


def _half_messages(broker: BrokerFacts) -> Operation[None]:
    """The oldest open half message is the one at the offset that the checks have committed."""
    offset = broker.offsets.get((TRANS_GROUP, TRANS_HALF_TOPIC), {}).get(0)
    if offset is None:
        return
    queue = MessageQueue(TRANS_HALF_TOPIC, broker.name, 0)
    pull = calls.pull(TOOLS_CONSUMER_GROUP, queue, offset, 1)
    (answer,) = yield from ask_all([(broker.address, pull)])
    pulled = answer.value
    if pulled is None or pulled.moved or not pulled.records:
        return
    try:
        broker.half_born_ms = next(iter(decode_records(pulled.records))).born_timestamp_ms
    except (CorruptRecord, StopIteration):
        return
