"""Users and access control lists of a whole cluster: every master and every name server keeps them, replicas copy."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from roquette.admin.cluster import is_unserved, masters_of, require_one
from roquette.admin.command import SAY_WHAT, Flag, Plan, Report, command
from roquette.client import operator_calls
from roquette.client.calls import Call
from roquette.client.operations import Answer, Operation, ask_all
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
    """What one server made of a change.

    Attributes:
        broker: empty: a name server. error: empty: it is done.
        unserved: it keeps no users at all, as Apache's name servers and brokers before 5.3: `error` is empty.
    """

    broker: str
    address: str
    error: str = ""
    unserved: bool = False


class ServerRow(msgspec.Struct, frozen=True):
    """What one server did, or would do."""

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
    """Who keeps users: the masters of one cluster or of all, and the name servers.

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
    """What a dry run tells: which servers would be told what."""
    asked = yield from keepers(name_servers, cluster)
    return [ServerRow(each.name or "name server", each.address, result) for each in asked]


def not_done(told: Sequence[Told], deed: str) -> str:
    """Which servers did not make a change, in words, or that none keeps users; "" when all is done."""
    failed = [
        f"{one.broker or 'name server'} {one.address}: {one.error}" for one in told if one.error
    ]
    if failed:
        return f"{deed}: not done on {'; '.join(failed)}"
    return f"{deed}: no server here keeps users" if all(one.unserved for one in told) else ""


def reported(
    change: Operation[list[Told]], deed: str, notes: Sequence[str] = (), **result: object
) -> Operation[Report[Any]]:
    """Make a change, and report it; `notes` are told to people when all of it is done."""
    report = report_of((yield from change), deed, **result)
    shown = [*(report.shown or ()), *([] if report.failed else notes)]
    return msgspec.structs.replace(report, shown=shown)


def report_of(told: Sequence[Told], deed: str, **result: object) -> Report[Any]:
    """What each server did: a line for people when all went well, else a table; programs get `result`, too."""
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
    return Report({**result, "servers": rows}, [done if well else rows], failed=failed)


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
def delete_user(name_servers: Sequence[str], name: str, *, cluster: OfCluster = None) -> Plan[Any]:
    """Delete a user and its rules; its requests are refused from then on."""
    deed = f"delete user {name} and its rules"
    told = _everywhere(operator_calls.delete_user(name), name_servers, cluster)
    shows = would(name_servers, cluster, f"would {deed}")
    return Plan(shows, deed, reported(told, deed, user=name))


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


@command(shows=lambda rows, user, **_: Report(rows, empty=f"{user} has no rules"))
def rules_of(
    name_servers: Sequence[str], user: str, *, cluster: OfCluster = None
) -> Operation[list[AclRow]]:
    """List the rules of one user."""
    subject = f"User:{user}"
    rows = yield from list_acls(name_servers, subject, cluster=cluster)
    return [row for row in rows if row.subject == subject]


def _user(found: tuple[list[UserRow], list[AclRow]], **_: object) -> Report[Any]:
    users, rules = found
    everything = all(row.user_type == "Super" for row in users)
    empty = "a super user: may do everything" if everything else "may do nothing"
    return Report({"users": users, "rules": rules}, [users, "", rules], empty=empty)


@command(shows=_user, watched=True)
def show_user(
    name_servers: Sequence[str], name: str, *, cluster: OfCluster = None
) -> Operation[tuple[list[UserRow], list[AclRow]]]:
    """Show a user and what it may do.

    Raises:
        ClientError: there is none of that name.
    """
    found = yield from list_users(name_servers, name, cluster=cluster)
    users = [row for row in found if row.username == name]
    if not users:
        raise ClientError(f"user {name} does not exist: 'roquette user ls' shows those that do")
    return users, (yield from rules_of(name_servers, name, cluster=cluster))


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
