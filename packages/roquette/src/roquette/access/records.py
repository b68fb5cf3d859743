"""Users and rules between the wire and the model: what may be said of them, and Apache's words where it may not."""

import re
from collections.abc import Iterable

from roquette.access.model import (
    SUBJECT_PREFIX,
    Acl,
    Action,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
    parse_actions,
)
from roquette.access.settings import network_of
from roquette.errors import Refused
from roquette.wire.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from roquette.wire.codes import ResponseCode

_NAME = re.compile(r"[!-)+-9;-~]+")
MOST_NAME = 255  # characters of a user's name
MOST_PASSWORD = 1_024
MOST_RESOURCE = 512
MOST_ENTRIES = 1_000  # rules of one user
MOST_IPS = 100  # addresses of one rule


def denied(words: str) -> Refused:
    """A refusal as Apache's AuthenticationException and AuthorizationException become one."""
    return Refused(ResponseCode.NO_PERMISSION, words)


def invalid(words: str) -> Refused:
    """A refusal of what no server should take."""
    return Refused(ResponseCode.INVALID_PARAMETER, words)


def check_name(name: str) -> str:
    """The name of a user; raises Refused when it is none."""
    if not name.strip():
        raise invalid("The username is blank")
    if len(name) > MOST_NAME or not _NAME.fullmatch(name):  # others look like what they are not
        raise invalid(
            f"The username must be up to {MOST_NAME} characters of ASCII without blanks, colons and stars"
        )
    return name


def _password(text: str) -> str:
    if len(text) > MOST_PASSWORD or not text.isprintable():
        raise invalid(f"The password must be up to {MOST_PASSWORD} printable characters")
    return text


def user_type_of(info: UserInfo) -> UserType | None:
    """Return the user type that a request asks for; None: it does not say."""
    try:
        return UserType(info.user_type) if info.user_type else None
    except ValueError:
        raise invalid("The user type must be Super or Normal") from None


def changed(old: User | None, info: UserInfo, name: str) -> User:
    """The user that a request makes, of none or of the one there is."""
    user_type = user_type_of(info)
    try:
        status = UserStatus(info.user_status) if info.user_status else None
    except ValueError:
        raise invalid("The user status must be enable or disable") from None
    password = _password(info.password or "")
    if old is None:
        if not password.strip():
            raise denied("password can not be blank")
        return User(name, password, user_type or UserType.NORMAL, status or UserStatus.ENABLE)
    return User(
        name,
        password if password.strip() else old.password,
        user_type or old.user_type,
        status or old.user_status,
    )


def user_info(user: User) -> UserInfo:
    """A user as an answer has it: without its password."""
    return UserInfo(
        username=user.username,
        user_type=user.user_type.value,
        user_status=user.user_status.value,
    )


def username_of(subject: str) -> str:
    """The name in `User:name`; raises Refused for anything else."""
    kind, _, name = subject.partition(":")
    if kind.lower() != SUBJECT_PREFIX[:-1].lower() or not name.strip():
        raise denied("The subject type is null.")
    return name


def acl_of(info: AclInfo, subject: str) -> Acl:
    """The rules of a request.

    Raises:
        Refused: it has none, or one that means nothing.
    """
    policies = []
    for each in info.policies or ():
        if each.entries:
            entries = tuple(map(_entry, each.entries))
            policies.append(Policy(policy_type_of(each.policy_type), entries))
    if not policies:
        raise denied("The policies is empty." if info.policies else "The body of acl is null")
    return Acl(subject, tuple(policies))


def policy_type_of(text: str | None) -> PolicyType:
    """Custom unless it says otherwise."""
    try:
        return PolicyType(text) if text else PolicyType.CUSTOM
    except ValueError:
        raise invalid("The policy type must be Custom or Default") from None


def resource_of(text: str | None) -> Resource:
    """A resource; raises Refused when it is none."""
    if not text or not text.strip():
        raise denied("The resource is null.")
    if len(text) > MOST_RESOURCE:
        raise invalid(f"The resource is longer than {MOST_RESOURCE} characters")
    try:
        return Resource.parse(text.strip())
    except ValueError as error:
        raise denied(str(error)) from None


def _entry(info: PolicyEntryInfo) -> PolicyEntry:
    resource = resource_of(info.resource)
    if not info.actions:
        raise denied("The actions is empty.")
    try:
        actions = parse_actions(info.actions)
    except ValueError as error:
        raise denied(f"The actions are wrong: {error}") from None
    if Action.ANY in actions:
        raise denied("The actions can not be Any.")
    ips = tuple(ip.strip() for ip in info.source_ips or ())
    if len(ips) > MOST_IPS:
        raise invalid(f"A rule has {MOST_IPS} addresses at most")
    for ip in ips:
        if not ip:
            raise denied("The source ip is empty.")
        if network_of(ip) is None:
            raise denied("The source ip is invalid.")
    try:
        decision = Decision(info.decision or "")
    except ValueError:
        raise denied("The decision is null or illegal.") from None
    return PolicyEntry(resource, actions, ips, decision)


def merged(old: Acl | None, new: Acl) -> Acl:
    """The rules of both; of two for one resource and type the new one. Raises Refused: there would be too many."""
    acl = Acl(new.subject) if old is None else old
    for policy in new.policies:
        there = acl.policy(policy.policy_type)
        entries = {entry.resource: entry for entry in (there.entries if there else ())}
        entries.update((entry.resource, entry) for entry in policy.entries)
        acl = acl.with_policy(Policy(policy.policy_type, tuple(entries.values())))
    if rules_in(acl) > MOST_ENTRIES:
        raise invalid(f"A user has {MOST_ENTRIES} rules at most")
    return acl


def rules_in(acl: Acl) -> int:
    """Return the number of a user's rules."""
    return sum(len(policy.entries) for policy in acl.policies)


def without(acl: Acl, policy_type: PolicyType, resource: Resource) -> Acl:
    """The rules but the one of this type for this resource."""
    kept = []
    for policy in acl.policies:
        entries = policy.entries
        if policy.policy_type is policy_type:
            entries = tuple(entry for entry in entries if entry.resource != resource)
        if entries:
            kept.append(Policy(policy.policy_type, entries))
    return Acl(acl.subject, tuple(kept))


def acl_info(acl: Acl, resource: str = "") -> AclInfo:
    """Rules as an answer has them: those whose resource has `resource` in it."""
    policies = []
    for policy in acl.policies:
        entries = [_info(entry) for entry in policy.entries if resource in str(entry.resource)]
        if entries:
            policies.append(PolicyInfo(policy_type=policy.policy_type.value, entries=entries))
    return AclInfo(subject=acl.subject, policies=policies)


def _info(entry: PolicyEntry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=str(entry.resource),
        actions=[action.value for action in entry.actions],
        source_ips=list(entry.source_ips) or None,
        decision=entry.decision.value,
    )


def kept_users(users: Iterable[User]) -> list[UserInfo]:
    """Users as files and replicas have them, passwords included."""
    return [
        UserInfo(
            username=user.username,
            password=user.password,
            user_type=user.user_type.value,
            user_status=user.user_status.value,
        )
        for user in users
    ]
