"""Consumer groups: their settings, how far behind they are, and deleting them."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from roquette.admin.cluster import masters_of, require_one
from roquette.admin.command import OperationReport, command
from roquette.admin.members import OnlineGroup, members, online_of
from roquette.admin.settings import SettingRow
from roquette.base.options import counted
from roquette.client import calls, operator_calls
from roquette.client.calls import ANY_NAME_SERVER, Operation, ask, ask_all
from roquette.client.core.route_cache import TopicRoute
from roquette.client.operator_calls import group_configs
from roquette.errors import BrokerError, ClientError, ConfigError
from roquette.message.message import MessageQueue, unread
from roquette.message.names import retry_topic
from roquette.wire.bodies.progress import ConsumeStats
from roquette.wire.bodies.tables import SubscriptionGroupConfig


class LagRow(msgspec.Struct, frozen=True):
    """A group's place in one queue. `last_consumed_ms`: store time of its last consumed message.

    Attributes:
        error: why a broker does not tell; then this is its only row, and the numbers are -1.
        owner: the member that says that the queue is its own; "": none does, or none was asked.
        group: where rows are of several.
    """

    topic: str
    broker: str
    queue: int
    broker_offset: int
    consumer_offset: int
    lag: int
    last_consumed_ms: int
    error: str = ""
    owner: str = ""
    group: str = ""

    NARROW: ClassVar = ("last_consumed_ms", "broker_offset", "consumer_offset")


class ReaderRow(msgspec.Struct, frozen=True):
    """A group that reads a topic, and at how many brokers it does."""

    group: str
    topic: str
    brokers: int


def group_table(config: SubscriptionGroupConfig) -> dict[str, str]:
    """A group's settings and attributes as texts, under Apache's names."""
    table: dict[str, Any] = msgspec.to_builtins(config)
    del table["groupName"], table["subscriptionDataSet"]
    named: dict[str, str] = table.pop("attributes")
    return {name: msgspec.json.encode(value).decode() for name, value in table.items()} | named


def settings_of_group(group: str) -> Operation[list[SettingRow]]:
    """A group's settings on each master that knows it.

    Raises:
        ConfigError: none knows it. ClientError: one does not answer.
    """
    masters = yield from masters_of()
    answers = yield from ask_all((address, group_configs()) for _, address in masters)
    tables = {name: answer.get() for (name, _), answer in zip(masters, answers, strict=True)}
    _require_known(group, tables.values())
    return [
        SettingRow(name, *item)
        for name, groups in tables.items()
        if group in groups
        for item in group_table(groups[group]).items()
    ]


def _require_known(group: str, groups: Iterable[Collection[str]]) -> None:
    if not any(group in known for known in groups):
        raise ConfigError(
            f"no broker knows group {group}: 'roquette group list' shows those there are"
        )


@command(empty="the group has offsets of no topic", watched=True)
def group_topics(group: str) -> Operation[OperationReport[list[ReaderRow]]]:
    """List the topics that a group has consumed from: of which brokers have its offsets.

    Raises:
        ConfigError: there is no broker. ClientError: none answers.
    """
    masters = yield from masters_of()
    found, notes = yield from named_at(masters, operator_calls.topics_of_group(group))
    return OperationReport([ReaderRow(group, *item) for item in found], notes=notes)


@command(empty="no group reads the topic", watched=True)
def topic_readers(topic: str, *, owners: bool = False) -> Operation[OperationReport[list[Any]]]:
    """List the groups that read a topic: those with offsets of it, or with members that subscribe to it.

    Args:
        owners: How far behind each is in each queue, and which member has that queue.

    Raises:
        RouteNotFound, or ClientError when no broker answers.
    """
    if owners:
        seen = yield from readers_now(topic)
        return OperationReport(
            [row for rows in seen.rows.values() for row in rows], notes=seen.notes
        )
    found, notes = yield from named_at(
        (yield from _places(topic)), operator_calls.readers_of(topic)
    )
    return OperationReport([ReaderRow(name, topic, at) for name, at in found], notes=notes)


def _places(topic: str) -> Operation[list[tuple[str, str]]]:
    """(name, address) of the brokers of a topic."""
    route = TopicRoute(topic, (yield from ask(ANY_NAME_SERVER, calls.route(topic))))
    return [(at, address) for at in route.addresses if (address := route.address_for_read(at))]


def named_at(
    places: Sequence[tuple[str, str]], call: calls.Call[list[str]]
) -> Operation[tuple[list[tuple[str, int]], list[str]]]:
    """Ask brokers, (name, address), for names: each with how many gave it, sorted; and who does not tell, in words.

    Raises:
        ClientError: none answers.
    """
    answers = yield from ask_all((address, call) for _, address in places)
    require_one(answers)
    counts = Counter(name for answer in answers for name in answer.value or ())
    told = zip(places, answers, strict=True)
    notes = [f"{name} does not tell: {each.reason}" for (name, _), each in told if each.error]
    return sorted(counts.items()), notes


def _question(group: str, keep_offsets: bool) -> str:
    return f"delete group {group}" + ("" if keep_offsets else " with its offsets")


def _deleted(done: list[str], group: str, **_: object) -> OperationReport[None]:
    return OperationReport(notes=[f"group {group} deleted on: {', '.join(done)}"])


@command(asks=_question, shows=_deleted)
def delete_group(group: str, *, keep_offsets: bool = False) -> Operation[list[str]]:
    """Delete a group's settings and offsets on every master. Refused while members are online.

    Args:
        keep_offsets: Leave its offsets, for one that comes again.

    Returns:
        The names of the masters that had it; with its offsets its retry topic is deleted, too.

    Raises:
        ConfigError: members are online, or no master knows the group.
        ClientError: a master does not answer, or refuses: it is still there on that one.
    """
    masters = yield from masters_of()
    online = yield from ask_all((address, calls.group_connections(group)) for _, address in masters)
    members = {c.client_id for each in online if each.value for c in each.value.connection_set}
    if members:
        raise ConfigError(
            f"group {group} has {len(members)} members online, which would make it again: stop {', '.join(sorted(members)[:3])} first"
        )
    listed = yield from ask_all((address, calls.groups_of_broker()) for _, address in masters)
    have = [place for place, each in zip(masters, listed, strict=True) if group in each.get()]
    _require_known(group, (each.get() for each in listed))
    if not keep_offsets:  # before the group: a pull that is held there would make it again
        retries = calls.delete_topic(retry_topic(group))
        yield from ask_all((address, retries) for _, address in have)  # the doctor finds what stays
    answers = yield from ask_all(
        (address, operator_calls.delete_group(group, with_offsets=not keep_offsets))
        for _, address in have
    )
    for answer in answers:
        answer.get()
    return [name for name, _ in have]


def _sum(rows: list[LagRow], group: str, **_: object) -> OperationReport[list[LagRow]]:
    lag = sum(row.lag for row in rows if not row.error)
    return OperationReport(rows, [rows, f"\nlag of {group}: {counted(lag, 'message')}"])


@command(shows=_sum, watched=True)
def group_lag(
    group: str, *, topic: str | None = None, owners: bool = False
) -> Operation[list[LagRow]]:
    """Show per queue how many messages a group has not consumed yet.

    Args:
        topic: Only this topic.
        owners: Which member has the queue, too: each is asked.

    Raises:
        ConfigError: no broker has offsets of the group.
        ClientError: no broker answers.
    """
    masters = yield from masters_of()
    found = yield from lags_of([(group, *place) for place in masters], topic)
    rows = [row for each in found for row in each.rows]
    if len(rows) == len(masters) and all(row.error for row in rows):
        raise ClientError(f"no broker answers: {rows[0].error}")
    if not rows:
        raise ConfigError(
            f"group {group} has consumed nothing yet: 'roquette group list' shows the groups there are"
        )
    rows.sort(key=lambda row: (row.error != "", row.topic, row.broker, row.queue))
    if owners:
        places = [(group, *place) for place in masters]
        rows = _owned(rows, (yield from online_of(places))[group])
    return rows


def _owned(rows: Iterable[LagRow], online: OnlineGroup, group: str = "") -> list[LagRow]:
    """The rows with the members that have the queues."""
    owners = online.owners
    return [
        msgspec.structs.replace(
            row,
            owner=owners.get(MessageQueue(row.topic, row.broker, row.queue), ""),
            group=group,
        )
        for row in rows
    ]


class GroupNow(NamedTuple):
    """A group: its place in each queue, with who has it, and its members. `why`: there is no place, in words."""

    rows: list[LagRow]
    why: str
    online: OnlineGroup


def group_now(group: str, each: int) -> Operation[GroupNow]:
    """What `group lag --owners` and `group show` say together; `each`: members that are asked. Raises ClientError."""
    rows, why = [], ""
    try:
        rows = yield from group_lag(group)
    except ConfigError as error:
        why = str(error)
    masters = yield from masters_of()
    online = (yield from online_of([(group, *place) for place in masters], each=each))[group]
    return GroupNow(_owned(rows, online), why, online)


class TopicReaders(NamedTuple):
    """The groups that read a topic.

    Attributes:
        groups: all. rows, online: of those that were asked: the place in each queue, with who has it, and the members.
        notes: brokers that do not tell, and why.
    """

    groups: list[str]
    rows: dict[str, list[LagRow]]
    online: dict[str, OnlineGroup]
    notes: list[str]


def readers_now(
    topic: str, groups: int | None = None, each: int | None = None, most: int | None = None
) -> Operation[TopicReaders]:
    """What `topic readers --owners` says: of more groups than fit the names only.

    Args:
        groups, each: groups, and members of each, that are asked. most: requests, about; on many brokers fewer fit.

    Raises:
        RouteNotFound, or ClientError when no broker answers.
    """
    places = yield from _places(topic)
    found, notes = yield from named_at(places, operator_calls.readers_of(topic))
    names = [name for name, _ in found]
    fitting = names[:groups] if most is None else names[:groups][: most // (4 * len(places))]
    asked = [(name, *place) for name in fitting for place in places]
    rows: dict[str, list[LagRow]] = {name: [] for name in fitting}
    for (name, _, _), behind in zip(asked, (yield from lags_of(asked, topic)), strict=True):
        rows[name] += behind.rows
    online = yield from online_of(asked, each=each, most=most)
    owned = {name: _owned(rows[name], online[name], name) for name in fitting}
    return TopicReaders(names, owned, online, notes)


@command(watched=True)
def show_group(group: str, *, settings: bool = False) -> Operation[list[Any]]:
    """Show a group's members that are online: how many queues each has and how many messages wait in it.

    Args:
        settings: Its settings on each broker; roquette apply --group changes them.
    """
    if settings:
        return (yield from settings_of_group(group))
    return (yield from members(group))


class BrokerLag(NamedTuple):
    """What a broker tells of a group. `out_tps`: messages a second that it takes; -1: not known."""

    rows: list[LagRow]
    out_tps: float


def lags_of(
    asked: Sequence[tuple[str, str, str]], topic: str | None = None, most: int | None = None
) -> Operation[list[BrokerLag]]:
    """Of each (group, broker, address), a row for each queue: a request of each, and, where the message that the group
    consumed last is not there any more, of topics with lag where their queues begin.

    Args:
        most: requests; what is left of them is for the beginnings, and a lag that lacks its own is -1. None: any number.
    """
    answers = yield from ask_all(
        (address, calls.consume_stats(group, topic)) for group, _, address in asked
    )
    behind = list(
        dict.fromkeys(
            (address, queue.topic)
            for (_, _, address), answer in zip(asked, answers, strict=True)
            if answer.value is not None
            for queue, at in answer.value.offset_table.items()
            if at.broker_offset > at.consumer_offset and at.last_timestamp <= 0
        )
    )
    fitting = behind[: None if most is None else max(0, most - len(asked))]
    unasked = set(behind[len(fitting) :])
    ends = yield from ask_all((address, calls.topic_stats(name)) for address, name in fitting)
    first = {
        (each.address, queue): at.min_offset
        for each in ends
        if each.value is not None
        for queue, at in each.value.offset_table.items()
    }
    found: list[BrokerLag] = []
    for (_, broker, address), answer in zip(asked, answers, strict=True):
        told = answer.value or ConsumeStats(consume_tps=-1.0)
        rows = [
            LagRow(
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                at.broker_offset,
                at.consumer_offset,
                -1
                if (address, queue.topic) in unasked
                else unread(at.consumer_offset, first.get((address, queue), 0), at.broker_offset),
                at.last_timestamp,
            )
            for queue, at in told.offset_table.items()
        ]
        if answer.error is not None and not isinstance(answer.error, BrokerError):
            rows.append(
                LagRow("", broker, -1, -1, -1, -1, -1, answer.reason)
            )  # else: no such group
        found.append(BrokerLag(rows, told.consume_tps))
    return found
