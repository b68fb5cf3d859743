"""Servers that are closed, and the ways into them: a CA of the tests, and two users.

A flavour of servers may end with how they are closed:

    -closed    TLS enforced, certificates asked of clients, users and policies (ACL 2.0)
    -signed    users and policies; TLS is taken, and plain connections as well. The name server tells routes to
               everybody: Go's pull consumer does not sign what it asks there
    -tls       TLS enforced, no certificates asked, everybody may all

Who is started that way is entered in WAYS; peers.call() and the client programs (driver.py) look there how to get in.
"""

import base64
import contextlib
import dataclasses
import functools
import hmac
import json
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ADMIN = ("administrator", "secret-of-the-administrator")
ALICE = ("alice", "secret-of-alice")
# Apache's client ends a transaction it was asked about in the topic of half messages, and its broker wants that right.
APACHES_MAY = {"Topic:RMQ_SYS_TRANS_HALF_TOPIC": "Pub"}
# What Alice may, who is every client under test: the names that tests choose, and what belongs to the features.
MAY = {
    "Topic:T_*": "Pub,Sub,Get,Create",
    "Topic:Q_*": "Pub,Sub",
    "Topic:%DLQ%*": "Sub,Get",
    "Topic:U_*": "Get",  # to know of, and neither to send nor to read
    "Topic:TBW102": "Get",
    "Topic:DefaultCluster_REPLY_TOPIC": "Pub",
    "Topic:RMQ_SYS_TRACE_TOPIC": "Pub,Sub",
    "Group:G_*": "Sub,Get",
    "Group:T_*": "Sub,Get",
}
_PROVIDER = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider"
# What Apache's broker is told besides; ours has one way to keep its users.
APACHES = {
    "authenticationMetadataProvider": _PROVIDER.format("authentication", "Authentication"),
    "authorizationMetadataProvider": _PROVIDER.format("authorization", "Authorization"),
}


@dataclass(frozen=True)
class Way:
    """Into a server: `tls` is Apache's property file of both ends (None: plain), `secrets` say who signs."""

    tls: Path | None
    context: ssl.SSLContext | None
    users: bool = True
    admin: tuple[str, str] = ADMIN

    def tls_settings(self) -> dict[str, str]:
        """Settings of a server, of a JVM's properties for Apache's."""
        mode = {"tls.server.mode": "enforcing", "tls.enable": "true"}
        return {**mode, "tls.config.file": str(self.tls)} if self.tls else {}

    def arguments(self, user: tuple[str, str] = ALICE) -> dict[str, str]:
        """What a client program is told."""
        keys = {"accessKey": user[0], "secretKey": user[1]} if self.users else {}
        return {**keys, "tls": str(self.tls)} if self.tls else keys

    def access_settings(self, *, apache: bool) -> dict[str, str]:
        """Settings of a server with users and policies, in Apache's words."""
        name, secret = self.admin
        first = json.dumps({"username": name, "password": secret})
        inner = json.dumps({"accessKey": name, "secretKey": secret})
        settings = {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "initAuthenticationUser": first,
            "innerClientAuthenticationCredentials": inner,
            **(APACHES if apache else {}),
        }
        return settings if self.users else {}


WAYS: dict[str, Way] = {}  # by the address of a server


@contextlib.contextmanager
def instead_of_the_administrator(address: str, keys: tuple[str, str] | None) -> Iterator[None]:
    """peers.call() signs with these keys, or does not sign."""
    before = WAYS[address]
    WAYS[address] = dataclasses.replace(before, admin=keys or ADMIN, users=keys is not None)
    try:
        yield
    finally:
        WAYS[address] = before


@functools.cache
def way(closed: str) -> Way | None:
    """The way into servers "closed", "signed" or "tls", as the docstring above says; None for others."""
    if closed == "signed":
        return Way(None, None)
    if closed == "tls":
        context = ssl.create_default_context(cafile=str(authority("ca").cert))
        return Way(property_file(demands="none", name="tls-only"), context, users=False)
    if closed != "closed":
        return None
    file = property_file()
    context = ssl.create_default_context(cafile=str(authority("ca").cert))
    client = shown("ca", "client")
    context.load_cert_chain(client.cert, client.key)
    return Way(file, context)


@functools.cache
def folder() -> Path:
    """Where certificates of this process are, until it ends."""
    made = tempfile.TemporaryDirectory(prefix="roquette-ways-")
    _kept.append(made)
    return Path(made.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def authority(name: str) -> Any:
    """A CA of the tests; another name is another CA."""
    from tests.certificates import make_ca

    return make_ca(folder() / name, name)


@functools.cache
def shown(ca: str, end: str) -> Any:
    """Certificate and key of an end, "client" or "server"."""
    from tests.certificates import issue

    return issue(authority(ca), ["localhost", "127.0.0.1"], client=end == "client")


def property_file(
    *, trusts: str = "ca", shows: str = "ca", demands: str = "require", name: str = "tls"
) -> Path:
    """Apache's `tls.config.file`, of servers and clients; clients trust and show ("": nothing) what is said here."""
    server, mine = shown("ca", "server"), shown(shows, "client") if shows else None
    lines = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": server.cert,
        "tls.server.keyPath": server.key,
        "tls.server.authClient": "false" if demands == "none" else "true",
        "tls.server.need.client.auth": demands,
        "tls.server.trustCertPath": authority("ca").cert,
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": authority(trusts).cert,
        "tls.client.certPath": mine.cert if mine else "",
        "tls.client.keyPath": mine.key if mine else "",
    }
    path = folder() / f"{name}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path


def rights(
    user: tuple[str, str], may: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, str], bytes]]:
    """Requests (code, fields, body) that create a user and its policy: AUTH_CREATE_USER, AUTH_CREATE_ACL."""
    name, secret = user
    body = {"username": name, "password": secret, "userType": "Normal", "userStatus": "enable"}
    yield 3001, {"username": name}, json.dumps(body).encode()
    entries = [
        {"resource": resource, "actions": actions.split(","), "sourceIps": [], "decision": "Allow"}
        for resource, actions in may.items()
    ]
    policy = {"policyType": "Custom", "entries": entries}
    acl = {"subject": f"User:{name}", "policies": [policy]}
    yield 3006, {"subject": f"User:{name}"}, json.dumps(acl).encode()


def signed(keys: tuple[str, str], fields: Mapping[str, str], body: bytes) -> dict[str, str]:
    """The fields with AccessKey and Signature, as Apache's clients make them; written here for a second time."""
    name, secret = keys
    found = {**fields, "AccessKey": name}
    content = "".join(found[key] for key in sorted(found)).encode() + body
    made = base64.b64encode(hmac.digest(secret.encode(), content, "sha1"))
    return {**found, "Signature": made.decode()}


def connect(address: str, timeout: float = 30) -> socket.socket:
    """A connection to a server, by TLS if that is its way."""
    host, _, port = address.rpartition(":")
    peer = socket.create_connection((host, int(port)), timeout=timeout)
    found = WAYS.get(address)
    if found is None or found.context is None:
        return peer
    try:
        return found.context.wrap_socket(peer, server_hostname=host)
    except BaseException:
        peer.close()
        raise
