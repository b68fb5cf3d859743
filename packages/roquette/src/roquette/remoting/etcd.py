"""Groups' records in etcd, by its JSON gateway (`/v3/kv`): linearizable reads, and transactions that compare a revision.

No lease and no watch of etcd's is used: a change of its leader prolongs its leases, and ours is a counter in the record.
"""

import asyncio
import base64
import json
import ssl
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.errors import AgreementError, ConfigError, ConnectError, RemoteProtocolError
from roquette.remoting.client import split_address
from roquette.remoting.http import HttpAnswer, HttpConnection, connect_http
from roquette.replication.agreement import Stored

SCHEME: Final = "etcd://"
TRY_S: Final = 0.25  # for one member of several; then the next one
LONE_TRY_S: Final = 1.0  # for the only one
LOGIN_S: Final = 2.0  # etcd makes passwords slow to check
MOST_CONNECTIONS: Final = 16
_FORM: Final = "etcd://host:port,host:port/prefix?user=NAME&passwordFile=PATH&caFile=PATH"
_BROKEN: Final = (OSError, EOFError, TimeoutError, RemoteProtocolError)
_TOKEN_WORDS: Final = ("invalid auth token", "revision of auth store is old")


@dataclass(frozen=True, kw_only=True)
class EtcdAddress:
    """Contents of an `etcd://` text. Secrets are in files, so the text may be logged and seen among processes.

    Attributes:
        members: host and port of each member.
        prefix: begins every key; empty, or with a slash at its end.
    """

    members: tuple[tuple[str, int], ...]
    prefix: str = ""
    user: str = ""
    password_file: str = ""
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


def parse_etcd(text: str) -> EtcdAddress:
    """The parts of `etcd://host:port,host:port/prefix?name=value`; raises ConfigError."""
    parts = urlsplit(text.strip())
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    wrong = set(options) - {"user", "passwordFile", "tls", "caFile", "certFile", "keyFile"}
    if "@" in parts.netloc:
        raise ConfigError(
            "etcd://...@...: a password here would stand in logs; write ?user=NAME&passwordFile=PATH"
        )
    try:
        members = tuple(split_address(each.strip()) for each in parts.netloc.split(","))
    except ConnectError as error:
        raise ConfigError(f"{text!r} is not of the form {_FORM}: {error}") from None
    if wrong or parts.scheme != "etcd" or parts.fragment:
        raise ConfigError(f"{text!r} is not of the form {_FORM}; also tls=true, certFile, keyFile")
    if bool(options.get("user")) != bool(options.get("passwordFile")):
        raise ConfigError(f"{text!r}: user and passwordFile belong together")
    if bool(options.get("certFile")) != bool(options.get("keyFile")):
        raise ConfigError(f"{text!r}: certFile and keyFile belong together")
    tls = options.get("tls", "").lower()
    if tls not in ("", "true", "false"):
        raise ConfigError(f"{text!r}: tls must be true or false")
    files = any(options.get(name) for name in ("caFile", "certFile"))
    if tls == "false" and files:
        raise ConfigError(f"{text!r}: tls=false contradicts caFile and certFile")
    prefix = parts.path.strip("/")
    return EtcdAddress(
        members=members,
        prefix=prefix and prefix + "/",
        user=options.get("user", ""),
        password_file=options.get("passwordFile", ""),
        tls=files or tls == "true",
        ca_file=options.get("caFile", ""),
        cert_file=options.get("certFile", ""),
        key_file=options.get("keyFile", ""),
    )


