"""The configuration of a client; names say their units, defaults are those of Apache's Java client."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypedDict

from roquette.base.files import OsFiles
from roquette.base.options import option, options_of
from roquette.base.property_files import parse_properties
from roquette.client.core.namespace import namespace_error
from roquette.errors import ConfigError
from roquette.message.compression import Compression
from roquette.message.names import TBW102, client_topic_error
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
