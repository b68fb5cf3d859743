"""What the files of ACL 1.0 say: accounts, their rights, white lists."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from roquette.access.plain.addresses import Addresses
from roquette.access.plain.yaml_text import Mapping, Scalar, Sequence, fault, read_yaml
from roquette.message.names import RETRY_PREFIX
from roquette.wire.bodies.data_version import DataVersion

log = logging.getLogger("roquette.access")
T = TypeVar("T")

DENY: Final = 1
PUB: Final = 4
SUB: Final = 8
PERMS: Final = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}

SHORTEST_KEY: Final = 7  # characters of an access key, and of a secret key
MAX_ACCOUNTS: Final = 100_000

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


@dataclass(frozen=True, slots=True)
class PlainAccount:
    """One account.

    Attributes:
        white: from here it needs no signature, for what is not administration.
        perms: resource -> DENY, PUB, SUB or both; a group stands there by its retry topic.
        topic_perms, group_perms: the same as they are written, for those who show them.
        path: the file it stands in.
    """

    access_key: str
    secret: bytes = field(repr=False)
    path: str
    white: Addresses
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] = ()
    group_perms: tuple[str, ...] = ()
    perms: dict[str, int] = field(default_factory=dict)

    def lacks(self, resource: str, perm: int) -> bool:
        """Whether it may not do `perm`, PUB or SUB, to a topic, or to a group by its retry topic."""
        owned = self.perms.get(resource)
        if owned is None:
            group = resource.startswith(RETRY_PREFIX)
            owned = perm_of(self.default_group_perm if group else self.default_topic_perm)
        return bool(owned & DENY) or not owned & perm


@dataclass(frozen=True, slots=True)
class PlainPolicy:
    """All files together.

    Attributes:
        accounts: access key -> account. white: from here no signature is asked, for what is not administration.
        versions: file -> its data version.
        notes: what is odd in the files, a sentence each.
    """

    accounts: dict[str, PlainAccount]
    white: Addresses
    versions: dict[str, DataVersion]
    notes: tuple[str, ...] = ()


def perm_of(text: str | None) -> int:
    """DENY, PUB, SUB or both, as Apache reads it: whatever else it may be is DENY."""
    return PERMS.get((text or "").strip(), DENY)


def read_policy(contents: Iterable[tuple[str, bytes]]) -> PlainPolicy:
    """The policy of all files, (path, content) each. Blocks.

    Raises:
        ConfigError: one of them cannot be read; the error names the file, the line, and what to do.
    """
    accounts: dict[str, PlainAccount] = {}
    white: list[str] = []
    versions: dict[str, DataVersion] = {}
    notes: list[str] = []
    for path, data in contents:
        reader = _FileReader(path, notes)
        root = read_yaml(data, path)
        if root is None:
            notes.append(f"{path} has nothing in it")
            continue
        if not isinstance(root, Mapping):
            raise fault(path, 1, "a policy file has 'accounts:' and 'globalWhiteRemoteAddresses:'")
        reader.unknown(root, _SECTIONS)
        white += reader.addresses(root)
        for given in reader.items(root, "accounts"):
            account = reader.account(given)
            if account.access_key in accounts:
                first = accounts[account.access_key].path
                reader.note(given.line, f"account {account.access_key!r} stands in {first} already")
                continue
            accounts[account.access_key] = account
            if len(accounts) > MAX_ACCOUNTS:
                raise fault(path, given.line, f"there are more than {MAX_ACCOUNTS} accounts")
        versions[path] = reader.version(root)
    return PlainPolicy(accounts, Addresses(white), versions, tuple(notes))


class _FileReader:
    """Reads the parts of one file."""

    def __init__(self, path: str, notes: list[str]) -> None:
        self._path = path
        self._notes = notes

    def note(self, line: int, what: str) -> None:
        """Something is odd: it is passed over, and said."""
        if len(self._notes) < 100:
            self._notes.append(f"{self._path}, line {line}: {what}; it is passed over")

    def unknown(self, given: Mapping, known: tuple[str, ...]) -> None:
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

    def addresses(self, root: Mapping) -> list[Scalar]:
        """The global white list."""
        found = self.texts(root, "globalWhiteRemoteAddresses")
        for text in found:
            self._checked(text.line, Addresses, [text])
        return found

    def _checked(self, line: int, make: Callable[[list[str]], T], texts: list[str]) -> T:
        try:
            return make(texts)
        except ValueError as error:
            raise fault(self._path, line, str(error)) from None

    def _text(self, given: Mapping, name: str) -> str | None:
        found = given.get(name)
        if found is None or isinstance(found, Scalar):
            return None if found is None else str(found)
        raise fault(self._path, found.line, f"{name} is not a text")

    def account(self, given: Mapping) -> PlainAccount:
        """One account."""
        line = given.line
        self.unknown(given, _KNOWN)
        access_key, secret_key = self._text(given, "accessKey"), self._text(given, "secretKey")
        for name, value in (("accessKey", access_key), ("secretKey", secret_key)):
            if value is None or len(value) < SHORTEST_KEY:
                least = f"at least {SHORTEST_KEY} characters"
                raise fault(self._path, line, f"this account has no {name} of {least}")
        admin = (self._text(given, "admin") or "").strip().lower()
        if admin not in _TRUE and admin not in _FALSE:
            raise fault(self._path, line, f"admin is true or false, not {admin[:80]!r}")
        white = self._text(given, "whiteRemoteAddress")
        defaults = [self._default(given, f"default{kind}Perm") for kind in ("Topic", "Group")]
        topics, groups = self.texts(given, "topicPerms"), self.texts(given, "groupPerms")
        perms = self._perms(topics, "") | self._perms(groups, RETRY_PREFIX)
        return PlainAccount(
            access_key or "",
            (secret_key or "").encode(),
            self._path,
            self._checked(line, Addresses, [white] if white else []),
            admin in _TRUE,
            defaults[0],
            defaults[1],
            tuple(map(str, topics)),
            tuple(map(str, groups)),
            perms,
        )

    def _default(self, given: Mapping, name: str) -> str | None:
        text = self._text(given, name)
        if text is not None and text.strip() not in PERMS:
            self._odd_perm(given.line, text)
        return text

    def _perms(self, texts: list[Scalar], prefix: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for text in texts:
            words = [word for word in text.split("=") if word]
            if len(words) != 2:
                raise fault(
                    self._path,
                    text.line,
                    f"{text[:80]!r} is not of the form name=PUB, SUB or PUB|SUB",
                )
            if words[1].strip() not in PERMS:
                self._odd_perm(text.line, words[1])
            found[prefix + words[0].strip()] = perm_of(words[1])
        return found

    def _odd_perm(self, line: int, text: str) -> None:
        self._notes.append(
            f"{self._path}, line {line}: {text[:80]!r} is none of {', '.join(PERMS)}: it denies"
        )

    def version(self, root: Mapping) -> DataVersion:
        """The data version that Apache's brokers, and ours, count up with each change by a request."""
        for given in self.items(root, "dataVersion")[:1]:
            numbers = [self._text(given, name) or "0" for name in ("counter", "timestamp")]
            if all(text.isdecimal() and len(text) < 19 for text in numbers):
                return DataVersion(counter=int(numbers[0]), timestamp=int(numbers[1]))
            self.note(given.line, "the data version is not two numbers")
        return DataVersion()
