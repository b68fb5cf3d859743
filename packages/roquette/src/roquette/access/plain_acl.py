"""plain_acl.yml of Apache's access control 1.0: its accounts, as users and rules of access control 2.0.

Rules are those that Apache's AuthMigrator makes. Nothing reads these files while a server runs: `roquette acl import` does,
once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from roquette.access.model import (
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
    UserType,
    group_resource,
    subject_of,
    topic_resource,
)
from roquette.base.yaml_text import Mapping, Scalar, Sequence, fault, read_yaml

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
        if not isinstance(root, Mapping):
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

    def note_unknown_keys(self, given: Mapping, known: tuple[str, ...]) -> None:
        """Note the names that mean nothing."""
        for name in given:
            if name not in known:
                self.note(given.line, f"{name[:80]!r} is none of {', '.join(known)}")

    def items(self, root: Mapping, name: str) -> list[Mapping]:
        """The mappings of a list."""
        found = self._list(root, name)
        for item in found:
            if not isinstance(item, Mapping):
                line = getattr(item, "line", root.line)
                raise fault(self._path, line, f"an item of {name} is not a list of 'name: value'")
        return found

    def _list(self, root: Mapping, name: str) -> list[Any]:
        found = root.get(name)
        if found is None:
            return []
        if not isinstance(found, Sequence):
            line = getattr(found, "line", root.line)
            raise fault(self._path, line, f"{name} is not a list: begin each item with '- '")
        return found

    def texts(self, root: Mapping, name: str) -> list[Scalar]:
        """The texts of a list; empty items count for nothing."""
        found = [item for item in self._list(root, name) if item is not None]
        for item in found:
            if not isinstance(item, Scalar):
                raise fault(self._path, item.line, f"an item of {name} is not a text")
        return found

    def _text(self, given: Mapping, name: str) -> str | None:
        found = given.get(name)
        if found is None or isinstance(found, Scalar):
            return None if found is None else str(found)
        raise fault(self._path, found.line, f"{name} is not a text")

    def account(self, given: Mapping) -> tuple[User, tuple[Policy, ...]]:
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

    def _default(self, given: Mapping, name: str, kind: ResourceType) -> list[PolicyEntry]:
        text = self._text(given, name)
        if text is None or not text.strip():
            return []
        return [self._entry(given.line, Resource(kind, "", Pattern.ANY), text)]

    def _perms(self, given: Mapping) -> tuple[PolicyEntry, ...]:
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
