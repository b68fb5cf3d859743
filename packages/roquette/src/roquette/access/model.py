"""Model of permissions: users, resources, actions and policies, as Apache's `auth` module has them since 5.3.

Texts are Apache's: a resource is `Topic:orders`, `Topic:orders*`, `Topic:*` or `*`, a subject `User:alice`.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from roquette.base.javatypes import whole_number
from roquette.base.options import option
from roquette.errors import ConfigError
from roquette.message.names import HANDOVER_PREFIX, RETRY_PREFIX, group_of_retry_topic
from roquette.remoting.security import Security
from roquette.wire.signature import Credentials, Prover

SUBJECT_PREFIX: Final = "User:"


class _Named(StrEnum):
    """A text that is read whatever its case, as Apache's enums read theirs."""

    @classmethod
    def _missing_(cls, value: object) -> "_Named | None":
        text = value.lower() if isinstance(value, str) else None
        return next((one for one in cls if one.value.lower() == text), None)


class Action(_Named):
    """Action on a resource. `ALL` stands in policies only, `ANY` in requests only."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceType(_Named):
    """Kind of a resource. `ANY` is the kind of `*`."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Pattern(StrEnum):
    """Way in which a resource's name matches others."""

    LITERAL = "Literal"
    PREFIXED = "Prefixed"
    ANY = "Any"


class Decision(_Named):
    """Decision of a policy's entry."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(_Named):
    """`DEFAULT` counts only where no `CUSTOM` entry fits."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class UserType(_Named):
    """A `SUPER` user is asked for no policy."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(_Named):
    """A user that is off is refused, whatever its policies say."""

    ENABLE = "enable"
    DISABLE = "disable"


class Resource(msgspec.Struct, frozen=True, gc=False):
    """A topic, group, cluster or namespace; in policies also all whose names begin alike, or all there are."""

    kind: ResourceType
    name: str = ""
    pattern: Pattern = Pattern.LITERAL

    @classmethod
    def parse(cls, key: str) -> "Resource":
        """The resource of `Topic:orders`, `Topic:orders*`, `Topic:*`, `*`; ValueError says what is wrong."""
        if key == "*":
            return ANYTHING
        word, colon, name = key.partition(":")
        try:
            kind = ResourceType(word)
        except ValueError:
            kind = ResourceType.ANY
        if kind is ResourceType.ANY or not colon:
            raise ValueError(
                f"resource {key[:80]!r} is not '*', 'Topic:<name>', 'Group:<name>', 'Cluster:<name>'"
                " or 'Namespace:<name>', where a '*' may end the name"
            )
        if name == "*":
            return cls(kind, "", Pattern.ANY)
        if name.endswith("*"):
            name = name[:-1]
            if "*" not in name:
                return cls(kind, name, Pattern.PREFIXED)
        if not name or "*" in name:
            raise ValueError(f"resource {key[:80]!r} has no name with at most one '*', at its end")
        return cls(kind, name)

    def __str__(self) -> str:
        if self.kind is ResourceType.ANY:
            return "*"
        star = "" if self.pattern is Pattern.LITERAL else "*"
        return f"{self.kind.value}:{self.name}{star}"

    def covers(self, other: "Resource") -> bool:
        """Return True if this resource of a policy means `other`, the literal one of a request."""
        if self.kind is ResourceType.ANY:
            return True
        if self.kind is not other.kind:
            return False
        if self.pattern is Pattern.PREFIXED:
            return other.name.startswith(self.name)
        return self.pattern is Pattern.ANY or self.name == other.name


ANYTHING: Final = Resource(ResourceType.ANY, "", Pattern.ANY)


def topic_resource(name: str) -> Resource:
    """Return the resource that decides about the topic `name`: a retry topic, `%RETRY%g` or POP's `%RETRY%g+t`, is its group's."""
    if name.startswith(RETRY_PREFIX):
        return Resource(ResourceType.GROUP, group_of_retry_topic(name))
    return Resource(ResourceType.TOPIC, name)


def group_resource(name: str) -> Resource:
    """The group `name`, which may be given by its retry topic, or by the name under which our clients hand queues over."""
    return Resource(
        ResourceType.GROUP, name.removeprefix(HANDOVER_PREFIX).removeprefix(RETRY_PREFIX)
    )


class User(msgspec.Struct):
    """An account of ACL 2.0. Its password is the secret that signs: it stands in no text."""

    username: str
    password: str
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE

    def __repr__(self) -> str:
        return f"User({self.username!r}, {self.user_type.value}, {self.user_status.value})"


class PolicyEntry(msgspec.Struct, frozen=True):
    """One line of a policy. `source_ips`: addresses and networks (10.0.0.0/8); none are all."""

    resource: Resource
    actions: tuple[Action, ...]
    source_ips: tuple[str, ...] = ()
    decision: Decision = Decision.ALLOW

    def __str__(self) -> str:
        """As the answer "by which rule" shows it."""
        where = f" from {','.join(self.source_ips)}" if self.source_ips else ""
        actions = ",".join(action.value for action in self.actions)
        return f"{self.decision.value} {actions} on {self.resource}{where}"


class Policy(msgspec.Struct, frozen=True):
    """The entries of one type."""

    policy_type: PolicyType = PolicyType.CUSTOM
    entries: tuple[PolicyEntry, ...] = ()


class Acl(msgspec.Struct, frozen=True):
    """Policies of one subject, `User:alice`."""

    subject: str
    policies: tuple[Policy, ...] = ()

    @property
    def username(self) -> str:
        """The subject's name."""
        return self.subject.removeprefix(SUBJECT_PREFIX)

    def policy(self, policy_type: PolicyType) -> Policy | None:
        """The policy of this type; the first, should there be several."""
        return next((one for one in self.policies if one.policy_type is policy_type), None)

    def with_policy(self, policy: Policy) -> "Acl":
        """This Acl, the policy of that type replaced or added."""
        others = (one for one in self.policies if one.policy_type is not policy.policy_type)
        return Acl(self.subject, (*others, policy))