class EtcdAgreement:
    """An `Agreement` in etcd. One member is asked, over kept connections; after an error or 250 ms the next one.

    Args:
        files: where the password's file is read.
    """

    def __init__(self, address: EtcdAddress, files: Files) -> None:
        self._address = address
        self._files = files
        self._context: ssl.SSLContext | None = None
        self._try_s = TRY_S if len(address.members) > 1 else LONE_TRY_S
        self._at = 0
        self._idle: list[HttpConnection] = []  # to the member at `_at`
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        self._login = asyncio.Lock()
        self._token = b""
        self._cluster = ""  # the cluster that has answered first

    async def load(self) -> None:
        """Read the files that are named; raises ConfigError. etcd itself need not be there yet."""
        try:
            if self._address.tls:
                self._context = await run_blocking(tls_context, self._address)
            if self._address.user:
                await self._password()
        except (OSError, ValueError) as error:
            raise ConfigError(f"a file that {SCHEME}... names cannot be used: {error}") from None

    async def _password(self) -> str:
        data = await run_blocking(self._files.read_bytes, self._address.password_file)
        return data.decode().strip("\r\n")

    async def get(self, key: str) -> Stored:
        """See `Agreement`; each member is tried once."""
        body = {"key": self._key(key)}
        said: list[str] = []
        for _ in self._address.members:
            try:
                answer = await self._call("/v3/kv/range", body)
                kvs = answer.get("kvs") or [{}]
                value = base64.b64decode(kvs[0].get("value", ""), validate=True)
                return Stored(int(kvs[0].get("mod_revision", 0)), value)
            except (_NotSent, _NoAnswer) as error:
                said.append(str(error))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise AgreementError(f"an answer that is none of etcd's: {error!r}") from None
        raise AgreementError(f"etcd did not answer for {key}: {'; '.join(said)}")

    async def put_if(self, key: str, revision: int, value: bytes) -> int | None:
        """See `Agreement`; another member is tried only while none can have got the request."""
        name = self._key(key)
        where = {"key": name, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
        put = {"requestPut": {"key": name, "value": base64.b64encode(value).decode()}}
        said: list[str] = []
        for _ in self._address.members:
            try:
                answer = await self._call("/v3/kv/txn", {"compare": [where], "success": [put]})
                return int(answer["header"]["revision"]) if answer.get("succeeded") else None
            except _NotSent as error:
                said.append(str(error))
            except _NoAnswer as error:
                # If it was taken, the key's revision has moved, and the same request would fail elsewhere
                # by its own success: the caller would hear that somebody else has written.
                said.append(str(error))
                break
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise AgreementError(f"an answer that is none of etcd's: {error!r}") from None
        raise AgreementError(f"etcd may not have taken {key}: {'; '.join(said)}")

    def _key(self, key: str) -> str:
        return base64.b64encode((self._address.prefix + key).encode()).decode()

    async def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask the present member; after a failure the next call goes to the next one. Raises _NotSent, _NoAnswer."""
        data = json.dumps(body).encode()
        async with self._room:
            at, member = self._at, self._member()
            token = await self._authenticated()
            answer = await self._post(path, data, token, self._try_s)
            if answer.status != 200 and any(w in _words(answer) for w in _TOKEN_WORDS):
                # Refused before anything was done, so that asking again cannot do it twice.
                if self._token == token:
                    self._token = b""
                token = await self._authenticated()
                answer = await self._post(path, data, token, self._try_s)
        try:
            if answer.status == 200:
                found: dict[str, Any] = json.loads(answer.body)
                if int(found["header"]["revision"]) > 0:  # defaults are left out, this never
                    return self._of_one_cluster(found)
            words = _words(answer)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            words = f"an answer that is none of this etcd's: {error}"
        self._next(at)
        raise _NoAnswer(f"{member}: {words}")

    def _of_one_cluster(self, found: dict[str, Any]) -> dict[str, Any]:
        """The answer; raises ValueError when its cluster is another than that of the first answer."""
        cluster = str(found["header"].get("cluster_id", ""))
        self._cluster = self._cluster or cluster
        if cluster != self._cluster:
            raise ValueError(f"a member of cluster {cluster}, not of {self._cluster}")
        return found

    async def _authenticated(self) -> bytes:
        """The header that says who we are; empty when there is no user."""
        if not self._address.user or self._token:
            return self._token
        async with self._login:
            at, member = self._at, self._member()
            if self._token:
                return self._token
            try:
                asked = {"name": self._address.user, "password": await self._password()}
                data = json.dumps(asked).encode()
                answer = await self._post("/v3/auth/authenticate", data, b"", LOGIN_S)
                if answer.status == 200:
                    token = json.loads(answer.body)["token"].encode("ascii")
                    if not token.isascii() or b"\n" in token or b"\r" in token:
                        raise ValueError("no token")
                    self._token = b"Authorization: %s\r\n" % token
                    return self._token
                words = _words(answer)
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                words = f"{type(error).__name__}"
            except _NoAnswer as error:
                words = str(error)
            self._next(at)
            raise _NotSent(f"{member} does not let {self._address.user} in: {words}")

    async def _post(self, path: str, data: bytes, token: bytes, most_s: float) -> HttpAnswer:
        at, member = self._at, self._member()
        connection: HttpConnection | None = None
        sent = False
        try:
            async with asyncio.timeout(most_s):
                connection = await self._connection()
                sent = True
                answer = await connection.post(path, data, token)
        except _BROKEN as error:
            self._next(at)
            words = f"{member}: {error or 'no answer in time'}"
            raise (_NoAnswer(words) if sent else _NotSent(words)) from None
        finally:
            if connection is not None:
                # Another call may have left this member meanwhile: `_idle` is of the present one alone.
                if connection.usable and self._at == at:
                    self._idle.append(connection)
                else:
                    connection.abort()
        return answer

    async def _connection(self) -> HttpConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.abort()
        host, port = self._address.members[self._at]
        return await connect_http(host, port, self._context)

    def _member(self) -> str:
        host, port = self._address.members[self._at]
        return f"{host}:{port}"

    def _next(self, failed: int) -> None:
        if self._at == failed:  # another call may have moved on already
            self._at = (failed + 1) % len(self._address.members)
            self._drop()

    def _drop(self) -> None:
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def close(self) -> None:
        """Close connections."""
        self._drop()


class _NotSent(Exception):
    """The member cannot have got the request."""


class _NoAnswer(Exception):
    """The member may have got the request."""


def _words(answer: HttpAnswer) -> str:
    """Return etcd's words about a refusal; at most 200 characters."""
    try:
        found = json.loads(answer.body)
        words = str(found.get("message") or found.get("error"))
    except (ValueError, AttributeError):
        words = answer.body.decode("utf-8", "replace")
    return f"HTTP {answer.status} {words[:200]!r}"


def tls_context(address: EtcdAddress) -> ssl.SSLContext:
    """Make the context of TLS with the members. Raises OSError: a file cannot be read, ssl.SSLError: or used."""
    context = ssl.create_default_context(cafile=address.ca_file or None)
    if address.cert_file:
        context.load_cert_chain(address.cert_file, address.key_file)
    return context
