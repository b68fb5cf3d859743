"""Why is a group behind? Its place in each queue, who owns it, its members, what they subscribe to, and its settings."""

from collections.abc import Iterable
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
    """The view."""
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
    oldest = min(
        (r.last_consumed_ms for r in known if r.lag > 0 and r.last_consumed_ms > 0), default=0
    )
    body = [
        head(ask, group, ""),
        parts.tiles(
            (
                "Behind",
                parts.number(lag),
                f"in {parts.counted(len({r.topic for r in known}), 'topic')}",
            ),
            ("Last consumed", parts.moment(oldest, ago=True), "where it is behind")
            if oldest
            else ("State", _state(seen, lag), ""),
            ("Members", str(len(seen.members) + seen.more), seen.model.lower() or "online"),
            ("Queues", str(len(known)), f"{len(owners)} are owned"),
        ),
        _places(ask, seen, owners),
        _members(ask, group, seen),
        _subscribed(seen),
    ]
    command = ("group", "lag", group)
    return View(title=group, place="groups", body=body, command=command, live_s=2)


def _state(seen: GroupPicture, lag: int) -> Element:
    if any(len(filters) > 1 for filters in seen.subscriptions.values()):
        return parts.dot("bad", "conflict")
    if not seen.members:
        return parts.dot("warn" if lag else "off", "nobody online")
    return parts.dot("ok", "stable")


def head(ask: ViewAsk, group: str, tab: str) -> Node:
    """What all pages of a group begin with."""
    at = ("groups", group)
    return [
        parts.crumbs((ask.url("groups"), "Groups")),
        parts.heading(
            group,
            (ask.url("act", "group-seek", group=group), "Seek"),
            (ask.url("dead", group), "Dead letters"),
            (ask.url("act", "group-delete", group=group), "Delete"),
        ),
        parts.tabs(
            tab,
            ("", ask.url(*at), "Queues and members"),
            ("stacks", ask.url(*at, "stacks"), "Stacks"),
            ("settings", ask.url(*at, "settings"), "Settings"),
        ),
    ]


def _places(ask: ViewAsk, seen: GroupPicture, owners: dict[tuple[str, str, int], str]) -> Element:
    def row(each: LagRow) -> tuple[Node, ...]:
        if each.error:
            return (
                h.span(".dim")[each.error],
                parts.code(each.broker),
                "",
                "",
                parts.UNKNOWN,
                "",
                "",
            )
        owner = owners.get((each.topic, each.broker, each.queue), "")
        at = level(each, ask.now_ms)
        return (
            h.a(href=ask.url("topics", each.topic))[each.topic],
            parts.code(f"{each.broker}:{each.queue}"),
            parts.number(each.consumer_offset),
            parts.number(each.broker_offset),
            h.span(f".heat.h{at}")[parts.number(each.lag)],
            parts.moment(each.last_consumed_ms, ago=True),
            h.span(title=owner)[short(owner)] if owner else h.span(".dim")["nobody"],
        )

    return parts.panel(
        "Where it is",
        parts.grid(
            ["Topic", "Queue", "#Goes on at", "#End", "#Lag", "Last consumed", "Owner"],
            map(row, seen.rows),
            caption="Queues of the group",
            most=_PLACES,
            keyed=[f"q-{each.topic}-{each.broker}-{each.queue}" for each in seen.rows],
            empty=parts.empty("It has no place in any queue", seen.why),
        ),
        aside=heat_key(),
    )


def _members(ask: ViewAsk, group: str, seen: GroupPicture) -> Element:
    def row(each: GroupMemberNow) -> tuple[Node, ...]:
        running = each.running
        queues = -1 if running is None else len(running.mq_table) + len(running.mq_pop_table)
        waiting = (
            -1 if running is None else sum(q.cached_msg_count for q in running.mq_table.values())
        )
        return (
            h.a(href=ask.url("groups", group, "stacks", client=each.client))[each.client],
            parts.code(each.address),
            f"{each.language.lower()} {each.version.replace('_', '.').lstrip('V')}",
            parts.number(queues),
            parts.number(waiting),
            h.span(".dim")[each.error] if each.error else None,
        )

    return parts.panel(
        "Members",
        parts.grid(
            ["Member", "Address", "Client", "#Queues", "#In work", ""],
            map(row, seen.members),
            caption="Members",
            most=_TABLE,
            keyed=[f"m-{each.client}" for each in seen.members],
            empty=parts.empty(
                "Nobody is online", "Its places in the queues stay until it comes again."
            ),
        ),
        h.p(".note")[f"{seen.more} more members are not asked."] if seen.more else None,
    )


def _subscribed(seen: GroupPicture) -> Element | None:
    if not seen.subscriptions:
        return None
    return parts.panel(
        "Subscriptions",
        parts.grid(
            ["Topic", "Filter", ""],
            [
                (
                    topic,
                    parts.code(" · ".join(sorted(filters))),
                    parts.dot("bad", "members differ")
                    if len(filters) > 1
                    else parts.dot("ok", "one"),
                )
                for topic, filters in sorted(seen.subscriptions.items())
            ],
            caption="Subscriptions",
            most=_TABLE,
        ),
    )


async def _settings(ask: ViewAsk, group: str) -> View:
    rows = await ask.cluster.look(("settings", group), lambda: settings_of_group(group))
    body = [
        head(ask, group, "settings"),
        settings_grid(rows),
        h.p[
            h.a(
                ".act", href=ask.url("apply", file=f"groups:\n  {group}:\n    retryMaxTimes: 16\n")
            )["Change by a plan"],
        ]
        if is_users_group(group)
        else None,
        h.p(".dim")["Its dead letters: ", h.a(href=ask.url("dead", group))[dlq_topic(group)]],
    ]
    command = ("group", "show", group, "--settings")
    return View(title=f"{group}: settings", place="groups", body=body, command=command)


def settings_grid(rows: list[SettingRow]) -> Node:
    """Settings by key, a column for each server; those that differ are marked."""
    servers = list(dict.fromkeys(row.server for row in rows))
    table: dict[str, dict[str, str]] = {}
    for row in rows:
        table.setdefault(row.key, {})[row.server] = row.value
    return parts.grid(
        ["Setting", *servers, *([""] if len(servers) > 1 else [])],
        [
            (
                parts.code(key),
                *(values.get(server, parts.UNKNOWN) for server in servers),
                *(
                    [parts.dot("warn", "differs") if len({*values.values()}) > 1 else ""]
                    if len(servers) > 1
                    else []
                ),
            )
            for key, values in sorted(table.items())
        ],
        caption="Settings",
        empty=parts.empty("No setting is known"),
    )
