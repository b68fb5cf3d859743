"""Who may do what? Users and rules as a matrix, and a question: may this user do that, and by which rule?"""

from collections.abc import Callable
from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.admin.access import (
    AclRow,
    UserRow,
    check,
    list_acls,
    list_users,
    parse_actions,
    parse_resource,
    show_user,
)
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.errors import BrokerError, ConfigError, RoquetteError
from roquette.wire.codes import ResponseCode

PATHS: Final = ("/access", "/access/{user}")
MOST_COLUMNS: Final = 40
MOST_USERS: Final = 200
_ACTIONS: Final = ("Pub", "Sub", "Get", "List", "Create", "Update", "Delete")
_ANSWERS: Final = {True: ("ok", "Allowed"), False: ("bad", "Refused")}


async def show(ask: ViewAsk) -> View:
    if "user" in ask.words:
        return await _user(ask, ask.words["user"])
    servers, words = ask.cluster.name_servers, ask.text("q")
    acts = ((ask.url("act", "acl-allow"), "Allow"), (ask.url("act", "acl-deny"), "Deny"))
    makes = " makes one; without access control everybody may do everything."
    none = parts.empty("No users", parts.code("roquette user create NAME"), makes)
    body: list[Node] = [parts.heading("Access", *acts), await _question(ask)]
    try:
        users = await ask.cluster.look(("users", words), lambda: list_users(servers, words))
        rules = await ask.cluster.look("rules", lambda: list_acls(servers))
    except BrokerError as error:
        return View("Access", "access", [body, _untold(error)], ("acl", "ls"))
    shown = users[:MOST_USERS]
    wrong = (f"servers differ: {row.username}: {row.error}" for row in shown if row.error)
    body += [
        parts.search(ask.url("access"), words, f"{parts.number(len(users))} users"),
        parts.panel("Who may do what", _matrix(ask, shown, rules)) if users else none,
        [h.p(".note")[each] for each in wrong],
        parts.more(len(users) - MOST_USERS, "more users: search for one"),
    ]
    return View("Access", "access", body, ("acl", "ls"))


def _untold(error: BrokerError) -> Element:
    """As Apache's brokers answer that have no access control."""
    why = "A server without access control keeps no users: everybody may do everything."
    known = error.code == ResponseCode.NO_PERMISSION
    return parts.refused("Users and rules are not told", error, None if known else h.p[why])


async def _question(ask: ViewAsk) -> Node:
    user, action, resource = ask.text("user"), ask.text("action") or "Pub", ask.text("resource")
    source, servers = ask.text("from") or "127.0.0.1", ask.cluster.name_servers
    answer: Node = None
    if user and resource:
        try:
            on = (parse_resource(resource),)
            asked = check(servers, user, parse_actions(action), on, source=source)
            rows = (await ask.cluster.run(asked)).value or ()
            answer = [parts.note(*_ANSWERS[row.allowed], row.why) for row in rows]
        except RoquetteError as error:
            answer = parts.refused("There is no answer", error)
    form = h.form(".filter", method="get", action=ask.url("access"))[
        parts.entry("user", "May", user, required=True, size="14"),
        parts.choice("action", "do", [(each, each) for each in _ACTIONS], action),
        parts.entry("resource", "on", resource, required=True, placeholder="Topic:orders"),
        parts.entry("from", "from", source, size="14"),
        h.button(type="submit")["Ask"],
    ]
    return [form, answer]


def _matrix(ask: ViewAsk, users: list[UserRow], rules: list[AclRow]) -> Node:
    by: dict[tuple[str, str], list[AclRow]] = {}
    for row in rules:
        by.setdefault((row.subject, row.resource), []).append(row)
    resources = list(dict.fromkeys(row.resource for row in rules))

    def column(resource: str) -> Callable[[UserRow], Node]:
        return lambda user: [
            parts.dot("ok" if row.decision == "Allow" else "bad", f"{row.decision} {row.actions}")
            for row in by.get((f"User:{user.username}", resource), ())
        ]

    columns: dict[str, Callable[[UserRow], Node]] = {
        "User": lambda user: ask.link("access", user.username),
        **{resource: column(resource) for resource in resources[:MOST_COLUMNS]},
    }
    table = parts.grid("Rules by user and resource", users, columns)
    return [table, parts.more(len(resources) - MOST_COLUMNS, "more resources: open a user")]


async def _user(ask: ViewAsk, user: str) -> View:
    servers = ask.cluster.name_servers
    above = parts.crumbs((ask.url("access"), "Access"))
    try:
        found = await ask.cluster.look(("user", user), lambda: show_user(servers, user))
    except BrokerError as error:
        body: Node = [above, parts.heading(user), _untold(error)]
        return View(user, "access", body, ("user", "show", user))
    if not found.users:
        raise ConfigError(f"there is no user {user}")
    acts = (
        (ask.url("act", "acl-allow", user=user), "Allow"),
        (ask.url("act", "acl-deny", user=user), "Deny"),
        (ask.url("act", "user-delete", name=user), "Delete"),
    )
    body = [
        above,
        parts.heading(user, *acts),
        parts.rows_of(found.users, "The user"),
        parts.panel("Rules", parts.rows_of(found.rules, "Rules", parts.empty("It has no rules"))),
    ]
    return View(user, "access", body, ("user", "show", user))
