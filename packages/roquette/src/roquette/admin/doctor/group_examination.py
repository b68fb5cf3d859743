"""The part of an examination about consumer groups: members, what each of them is doing, what their filters pass."""

from collections.abc import Sequence
from typing import Final

from roquette.admin.facts import (
    BrokerFacts,
    ClusterFacts,
    FilterProbe,
    GroupFacts,
    MemberFacts,
)
from roquette.client import calls, inspection_calls
from roquette.client.calls import PullFilter
from roquette.client.inspection_calls import time_spans
from roquette.client.operations import Operation, ask_all
from roquette.errors import BrokerError, RequestTimeout
from roquette.message.message import MessageQueue
from roquette.message.names import RETRY_PREFIX, TOOLS_CONSUMER_GROUP, is_users_group
from roquette.wire.bodies import ConsumerConnection, SubscriptionData
from roquette.wire.codes import ResponseCode

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
    for broker in masters:
        here = set(broker.groups)
        asked = [name for name in names if name in here]
        answers = yield from ask_all(
            (broker.address, calls.group_connections(name)) for name in asked
        )
        for name, answer in zip(asked, answers, strict=True):
            if answer.value is not None:
                facts = groups.setdefault(name, GroupFacts(group=name, members=[], probes=[]))
                _join(facts, broker.name, answer.value)
    found = [groups[name] for name in sorted(groups)]
    yield from _probe_filters(found, masters, left_out)  # before who may keep a broker waiting
    yield from _ask_members(found, {broker.name: broker.address for broker in masters}, left_out)
    return found, [name for name in names if name not in groups]


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
            inspection_calls.running_info(group.group, member.client_id),
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
    """Whether a subscription leaves messages out."""
    if data.topic.startswith(RETRY_PREFIX):
        return False
    return not PullFilter(data.sub_string or "*", data.expression_type or "TAG").takes_all
