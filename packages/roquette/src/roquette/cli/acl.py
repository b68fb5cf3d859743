"""`roquette acl ...`: rules, and why a request would be allowed or not."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from roquette.access.model import (
    Acl,
    Action,
    Decision,
    Entry,
    Pattern,
    Policy,
    PolicyType,
    Resource,
)
from roquette.access.model import parse_actions as model_actions
from roquette.base.quantities import counted
from roquette.cli.connect import Cluster, Yes, cluster_verb, confirm, listing_verb
from roquette.cli.exits import UNHEALTHY
from roquette.cli.output import say
from roquette.cli.user import ClusterName, DryRun, require_all, show_plan, show_told
from roquette.errors import ClientError, ConfigError

if TYPE_CHECKING:
    from roquette.admin.access import AclRow

app = typer.Typer(
    help="Allow and deny users topics, groups and clusters; ask why.", no_args_is_help=True
)

User = Annotated[str, typer.Argument(metavar="USER", show_default=False)]
Actions = Annotated[
    str,
    typer.Argument(
        metavar="ACTIONS",
        help="pub, sub, create, update, delete, get, list or all; several with commas.",
        show_default=False,
    ),
]
Resources = Annotated[
    list[str],
    typer.Argument(
        metavar="RESOURCE",
        help="A topic, or Topic:NAME, Group:NAME, Cluster:NAME; a * ends a prefix or stands for all.",
        show_default=False,
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--from", metavar="IP", help="Only from this address or network; may be repeated."
    ),
]
Default = Annotated[
    bool, typer.Option("--default", help="A rule that counts only where no other one fits.")
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Replace the rules there are for these resources.")
]


@app.command("allow")
@cluster_verb
def allow_command(
    where: Cluster,
    user: User,
    actions: Actions,
    resources: Resources,
    source: Sources = None,
    default: Default = False,
    replace: Replace = False,
    cluster: ClusterName = None,
    dry_run: DryRun = False,
) -> None:
    """Allow a user something, on every broker and name server: roquette acl allow app1 pub 'orders*'

    Actions are added to those the user has. To consume, a user needs sub on the topic and on its group:
    roquette acl allow app2 sub orders Group:billing
    """
    rule = _Rule("Allow", actions, resources, source, default)
    _put(where, user, rule, cluster, replace, dry_run)


@app.command("deny")
@cluster_verb
def deny_command(
    where: Cluster,
    user: User,
    actions: Actions,
    resources: Resources,
    source: Sources = None,
    default: Default = False,
    replace: Replace = False,
    cluster: ClusterName = None,
    dry_run: DryRun = False,
) -> None:
    """Deny a user part of what a wider rule allows: roquette acl deny app1 pub orders-internal

    What no rule allows is denied without any.
    """
    rule = _Rule("Deny", actions, resources, source, default)
    _put(where, user, rule, cluster, replace, dry_run)


class _Rule:
    """What the words of a command line say; raises ConfigError when they say nothing."""

    def __init__(
        self,
        decision: str,
        actions: str,
        resources: list[str],
        sources: list[str] | None,
        default: bool,
    ) -> None:
        self.decision = decision
        self.actions = [action.value for action in parse_actions(actions)]
        if "Any" in self.actions:
            raise ConfigError("a rule names its actions: pub, sub, create, ... or all")
        self.resources = [str(parse_resource(text)) for text in resources]
        self.sources = [_address(text) for text in sources or ()]
        self.policy_type = "Default" if default else "Custom"

    def rows(self, user: str, there: "dict[str, AclRow]", replace: bool) -> "list[AclRow]":
        """The rules, with the actions of those that are there already."""
        from roquette.admin.access import AclRow

        return [
            AclRow(
                f"User:{user}",
                self.policy_type,
                resource,
                ",".join(self._joined(there.get(resource), replace)),
                ",".join(self.sources),
                self.decision,
            )
            for resource in self.resources
        ]

    def _joined(self, old: "AclRow | None", replace: bool) -> list[str]:
        if old is None or replace:
            return self.actions
        if (old.decision, old.source_ips) != (self.decision, ",".join(self.sources)):
            where = f" from {old.source_ips}" if old.source_ips else ""
            raise ConfigError(
                f"a user has one rule for a resource, and there is '{old.decision} {old.actions} on {old.resource}{where}': "
                "replace it by --replace, or remove it by 'roquette acl rm'"
            )
        before = [action for action in old.actions.split(",") if action]
        return list(dict.fromkeys([*before, *self.actions]))


def _put(
    where: Cluster, user: str, rule: _Rule, cluster: str | None, replace: bool, dry_run: bool
) -> None:
    from roquette.admin.access import put_rules

    there = {
        row.resource: row
        for row in rules_of(where, user, cluster)
        if row.policy_type == rule.policy_type
    }
    rows = rule.rows(user, there, replace)
    words = "; ".join(_words(row) for row in rows)
    deed = f"{user}: {words}"
    if dry_run:
        show_plan(where, cluster, deed, f"would set {words}")
        return
    told = where.run(put_rules(rows, where.addresses(), cluster=cluster))
    show_told(where, told, deed, {"rules": rows})
    require_all(told, deed)
    consumes = {"Sub", "All"}.intersection(rule.actions) and rule.decision == "Allow"
    kinds = {resource.partition(":")[0] for resource in rule.resources}
    if consumes and kinds == {"Topic"} and not where.for_programs:
        say(f"its consumers need their group, too: roquette acl allow {user} sub Group:NAME")


def _words(row: "AclRow") -> str:
    where = f" from {row.source_ips}" if row.source_ips else ""
    return f"{row.decision} {row.actions} on {row.resource}{where}"


@app.command("import")
@cluster_verb
def import_command(
    where: Cluster,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="plain_acl.yml, and files beside it.",
            exists=True,
            dir_okay=False,
        ),
    ],
    cluster: ClusterName = None,
    dry_run: DryRun = False,
) -> None:
    """Make users and rules of the accounts of ACL 1.0: roquette acl import conf/plain_acl.yml

    An admin becomes a super user. White lists have no like: who relied on one needs a user.
    """
    from roquette.access.plain_acl import read_accounts
    from roquette.admin.access import put_rules, save_user

    found = read_accounts([(str(path), path.read_bytes()) for path in files])
    for note in found.notes:
        say(note)
    rules = {acl.username: _rows_of(acl) for acl in found.acls}
    for user in found.users:
        rows = rules.get(user.username, [])
        deed = f"user {user.username} ({user.user_type.value}) with {counted(len(rows), 'rule')}"
        if dry_run:
            show_plan(where, cluster, deed, f"would make {deed}")
            continue
        making = save_user(
            user.username,
            where.addresses(),
            create=True,
            password=user.password,
            user_type=user.user_type.value,
            cluster=cluster,
        )
        told = where.run(making)
        require_all(told, deed)
        if rows:
            told = where.run(put_rules(rows, where.addresses(), cluster=cluster))
        show_told(where, told, deed, {"user": user.username, "rules": rows})
        require_all(told, deed)


def _rows_of(acl: Acl) -> "list[AclRow]":
    from roquette.admin.access import AclRow

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


@app.command("rm")
@cluster_verb
def remove_command(
    where: Cluster,
    user: User,
    resource: Annotated[
        str,
        typer.Argument(
            metavar="RESOURCE", help="As in its rule; without one all rules of the user go."
        ),
    ] = "",
    default: Default = False,
    cluster: ClusterName = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Remove a rule, or all rules of a user."""
    from roquette.admin.access import delete_acl

    key = str(parse_resource(resource)) if resource else ""
    deed = f"{user}: remove {f'the rule for {key}' if key else 'all rules'}"
    rows = [row for row in rules_of(where, user, cluster) if not key or row.resource == key]
    if not rows:
        raise ClientError(f"{user} has no such rule: 'roquette acl show {user}' lists them")
    if dry_run:
        show_plan(where, cluster, deed, f"would remove {'; '.join(map(_words, rows))}")
        return
    confirm(deed, yes or bool(key))
    told = where.run(
        delete_acl(
            f"User:{user}",
            where.addresses(),
            resource=key,
            policy_type="Default" if default else "",
            cluster=cluster,
        )
    )
    show_told(where, told, deed, {"rules": rows})
    require_all(told, deed)


