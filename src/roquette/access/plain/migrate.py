"""ACL 1.0 -> ACL 2.0: users and rules made of plain_acl.yml, as Apache's AuthMigrator makes them."""

from roquette.access.model import (
    Acl,
    Action,
    Decision,
    Entry,
    Kind,
    Pattern,
    Policy,
    PolicyType,
    Resource,
    User,
    UserType,
    subject_of,
)
from roquette.access.plain.policy import DENY, PUB, SUB, PlainAccount, PlainPolicy, perm_of
from roquette.message.names import RETRY_PREFIX


def policies_of_plain(policy: PlainPolicy) -> tuple[list[User], list[Acl]]:
    """A user for each account, and what it may do.

    White lists have no like in ACL 2.0: who relied on one needs a user. An admin becomes a super user, whom no rule
    restrains, whatever perms stood beside it. An account without defaults is denied what no rule names, as before.
    """
    users, acls = [], []
    for account in policy.accounts.values():
        kind = UserType.SUPER if account.admin else UserType.NORMAL
        users.append(User(account.access_key, account.secret.decode(), kind))
        custom = tuple(_entry(_resource(name), perm) for name, perm in account.perms.items())
        default = tuple(_defaults(account))
        pairs = ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
        policies = tuple(Policy(policy_type, entries) for policy_type, entries in pairs if entries)
        if policies:
            acls.append(Acl(subject_of(account.access_key), policies))
    return users, acls


def _resource(name: str) -> Resource:
    group = name.startswith(RETRY_PREFIX)
    return Resource(Kind.GROUP if group else Kind.TOPIC, name.removeprefix(RETRY_PREFIX))


def _defaults(account: PlainAccount) -> list[Entry]:
    written = (
        (Kind.TOPIC, account.default_topic_perm),
        (Kind.GROUP, account.default_group_perm),
    )
    return [
        _entry(Resource(kind, "", Pattern.ANY), perm_of(text))
        for kind, text in written
        if text is not None and text.strip()
    ]


def _entry(resource: Resource, perm: int) -> Entry:
    if perm & DENY:
        return Entry(resource, (Action.ALL,), decision=Decision.DENY)
    bits = ((PUB, Action.PUB), (SUB, Action.SUB))
    return Entry(resource, tuple(action for bit, action in bits if perm & bit))
