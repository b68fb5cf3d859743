"""Settings of access control, under Apache's keys (AuthConfig). No request changes any of them."""

import ipaddress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import msgspec

from roquette.access.model import User, UserType
from roquette.base.javatypes import whole_number
from roquette.base.options import option
from roquette.errors import ConfigError
from roquette.remoting.security import Security
from roquette.wire.signature import Credentials, Prover

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