@app.command("ls")
@listing_verb
def list_command(
    where: Cluster,
    user: Annotated[str, typer.Option("--user", metavar="PART", help="Only users like this.")] = "",
    resource: Annotated[
        str, typer.Option("--resource", metavar="PART", help="Only resources like this.")
    ] = "",
    cluster: ClusterName = None,
) -> None:
    """List rules, and which servers have them otherwise."""
    from roquette.admin.access import list_acls

    found = where.run(list_acls(where.addresses(), user, resource, cluster=cluster))
    where.show(found, empty="no rules: only super users may do anything")


@app.command("show")
@cluster_verb
def show_command(where: Cluster, user: User, cluster: ClusterName = None) -> None:
    """List the rules of one user."""
    where.show(rules_of(where, user, cluster), empty=f"{user} has no rules")


@app.command("check")
@cluster_verb
def check_command(
    where: Cluster,
    user: User,
    actions: Actions,
    resources: Resources,
    source: Annotated[
        str, typer.Option("--from", metavar="IP", help="The address the requests come from.")
    ] = "127.0.0.1",
    cluster: ClusterName = None,
) -> None:
    """Tell whether a user would be allowed something, and by which rule: roquette acl check alice pub orders --from 10.0.0.7

    It asks the servers for users and rules, and judges as they do. Exit code 10 when something would be refused.
    """
    source = _address(source)
    wanted = [
        (action, parse_resource(text)) for text in resources for action in parse_actions(actions)
    ]
    if any(resource.pattern is not Pattern.LITERAL for _, resource in wanted):
        raise ConfigError("name one topic, group or cluster: requests have no *")
    refusal, judge = _judge_of(where, user, cluster)
    answers = [
        _answer(user, action, resource, source, refusal or judge(resource, action, source))
        for action, resource in wanted
    ]
    where.show(answers)
    if not all(answer.allowed for answer in answers):
        raise typer.Exit(UNHEALTHY)


