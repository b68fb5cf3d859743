"""Users and access control lists of a whole cluster: every master and every name server keeps them, replicas copy."""

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeVar

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
from roquette.admin.cluster import is_unserved, masters_of, require_one
from roquette.admin.command import SAY_WHAT, Flag, OperationPlan, OperationReport, command
from roquette.client import operator_calls
from roquette.client.calls import Answer, Call, Operation, ask_all
from roquette.errors import ClientError, ConfigError
from roquette.wire.bodies.tables import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

T = TypeVar("T")


OfCluster = Annotated[
    str | None, Flag("--cluster CLUSTER", "Only this cluster's brokers, and name servers.")
]


class AccessServer(NamedTuple):
    """A server that keeps users and rules. name: of a broker, empty: a name server."""

    name: str
    address: str


class Told(msgspec.Struct, frozen=True):
    """Outcome of a change at one server.

    Attributes:
        broker: empty: a name server. error: empty: it is done.
        unserved: it keeps no users at all, as Apache's name servers and brokers before 5.3: `error` is empty.
    """

    broker: str
    address: str
    error: str = ""
    unserved: bool = False


class ServerRow(msgspec.Struct, frozen=True):
    """Row of one server: what it did, or would do."""

    server: str
    address: str
    result: str


class UserRow(msgspec.Struct, frozen=True):
    """A user as the servers have it. error: which servers lack it, have it otherwise, or do not answer."""

    username: str
    user_type: str
    user_status: str
    error: str = ""


class AclRow(msgspec.Struct, frozen=True):
    """One rule as the servers have it. error: which servers lack it, or do not answer."""

    subject: str
    policy_type: str
    resource: str
    actions: str
    source_ips: str
    decision: str
    error: str = ""


def keepers(
    name_servers: Sequence[str], cluster: str | None = None
) -> Operation[list[AccessServer]]:
    """Return the keepers of users: the masters of one cluster or of all, and the name servers.

    Name servers without any broker are enough: their users come first when a cluster is set up.
    """
    try:
        masters = yield from masters_of(cluster)
    except ConfigError:
        if cluster is not None:
            raise
        masters = []
    brokers = [AccessServer(name, address) for name, address in masters]
    return [*brokers, *(AccessServer("", address) for address in name_servers)]


def would(
    name_servers: Sequence[str], cluster: str | None, result: str
) -> Operation[list[ServerRow]]:
    """Return the rows of a dry run: which servers would be told what."""
    asked = yield from keepers(name_servers, cluster)
    return [ServerRow(each.name or "name server", each.address, result) for each in asked]


def not_done(told: Sequence[Told], deed: str) -> str:
    """Name the servers that did not make a change, in words, or say that none keeps users; "" when all is done."""
    failed = [
        f"{one.broker or 'name server'} {one.address}: {one.error}" for one in told if one.error
    ]
    if failed:
        return f"{deed}: not done on {'; '.join(failed)}"
    return f"{deed}: no server here keeps users" if all(one.unserved for one in told) else ""


def reported(
    change: Operation[list[Told]], deed: str, notes: Sequence[str] = (), **result: object
) -> Operation[OperationReport[Any]]:
    """Make a change, and report it; `notes` are told to people when all of it is done."""
    report = report_of((yield from change), deed, **result)
    shown = [*(report.shown or ()), *([] if report.failed else notes)]
    return msgspec.structs.replace(report, shown=shown)


def report_of(told: Sequence[Told], deed: str, **result: object) -> OperationReport[Any]:
    """Report what each server did: a line for people when all went well, else a table; programs get `result`, too."""
    failed = not_done(told, deed)
    rows = [
        ServerRow(
            one.broker or "name server",
            one.address,
            one.error or ("keeps no users" if one.unserved else "done"),
        )
        for one in told
    ]
    well = not any(one.error or one.unserved for one in told)
    done = f"{deed}: done on {', '.join(dict.fromkeys(row.server for row in rows))}"
    return OperationReport({**result, "servers": rows}, [done if well else rows], failed=failed)


