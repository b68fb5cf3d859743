"""Who may do what? Users and rules as a matrix, and a question: may this user do that, and by which rule?"""

from typing import Final

import htpy as h
from htpy import Node

from roquette.admin.access import (
    AclRow,
    check,
    list_acls,
    list_users,
    parse_actions,
    parse_resource,
    show_user,
)
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.errors import ConfigError, RoquetteError

PATHS: Final = ("/access", "/access/{user}")
MOST_COLUMNS: Final = 40
MOST_USERS: Final = 200


async def show(ask: ViewAsk) -> View:
    """The view."""
    if "user" in ask.words:
        return await _user(ask, ask.words["user"])
    servers, words = ask.cluster.name_servers, ask.text("q")
    users = await ask.cluster.look(("users", words), lambda: list_users(servers, words))
    rules = await ask.cluster.look("rules", lambda: list_acls(servers))
    shown = users[:MOST_USERS]
    body = [
        parts.heading(
            "Access", (ask.url("act", "acl-allow"), "Allow"), (ask.url("act", "acl-deny"), "Deny")
        ),
        await _question(ask),
        parts.search(ask.url("access"), words, f"{parts.number(len(users))} users"),
        parts.panel("Who may do what", _matrix(ask, [row.username for row in shown], rules))
        if users
        else parts.empty(
            "No users",
            parts.code("roquette user create NAME"),
            " makes one; without access control everybody may do everything.",
        ),
        (
            h.p(".note")[f"servers differ: {row.username}: {row.error}"]
            for row in shown
            if row.error
        ),
        h.p(".note")[f"{len(users) - MOST_USERS} more users: search for one"]
        if len(users) > MOST_USERS
        else None,
    ]
    return View(title="Access", place="access", body=body, command=("acl", "ls"), live_s=0)


async def _question(ask: ViewAsk) -> Node:
    user, action, resource = ask.text("user"), ask.text("action") or "Pub", ask.text("resource")
    source = ask.text("from") or "127.0.0.1"
    answer: Node = None
    if user and resource:
        try:
            report = await ask.cluster.run(
                check(
                    ask.cluster.name_servers,
                    user,
                    parse_actions(action),
                    (parse_resource(resource),),
                    source=source,
                )
            )
            answer = [
                parts.note(
                    "ok" if row.allowed else "bad", "Allowed" if row.allowed else "Refused", row.why
                )
                for row in report.value or ()
            ]
        except RoquetteError as error:
            answer = parts.refused("There is no answer", error)
    form = h.form(".filter", method="get", action=ask.url("access"))[
        parts.entry("user", "May", user, required=True, size="14"),
        parts.choice(
            "action",
            "do",
            [(each, each) for each in ("Pub", "Sub", "Get", "List", "Create", "Update", "Delete")],
            action,
        ),
        parts.entry(
            "resource", "on", resource, required=True, placeholder="Topic:orders", size="20"
        ),
        parts.entry("from", "from", source, size="14"),
        h.button(type="submit")["Ask"],
    ]
    return [form, answer]


def _matrix(ask: ViewAsk, users: list[str], rules: list[AclRow]) -> Node:
    resources = list(dict.fromkeys(row.resource for row in rules))[:MOST_COLUMNS]
    by: dict[tuple[str, str], list[AclRow]] = {}
    for row in rules:
        by.setdefault((row.subject.removeprefix("User:"), row.resource), []).append(row)

    def cell(user: str, resource: str) -> Node:
        return [
            parts.dot("ok" if row.decision == "Allow" else "bad", f"{row.decision} {row.actions}")
            for row in by.get((user, resource), ())
        ] or ""

    left = len({row.resource for row in rules}) - len(resources)
    return [
        parts.grid(
            ["User", *resources],
            [
                (h.a(href=ask.url("access", user))[user], *(cell(user, each) for each in resources))
                for user in users
            ],
            caption="Rules by user and resource",
        ),
        h.p(".note")[f"{left} more resources: open a user"] if left else None,
    ]


async def _user(ask: ViewAsk, user: str) -> View:
    servers = ask.cluster.name_servers
    found = await ask.cluster.look(("user", user), lambda: show_user(servers, user))
    if not found.users:
        raise ConfigError(f"there is no user {user}")
    acts = (
        (ask.url("act", "acl-allow", user=user), "Allow"),
        (ask.url("act", "acl-deny", user=user), "Deny"),
        (ask.url("act", "user-delete", name=user), "Delete"),
    )
    body = [
        parts.crumbs((ask.url("access"), "Access")),
        parts.heading(user, *acts),
        parts.rows_of(found.users, "The user"),
        parts.panel("Rules", parts.rows_of(found.rules, "Rules", parts.empty("It has no rules"))),
    ]
    return View(title=user, place="access", body=body, command=("user", "show", user))
