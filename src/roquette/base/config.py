"""Settings: frozen dataclasses filled from Apache's property files, the environment and flags.

Order: defaults < file < environment < overrides. Every field carries Apache's key and a sentence.
"""

import dataclasses
import difflib
import enum
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from roquette.errors import ConfigError

C = TypeVar("C")
MAX_SETTINGS = 32 << 10  # bytes of settings in one request
SHOWN = 80  # characters of a value in a refusal


@dataclasses.dataclass(frozen=True, slots=True)
class Unserved:
    """A key of Apache's that changes a guarantee and is not served here.

    harmless: values that ask for nothing (compared without case). meaning: what any other value asks for.
    """

    harmless: frozenset[str]
    meaning: str


@dataclasses.dataclass(frozen=True, slots=True)
class ForeignKeys:
    """Apache's keys that no config class has: those refused, and those without effect with the reason why."""

    refused: Mapping[str, Unserved]
    idle: Mapping[str, str]

    def refuse(self, key: str, text: str, where: str) -> None:
        """Raise ConfigError when a value asks for a guarantee that is not given."""
        asked = self.refused.get(key)
        if asked is not None and text.strip().lower() not in asked.harmless:
            raise ConfigError(
                f"{key}={text.strip()} in {where} asks for {asked.meaning}, which Roquette does not have: "
                f"remove the key, or nothing would keep what it promises"
            )

    def refuse_change(self, key: str, where: str) -> None:
        """Raise ConfigError for a key that a change of would do nothing: no change is no success."""
        if key in self.idle or key in self.refused:
            why = f": {self.idle[key]}" if key in self.idle else ""
            raise ConfigError(f"{key} in {where} has no effect here{why}; nothing was changed")


def setting(
    default: Any,
    help: str,
    *,
    java: str = "",
    mutable: bool = False,
    least: float | None = None,
    most: float | None = None,
    form: str | None = None,
) -> Any:
    """A field of a config class.

    Args:
        default: Apache's default unless docs/compatibility.md says otherwise.
        help: a sentence for people.
        java: the key in Apache's property files, where it is not the field's name in camel case.
        mutable: may change while the process runs, through UPDATE_*_CONFIG. Never for what names a
            path, command, class or URL.
        least, most: the smallest and the largest value; numbers whose default is 0 or more are never below 0.
        form: a regular expression that all of the text must match.
    """
    bounds = {"least": least, "most": most, "form": form}
    return dataclasses.field(
        default=default, metadata={"java": java, "help": help, "mutable": mutable, **bounds}
    )


def fields_by_key(cls: Any) -> dict[str, "dataclasses.Field[Any]"]:
    """Java key -> field, of one config class."""
    return {
        field.metadata.get("java") or re.sub("_(.)", lambda m: m[1].upper(), field.name): field
        for field in dataclasses.fields(cls)
    }