def save_user(
    username: str,
    name_servers: Sequence[str],
    *,
    create: bool,
    password: str | None = None,
    user_type: str | None = None,
    user_status: str | None = None,
    cluster: str | None = None,
) -> Operation[list[Told]]:
    """Create a user, or change one, everywhere; None leaves what is there."""
    user = UserInfo(
        username=username, password=password, user_type=user_type, user_status=user_status
    )
    call = operator_calls.create_user(user) if create else operator_calls.update_user(user)
    return (yield from _everywhere(call, name_servers, cluster))


@command(dry_run=SAY_WHAT, confirmed=True)
def delete_user(
    name_servers: Sequence[str], name: str, *, cluster: OfCluster = None
) -> OperationPlan[Any]:
    """Delete a user and its rules; its requests are refused from then on."""
    deed = f"delete user {name} and its rules"
    told = _everywhere(operator_calls.delete_user(name), name_servers, cluster)
    shows = would(name_servers, cluster, f"would {deed}")
    return OperationPlan(shows, deed, reported(told, deed, user=name))


def put_rules(
    rules: Sequence[AclRow], name_servers: Sequence[str], *, cluster: str | None = None
) -> Operation[list[Told]]:
    """Add rules to their one subject, or replace those for the same resources, everywhere."""
    by_type: dict[str, list[PolicyEntryInfo]] = {}
    for rule in rules:
        entry = PolicyEntryInfo(
            resource=rule.resource,
            actions=rule.actions.split(","),
            source_ips=rule.source_ips.split(",") if rule.source_ips else None,
            decision=rule.decision,
        )
        by_type.setdefault(rule.policy_type, []).append(entry)
    policies = [PolicyInfo(policy_type=name, entries=entries) for name, entries in by_type.items()]
    acl = AclInfo(subject=rules[0].subject, policies=policies)
    return (yield from _everywhere(operator_calls.create_acl(acl), name_servers, cluster))


def delete_acl(
    subject: str,
    name_servers: Sequence[str],
    *,
    resource: str = "",
    policy_type: str = "",
    cluster: str | None = None,
) -> Operation[list[Told]]:
    """Remove the rule for a resource, or all of a subject's, everywhere."""
    call = operator_calls.delete_acl(subject, resource, policy_type)
    return (yield from _everywhere(call, name_servers, cluster))


@command(empty="no users yet: 'roquette user create NAME'", watched=True)
def list_users(
    name_servers: Sequence[str],
    part: Annotated[str, Flag("PART", "Only names with this in them.")] = "",
    *,
    cluster: OfCluster = None,
) -> Operation[list[UserRow]]:
    """List users, and which servers have them otherwise; no password is shown, by anything."""
    call = operator_calls.list_users(part)
    answers = yield from _read(call, name_servers, cluster)

    def rows(users: list[UserInfo]) -> Iterable[UserRow]:
        for user in users:
            yield UserRow(user.username or "", user.user_type or "", user.user_status or "")

    return _merged(answers, rows)


@command(empty="no rules: only super users may do anything", watched=True)
def list_acls(
    name_servers: Sequence[str],
    user: Annotated[str, Flag("--user PART", "Only users like this.")] = "",
    resource: Annotated[str, Flag("--resource PART", "Only resources like this.")] = "",
    *,
    cluster: OfCluster = None,
) -> Operation[list[AclRow]]:
    """List rules, and which servers have them otherwise."""
    call = operator_calls.list_acls(user, resource)
    answers = yield from _read(call, name_servers, cluster)
    return _merged(answers, acl_rows)


@command(shows=lambda rows, user, **_: OperationReport(rows, empty=f"{user} has no rules"))
def rules_of(
    name_servers: Sequence[str], user: str, *, cluster: OfCluster = None
) -> Operation[list[AclRow]]:
    """List the rules of one user."""
    subject = f"User:{user}"
    rows = yield from list_acls(name_servers, subject, cluster=cluster)
    return [row for row in rows if row.subject == subject]


class UserAccess(msgspec.Struct, frozen=True):
    """A user and what it may do. `users`: more than one row where servers have it otherwise."""

    users: list[UserRow]
    rules: list[AclRow]


