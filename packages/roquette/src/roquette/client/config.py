"""The configuration of a client; names say their units, defaults are those of Apache's Java client."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypedDict
from urllib.parse import urlsplit

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.base.javatypes import whole_number
from roquette.base.lifecycle import Tasks
from roquette.base.options import option, options_of
from roquette.base.property_files import parse_properties
from roquette.client.core.namespace import namespace_error
from roquette.errors import ConfigError, ConnectError, RemoteProtocolError
from roquette.message.compression import Compression
from roquette.message.names import TBW102, client_topic_error
from roquette.remoting.address import addresses_of
from roquette.remoting.etcd import connect_http
from roquette.remoting.security import OPEN, Security
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.signature import Credentials

# Credentials and TLS of a client, as its arguments, files and the environment state them.
# Secrets are in files and in the environment, never on command lines, which all users of a machine see.


__all__ = [
    "AccessWords",
    "Credentials",
    "TlsOptions",
    "access_from",
    "access_of",
    "credentials_from",
    "environment_security",
    "read_keys",
    "security_of",
    "tls_from",
]

ACCESS_KEY: Final = "ROQUETTE_ACCESS_KEY"
SECRET_KEY: Final = "ROQUETTE_SECRET_KEY"
SECURITY_TOKEN: Final = "ROQUETTE_SECURITY_TOKEN"
ACCESS_KEY_FILE: Final = "ROQUETTE_ACCESS_KEY_FILE"
TLS: Final = "ROQUETTE_TLS"
TLS_CA: Final = "ROQUETTE_TLS_CA"
TLS_CERTIFICATE: Final = "ROQUETTE_TLS_CERTIFICATE"
TLS_KEY: Final = "ROQUETTE_TLS_KEY"
TLS_KEY_PASSWORD: Final = "ROQUETTE_TLS_KEY_PASSWORD"
TLS_VERIFY: Final = "ROQUETTE_TLS_VERIFY"
TLS_VERIFY_HOST: Final = "ROQUETTE_TLS_VERIFY_HOST"

_FILES: Final = TLS_CA, TLS_CERTIFICATE, TLS_KEY


class AccessWords(TypedDict, total=False):
    """Arguments of a client that say who it is and how it connects.

    tls: True trusts the system's authorities. credentials, or access_key and secret_key (and security_token).
    """

    tls: bool | TlsOptions
    credentials: Credentials | None
    access_key: str
    secret_key: str
    security_token: str


def access_of(words: AccessWords) -> tuple[TlsOptions | None, Credentials | None]:
    """Read TLS options and credentials from the arguments. Raises ConfigError: they contradict each other, or one is missing."""
    for unknown in set(words) - set(AccessWords.__annotations__):
        raise TypeError(f"a client has no argument {unknown!r}")
    tls = words.get("tls", False)
    options = tls if isinstance(tls, TlsOptions) else TlsOptions() if tls else None
    credentials = words.get("credentials")
    keys = [words.get(name, "") for name in ("access_key", "secret_key", "security_token")]
    if any(keys):
        if credentials is not None:
            raise ConfigError("credentials stand beside access_key or secret_key: give one of them")
        credentials = Credentials(*map(str, keys))
    return options, credentials


def security_of(tls: TlsOptions | None, credentials: Credentials | None) -> Security:
    """For connections. Raises ConfigError: a file cannot be used."""
    if tls is None and credentials is None:
        return OPEN
    return Security(credentials=credentials, tls=None if tls is None else tls._client_tls)


def read_keys(path: str, access_key: str = "") -> Credentials:
    """The credentials in a file: lines `accessKey=...`, `secretKey=...` (mqadmin's tools.yml as well), or the secret alone
    beside an access key that is known. Raises ConfigError, without what the file holds."""
    try:
        text = OsFiles().read_bytes(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"the file of keys {path} cannot be read: {why}") from None
    found = {name: word.strip().strip("\"'") for name, word in parse_properties(text).items()}
    if "secretKey" in found:
        token = found.get("securityToken", "")
        key = access_key or found.get("accessKey", "")
    else:
        found, token, key = {"secretKey": text.strip()}, "", access_key
    if not key or not found["secretKey"] or len(found["secretKey"].split()) != 1:
        raise ConfigError(
            f"the file of keys {path} needs the lines accessKey=... and secretKey=..., or the secret alone "
            "where the access key is given beside it"
        )
    return Credentials(key, found["secretKey"], token)


def credentials_from(environ: Mapping[str, str]) -> Credentials | None:
    """Of ROQUETTE_ACCESS_KEY and ROQUETTE_SECRET_KEY, or of the file that ROQUETTE_ACCESS_KEY_FILE names; None:
    neither is set. Raises ConfigError."""
    key, secret = environ.get(ACCESS_KEY, ""), environ.get(SECRET_KEY, "")
    path = environ.get(ACCESS_KEY_FILE, "")
    if path and not secret:
        return read_keys(path, key)
    if not key and not secret:
        return None
    if not key or not secret:
        given, missing = (ACCESS_KEY, SECRET_KEY) if key else (SECRET_KEY, ACCESS_KEY)
        raise ConfigError(f"{given} is set, and {missing} is not")
    return Credentials(key, secret, environ.get(SECURITY_TOKEN, ""))


def tls_from(environ: Mapping[str, str]) -> TlsOptions | None:
    """Of ROQUETTE_TLS=true and the other ROQUETTE_TLS_...; one that names a file asks for TLS as well. Raises ConfigError."""
    given = {name: environ.get(name, "").strip() for name in _FILES}
    if not _flag(environ, TLS, any(given.values())):
        return None
    return TlsOptions(
        ca=given[TLS_CA],
        certificate=given[TLS_CERTIFICATE],
        key=given[TLS_KEY],
        key_password=environ.get(TLS_KEY_PASSWORD, ""),
        verify=_flag(environ, TLS_VERIFY, True),
        verify_host=_flag(environ, TLS_VERIFY_HOST, True),
    )


def access_from(environ: Mapping[str, str] | None = None) -> AccessWords:
    """The arguments of a client that the environment says; None: this process's. Raises ConfigError."""
    given = os.environ if environ is None else environ
    words = AccessWords(credentials=credentials_from(given))
    tls = tls_from(given)
    if tls is not None:
        words["tls"] = tls
    return words


def environment_security() -> Security:
    """Of connections that go by this process's environment alone. Raises ConfigError."""
    return security_of(tls_from(os.environ), credentials_from(os.environ))


def _flag(environ: Mapping[str, str], name: str, default: bool) -> bool:
    text = environ.get(name, "").strip().lower()
    if text not in ("", "true", "false", "1", "0"):
        raise ConfigError(f"{name} must be true or false, not {text[:20]!r}")
    return text in ("true", "1") if text else default


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Configuration of a client, checked; `client.settings` says what each means, and is what applications write.

    Attributes:
        name_servers: "host:port;host:port", or where such a list is found: "http://host:port/path" (asked again each two
            minutes), "dns://name:port" (each address of the name is a name server).
    """

    name_servers: str
    instance_name: str | None = None
    local_host: str | None = None
    namespace: str = ""
    namespace_v2: str = ""
    call_timeout_ms: int = option(3_000, least=1)
    connect_timeout_ms: int = option(3_000, least=1)
    poll_routes_ms: int = option(30_000, least=1)
    heartbeat_ms: int = option(30_000, least=1)
    persist_offsets_ms: int = option(5_000, least=1)
    rebalance_ms: int = option(20_000, least=1)
    compare_name_servers_ms: int = option(30_000, least=1)

    send_timeout_ms: int = option(3_000, least=1)
    send_attempts: int = option(3, least=1)
    linger_ms: int = option(0)
    compress_over_bytes: int = option(4_096)
    compression: Compression = Compression.ZLIB
    compression_level: int = option(5)
    max_message_size: int = option(4 * 1024 * 1024, least=1, most=16_000_000)  # of a frame's 16 MiB
    create_topic_key: str = TBW102
    default_topic_queues: int = option(4, least=1)
    retry_another_broker_when_not_store_ok: bool = False
    latency_fault_tolerance: bool = False
    detect_isolated_brokers: bool = False
    detect_interval_ms: int = option(2_000, least=1)
    detect_timeout_ms: int = option(200, least=1)
    max_in_flight: int = option(1_000, least=1)
    max_bytes_in_flight: int = option(100 * 1024 * 1024, least=1)
    max_delay_level: int = option(18)

    pull_batch: int = option(32, least=1)
    pull_hold_ms: int = option(15_000)
    pull_timeout_ms: int = option(30_000, least=1)
    pull_retry_ms: int = option(1_000)
    pull_threshold_count: int = option(1_000)
    pull_threshold_bytes: int = option(100 * 1024 * 1024)
    pull_threshold_topic_count: int = option(0)
    pull_threshold_topic_bytes: int = option(0)
    pull_threshold_span: int = option(2_000)
    prefetch_bytes: int = option(64 * 1024 * 1024)
    pull_pause_ms: int = option(50)
    orderly_suspend_ms: int = option(1_000)
    lock_interval_ms: int = option(20_000, least=1)
    consume_timeout_ms: int = option(900_000, least=1)
    offset_root: str | None = None
    trace: bool = False
    trace_topic: str | None = None

    tls: TlsOptions | None = None
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError: a number is missing or too small; with it something would never happen, or never stop."""
        for known in options_of(ClientConfig).values():
            if known.type is int:
                known.check(getattr(self, known.field), known.field)
        most = 9 if self.compression is Compression.ZLIB else 22
        if self.compression_level > most:
            raise ConfigError(f"compression_level={self.compression_level} is not 0 to {most}")

        for namespace in filter(None, (self.namespace, self.namespace_v2)):
            if error := namespace_error(namespace):
                raise ConfigError(error)
        if self.namespace and self.namespace_v2:
            raise ConfigError("namespace and namespace_v2 exclude each other: give one of them")
        if self.detect_isolated_brokers and not self.latency_fault_tolerance:
            raise ConfigError(
                "detect_isolated_brokers is without effect unless latency_fault_tolerance=True"
            )
        if self.trace_topic is not None and (error := client_topic_error(self.trace_topic)):
            raise ConfigError(f"trace_topic={self.trace_topic!r}: {error}")
        if self.trace_topic is not None and not self.trace:
            raise ConfigError(f"trace_topic={self.trace_topic} is without effect unless trace=True")

    @property
    def security(self) -> Security:
        """Of its connections. Raises ConfigError: a file cannot be used."""
        found = security_of(self.tls, self.credentials)
        return replace(found, namespace=self.namespace_v2) if self.namespace_v2 else found


# Name servers that a client asks: a list it is given, or one that it looks up, over HTTP or DNS, again and again.
# Apache: TopAddressing, MQClientAPIImpl.fetchNameServerAddr.


log = logging.getLogger("roquette.client")

RENEW_S: Final = 120.0  # how often a list is looked up
DEFAULT_PATH: Final = "/rocketmq/nsaddr"
DEFAULT_PORT: Final = 9876
MOST: Final = 64  # name servers that one look-up may give
_LOOK_UP_S: Final = 3.0
_PAUSE_MS: Final = 1_000  # between two look-ups that failures ask for

LookUp = Callable[[], Coroutine[None, None, list[str]]]
"""Finds addresses; raises OSError, EOFError or RemoteProtocolError."""


def parse_name_servers(text: str) -> list[str]:
    """ "host:port;host:port" (or with commas, or a rocketmq:// prefix) -> addresses; raises ConfigError."""
    words = [
        word.strip().removeprefix("rocketmq://").rstrip("/")
        for word in text.replace(",", ";").split(";")
    ]
    found = [word for word in words if word]
    for word in found:
        host, _, port = word.rpartition(":")
        if not host or whole_number(port, 65_535) < 1 or "/" in host:
            raise ConfigError(f"name server address {word!r} is not of the form host:port")
    if not found:
        raise ConfigError(
            "no name server address is given: pass 'host:port;host:port' or set NAMESRV_ADDR"
        )
    return found


class NameServers:
    """The name servers of one client, and which of them is asked now.

    Args:
        text: "host:port;host:port", or where such a list is found: "http://host:port/path", "dns://name:port".

    Raises:
        ConfigError: the text is none of these.
    """

    def __init__(self, text: str, clock: Clock, entropy: Entropy, tasks: Tasks) -> None:
        self.source = text.strip()
        self._look_up = _look_up_of(self.source)
        self.addresses = [] if self._look_up is not None else parse_name_servers(text)
        self._current = entropy.below(len(self.addresses) or MOST)
        self._clock = clock
        self._tasks = tasks
        self._looking: asyncio.Task[bool] | None = None
        self._looked_ms: int | None = None
        self.failed = ""

    @property
    def changes(self) -> bool:
        """True if the list is looked up."""
        return self._look_up is not None

    def current(self) -> str | None:
        """The one to ask; None while none is known."""
        return self.addresses[self._current % len(self.addresses)] if self.addresses else None

    def leave(self, address: str) -> None:
        """It failed: ask the next one, unless another caller has moved on already."""
        if self.current() == address:
            self._current += 1

    async def renew(self, *, now: bool = False) -> bool:
        """Look the list up, not more often than each second unless `now`; whether there is another one.

        The old one stays when nobody answers: `failed` says why. Callers share one look-up.
        """
        if self._look_up is None:
            return False
        if self._looking is None:
            early = (
                self._looked_ms is not None
                and self._clock.steady_ms() - self._looked_ms < _PAUSE_MS
            )
            if early and not now:
                return False
            self._looking = self._tasks.start("name-servers", self._renew(self._look_up))
            self._looking.add_done_callback(self._looked)
        return await asyncio.shield(self._looking)

    def _looked(self, looking: "asyncio.Task[bool]") -> None:
        self._looking = None
        self._looked_ms = self._clock.steady_ms()

    async def _renew(self, look_up: LookUp) -> bool:
        try:
            async with asyncio.timeout(_LOOK_UP_S):
                found = await look_up()
        except (OSError, EOFError, TimeoutError, RemoteProtocolError) as error:
            self.failed = f"{self.source} gives no name servers: {error or type(error).__name__}"
            log.warning("%s; known now=%s", self.failed, ";".join(self.addresses) or "none")
            return False
        self.failed = ""
        if sorted(found) == sorted(self.addresses):
            return False
        self.addresses = found
        log.info("name servers from=%s now=%s", self.source, ";".join(self.addresses))
        return True

    def unreachable(self, last: BaseException | None) -> ConnectError:
        """Return the error to raise when none answers."""
        if not self.addresses:
            return ConnectError(self.failed or f"{self.source} was not asked for name servers yet")
        return ConnectError(f"no name server of {';'.join(self.addresses)} can be reached: {last}")


def _look_up_of(text: str) -> LookUp | None:
    """Return the look-up that a text asks for; None: it is a list. Raises ConfigError."""
    scheme, mark, _ = text.partition("://")
    if not mark or scheme not in ("http", "https", "dns"):
        return None
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    good = host and port != 0 and parts.username is None and not parts.fragment
    if scheme == "http" and good:
        path = parts.path if parts.path not in ("", "/") else DEFAULT_PATH
        if parts.query:
            path += f"?{parts.query}"
        if path.isascii() and path.isprintable() and " " not in path:
            return lambda: _from_http(host or "", port or 80, path)
    if scheme == "dns" and good and parts.path in ("", "/") and not parts.query:
        return lambda: _from_dns(host or "", port or DEFAULT_PORT)
    raise ConfigError(
        f"name servers {text!r:.200} are neither host:port;host:port nor http://host:port/path nor dns://name:port"
    )


async def _from_http(host: str, port: int, path: str) -> list[str]:
    """Ask an address server for its list: one line, "host:port;host:port"."""
    connection = await connect_http(host, port, None)
    try:
        answer = await connection.get(path)
    finally:
        connection.abort()
    if answer.status != 200:
        raise RemoteProtocolError(f"it answers with status {answer.status}")
    text = answer.body.decode("utf-8", "replace").strip()
    line = text.splitlines()[0] if text else ""
    try:
        return _bounded(parse_name_servers(line))
    except ConfigError:
        raise RemoteProtocolError(f"it answers {line[:80]!r}, not host:port;host:port") from None


async def _from_dns(name: str, port: int) -> list[str]:
    return _bounded(await addresses_of(name, port))


def _bounded(found: list[str]) -> list[str]:
    if len(found) > MOST:
        raise RemoteProtocolError(f"it names {len(found)} name servers, more than {MOST}")
    return found