class CheckRow(msgspec.Struct, frozen=True):
    """One question and its answer. why: the rule that decides, or what is missing."""

    user: str
    action: str
    resource: str
    source: str
    allowed: bool
    why: str


def _answer(
    user: str, action: Action, resource: Resource, source: str, said: tuple[bool, str]
) -> CheckRow:
    return CheckRow(user, action.value, str(resource), source, *said)


_Judge = Callable[[Resource, Action, str], tuple[bool, str]]


def _judge_of(
    where: Cluster, user: str, cluster: str | None
) -> tuple[tuple[bool, str] | None, _Judge]:
    """An answer to everything, where there is one; and who answers otherwise."""
    from roquette.access.policies import PolicyTable
    from roquette.admin.access import list_users

    rules = rules_of(where, user, cluster)
    table = PolicyTable([acl_of(user, rules)])

    def judge(resource: Resource, action: Action, source: str) -> tuple[bool, str]:
        verdict = table.judge(user, resource, (action,), source)
        return verdict.allowed, verdict.rule or verdict.why

    users = [
        row
        for row in where.run(list_users(where.addresses(), user, cluster=cluster))
        if row.username == user
    ]
    for problem in ({row.error for row in users} | {row.error for row in rules}) - {""}:
        say(f"servers differ: {problem}")
    if not users:
        return (False, "there is no such user"), judge
    if any(row.user_status == "disable" for row in users):
        return (False, "the user is disabled"), judge
    if all(row.user_type == "Super" for row in users):
        return (True, "a super user"), judge
    return None, judge


def acl_of(user: str, rules: "list[AclRow]") -> Acl:
    """The rules as servers judge by them."""
    policies = []
    for kind in PolicyType:
        entries = [
            Entry(
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


def rules_of(where: Cluster, user: str, cluster: str | None = None) -> "list[AclRow]":
    """The rules of one user, as the servers have them."""
    from roquette.admin.access import list_acls

    subject = f"User:{user}"
    rows = where.run(list_acls(where.addresses(), subject, cluster=cluster))
    return [row for row in rows if row.subject == subject]


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
    import ipaddress

    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(f"--from {text!r} is neither an address nor a network") from None
    return text