def _user(found: UserAccess, **_: object) -> OperationReport[UserAccess]:
    everything = all(row.user_type == "Super" for row in found.users)
    empty = "a super user: may do everything" if everything else "may do nothing"
    return OperationReport(found, [found.users, "", found.rules], empty=empty)


@command(shows=_user, watched=True)
def show_user(
    name_servers: Sequence[str], name: str, *, cluster: OfCluster = None
) -> Operation[UserAccess]:
    """Show a user and what it may do.

    Raises:
        ClientError: there is none of that name.
    """
    found = yield from list_users(name_servers, name, cluster=cluster)
    users = [row for row in found if row.username == name]
    if not users:
        raise ClientError(f"user {name} does not exist: 'roquette user ls' shows those that do")
    return UserAccess(users, (yield from rules_of(name_servers, name, cluster=cluster)))


def acl_rows(acls: Iterable[AclInfo]) -> Iterable[AclRow]:
    """A row for each rule."""
    for acl in acls:
        for policy in acl.policies or ():
            for entry in policy.entries or ():
                yield AclRow(
                    acl.subject or "",
                    policy.policy_type or "Custom",
                    entry.resource or "",
                    ",".join(entry.actions or ()),
                    ",".join(entry.source_ips or ()),
                    entry.decision or "",
                )


def _everywhere(
    call: Call[None], name_servers: Sequence[str], cluster: str | None
) -> Operation[list[Told]]:
    asked = yield from keepers(name_servers, cluster)
    answers = yield from ask_all((keeper.address, call) for keeper in asked)
    told: list[Told] = []
    for keeper, answer in zip(asked, answers, strict=True):
        unserved = is_unserved(answer)
        told.append(Told(*keeper, "" if unserved else answer.reason, unserved))
    return told


def _read(
    call: Call[T], name_servers: Sequence[str], cluster: str | None
) -> Operation[list[Answer[T]]]:
    """Answers of those that keep users; raises ClientError when none does, or none answers."""
    asked = yield from keepers(name_servers, cluster)
    answers = yield from ask_all((keeper.address, call) for keeper in asked)
    served = [answer for answer in answers if not is_unserved(answer)]
    if not served:
        raise ClientError("no server here keeps users: Apache's brokers do since 5.3")
    require_one(served)
    return served


def _merged(answers: Sequence[Answer[Any]], rows: Any) -> list[Any]:
    """Each row once, with the servers that have it not, or say nothing."""
    found: dict[Any, set[str]] = {}
    silent = [f"{answer.address}: {answer.reason}" for answer in answers if answer.error]
    told = [answer for answer in answers if answer.error is None]
    for answer in told:
        for row in rows(answer.value):
            found.setdefault(row, set()).add(answer.address)
    merged = []
    for row, at in found.items():
        absent = [f"{a.address}: has it not so" for a in told if a.address not in at]
        error = "; ".join([*absent, *silent])
        merged.append(msgspec.structs.replace(row, error=error) if error else row)
    return sorted(merged, key=lambda row: tuple(map(str, msgspec.structs.astuple(row))))


# Rules of users, as people say them: allowed, denied, removed, and why a request would be allowed or not.


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
) -> Operation[OperationPlan[Any]]:
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
) -> Operation[OperationPlan[Any]]:
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
) -> Operation[OperationPlan[Any]]:
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
    return OperationPlan(would(name_servers, cluster, f"would set {words}"), "", does)


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
) -> Operation[OperationPlan[Any]]:
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
    return OperationPlan(shows, "" if key else deed, reported(told, deed, rules=rows))


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
) -> Operation[OperationReport[list[CheckRow]]]:
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
    return OperationReport(
        answers,
        notes=[f"servers differ: {problem}" for problem in problems],
        healthy=all(answer.allowed for answer in answers),
    )


def _judge_of(
    user: str, users: Sequence[UserRow], rules: Sequence[AclRow]
) -> Callable[[Resource, Action, str], tuple[bool, str]]:
    """Return a function that tells whether something is allowed, and why."""
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
