"""Why is a group behind? Its place in each queue, who owns it, its members, what they subscribe to, and its settings."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import htpy as h
from htpy import Element, Node

from roquette.admin.cluster import masters_of
from roquette.admin.groups import LagRow, group_lag, settings_of_group
from roquette.admin.settings import SettingRow
from roquette.client import calls
from roquette.client.calls import Operation, ask_all
from roquette.client.operator_calls import running_info
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.topic import MOST_MEMBERS, heat_key, level, short
from roquette.errors import ConfigError
from roquette.message.names import dlq_topic, is_users_group
from roquette.wire.bodies import ConsumerConnection, ConsumerRunningInfo
from roquette.wire.codes import version_text

PATHS: Final = ("/groups/{group}", "/groups/{group}/settings")
_PLACES: Final = 1_300
_TABLE: Final = 600
"""Elements of the list of its queues, and of the others."""


class GroupMemberNow(NamedTuple):
    """One that is online. `running`: what it tells of itself, None: it does not."""

    client: str
    address: str
    language: str
    version: str
    running: ConsumerRunningInfo | None
    error: str


class GroupPicture(NamedTuple):
    """A group: its places, its members, and what their brokers know of what they subscribe to.

    Attributes:
        why: there is no place at all, and this is said instead. more: members that were not asked.
    """

    rows: list[LagRow]
    why: str
    model: str
    members: list[GroupMemberNow]
    more: int
    subscriptions: dict[str, set[str]]


def picture(group: str) -> Operation[GroupPicture]:
    """All of it; raises ClientError when no broker answers."""
    rows, why = [], ""
    try:
        rows = yield from group_lag(group)
    except ConfigError as error:
        why = str(error)
    masters = yield from masters_of()
    online = yield from ask_all((address, calls.group_connections(group)) for _, address in masters)
    found: dict[str, tuple[str, str, str, str]] = {}
    known = [each.value for each in online if each.value is not None]
    for answer in online:
        for each in answer.value.connection_set if answer.value else ():
            words = (each.client_addr, each.language or "", version_text(each.version))
            found.setdefault(each.client_id, (answer.address, *words))
    asked = list(found.items())[:MOST_MEMBERS]
    told = yield from ask_all((each[0], running_info(group, client)) for client, each in asked)
    members = [
        GroupMemberNow(client, *each[1:], answer.value, answer.reason)
        for (client, each), answer in zip(asked, told, strict=True)
    ]
    model = known[0].message_model or "" if known else ""
    return GroupPicture(
        rows, why, model, members, len(found) - len(asked), _subscriptions(known, members)
    )


def _subscriptions(
    known: Iterable[ConsumerConnection], members: Iterable[GroupMemberNow]
) -> dict[str, set[str]]:
    """By topic, each filter that a broker, or a member, has for it: more than one is a conflict."""
    found: dict[str, set[str]] = {}
    tables = [each.subscription_table or {} for each in known]
    for table in tables:
        for topic, data in table.items():
            found.setdefault(topic, set()).add(data.sub_string or "*")
    for member in members:
        for data in member.running.subscription_set if member.running else ():
            found.setdefault(data.topic, set()).add(data.sub_string or "*")
    return found


async def show(ask: ViewAsk) -> View:
    group = ask.words["group"]
    if ask.path.endswith("/settings"):
        return await _settings(ask, group)
    seen = await ask.cluster.look(("group", group), lambda: picture(group))
    owners = {
        (queue.topic, queue.broker_name, queue.queue_id): member.client
        for member in seen.members
        if member.running
        for queue in (*member.running.mq_table, *member.running.mq_pop_table)
    }
    known = [row for row in seen.rows if not row.error]
    lag = sum(row.lag for row in known)
    times = [row.last_consumed_ms for row in known if row.lag > 0 and row.last_consumed_ms > 0]
    last = ("Last consumed", parts.moment(min(times, default=0), ago=True), "where it is behind")
    topics = parts.counted(len({row.topic for row in known}), "topic")
    body = [
        head(ask, group, ""),
        parts.tiles(
            ("Behind", parts.number(lag), f"in {topics}"),
            last if times else ("State", _state(seen, lag), ""),
            ("Members", str(len(seen.members) + seen.more), seen.model.lower() or "online"),
            ("Queues", str(len(known)), f"{len(owners)} are owned"),
        ),
        _places(ask, seen, owners),
        _members(ask, group, seen),
        _subscribed(seen),
    ]
    return View(group, "groups", body, ("group", "lag", group), 2)


def _state(seen: GroupPicture, lag: int) -> Element:
    if any(len(filters) > 1 for filters in seen.subscriptions.values()):
        return parts.dot("bad", "conflict")
    if not seen.members:
        return parts.dot("warn" if lag else "off", "nobody online")
    return parts.dot("ok", "stable")


def head(ask: ViewAsk, group: str, tab: str) -> Node:
    """What all pages of a group begin with."""
    at = ("groups", group)
    acts = (
        (ask.url("act", "group-seek", group=group), "Seek"),
        (ask.url("dead", group), "Dead letters"),
        (ask.url("act", "group-delete", group=group), "Delete"),
    )
    tabs = (
        ("", ask.url(*at), "Queues and members"),
        ("stacks", ask.url(*at, "stacks"), "Stacks"),
        ("settings", ask.url(*at, "settings"), "Settings"),
    )
    above = parts.crumbs((ask.url("groups"), "Groups"))
    return [above, parts.heading(group, *acts), parts.tabs(tab, *tabs)]


def _places(ask: ViewAsk, seen: GroupPicture, owners: dict[tuple[str, str, int], str]) -> Element:
    def owner(row: LagRow) -> Node:
        name = owners.get((row.topic, row.broker, row.queue), "")
        return h.span(title=name)[short(name)] if name else not row.error and parts.dim("nobody")

    def lag(row: LagRow) -> Node:
        return (
            row.lag
            if row.error
            else h.span(f".heat.h{level(row, ask.now_ms)}")[parts.number(row.lag)]
        )

    table = parts.grid(
        "Queues of the group",
        seen.rows,
        {
            "Topic": lambda row: parts.dim(row.error) or ask.link("topics", row.topic),
            "Queue": lambda row: parts.code(
                row.broker if row.error else f"{row.broker}:{row.queue}"
            ),
            "#Goes on at": lambda row: not row.error and row.consumer_offset,
            "#End": lambda row: not row.error and row.broker_offset,
            "#Lag": lag,
            "Last consumed": lambda row: (
                not row.error and parts.moment(row.last_consumed_ms, ago=True)
            ),
            "Owner": owner,
        },
        parts.empty("It has no place in any queue", seen.why),
        lambda row: f"q-{row.topic}-{row.broker}-{row.queue}",
        _PLACES,
    )
    return parts.panel("Where it is", table, aside=heat_key())


def _members(ask: ViewAsk, group: str, seen: GroupPicture) -> Element:
    def queues(now: ConsumerRunningInfo | None) -> int:
        return len(now.mq_table) + len(now.mq_pop_table) if now else -1

    def waiting(now: ConsumerRunningInfo | None) -> int:
        return sum(queue.cached_msg_count for queue in now.mq_table.values()) if now else -1

    table = parts.grid(
        "Members",
        seen.members,
        {
            "Member": lambda each: h.a(href=ask.url("groups", group, "stacks", client=each.client))[
                each.client
            ],
            "Address": lambda each: parts.code(each.address),
            "Client": lambda each: f"{each.language.lower()} {parts.version(each.version)}",
            "#Queues": lambda each: queues(each.running),
            "#In work": lambda each: waiting(each.running),
            "": lambda each: parts.dim(each.error),
        },
        parts.empty("Nobody is online", "Its places in the queues stay until it comes again."),
        lambda each: f"m-{each.client}",
        _TABLE,
    )
    return parts.panel("Members", table, parts.more(seen.more, "more members are not asked."))


def _subscribed(seen: GroupPicture) -> Element | None:
    if not seen.subscriptions:
        return None
    one, several = parts.dot("ok", "one"), parts.dot("bad", "members differ")
    table = parts.grid(
        "Subscriptions",
        sorted(seen.subscriptions.items()),
        {
            "Topic": lambda each: each[0],
            "Filter": lambda each: parts.code(" · ".join(sorted(each[1]))),
            "": lambda each: several if len(each[1]) > 1 else one,
        },
        most=_TABLE,
    )
    return parts.panel("Subscriptions", table)


async def _settings(ask: ViewAsk, group: str) -> View:
    rows = await ask.cluster.look(("settings", group), lambda: settings_of_group(group))
    file = f"groups:\n  {group}:\n    retryMaxTimes: 16\n"
    change = h.p[h.a(".act", href=ask.url("apply", file=file))["Change by a plan"]]
    body = [
        head(ask, group, "settings"),
        settings_grid(rows),
        change if is_users_group(group) else None,
        h.p(".dim")["Its dead letters: ", h.a(href=ask.url("dead", group))[dlq_topic(group)]],
    ]
    return View(f"{group}: settings", "groups", body, ("group", "show", group, "--settings"))


def settings_grid(rows: Iterable[SettingRow]) -> Node:
    """Settings by key, a column for each server; those that differ are marked."""
    servers = list(dict.fromkeys(row.server for row in rows))
    table: dict[str, dict[str, str]] = {}
    for row in rows:
        table.setdefault(row.key, {})[row.server] = row.value

    def column(server: str) -> Callable[[str], Node]:
        return lambda key: table[key].get(server, parts.UNKNOWN)

    columns: dict[str, Callable[[str], Node]] = {"Setting": parts.code}
    columns |= {server: column(server) for server in servers}
    if len(servers) > 1:
        differs = parts.dot("warn", "differs")
        columns[""] = lambda key: len({table[key].get(each) for each in servers}) > 1 and differs
    return parts.grid("Settings", sorted(table), columns, parts.empty("No setting is known"))
