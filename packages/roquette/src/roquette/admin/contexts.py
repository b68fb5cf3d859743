"""Contexts: clusters under names of their own, in a file of the user that nobody else may read.

A context says where a cluster's name servers are, and which login file (`admin/contexts.py`) is for it. It has no secret itself.
"""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from roquette.base.files import Files, OsFiles, home_directory, replace_private
from roquette.base.options import did_you_mean
from roquette.base.property_files import parse_properties
from roquette.errors import ConfigError
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.signature import Credentials

VARIABLE: Final = "ROQUETTE_CONTEXT"
FILE_VARIABLE: Final = "ROQUETTE_CONTEXTS_FILE"
DEFAULT_NAME_SERVERS: Final = "127.0.0.1:9876"


class Context(msgspec.Struct, frozen=True):
    """One cluster. `login`: path of a login file, "": none. `brokers`: names of those that are to be there."""

    namesrv: str
    login: str = ""
    brokers: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    current: str = ""
    contexts: dict[str, Context] = {}


class Contexts:
    """The file with a user's contexts.

    Args:
        path: of the file, which need not exist yet.
    """

    def __init__(self, path: str, files: Files | None = None) -> None:
        self.path = path
        self._files = files or OsFiles()

    def all(self) -> dict[str, Context]:
        """Every context by its name; raises ConfigError when the file cannot be read."""
        return self._read().contexts

    @property
    def current(self) -> str:
        """The name of the one in use, "": none; raises ConfigError when the file cannot be read."""
        return self._read().current

    def get(self, name: str) -> Context:
        """A context; raises ConfigError when there is none of this name."""
        known = self.all()
        if name not in known:
            there = did_you_mean(name, known) or "; 'roquette context ls' shows those there are"
            raise ConfigError(f"there is no context {name}{there}")
        return known[name]

    def put(self, name: str, context: Context) -> None:
        """Add a context or replace it; raises ConfigError when the name or the file cannot be used."""
        if not name or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise ConfigError(f"a context's name has letters, digits, - _ and . only, not {name!r}")
        found = self._read()
        self._write(_File(found.current, found.contexts | {name: context}))

    def use(self, name: str) -> None:
        """Make a context the one of commands that name none; "" is none. Raises ConfigError."""
        if name:
            self.get(name)
        self._write(_File(name, self._read().contexts))

    def remove(self, name: str) -> None:
        """Forget a context; raises ConfigError when there is none of this name."""
        self.get(name)
        found = self._read()
        rest = {known: context for known, context in found.contexts.items() if known != name}
        self._write(_File("" if found.current == name else found.current, rest))

    def _read(self) -> _File:
        if not self._files.exists(self.path):
            return _File()
        try:
            return msgspec.json.decode(self._files.read_bytes(self.path), type=_File)
        except OSError as error:
            reason = error.strerror or str(error)
        except msgspec.MsgspecError as error:
            reason = str(error)
        raise ConfigError(f"the file of contexts {self.path} cannot be read: {reason}") from None

    def _write(self, content: _File) -> None:
        text = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
        try:
            replace_private(self._files, self.path, text)
        except OSError as error:
            raise ConfigError(
                f"the file of contexts {self.path} cannot be written: {error.strerror or error}"
            ) from None


def contexts_of(environ: Mapping[str, str]) -> Contexts:
    """The user's contexts: in $ROQUETTE_CONTEXTS_FILE, else below $XDG_CONFIG_HOME or ~/.config."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(home_directory(), ".config")
    path = environ.get(FILE_VARIABLE) or os.path.join(base, "roquette", "contexts.json")
    return Contexts(path)


class CommandTarget(NamedTuple):
    """Target of a command: where it goes, as whom (`login`: the path of a login file, None: as the environment says),
    and which brokers are to be there."""

    name_servers: str
    login: str | None = None
    brokers: tuple[str, ...] = ()


def place_of(
    namesrv: str | None, login: str | None, context: str | None, environ: Mapping[str, str]
) -> CommandTarget:
    """Resolve what options and the environment say together.

    The first of these that is given: name servers, a context, $ROQUETTE_CONTEXT, $NAMESRV_ADDR, the context in use,
    this machine's default port. A context's login file is for its own name servers only.

    Raises:
        ConfigError: name servers and a context are given, or there is no such context.
    """
    if namesrv and context:
        raise ConfigError("give --namesrv or --context, not both")
    if namesrv:
        return CommandTarget(namesrv, login)
    book = contexts_of(environ)
    name = context or environ.get(VARIABLE)
    if not name:
        if environ.get("NAMESRV_ADDR"):
            return CommandTarget(environ["NAMESRV_ADDR"], login)
        name = book.current
    if not name:
        return CommandTarget(DEFAULT_NAME_SERVERS, login)
    found = book.get(name)
    return CommandTarget(found.namesrv, login or found.login or None, found.brokers)


# Identity of a command at a cluster: a file with a user's name and secret, and how servers are verified.
# The file has Apache's keys, `accessKey`, `secretKey`, `securityToken` and `tls.client.*`, as key=value lines. Its secrets are in no command line and no variable, which lists of processes show.


LOGIN_VARIABLE: Final = "ROQUETTE_LOGIN"
_CREDENTIALS: Final = ("accessKey", "secretKey", "securityToken")
_WORDS: Final = ("trustCertPath", "certPath", "keyPath", "keyPassword", "authServer", "verifyHost")
_KEYS: Final = (*_CREDENTIALS, "tls.enable", *(f"tls.client.{word}" for word in _WORDS))


class Login(NamedTuple):
    """Credentials and TLS that a client needs at a closed cluster; None: not that."""

    credentials: Credentials | None = None
    tls: TlsOptions | None = None


NOBODY: Final = Login()


def login_of(path: str | None, environ: Mapping[str, str]) -> Login:
    """Read what a file says; without one, that of $ROQUETTE_LOGIN, else nothing.

    Raises:
        ConfigError: it cannot be read, or says what it should not. Never with a secret in its text.
    """
    place = path or environ.get(LOGIN_VARIABLE)
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
