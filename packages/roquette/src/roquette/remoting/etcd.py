"""Groups' records in etcd, by its JSON gateway (`/v3/kv`): linearizable reads, and transactions that compare a revision.

No lease and no watch of etcd's is used: a change of its leader prolongs its leases, and ours is a counter in the record.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.base.options import split_addresses
from roquette.errors import (
    AgreementError,
    ClientError,
    ConfigError,
    ConnectError,
    RemoteProtocolError,
)
from roquette.remoting.client import RemotingClient, split_address
from roquette.replication.record import Agreement, Stored
from roquette.wire import headers
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext, encode_ext

# Just enough of HTTP/1.1 to ask a JSON gateway: one connection, one request at a time, answers bounded in size.


MOST_HEAD: Final = 16 << 10  # bytes of status line and headers
MOST_BODY: Final = 1 << 20  # bytes of an answer


class HttpAnswer(NamedTuple):
    """Answer of a server."""

    status: int
    body: bytes


class HttpConnection:
    """A kept connection to one server, made by `connect_http`.

    Attributes:
        usable: another request may be sent on it.
    """

    def __init__(
        self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._host = host.encode()
        self._reader = reader
        self._writer = writer
        self._kept = True

    @property
    def usable(self) -> bool:
        """True if the server, as far as we know, still listens to it."""
        return self._kept and not self._reader.at_eof() and not self._writer.is_closing()

    async def post(self, path: str, body: bytes, headers: bytes = b"") -> HttpAnswer:
        """Send JSON and wait for the answer; cancelled or failed, the connection is of no use any more.

        Args:
            headers: whole lines.

        Raises:
            OSError, EOFError: it broke. RemoteProtocolError: what came is no answer.
        """
        return await self._ask(
            b"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s"
            % (path.encode(), self._host, headers, len(body), body)
        )

    async def get(self, path: str) -> HttpAnswer:
        """Ask for what is at a path, on a connection that is used for nothing else. Raises what `post` does."""
        return await self._ask(
            b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
            % (path.encode(), self._host)
        )

    async def _ask(self, request: bytes) -> HttpAnswer:
        kept, self._kept = self._kept, False
        assert kept, "used while another request is under way"
        self._writer.write(request)
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ")[1])
            fields = {
                name.strip().lower(): value.strip().lower()
                for name, _, value in (line.partition(":") for line in lines[1:])
            }
            if "chunked" in fields.get("transfer-encoding", ""):
                data = await self._chunks()
            elif "content-length" not in fields and fields.get("connection") == "close":
                data = await self._rest()
            else:
                data = await self._reader.readexactly(_bounded(int(fields["content-length"])))
        except (ValueError, KeyError, IndexError, asyncio.LimitOverrunError) as error:
            raise RemoteProtocolError(f"this is no HTTP answer: {error!r}") from None
        self._kept = fields.get("connection") != "close"
        return HttpAnswer(status, data)

    async def _chunks(self) -> bytes:
        found = b""
        while True:
            size = _bounded(int((await self._line()).partition(b";")[0], 16), len(found))
            if size == 0:
                break
            found += await self._reader.readexactly(size)
            if await self._line():
                raise ValueError("a chunk does not end where it should")
        for _ in range(100):  # trailers
            if not await self._line():
                return found
        raise ValueError("trailers without an end")

    async def _rest(self) -> bytes:
        """Read what comes until the server closes the connection."""
        found = b""
        while more := await self._reader.read(MOST_HEAD):
            _bounded(len(more), len(found))
            found += more
        return found

    async def _line(self) -> bytes:
        return (await self._reader.readuntil(b"\r\n"))[:-2]

    def abort(self) -> None:
        """Close it at once."""
        self._kept = False
        self._writer.transport.abort()


def _bounded(size: int, before: int = 0) -> int:
    if size < 0 or before + size > MOST_BODY:
        raise ValueError(f"the answer is larger than {MOST_BODY} bytes")
    return size


async def connect_http(host: str, port: int, context: ssl.SSLContext | None) -> HttpConnection:
    """Connect; raises OSError (ssl.SSLError is one) when the server cannot be reached or is not who it should be."""
    reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=MOST_HEAD)
    return HttpConnection(f"{host}:{port}", reader, writer)


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
        errors: list[str] = []
        for _ in self._address.members:
            try:
                answer = await self._call("/v3/kv/range", body)
                kvs = answer.get("kvs") or [{}]
                value = base64.b64decode(kvs[0].get("value", ""), validate=True)
                return Stored(int(kvs[0].get("mod_revision", 0)), value)
            except (_NotSent, _NoAnswer) as error:
                errors.append(str(error))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise AgreementError(f"an answer that is none of etcd's: {error!r}") from None
        raise AgreementError(f"etcd did not answer for {key}: {'; '.join(errors)}")

    async def put_if(self, key: str, revision: int, value: bytes) -> int | None:
        """See `Agreement`; another member is tried only while none can have got the request."""
        name = self._key(key)
        where = {"key": name, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
        put = {"requestPut": {"key": name, "value": base64.b64encode(value).decode()}}
        errors: list[str] = []
        for _ in self._address.members:
            try:
                answer = await self._call("/v3/kv/txn", {"compare": [where], "success": [put]})
                return int(answer["header"]["revision"]) if answer.get("succeeded") else None
            except _NotSent as error:
                errors.append(str(error))
            except _NoAnswer as error:
                # If it was taken, the key's revision has moved, and the same request would fail elsewhere
                # by its own success: the caller would hear that somebody else has written.
                errors.append(str(error))
                break
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise AgreementError(f"an answer that is none of etcd's: {error!r}") from None
        raise AgreementError(f"etcd may not have taken {key}: {'; '.join(errors)}")

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


# A group's record as a broker reaches it: through name servers that are controllers, or straight in etcd.


async def open_agreement(where: str, client: RemotingClient, files: Files) -> Agreement:
    """Open the agreement that the setting controllerAddr names: `etcd://...`, or name servers, `host:port;host:port`.

    Raises:
        ConfigError: it is neither, or names a file that cannot be used.
    """
    if where.startswith(SCHEME):
        etcd = EtcdAgreement(parse_etcd(where), files)
        await etcd.load()
        return etcd
    addresses = split_addresses(where)
    try:
        for address in addresses:
            split_address(address)
    except ConnectError as error:
        raise ConfigError(f"controllerAddr={where!r}: {error}") from None
    if not addresses:
        raise ConfigError("controllerAddr names no address")
    return RemoteAgreement(client, addresses)


class RemoteAgreement:
    """An `Agreement` behind name servers: one is asked, and the next one after an error or `try_ms`.

    All of them must stand before one etcd. A controller that keeps records in a file of its own refuses unless it is the
    only address: then a try may take a second.

    Args:
        client: the owner's; `close` leaves it open.
    """

    def __init__(
        self, client: RemotingClient, addresses: Sequence[str], try_ms: int | None = None
    ) -> None:
        assert addresses
        self._client = client
        self._addresses = list(addresses)
        self._several = len(addresses) > 1
        self._at = 0
        self._try_ms = try_ms or (250 if len(addresses) > 1 else 1_000)

    async def get(self, key: str) -> Stored:
        """See `Agreement`; each name server is tried once."""
        ext = encode_ext(headers.GetRegisterRequestHeader(key=key, several=self._several))
        errors: list[str] = []
        for _ in self._addresses:
            address = self._addresses[self._at]
            try:
                answer = await self._ask(address, RequestCode.GET_REGISTER, ext, b"")
                return Stored(_revision(answer), bytes(answer.body or b""))
            except (ClientError, AgreementError) as error:
                errors.append(f"{address}: {error}")
                self._next(address)
        raise AgreementError(f"the record {key} could not be read: {'; '.join(errors)}")

    async def put_if(self, key: str, revision: int, value: bytes) -> int | None:
        """See `Agreement`; the next name server is tried only when the one before cannot have got the request."""
        ext = encode_ext(
            headers.PutRegisterIfRequestHeader(key=key, revision=revision, several=self._several)
        )
        errors: list[str] = []
        for _ in self._addresses:
            address = self._addresses[self._at]
            try:
                async with asyncio.timeout(self._try_ms / 1000):
                    await self._client.connect(address)
            except (ClientError, TimeoutError) as error:
                errors.append(f"{address}: {error or 'no connection in time'}")
                self._next(address)
                continue
            try:
                answer = await self._ask(address, RequestCode.PUT_REGISTER_IF, ext, value)
                return _revision(answer) or None
            except (ClientError, AgreementError) as error:
                errors.append(f"{address}: {error}")
                self._next(address)
                break
        raise AgreementError(f"the record {key} may not be written: {'; '.join(errors)}")

    async def _ask(self, address: str, code: int, ext: bytes, body: bytes) -> Command:
        answer = await self._client.invoke(address, code, ext, body, timeout_ms=self._try_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise AgreementError(answer.remark or f"code {answer.code}")
        return answer

    def _next(self, failed: str) -> None:
        if self._addresses[self._at] == failed:  # another call may have moved on already
            self._at = (self._at + 1) % len(self._addresses)

    async def close(self) -> None:
        """Nothing of its own is open."""


def _revision(answer: Command) -> int:
    return decode_ext(headers.RegisterResponseHeader, answer.ext).revision
