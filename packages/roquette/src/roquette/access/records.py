"""Users and rules between the wire and the model: what may be said of them, and Apache's words where it may not."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from roquette.access.model import (
    SUBJECT_PREFIX,
    Acl,
    Action,
    Decision,
    Pattern,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    User,
    UserStatus,
    UserType,
    group_resource,
    network_of,
    parse_actions,
    subject_of,
    topic_resource,
)
from roquette.base.yaml_text import Scalar, Sequence, YamlMapping, fault, read_yaml
from roquette.errors import Refused
from roquette.wire.bodies.tables import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
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


# plain_acl.yml of Apache's access control 1.0: its accounts, as users and rules of access control 2.0.
# Rules are those that Apache's AuthMigrator makes. Nothing reads these files while a server runs: `roquette acl import` does, once.


DENY: Final = (Action.ALL,)
PUB: Final = (Action.PUB,)
SUB: Final = (Action.SUB,)
BOTH: Final = (Action.PUB, Action.SUB)
PERMS: Final = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": BOTH, "SUB|PUB": BOTH}

SHORTEST_KEY: Final = 7  # characters of an access key, and of a secret key
MAX_ACCOUNTS: Final = 100_000
MAX_NOTES: Final = 100

_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0", "")
_KNOWN: Final = (
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
)
_SECTIONS: Final = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")
_NO_LIKE: Final = "white lists have no like: who sends from there without a signature needs a user"


@dataclass(frozen=True, slots=True)
class PlainAccounts:
    """Accounts of all files together.

    Attributes:
        users: one for each account; an admin is a super user, whom no rule restrains, whatever perms stood beside it.
        acls: what the others may do. An account without defaults is denied what no rule names, as before.
        notes: what is odd in the files, or not taken over, a sentence each.
    """

    users: list[User] = field(default_factory=list)
    acls: list[Acl] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_accounts(contents: Iterable[tuple[str, bytes]]) -> PlainAccounts:
    """The accounts of all files, (path, content) each; the first of two of one name counts. Blocks.

    Raises:
        ConfigError: one of them cannot be read; the error names the file, the line, and what to do.
    """
    found = PlainAccounts()
    paths: dict[str, str] = {}
    for path, data in contents:
        reader = _FileReader(path, found.notes)
        root = read_yaml(data, path)
        if root is None:
            found.notes.append(f"{path} has nothing in it")
            continue
        if not isinstance(root, YamlMapping):
            raise fault(path, 1, "a policy file has 'accounts:' and 'globalWhiteRemoteAddresses:'")
        reader.note_unknown_keys(root, _SECTIONS)
        for address in reader.texts(root, "globalWhiteRemoteAddresses"):
            reader.note(address.line, _NO_LIKE)
        for given in reader.items(root, "accounts"):
            user, policies = reader.account(given)
            name = user.username
            if name in paths:
                reader.note(given.line, f"account {name!r} stands in {paths[name]} already")
                continue
            paths[name] = path
            if len(paths) > MAX_ACCOUNTS:
                raise fault(path, given.line, f"there are more than {MAX_ACCOUNTS} accounts")
            found.users.append(user)
            if policies:
                found.acls.append(Acl(subject_of(name), policies))
    return found


class _FileReader:
    """Reads the parts of one file."""

    def __init__(self, path: str, notes: list[str]) -> None:
        self._path = path
        self._notes = notes

    def note(self, line: int, what: str) -> None:
        """Something is odd: it is passed over, and said."""
        self._add_note(line, f"{what}; it is passed over")

    def _add_note(self, line: int, what: str) -> None:
        if len(self._notes) < MAX_NOTES:
            self._notes.append(f"{self._path}, line {line}: {what}")

    def note_unknown_keys(self, given: YamlMapping, known: tuple[str, ...]) -> None:
        """Note the names that mean nothing."""
        for name in given:
            if name not in known:
                self.note(given.line, f"{name[:80]!r} is none of {', '.join(known)}")

    def items(self, root: YamlMapping, name: str) -> list[YamlMapping]:
        """The mappings of a list."""
        found = self._list(root, name)
        for item in found:
            if not isinstance(item, YamlMapping):
                line = getattr(item, "line", root.line)
                raise fault(self._path, line, f"an item of {name} is not a list of 'name: value'")
        return found

    def _list(self, root: YamlMapping, name: str) -> list[Any]:
        found = root.get(name)
        if found is None:
            return []
        if not isinstance(found, Sequence):
            line = getattr(found, "line", root.line)
            raise fault(self._path, line, f"{name} is not a list: begin each item with '- '")
        return found

    def texts(self, root: YamlMapping, name: str) -> list[Scalar]:
        """The texts of a list; empty items count for nothing."""
        found = [item for item in self._list(root, name) if item is not None]
        for item in found:
            if not isinstance(item, Scalar):
                raise fault(self._path, item.line, f"an item of {name} is not a text")
        return found

    def _text(self, given: YamlMapping, name: str) -> str | None:
        found = given.get(name)
        if found is None or isinstance(found, Scalar):
            return None if found is None else str(found)
        raise fault(self._path, found.line, f"{name} is not a text")

    def account(self, given: YamlMapping) -> tuple[User, tuple[Policy, ...]]:
        """One account, and what it may do."""
        line = given.line
        self.note_unknown_keys(given, _KNOWN)
        access_key, secret_key = self._text(given, "accessKey"), self._text(given, "secretKey")
        for name, value in (("accessKey", access_key), ("secretKey", secret_key)):
            if value is None or len(value) < SHORTEST_KEY:
                least = f"at least {SHORTEST_KEY} characters"
                raise fault(self._path, line, f"this account has no {name} of {least}")
        admin = (self._text(given, "admin") or "").strip().lower()
        if admin not in _TRUE and admin not in _FALSE:
            raise fault(self._path, line, f"admin is true or false, not {admin[:80]!r}")
        if self._text(given, "whiteRemoteAddress"):
            self.note(line, _NO_LIKE)
        custom = self._perms(given)
        default = (
            *self._default(given, "defaultTopicPerm", ResourceType.TOPIC),
            *self._default(given, "defaultGroupPerm", ResourceType.GROUP),
        )
        pairs = ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
        kind = UserType.SUPER if admin in _TRUE else UserType.NORMAL
        user = User(access_key or "", secret_key or "", kind)
        return user, tuple(
            Policy(policy_type, entries) for policy_type, entries in pairs if entries
        )

    def _default(self, given: YamlMapping, name: str, kind: ResourceType) -> list[PolicyEntry]:
        text = self._text(given, name)
        if text is None or not text.strip():
            return []
        return [self._entry(given.line, Resource(kind, "", Pattern.ANY), text)]

    def _perms(self, given: YamlMapping) -> tuple[PolicyEntry, ...]:
        found: dict[Resource, PolicyEntry] = {}
        for name, made in (("topicPerms", topic_resource), ("groupPerms", group_resource)):
            for text in self.texts(given, name):
                words = [word for word in text.split("=") if word]
                if len(words) != 2:
                    form = "name=PUB, SUB or PUB|SUB"
                    raise fault(self._path, text.line, f"{text[:80]!r} is not of the form {form}")
                resource = made(words[0].strip())
                found[resource] = self._entry(text.line, resource, words[1])
        return tuple(found.values())

    def _entry(self, line: int, resource: Resource, text: str) -> PolicyEntry:
        """As Apache reads a perm: whatever else it may be denies."""
        actions = PERMS.get(text.strip())
        if actions is None:
            self._add_note(line, f"{text[:80]!r} is none of {', '.join(PERMS)}: it denies")
        if actions in (None, DENY):
            return PolicyEntry(resource, DENY, decision=Decision.DENY)
        return PolicyEntry(resource, actions)
