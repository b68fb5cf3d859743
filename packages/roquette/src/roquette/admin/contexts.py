"""Contexts: clusters under names of their own, in a file of the user that nobody else may read.

A context says where a cluster's name servers are, and which login file (`admin/login.py`) is for it. It has no secret itself.
"""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from roquette.base.files import Files, OsFiles, home_directory, replace_private
from roquette.base.options import did_you_mean
from roquette.errors import ConfigError

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
    """Where a command goes, as whom (`login`: the path of a login file, None: as the environment says), and which
    brokers are to be there."""

    name_servers: str
    login: str | None = None
    brokers: tuple[str, ...] = ()


def place_of(
    namesrv: str | None, login: str | None, context: str | None, environ: Mapping[str, str]
) -> CommandTarget:
    """What options and the environment say together.

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
