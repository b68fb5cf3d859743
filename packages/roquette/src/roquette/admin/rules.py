"""Rules of users, as people say them: allowed, denied, removed, and why a request would be allowed or not."""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from roquette.access.model import (
    Acl,
    Action,
    Decision,
    Pattern,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
)
from roquette.access.model import parse_actions as model_actions
from roquette.access.policies import PolicyTable
from roquette.admin.access import (
    AclRow,
    OfCluster,
    UserRow,
    delete_acl,
    list_users,
    put_rules,
    reported,
    rules_of,
    would,
)
from roquette.admin.command import SAY_WHAT, Flag, Plan, Report, command
from roquette.client.operations import Operation
from roquette.errors import ClientError, ConfigError


def parse_resource(text: str) -> Resource:
    """A resource as rules name it; a bare name is a topic. Raises ConfigError."""
    try:
        return Resource.parse(text if ":" in text or text == "*" else f"Topic:{text}")
    except ValueError as error:
        raise ConfigError(str(error)) from None


def parse_actions(text: str) -> tuple[Action, ...]:
    """Actions apart by commas or `|`; raises ConfigError."""
    try:
        return model_actions(text.replace("|", ",").split(","))
    except ValueError as error:
        known = ", ".join(action.value.lower() for action in Action)
        raise ConfigError(f"{error}; actions are {known}") from None


def _address(text: str) -> str:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(f"--from {text!r} is neither an address nor a network") from None
    return text


Actions = Annotated[
    tuple[Action, ...],
    Flag(
        "ACTIONS",
        "pub, sub, create, update, delete, get, list or all; several with commas.",
        reads=parse_actions,
    ),
]
Resources = Annotated[
    Sequence[Resource],
    Flag(
        "RESOURCE",
        "A topic, or Topic:NAME, Group:NAME, Cluster:NAME; a * ends a prefix or stands for all.",
        reads=lambda words: [parse_resource(text) for text in words],
        many=True,
    ),
]
Sources = Annotated[
    Sequence[str] | None,
    Flag(
        "--from IP",
        "Only from this address or network; may be repeated.",
        reads=lambda words: [_address(text) for text in words],
        many=True,
    ),
]
_DEFAULT: Final = "A rule that counts only where no other one fits."
Default = Annotated[bool, Flag("--default", _DEFAULT)]
Replace = Annotated[bool, Flag("--replace", "Replace the rules there are for these resources.")]


@command(dry_run=SAY_WHAT)
def allow(
    name_servers: Sequence[str],
    user: str,
    actions: Actions,
    resources: Resources,
    *,
    source: Sources = None,
    default: Default = False,
    replace: Replace = False,
    cluster: OfCluster = None,
) -> Operation[Plan[Any]]:
    """Allow a user something, on every broker and name server: roquette acl allow app1 pub 'orders*'

    Actions are added to those the user has. To consume, a user needs sub on the topic and on its group:
    roquette acl allow app2 sub orders Group:billing
    """
    kinds = {str(each).partition(":")[0] for each in resources}
    consumes = {Action.SUB, Action.ALL}.intersection(actions) and kinds == {"Topic"}
    note = f"its consumers need their group, too: roquette acl allow {user} sub Group:NAME"
    rows = _rules(Decision.ALLOW, user, actions, resources, source, default)
    return (yield from _put(name_servers, rows, replace, cluster, [note] if consumes else []))


@command(dry_run=SAY_WHAT)
def deny(
    name_servers: Sequence[str],
    user: str,
    actions: Actions,
    resources: Resources,
    *,
    source: Sources = None,
    default: Default = False,
    replace: Replace = False,
    cluster: OfCluster = None,
) -> Operation[Plan[Any]]:
    """Deny a user part of what a wider rule allows: roquette acl deny app1 pub orders-internal

    What no rule allows is denied without any.
    """
    rows = _rules(Decision.DENY, user, actions, resources, source, default)
    return (yield from _put(name_servers, rows, replace, cluster, []))


def _rules(
    decision: Decision,
    user: str,
    actions: Sequence[Action],
    resources: Sequence[Resource],
    sources: Sequence[str] | None,
    default: bool,
) -> list[AclRow]:
    if Action.ANY in actions:
        raise ConfigError("a rule names its actions: pub, sub, create, ... or all")
    kind = PolicyType.DEFAULT if default else PolicyType.CUSTOM
    names, ips = ",".join(action.value for action in actions), ",".join(sources or ())
    return [
        AclRow(f"User:{user}", kind.value, str(resource), names, ips, decision.value)
        for resource in resources
    ]


def _put(
    name_servers: Sequence[str],
    rules: Sequence[AclRow],
    replace: bool,
    cluster: str | None,
    notes: Sequence[str],
) -> Operation[Plan[Any]]:
    user = rules[0].subject.removeprefix("User:")
    there = {
        row.resource: row
        for row in (yield from rules_of(name_servers, user, cluster=cluster))
        if row.policy_type == rules[0].policy_type
    }
    rows = list(rules) if replace else [_joined(rule, there) for rule in rules]
    words = "; ".join(map(_words, rows))
    deed = f"{user}: {words}"
    does = reported(put_rules(rows, name_servers, cluster=cluster), deed, notes, rules=rows)
    return Plan(would(name_servers, cluster, f"would set {words}"), "", does)


