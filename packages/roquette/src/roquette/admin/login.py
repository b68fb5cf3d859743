"""Who a command is at a cluster: a file with a user's name and secret, and how servers are verified.

The file has Apache's keys, `accessKey`, `secretKey`, `securityToken` and `tls.client.*`, as key=value lines. Its secrets are in
no command line and no variable, which lists of processes show.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from roquette.base.files import OsFiles
from roquette.base.options import did_you_mean
from roquette.base.property_files import parse_properties
from roquette.errors import ConfigError
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.signature import Credentials

VARIABLE: Final = "ROQUETTE_LOGIN"
_CREDENTIALS: Final = ("accessKey", "secretKey", "securityToken")
_WORDS: Final = ("trustCertPath", "certPath", "keyPath", "keyPassword", "authServer", "verifyHost")
_KEYS: Final = (*_CREDENTIALS, "tls.enable", *(f"tls.client.{word}" for word in _WORDS))


class Login(NamedTuple):
    """What a client needs at a closed cluster; None: not that."""

    credentials: Credentials | None = None
    tls: TlsOptions | None = None


NOBODY: Final = Login()


def login_of(path: str | None, environ: Mapping[str, str]) -> Login:
    """What a file says; without one, that of $ROQUETTE_LOGIN, else nothing.

    Raises:
        ConfigError: it cannot be read, or says what it should not. Never with a secret in its text.
    """
    place = path or environ.get(VARIABLE)
    return NOBODY if not place else _read(place)


def login_text(credentials: Credentials, tls: TlsOptions | None) -> str:
    """The lines of such a file."""
    lines = {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}
    if tls is not None:
        lines |= {"tls.enable": "true", "tls.client.trustCertPath": str(tls.ca)}
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _read(path: str) -> Login:
    try:
        found = parse_properties(OsFiles().read_bytes(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"the login file {path} cannot be read: {reason}") from None
    for key in found:
        if key not in _KEYS:
            raise ConfigError(
                f"unknown key {key[:80]} in the login file {path}{did_you_mean(key, _KEYS)}"
            )
    tls_keys = [key for key in found if key.startswith("tls.")]
    credentials = None
    if any(found.get(key) for key in _CREDENTIALS):
        try:
            credentials = Credentials(*(found.get(key, "") for key in _CREDENTIALS))
        except ConfigError as error:
            raise ConfigError(f"the login file {path}: {error}") from None
    if not tls_keys or not _truth(found, "tls.enable", path):
        return Login(credentials)
    prefix = "tls.client."
    options = TlsOptions(
        ca=found.get(prefix + "trustCertPath", ""),
        certificate=found.get(prefix + "certPath", ""),
        key=found.get(prefix + "keyPath", ""),
        key_password=found.get(prefix + "keyPassword", ""),
        verify=_truth(found, prefix + "authServer", path),
        verify_host=_truth(found, prefix + "verifyHost", path),
    )
    return Login(credentials, options)


def _truth(found: Mapping[str, str], key: str, path: str) -> bool:
    text = found.get(key, "true").strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{key} in the login file {path} must be true or false")
    return text == "true"
