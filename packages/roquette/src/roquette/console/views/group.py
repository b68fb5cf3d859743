"""Why is a group behind? Its place in each queue, who owns it, its members, what they subscribe to, and its settings."""

from collections.abc import Callable, Iterable
from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.admin.groups import GroupNow, LagRow, group_now, settings_of_group
from roquette.admin.members import OnlineGroup
from roquette.admin.settings import SettingRow
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.topic import MOST_MEMBERS, heat_key, level, short
from roquette.message.names import dlq_topic, is_users_group

PATHS: Final = ("/groups/{group}", "/groups/{group}/settings")
_CHANGED: Final = ("retryMaxTimes", "retryQueueNums", "consumeEnable", "consumeBroadcastEnable")
"""Settings of the file that a change begins with."""
_PLACES: Final = 1_300
_TABLE: Final = 600
"""Elements of the list of its queues, and of the others."""


async def show(ask: ViewAsk) -> View:
    group = ask.words["group"]
    if ask.path.endswith("/settings"):
        return await _settings(ask, group)
    seen = await ask.cluster.look(("group", group), lambda: group_now(group, MOST_MEMBERS))
    online = seen.online
    known = [row for row in seen.rows if not row.error]
    lag = sum(row.lag for row in known)
    times = [row.last_consumed_ms for row in known if row.lag > 0 and row.last_consumed_ms > 0]
    last = ("Last consumed", parts.moment(min(times, default=0), ago=True), "where it is behind")
    topics = parts.counted(len({row.topic for row in known}), "topic")
    body = [
        head(ask, group, ""),
        parts.tiles(
            ("Behind", parts.number(lag), f"in {topics}"),
            last if times else ("State", _state(online, lag), ""),
            ("Members", str(len(online.members) + online.more), online.model.lower() or "online"),
            ("Queues", str(len(known)), f"{sum(1 for row in known if row.owner)} are owned"),
        ),
        _places(ask, seen),
        _members(ask, group, online),
        _subscribed(online),
    ]
    return View(group, "groups", body, ("group", "lag", group, "--owners"), 2)


def _state(online: OnlineGroup, lag: int) -> Element:
    if any(len(filters) > 1 for filters in online.filters.values()):
        return parts.dot("bad", "conflict")
    if not online.members:
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


def _places(ask: ViewAsk, seen: GroupNow) -> Element:
    def owner(row: LagRow) -> Node:
        if row.owner:
            return h.span(title=row.owner)[short(row.owner)]
        return not row.error and parts.dim("nobody")

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


def _members(ask: ViewAsk, group: str, online: OnlineGroup) -> Element:
    table = parts.grid(
        "Members",
        online.members,
        {
            "Member": lambda each: h.a(href=ask.url("groups", group, "stacks", client=each.client))[
                each.client
            ],
            "Address": lambda each: parts.code(each.address),
            "Client": lambda each: f"{each.language.lower()} {parts.version(each.version)}",
            "#Queues": lambda each: each.queues,
            "#In work": lambda each: each.messages,
            "": lambda each: parts.dim(each.error),
        },
        parts.empty("Nobody is online", "Its places in the queues stay until it comes again."),
        lambda each: f"m-{each.client}",
        _TABLE,
    )
    return parts.panel("Members", table, parts.more(online.more, "more members are not asked."))


def _subscribed(online: OnlineGroup) -> Element | None:
    if not online.filters:
        return None
    one, several = parts.dot("ok", "one"), parts.dot("bad", "members differ")
    table = parts.grid(
        "Subscriptions",
        sorted(online.filters.items()),
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
    now = {row.key: row.value for row in reversed(rows)}  # as the first broker has them
    words = "".join(f"    {key}: {now[key]}\n" for key in _CHANGED)
    file = f"groups:\n  {group}:\n{words}"
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
