"""Credentials and TLS of a client, as its arguments, files and the environment state them.

Secrets are in files and in the environment, never on command lines, which all users of a machine see.
"""

import os
from collections.abc import Mapping
from typing import Final, TypedDict

from roquette.base.files import OsFiles
from roquette.base.property_files import parse_properties
from roquette.errors import ConfigError
from roquette.remoting.security import OPEN, Security
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.signature import Credentials

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