def subject_of(username: str) -> str:
    """`User:alice`."""
    return SUBJECT_PREFIX + username


def parse_actions(texts: Iterable[str]) -> tuple[Action, ...]:
    """Actions by their names, each once and in the order given; ValueError names the first that is none."""
    return tuple(dict.fromkeys(Action(text.strip()) for text in texts))


Actions = tuple[Action, ...]
Needed = tuple[Resource, Actions]
"""A resource, and actions of which one must be allowed."""


# Settings of access control, under Apache's keys (AuthConfig). No request changes any of them.


T = TypeVar("T", bound=msgspec.Struct)
LOOPBACK: Final = ("localhost", "127.", "::1")


class _InitUser(msgspec.Struct):
    username: str
    password: str


class _Keys(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str
    security_token: str = ""


@dataclass(slots=True, frozen=True, kw_only=True)
class AccessSettings:
    """Settings of access control: if requests must be signed, and if the signer must have the right to what is asked.

    Raises:
        ConfigError: they do not go together, or one is not what it should be. Never with a secret in its text.
    """

    authentication_enabled: bool = option(
        False, "Requests must be signed by a user that is known and enabled (ACL 2.0)."
    )
    authorization_enabled: bool = option(
        False, "The user must have the right to what it asks for; needs authenticationEnabled."
    )
    authentication_whitelist: str = option(
        "", "Request codes, separated by commas, that need no signature."
    )
    authorization_whitelist: str = option(
        "", "Request codes, separated by commas, that need no right."
    )
    init_authentication_user: str = option(
        "",
        'The first super user, {"username":"...","password":"..."}: made at a start that finds no user of this name.',
        secret=True,
    )
    inner_client_authentication_credentials: str = option(
        "",
        '{"accessKey":"...","secretKey":"..."}: signs what this server asks of others; a super user of this name '
        "is made as well.",
        secret=True,
    )
    cluster_name: str = option(
        "",
        "The cluster that a right on `Cluster:NAME` means here; empty: brokerClusterName, at a name server "
        "DefaultCluster.",
    )
    ha_allowed_replicas: str = option(
        "",
        "Addresses or networks (10.0.0.0/8), separated by commas, whose replicas need no ticket: Apache's cannot "
        "say one. It counts with authenticationEnabled only.",
    )

    def __post_init__(self) -> None:
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigError(
                "authorizationEnabled=true needs authenticationEnabled=true: without a signature nobody knows "
                "whose rights to look at"
            )
        for key, text in (
            ("authenticationWhitelist", self.authentication_whitelist),
            ("authorizationWhitelist", self.authorization_whitelist),
        ):
            for word in words_of(text):
                if not word.isdecimal() and not word.startswith("/apache.rocketmq."):
                    raise ConfigError(f"{key} must be request codes and commas, not {word[:80]!r}")
        for word in words_of(self.ha_allowed_replicas):
            if network_of(word) is None:
                raise ConfigError(
                    f"haAllowedReplicas: {word[:80]!r} is neither an address nor a network"
                )
        self.first_users()

    @property
    def credentials(self) -> Credentials | None:
        """Credentials that sign our requests to other servers."""
        keys = _secret(
            _Keys,
            self.inner_client_authentication_credentials,
            "innerClientAuthenticationCredentials",
        )
        if keys is None:
            return None
        return Credentials(keys.access_key, keys.secret_key, keys.security_token)

    def sign(self, calls: Security, prover: Prover | None) -> Security:
        """The same with the credentials of these settings."""
        return replace(calls, credentials=self.credentials, prover=prover)

    def first_users(self) -> list[User]:
        """The super users that the settings name."""
        found = []
        first = _secret(_InitUser, self.init_authentication_user, "initAuthenticationUser")
        if first is not None:
            if not first.username.strip() or not first.password.strip():
                raise ConfigError("initAuthenticationUser needs a username and a password")
            found.append(User(first.username, first.password, UserType.SUPER))
        inner = self.credentials
        if inner is not None:
            found.append(User(inner.access_key, inner.secret_key, UserType.SUPER))
        return found

    def allows_replica(self, ip: str) -> bool:
        """Return True if a replica at this address needs no ticket."""
        try:
            address = ipaddress.ip_address(ip)
        except ValueError:
            return False
        networks = map(network_of, words_of(self.ha_allowed_replicas))
        return any(network is not None and address in network for network in networks)


def network_of(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """The addresses of an address or a network; None: it is neither."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def words_of(text: str) -> list[str]:
    """Split a text at its commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def codes_of(text: str) -> frozenset[int]:
    """The request codes of a white list; names of gRPC's methods say nothing here."""
    found = {whole_number(word, 2**31 - 1) for word in words_of(text)}
    return frozenset(found - {-1})


def _secret(kind: type[T], text: str, key: str) -> T | None:
    """A JSON setting; None when it is empty."""
    if not text.strip():
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeError):
        names = ", ".join(field.encode_name for field in msgspec.structs.fields(kind)[:2])
        raise ConfigError(f"{key} must be a JSON object with {names}") from None


def reachable(bind_address: str) -> bool:
    """Return True if other machines reach a port at this address."""
    return not bind_address.startswith(LOOPBACK)


OPEN_TO_ALL: Final = AccessSettings()
"""Nobody is asked anything, as Apache's default."""
