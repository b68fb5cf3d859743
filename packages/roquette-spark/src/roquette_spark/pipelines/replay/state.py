"""How far a replay is: one JSON file that is replaced as a whole after each step."""

import json
import os
from typing import Any, Final

from roquette.base.entropy import Entropy
from roquette.base.files import Files
from roquette.errors import ConfigError

_NAME: Final = "replay.json"
_VERSION: Final = 1


class ReplayState:
    """State of one replay.

    Attributes:
        fresh: nothing has been planned yet.
        bounds: what is replayed, settled at the beginning: offsets of queues, or files.
        target_start: offsets of the target's queues at the beginning.
        done: how much of `bounds` is sent.
        rows: messages sent by finished steps.
    """

    def __init__(self, path: str, files: Files, values: dict[str, Any]) -> None:
        self._path = path
        self._files = files
        self._values = values

    @property
    def fresh(self) -> bool:
        """Whether `begin` has not been called in this or an earlier run."""
        return "bounds" not in self._values

    @property
    def prefix(self) -> str:
        """What every id of this replay begins with."""
        return f"replay:{self._values['id']}/"

    @property
    def bounds(self) -> dict[str, Any]:
        found: dict[str, Any] = self._values["bounds"]
        return found

    @property
    def target_start(self) -> dict[str, Any]:
        found: dict[str, Any] = self._values["target_start"]
        return found

    @property
    def done(self) -> dict[str, Any]:
        found: dict[str, Any] = self._values.get("done", {})
        return found

    @property
    def rows(self) -> int:
        return int(self._values.get("rows", 0))

    def begin(self, bounds: dict[str, Any], target_start: dict[str, Any]) -> None:
        """Settle what is replayed, before the first message is sent."""
        self._values |= {"bounds": bounds, "target_start": target_start}
        self._write()

    def advance(self, after: dict[str, Any], rows: int) -> None:
        """A step is sent."""
        self._values |= {"done": after, "rows": self.rows + rows}
        self._write()

    def _write(self) -> None:
        text = json.dumps(self._values, indent=1, sort_keys=True) + "\n"
        self._files.write_atomic(self._path, text.encode(), keep_backup=False)


def check_place(directory: str) -> str:
    """What is there, for plans.

    Raises:
        ConfigError: it is no directory, or has other things than a replay's.
    """
    if not os.path.lexists(directory):
        return "new"
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else None
    if names is None or (names and not {_NAME, _NAME + ".tmp"} & set(names)):
        what = "is no directory" if names is None else f"has other files ({', '.join(names[:3])})"
        raise ConfigError(
            f"replay: --state {directory} {what}: nothing was changed there; give another"
        )
    return "goes on" if names else "new"


def open_state(
    directory: str,
    files: Files,
    identity: dict[str, Any],
    now_ms: int,
    entropy: Entropy | None = None,
) -> ReplayState:
    """The state in a directory, or a fresh one.

    Raises:
        ConfigError: the directory belongs to another replay, or its file is damaged.
    """
    path = os.path.join(directory, _NAME)
    if not files.exists(path):
        check_place(directory)
        files.make_dirs(directory)
        token = (entropy or Entropy()).token(6)
        values = {"v": _VERSION, "id": token, "began_ms": now_ms, "options": identity}
        return ReplayState(path, files, values)
    try:
        values = json.loads(files.read_bytes(path))
        version, known = values["v"], values["options"]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"replay: {path} is damaged; begin anew with another --state") from None
    if version != _VERSION:
        raise ConfigError(f"replay: {path} is of version {version}, this is {_VERSION}")
    for name, value in identity.items():
        if known.get(name) != value:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(
                f"replay: {directory} belongs to a replay with {flag} {known.get(name)!r}, not {value!r}; "
                "give another --state"
            )
    return ReplayState(path, files, values)