def parse_properties(text: str) -> dict[str, str]:
    """Read Java properties: `key=value`, `key: value`, comments, continued lines, unicode escapes."""
    found: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        cut = next(
            (i for i, char in enumerate(line) if char in "=: \t" and line[i - 1 : i] != "\\"),
            len(line),
        )
        rest = line[cut:].lstrip(" \t")
        if rest[:1] in ("=", ":") and rest:
            rest = rest[1:]
        key = _unescape(line[:cut])
        if key:
            found[key] = _unescape(rest.strip())
    return found


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    i = 0
    while i < len(text):
        char = text[i]
        if char == "\\" and i + 1 < len(text):
            follow = text[i + 1]
            if follow == "u" and len(text) >= i + 6:
                try:
                    out.append(chr(int(text[i + 2 : i + 6], 16)))
                    i += 6
                    continue
                except ValueError:
                    pass
            out.append({"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(follow, follow))
            i += 2
        else:
            out.append(char)
            i += 1
    # Escapes come as UTF-16: pairs belong together, and half a pair is no text.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def format_properties(values: Mapping[str, str]) -> str:
    """`key=value` lines as Apache's MixAll.properties2String gives them."""
    return "".join(f"{key}={value}\n" for key, value in values.items())


def env_key(java: str) -> str:
    """The environment variable of a Java key: ROQUETTE_ and upper snake case."""
    out = "".join(
        f"_{c}" if c.isupper() and i and not java[i - 1].isupper() else c
        for i, c in enumerate(java)
    )
    return "ROQUETTE_" + out.upper()


def load(
    classes: Iterable[type[Any]],
    *,
    file_text: str | None = None,
    file_name: str = "the config file",
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    foreign: ForeignKeys | None = None,
) -> tuple[list[Any], list[str]]:
    """Build one instance of each config class from the three sources.

    Args:
        foreign: keys that are refused, and those without effect.

    Returns:
        The instances in the order of `classes`, and warnings (a sentence each) about keys without effect and unknown ones.

    Raises:
        ConfigError: a value does not fit its key, or asks for what is not served.
    """
    kinds = list(classes)
    owners = {key: (kind, field) for kind in kinds for key, field in fields_by_key(kind).items()}
    values: dict[type[Any], dict[str, Any]] = {kind: {} for kind in kinds}
    warnings: list[str] = []
    others = foreign or ForeignKeys({}, {})

    def take(key: str, text: str, where: str) -> None:
        others.refuse(key, text, where)
        if key not in owners:
            if key in others.idle:
                warnings.append(f"{key} in {where} has no effect here: {others.idle[key]}")
            elif key not in others.refused:
                warnings.append(_unknown(key, where, owners))
            return
        kind, field = owners[key]
        values[kind][field.name] = convert(kind, field, key, text, where)

    for key, text in (parse_properties(file_text) if file_text else {}).items():
        take(key, text, file_name)
    by_env = {env_key(key): key for key in owners}
    for name, text in sorted((environ or {}).items()):
        if name in by_env:
            take(by_env[name], text, f"environment variable {name}")
    for key, text in (overrides or {}).items():
        take(key, text, "--set")
    return [kind(**values[kind]) for kind in kinds], warnings


def _unknown(key: str, where: str, owners: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(owners), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown key {key} in {where} is ignored{hint}"


def convert(
    cls: type[Any], field: "dataclasses.Field[Any]", key: str, text: str, where: str
) -> Any:
    """Turn property text into the field's type; raises ConfigError that names key, value and place."""
    kind = typing.get_type_hints(cls)[field.name]
    if isinstance(kind, types.UnionType):
        kind = next(arg for arg in typing.get_args(kind) if arg is not types.NoneType)
    text = text.strip()
    try:
        if kind is bool:
            if text.lower() not in ("true", "false"):
                raise ValueError("true or false expected")
            return text.lower() == "true"
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _parsed(kind, text)
        value = _parsed(kind, text)
        default: Any = field.default
        if kind in (int, float) and value < 0 and (default is None or default >= 0):
            raise ValueError("0 or more")
        _check_bounds(value, field)
        return value
    except ValueError as error:
        wanted = getattr(kind, "__name__", str(kind))
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            wanted = "one of " + ", ".join(str(item.value) for item in kind)
        why = f" ({error})" if str(error) else ""
        shown = repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")
        raise ConfigError(
            f"{key}={shown} in {where} is not valid: {wanted} expected{why}"
        ) from None


def _parsed(kind: Callable[[str], Any], text: str) -> Any:
    """A value without Python's words when it is none."""
    try:
        value = kind(text)
    except ValueError:
        raise ValueError from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    return value


def _check_bounds(value: Any, field: "dataclasses.Field[Any]") -> None:
    least, most, form = (field.metadata.get(name) for name in ("least", "most", "form"))
    if least is not None and value < least:
        raise ValueError(f"{least} or more")
    if most is not None and value > most:
        raise ValueError(f"{most} or less")
    if form is not None and re.fullmatch(form, value) is None:
        raise ValueError(field.metadata["help"])


def to_properties(config: Any) -> dict[str, str]:
    """A config under Apache's keys, as GET_*_CONFIG answers; None is left out."""
    found: dict[str, str] = {}
    for key, field in fields_by_key(config).items():
        value = getattr(config, field.name)
        if value is None:
            continue
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, enum.Enum):
            value = value.value
        found[key] = str(value)
    return found


def refuse_unknown(
    changes: Iterable[str], configs: Iterable[Any], foreign: ForeignKeys, where: str
) -> None:
    """Raise ConfigError for the first key that no config has: a change that does nothing is no success."""
    known = [key for config in configs for key in fields_by_key(config)]
    for key in changes:
        if key not in known:
            foreign.refuse_change(key, where)
            near = difflib.get_close_matches(key, known, n=1)
            hint = f", did you mean {near[0]}?" if near else ""
            told = key if len(key) <= 100 else f"{key[:100]}..."  # it may be any bytes of a peer
            raise ConfigError(f"unknown key {told} in {where}{hint}: nothing was changed")


def update(config: C, changes: Mapping[str, str], where: str = "the request") -> C:
    """A copy of `config` with `changes` applied; keys that do not belong to it are skipped.

    Raises:
        ConfigError: a key exists but may not change while running, or a value does not fit.
    """
    fields = fields_by_key(config)
    values: dict[str, Any] = {}
    for key, text in changes.items():
        field = fields.get(key)
        if field is None:
            continue
        value = convert(type(config), field, key, text, where)
        if value == getattr(config, field.name):
            continue
        if not field.metadata.get("mutable"):
            raise ConfigError(
                f"{key} cannot be changed while the process runs: set it in the file and restart"
            )
        values[field.name] = value
    return dataclasses.replace(config, **values) if values else config  # type: ignore[type-var]