def _joined(rule: AclRow, there: Mapping[str, AclRow]) -> AclRow:
    """The rule with the actions of the one that is there already."""
    old = there.get(rule.resource)
    if old is None:
        return rule
    if (old.decision, old.source_ips) != (rule.decision, rule.source_ips):
        raise ConfigError(
            f"a user has one rule for a resource, and there is '{_words(old)}': "
            "replace it by --replace, or remove it by 'roquette acl rm'"
        )
    actions = dict.fromkeys([*filter(None, old.actions.split(",")), *rule.actions.split(",")])
    return msgspec.structs.replace(rule, actions=",".join(actions))


def _words(row: AclRow) -> str:
    where = f" from {row.source_ips}" if row.source_ips else ""
    return f"{row.decision} {row.actions} on {row.resource}{where}"


@command(dry_run=SAY_WHAT, confirmed=True)
def remove(
    name_servers: Sequence[str],
    user: str,
    resource: Annotated[
        str, Flag("RESOURCE", "As in its rule; without one all rules of the user go.")
    ] = "",
    *,
    default: Default = False,
    cluster: OfCluster = None,
) -> Operation[Plan[Any]]:
    """Remove a rule, or all rules of a user."""
    key = str(parse_resource(resource)) if resource else ""
    deed = f"{user}: remove {f'the rule for {key}' if key else 'all rules'}"
    rules = yield from rules_of(name_servers, user, cluster=cluster)
    rows = [row for row in rules if not key or row.resource == key]
    if not rows:
        raise ClientError(f"{user} has no such rule: 'roquette acl show {user}' lists them")
    told = delete_acl(
        f"User:{user}",
        name_servers,
        resource=key,
        policy_type=PolicyType.DEFAULT.value if default else "",
        cluster=cluster,
    )
    shows = would(name_servers, cluster, f"would remove {'; '.join(map(_words, rows))}")
    return Plan(shows, "" if key else deed, reported(told, deed, rules=rows))


class CheckRow(msgspec.Struct, frozen=True):
    """One question and its answer. why: the rule that decides, or what is missing."""

    user: str
    action: str
    resource: str
    source: str
    allowed: bool
    why: str


@command()
def check(
    name_servers: Sequence[str],
    user: str,
    actions: Actions,
    resources: Resources,
    *,
    source: Annotated[str, Flag("--from IP", reads=_address)] = "127.0.0.1",
    cluster: OfCluster = None,
) -> Operation[Report[list[CheckRow]]]:
    """Tell whether a user would be allowed something, and by which rule: roquette acl check alice pub orders --from 10.0.0.7

    It asks the servers for users and rules, and judges as they do. Exit code 10 when something would be refused.

    Args:
        source: The address the requests come from.
    """
    if any(resource.pattern is not Pattern.LITERAL for resource in resources):
        raise ConfigError("name one topic, group or cluster: requests have no *")
    rules = yield from rules_of(name_servers, user, cluster=cluster)
    found = yield from list_users(name_servers, user, cluster=cluster)
    users = [row for row in found if row.username == user]
    judge = _judge_of(user, users, rules)
    answers = [
        CheckRow(user, action.value, str(resource), source, *judge(resource, action, source))
        for resource in resources
        for action in actions
    ]
    problems = ({row.error for row in users} | {row.error for row in rules}) - {""}
    return Report(
        answers,
        notes=[f"servers differ: {problem}" for problem in problems],
        healthy=all(answer.allowed for answer in answers),
    )


def _judge_of(
    user: str, users: Sequence[UserRow], rules: Sequence[AclRow]
) -> Callable[[Resource, Action, str], tuple[bool, str]]:
    """Whether something is allowed, and why."""
    table = PolicyTable([acl_of(user, rules)])

    def judge(resource: Resource, action: Action, source: str) -> tuple[bool, str]:
        if not users:
            return False, "there is no such user"
        if any(row.user_status == "disable" for row in users):
            return False, "the user is disabled"
        if all(row.user_type == "Super" for row in users):
            return True, "a super user"
        verdict = table.judge(user, resource, (action,), source)
        return verdict.allowed, verdict.rule or verdict.why

    return judge


def acl_of(user: str, rules: Sequence[AclRow]) -> Acl:
    """The rules as servers judge by them."""
    policies = []
    for kind in PolicyType:
        entries = [
            PolicyEntry(
                Resource.parse(row.resource),
                model_actions(row.actions.split(",")),
                tuple(row.source_ips.split(",")) if row.source_ips else (),
                Decision(row.decision),
            )
            for row in rules
            if row.policy_type == kind.value
        ]
        if entries:
            policies.append(Policy(kind, tuple(entries)))
    return Acl(f"User:{user}", tuple(policies))


def rows_of(acl: Acl) -> list[AclRow]:
    """A row for each rule."""
    return [
        AclRow(
            acl.subject,
            policy.policy_type.value,
            str(entry.resource),
            ",".join(action.value for action in entry.actions),
            ",".join(entry.source_ips),
            entry.decision.value,
        )
        for policy in acl.policies
        for entry in policy.entries
    ]
